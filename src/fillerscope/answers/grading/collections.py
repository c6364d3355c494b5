r"""How an answer is put together: one value, a list, a set, a tuple, an interval, a matrix, an equation.

`1, 2` and `\{1, 2\}` are Several: their order says nothing. `(1, 2)` and `\langle 1, 2 \rangle` are Ordered, and
so are intervals, which are written alike; `x \le 3` is the interval that it describes. Looks at brackets and
separators alone and knows no mathematics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fillerscope.answers.grading.numbers import read_numeral
from fillerscope.answers.grading.units import split_unit

DEEPEST = 12  # brackets within brackets; what is deeper is one value


@dataclass(frozen=True)
class Value:
    text: str


@dataclass(frozen=True)
class Several:
    """`kind`: "list", "set", or "union" of intervals."""

    items: tuple[Shape, ...]
    kind: str = "list"


@dataclass(frozen=True)
class Ordered:
    """`variable` is the one that an inequality speaks of."""

    items: tuple[Shape, ...]
    brackets: str = "()"
    variable: str = ""


@dataclass(frozen=True)
class Grid:
    rows: tuple[tuple[Shape, ...], ...]


@dataclass(frozen=True)
class Equation:
    sides: tuple[str, ...]

    @property
    def text(self) -> str:
        return "=".join(self.sides)


Shape = Value | Several | Ordered | Grid | Equation

_TOKEN = re.compile(
    r"(?P<open>\\\{|\\langle(?![a-zA-Z])|\\begin\{\w+\}|[(\[{])|(?P<close>\\\}|\\rangle(?![a-zA-Z])|\\end\{\w+\}|[)\]}])"
    r"|(?P<union>\\cup(?![a-zA-Z]))|(?P<strong>;|, |,? ?(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z]),?)|(?P<weak>,)"
    r"|(?P<equal>(?<![<>!])=)|\\[a-zA-Z]+|\\.|.",
    re.DOTALL,
)
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_MULTIPLE = re.compile(
    r"(-?(?:[^-+=&{}\\]|\\(?!begin)[a-zA-Z]++|\{[^{}]*+\})*?) ?(?:\\(?:cdot|times)(?![a-zA-Z])|\*)? ?(\\begin\{.*)",
    re.DOTALL,
)
_MEMBER = re.compile(r"[a-zA-Z] ?\\in(?![a-zA-Z]) ?(.*)", re.DOTALL)
_SIGN = r"(<|>|\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z]))"
_RELATION = re.compile(_SIGN)
_VARIABLE = re.compile(r"[a-zA-Z](?:_\{?\w\}?)?|\\(?:theta|alpha|lambda)|[a-z]\([a-z]\)")
_SIGNED = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
INFINITY = r"\infty"


def shape_of(text: str, depth: int = 0) -> Shape:
    text = _unwrapped(text.strip())
    if member := _MEMBER.fullmatch(text):
        text = member[1].strip()
    if depth > DEEPEST:
        return Value(text)
    if parts := _separated(text):
        return _several(parts, depth)
    if _SIGNED.search(text) and not text.startswith(r"\{"):
        return Several(_both_signs(text, depth))
    return _relation(text) or _equation(text) or _bracketed(text, depth) or Value(text)


def _unwrapped(text: str) -> str:
    """Without brackets that hold a single thing: math-verify takes for ever over many nested ones."""
    opening, content, closing = _outer(text)
    while opening + closing in ("()", "{}") and not _separated(content, within=True):
        text = content.strip()
        opening, content, closing = _outer(text)
    return text


def as_list(text: str) -> Shape:
    """`100,200` read as two numbers."""
    return Several(tuple(Value(part) for part in text.split(",")))


def _separated(text: str, within: bool = False) -> list[str]:
    """The parts of a list; none where it is a single thing. `within` brackets a comma is no thousands separator."""
    if parts := _split(text, "union"):
        return [r"\cup", *parts]
    strong = _split(text, "strong")
    if not strong:
        return [] if _is_number(text) and not within else _split(text, "weak")
    weak = ([part] if _is_number(part) else _split(part, "weak") or [part] for part in strong)
    return [part for parts in weak for part in parts]


def _is_number(text: str) -> bool:
    r"""With or without a unit: the comma of `\$1,000` separates nothing."""
    return bool(read_numeral(text) or read_numeral(split_unit(text)[0]))


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators outside of brackets; empty where there is no separator."""
    parts, start, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token[separator] and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    items = [part for part in (*parts, text[start:].strip()) if part]
    return items if len(items) > 1 else []


def _several(parts: list[str], depth: int) -> Shape:
    kind = "list"
    if parts[0] == r"\cup":
        parts, kind = parts[1:], "union"
    items = [shape_of(part, depth + 1) for part in parts]
    if any(isinstance(item, Ordered) and item.variable for item in items):
        kind = "union"
    return Several(tuple(_flat(items)), kind)


def _flat(items: list[Shape]) -> list[Shape]:
    """`1 \\pm 2, 5` is a list of three."""
    return [each for item in items for each in (item.items if isinstance(item, Several) else (item,))]


def _both_signs(text: str, depth: int) -> tuple[Shape, ...]:
    signs = ({"\\pm": "+", "\\mp": "-"}, {"\\pm": "-", "\\mp": "+"})
    texts = [_SIGNED.sub(lambda match, sign=sign: sign[match[0]], text) for sign in signs]  # type: ignore[misc]
    return tuple(shape_of(each.strip().removeprefix("+"), depth + 1) for each in texts)


def _equation(text: str) -> Equation | None:
    sides = _split(text, "equal")
    return Equation(tuple(sides)) if sides else None


def _bracketed(text: str, depth: int) -> Shape | None:
    if grid := _matrix(text, depth):
        return grid
    opening, content, closing = _outer(text)
    parts = _separated(content, within=True) if opening else []
    items = tuple(shape_of(part, depth + 1) for part in parts if part != r"\cup")
    if opening in (r"\{", "{"):
        if not content.strip():
            return Value(r"\emptyset")
        builder = re.search(r"\\mid(?![a-zA-Z])|\||:", content)
        if builder:
            return _relation(content[builder.end() :])
        return Several(tuple(_flat(list(items or (shape_of(content, depth + 1),)))), "set")
    return Ordered(items, opening + closing) if items and parts[0] != r"\cup" else None


def _matrix(text: str, depth: int) -> Grid | None:
    """A matrix, or a multiple of one, which is multiplied cell by cell."""
    multiple = _MULTIPLE.fullmatch(text)
    matrix = _MATRIX.fullmatch(multiple[2]) if multiple else None
    if multiple is None or matrix is None or r"\begin" in matrix[2]:
        return None
    factor = "-1" if multiple[1] == "-" else multiple[1]
    rows = re.split(r"\\\\", matrix[2].strip().removesuffix("\\\\"))
    cells = [[rf"({factor})\cdot({cell.strip()})" if factor else cell for cell in row.split("&")] for row in rows]
    return Grid(tuple(tuple(shape_of(cell, depth + 1) for cell in row) for row in cells))


def _outer(text: str) -> tuple[str, str, str]:
    """The brackets that hold the whole text, and what they hold; nothing where there are none."""
    depth, tokens = 0, list(_TOKEN.finditer(text))
    for token in tokens:
        depth += 1 if token["open"] else -1 if token["close"] else 0
        if depth == 0 and token is not tokens[-1]:
            return "", text, ""
    if len(tokens) < 2 or not tokens[0]["open"] or not tokens[-1]["close"] or not tokens[1:-1]:
        return "", text, ""
    return tokens[0][0], text[tokens[0].end() : tokens[-1].start()], tokens[-1][0]


def _relation(text: str) -> Shape | None:
    """The interval of an inequality in one variable that stands alone: `x \\le 3`, `1 < x < 3`, `x \\ne 2`."""
    if len(text) > 200 or "=" in text:
        return None
    parts = [part.strip() for part in _RELATION.split(text)]
    place = next((index for index, part in enumerate(parts) if _VARIABLE.fullmatch(part)), -1)
    if len(parts) == 3 and place in (0, 2):
        sign, bound = parts[1], parts[2 - place]
        return _half_line(parts[place], sign if place == 0 else _turned(sign), bound)
    if len(parts) == 5 and place == 2:
        return _between(parts)
    return None


def _turned(sign: str) -> str:
    return {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}.get(sign, sign)


def _half_line(variable: str, sign: str, bound: str) -> Shape:
    value, low, high = shape_of(bound), Value(f"-{INFINITY}"), Value(INFINITY)
    if sign == r"\ne":
        sides = (Ordered((low, value), "()", variable), Ordered((value, high), "()", variable))
        return Several(sides, "union")
    if sign in ("<", r"\le"):
        return Ordered((low, value), "(]" if sign == r"\le" else "()", variable)
    return Ordered((value, high), "[)" if sign == r"\ge" else "()", variable)


def _between(parts: list[str]) -> Shape | None:
    low, first, variable, second, high = parts
    if first in (">", r"\ge") and second in (">", r"\ge"):
        low, first, second, high = high, _turned(second), _turned(first), low
    if first not in ("<", r"\le") or second not in ("<", r"\le"):
        return None
    brackets = ("[" if first == r"\le" else "(") + ("]" if second == r"\le" else ")")
    return Ordered((shape_of(low), shape_of(high)), brackets, variable)
