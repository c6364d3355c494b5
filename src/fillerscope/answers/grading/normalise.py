r"""Answers as text: in one spelling, and fit to be read as mathematics or not.

What does not fit is a rule about answers, not a failure of grading: an answer is at most LONGEST characters,
all of them such as people write, and no program. Knows no mathematics; `expressions.py` does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

LONGEST = 2000
SPELLINGS = {
    **dict.fromkeys((0x2212, 0x2010, 0x2011, 0x2013, 0x2014), "-"),  # minus sign, hyphens, dashes
    **dict.fromkeys((0x2044, 0x2215), "/"),
    **dict.fromkeys((0xB7, 0x22C5, 0x2219), r"\cdot "),
    0xD7: r"\times ",
    0xF7: r"\div ",
    0xB1: r"\pm ",
    0xB0: r"^\circ ",
    0x2103: r"^\circ C",
    0x2109: r"^\circ F",
    0x3C0: r"\pi ",
    0x3B8: r"\theta ",
    0x221A: r"\sqrt ",
    0x221E: r"\infty ",
    0x2264: r"\le ",
    0x2265: r"\ge ",
    0x2260: r"\ne ",
    0x2248: r"\approx ",
    0x222A: r"\cup ",
    0x2208: r"\in ",
    0x2205: r"\emptyset ",
    0x211D: r"\mathbb{R}",
    0x27E8: r"\langle ",
    0x27E9: r"\rangle ",
    0x2236: ":",
    0x3001: ", ",
    0x6216: " or ",
    0x548C: " and ",
}
# One after the other: what people write, and the one spelling that is read.
LATEX: tuple[tuple[str, str], ...] = (
    (r"(?<!\\)(?:\$|\\[()\[\]])", ""),
    (r"(?<=\d)(?:\{,\}|(?:\\!)*,(?:\\!)+) ?(?=\d{3})", ""),  # said to be a thousands separator
    (r"\\(?:displaystyle|textstyle|limits|[bB]igg?[lrm]?|left|right)(?![a-zA-Z])\.?", ""),
    (r"\\(?:checkmark|blacksquare|square|Box|qed)(?![a-zA-Z])|\\+$", ""),
    (r"\\(?:!|phantom\{[^{}]*\})", ""),
    (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\\(?:thin|med|thick)space(?![a-zA-Z])", " "),
    (r"\\(?:[dtc]|nice|s)frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:textbf|textrm|textit|textnormal|mathrm|mathbf|mathit|mbox|bf|rm) ?(?=\{)", r"\\text"),
    (r"\\text ?\{ ?(?:,? ?(and|or),?) ?\}", r" \1 "),
    (r"\\text\{ ?([a-z]) ?\}", r"\1"),  # the `i` of a complex number
    (r"\^ ?\{ ?\\circ ?\}|\\degrees?(?![a-zA-Z])", r"^\\circ "),
    (r"(\\(?:sin|cos|tan|cot|sec|csc)) ?[({]?(\d+(?:\.\d+)?) ?\^ ?\\circ ?[)}]?", r"\1(\2\\pi/180)"),
    (r"\\(?:leqslant|leqq|leq|le)(?![a-zA-Z])|<=", r"\\le "),
    (r"\\(?:geqslant|geqq|geq|ge)(?![a-zA-Z])|>=", r"\\ge "),
    (r"\\(?:neq|ne)(?![a-zA-Z])", r"\\ne "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\lbrace(?![a-zA-Z])", r"\\{"),
    (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\\(?:approxeq|simeq|thickapprox)(?![a-zA-Z])", r"\\approx "),
    (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset "),
    (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"\\frac{\1}{\2}"),
    (r"\\frac ?(\d) ?(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac ?(\d) ?(?=\{)", r"\\frac{\1}"),
    (r"\\frac ?(\{[^{}]*\}) ?(\d)", r"\\frac\1{\2}"),
    (r"\\?\bsqrt ?\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\sqrt ?(\d+)", r"\\sqrt{\1}"),
    (r"\b(?<!\\)(infinity|infty|pi)\b", r"\\\1 "),
    (r"\\infinity", r"\\infty"),
    (r"(?<=[\dA-F]) ?(?:\\text\{ ?)?base (\d\d?)(?: ?\})?$", r"_{\1}"),
    (r"\*\*", "^"),
)
BASES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_REPLACED = tuple((re.compile(pattern), replacement) for pattern, replacement in LATEX)
_BASE_WORD = re.compile(rf"_ ?\{{? ?\\text\{{ ?({'|'.join(BASES)}) ?\}} ?\}}?")
_MONEY = re.compile(r"^(-?)\$(?=[\d.])")  # a single dollar sign before a number begins no formula
_WRAPPED = re.compile(r"\\text\s?\{([^{}]*)\}")
_INTEGER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})")
_WORD = re.compile(r"[a-zA-Z][a-z]{2,}")
_SHORT_WORD = re.compile(r"[a-zA-Z]{2,3}")  # without its wrapping, `no` would be a product
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_FRACTION = re.compile("[¼½¾⅐-⅞]")
_SQRT_LATIN = re.compile(r"\\sqrt +(?=[\d(])")
_PROGRAM = re.compile(
    r"__|(?<!\\)\b(?:(?:exec|eval|compile|getattr|globals|open|exit|quit)\s?\(|(?:import|while|def)\s+\w|lambda\b[^:]{0,80}:)"
)


def tidy(answer: str) -> str:
    r"""One spelling: no dollar signs, invisible characters, outer `\text{}` or punctuation; few spaces."""
    text = " ".join(_plain_characters(answer).split()).strip("*_` ")
    if text.count("$") == 1:
        text = _MONEY.sub(r"\1\\$", text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    text = _BASE_WORD.sub(lambda match: f"_{{{BASES.index(match[1]) + 2}}}", text)
    text = _without_ends(" ".join(text.split()))
    if (wrapped := _WRAPPED.fullmatch(text)) and not _SHORT_WORD.fullmatch(wrapped[1].strip()):
        text = _without_ends(wrapped[1].strip())
    return text


def is_integer(answer: str) -> bool:
    """A number whose comparison needs no mathematics: most answers."""
    return bool(_INTEGER.fullmatch(answer))


def same_word(answer: str, wanted: str) -> bool:
    """`East` is `east`, which mathematics would not find: it takes the `e` for a number and the `E` for a name."""
    return bool(_WORD.fullmatch(answer) and _WORD.fullmatch(wanted)) and answer.lower() == wanted.lower()


def unfit(answer: str) -> str | None:
    """Why an answer is not read as mathematics, or None."""
    if len(answer) > LONGEST:
        return f"longer than {LONGEST} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn") for character in answer):
        return "holds characters that nobody writes"
    return "looks like a program" if _PROGRAM.search(answer.replace("\\", " \\")) else None


def _plain_characters(answer: str) -> str:
    """Full-width digits and letters, raised and lowered digits and the like become those of a keyboard."""
    seen = "".join(character for character in answer if unicodedata.category(character) != "Cf")
    seen = _RAISED.sub(_within("^"), _LOWERED.sub(_within("_"), seen))
    seen = _FRACTION.sub(_fraction, seen).translate(SPELLINGS)
    return _SQRT_LATIN.sub(r"\\sqrt", unicodedata.normalize("NFKC", seen))


def _within(mark: str) -> Callable[[re.Match[str]], str]:
    return lambda match: f"{mark}{{{unicodedata.normalize('NFKC', match[0]).replace(chr(0x2212), '-')}}}"


def _fraction(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[0]).split("\u2044")
    return rf"\frac{{{top}}}{{{bottom}}}"


def _without_ends(text: str) -> str:
    """The text without punctuation at its end; three dots stay, as they continue a decimal."""
    stripped = text.rstrip(" ,;:。") if text.endswith("...") else text.rstrip(" .,;:。")
    return stripped.lstrip(" ,;:=") or text
