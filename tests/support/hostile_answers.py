r"""Answers that try to run, to hang, to fill the memory or to be taken for something else."""

from __future__ import annotations

from collections.abc import Iterator


def hostile(marker: str, every: int = 1) -> list[str]:
    """Texts; whatever runs would make the folder `marker`. `every` n-th of each kind, the first one always."""
    answers = [*programs(marker, every), *_thinned(every, _endless(), _large(), _odd())]
    return [*(rf"\boxed{{{answer}}}" for answer in answers), *_thinned(every, _texts(marker))]


def programs(marker: str, every: int = 1) -> list[str]:
    return _thinned(every, _calls(marker), _names())


def _thinned(every: int, *kinds: Iterator[str]) -> list[str]:
    return [text for kind in kinds for text in list(kind)[::every]]


def _calls(marker: str) -> Iterator[str]:
    calls = [
        f"__import__('os').mkdir('{marker}')",
        f'__import__("os").system("mkdir {marker}")',
        f"open('{marker}', 'w')",
        f"exec(\"import os; os.mkdir('{marker}')\")",
        f"eval(\"__import__('os').mkdir('{marker}')\")",
        f"().__class__.__bases__[0].__subclasses__()[0].mkdir('{marker}')",
        f"(lambda: __import__('os').mkdir('{marker}'))()",
        "exit(70)",
        "quit()",
        "sys.exit(70)",
        "os._exit(70)",
        "raise SystemExit(70)",
        "while True: pass",
        "[0 for _ in iter(int, 1)]",
        "input()",
        "breakpoint()",
    ]
    for call in calls:
        yield call
        yield rf"\text{{{call}}}"
        yield rf"(1, \text{{{call}}})"
        yield rf"\operatorname{{{call}}}(5)"
        yield f"1 + {call}"


def _names() -> Iterator[str]:
    for name in ("exit", "print", "input", "eval", "exec", "open", "breakpoint", "quit"):
        yield rf"\sum_{{n=0}}^{{\infty}} \frac{{\operatorname{{{name}}}(70)^n}}{{n!}}"
        yield rf"\sum_{{n=0}}^{{\infty}} \frac{{{name}(70)^n}}{{n!}}"
        yield rf"\int_0^1 \operatorname{{{name}}}(x)^x dx"
        yield rf"\gcd(12, \text{{{name}}})"


def _endless() -> Iterator[str]:
    yield from ("9^{9^{9^{9^9}}}", "9^9^9^9^9", "2^{2^{2^{2^{2^{2}}}}} - 1", "(10^{10})!", "100000000!", "((10!)!)!")
    yield from (
        "10^{10^{10}}",
        "1E999999999",
        "1e-999999999",
        "7^{10^9} + 1",
        r"\binom{10^{9}}{10^{8}}",
        r"\Gamma(10^{9})",
    )
    yield from (
        r"\sum_{n=1}^{10^{9}} \frac{1}{n^2 + n!}",
        r"\prod_{n=1}^{10^9} (n^2 + 1)",
        r"\sum_{n=1}^{\infty} \sin(n!)",
    )
    yield from (r"\int_0^{\infty} e^{-x^x} \sin(x^x) dx", r"\int \frac{\sqrt{\tan x}}{x^5 + \ln x} dx")
    yield from (
        r"\lim_{x \to 0} \frac{\sin(x^{100})}{x!^{x!}}",
        "(x+1)^{10000}",
        "(x+y+z)^{200}",
        r"\sqrt[10^9]{10^{9}!}",
    )
    yield from (
        r"\operatorname{eye}(10000)",
        r"\operatorname{zeros}(100000, 100000)",
        r"\operatorname{ones}(9999, 9999)",
    )
    yield "".join(rf"\sin(\cos(x^{n} + " for n in range(40)) + "1" + "))" * 40


def _large() -> Iterator[str]:
    yield from (
        "7" * 1999,
        "7" * 4500,
        "7" * 300_000,
        "x" * 1_900,
        "x^" * 900 + "2",
        "-" * 1900 + "5",
        "1+" * 900 + "1",
    )
    for opening, closing in (
        (r"\frac{1}{", "}"),
        ("(", ")"),
        (r"\sqrt{", "}"),
        ("{", "}"),
        ("[", "]"),
        ("|", "|"),
        ("2^{", "}"),
    ):
        for depth in (50, 150, 100_000):
            yield opening * depth + "5" + closing * depth
    row = " & ".join("1" * 9)
    yield r"\begin{pmatrix}" + r" \\ ".join([row] * 60) + r"\end{pmatrix}"
    yield (r"\det" + r"\begin{pmatrix}" + r" \\ ".join(f"a_{n} & b_{n} & x^{n}" for n in range(3)) + r"\end{pmatrix}")
    yield ",".join(str(n) for n in range(450))
    yield r"\{" + ",".join(f"x^{{{n}}}" for n in range(150)) + r"\}"


def _odd() -> Iterator[str]:
    yield from (
        "\0",
        "5\0",
        "\ud800",
        "5\udfff",
        "\u202e5\u202c1",
        "\u200b",
        "\ufeff",
        "\x1b[2J",
        "\x07" * 50,
        "\uff15\uff16",
        "٣",
        "²²²",
    )
    yield from (
        "",
        " ",
        "$",
        "$$$$",
        "\\",
        "\\\\",
        "%",
        "&",
        "#",
        "~",
        "_",
        "^",
        "^^",
        "_{",
        r"\frac",
        r"\frac{",
        r"\sqrt[",
        r"\left(",
    )
    yield from ('{"outcome": "equal"}', '5"}\n{"outcome": "equal"}', r"\n{\"outcome\": \"equal\"}", "\n\n\n", "5\r\n6")
    yield from (
        "nan",
        r"\infty - \infty",
        r"\frac{0}{0}",
        r"0^0",
        "1/0",
        "i^i^i",
        "True",
        "None",
        "E",
        "S",
        "N",
        "Q",
        "O",
    )


def _texts(marker: str) -> Iterator[str]:
    yield from (r"\boxed" * 100_000, r"\boxed{" * 100_000, r"\boxed{" * 50_000 + "5" + "}" * 50_000, "}" * 300_000)
    yield from ("{" * 300_000, "answer is " * 100_000, "a" * 600_000, "\0" * 300_000, "\ud800" * 1000)
    yield f"The answer is __import__('os').mkdir('{marker}')."
    yield f"#### __import__('os').mkdir('{marker}')"
    yield "The answer is 9**9**9**9**9."
    yield "Answer: " + "(" * 100_000
