r"""Answers as text: in one spelling, and fit to be read as mathematics or not.

What does not fit is a rule about answers, not a failure of grading: an answer is at most LONGEST characters,
all of them such as people write, and no program. Knows no mathematics; `worker.py` does.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 2000
SPELLINGS = {
    0x2212: "-",  # minus sign
    0x2013: "-",  # dash
    0xD7: r"\times ",
    0xF7: r"\div ",
    0xB7: r"\cdot ",
    0xB0: r"^\circ ",
    0xB2: "^2",
    0xB3: "^3",
    0xBD: r"\frac{1}{2}",
    0x3C0: r"\pi ",
    0x221A: r"\sqrt",
    0x221E: r"\infty ",
    0x2264: r"\le ",
    0x2265: r"\ge ",
}
# Words behind a number that are part of its value, so that they are no unit.
NO_UNITS = {"and", "or", "hundred", "thousand", "million", "billion", "trillion", "dozen", "percent", "over", "mod"}
_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)\s?\{([^{}]*)\}")
_INTEGER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})")
_UNIT = r"[a-zA-Z]{3,}(?: [a-zA-Z]+){0,4}|(?:mm|cm|km|in|ft|yd|mi|inches|feet|meters|miles|units)\^\{?[23]\}?"
_WITH_UNIT = re.compile(rf"(-?[\d.,]*\d(?:/\d+)?) ({_UNIT})")
_WORD = re.compile(r"[a-zA-Z][a-z]{2,}")
_BASED = re.compile(r"[0-9A-F]+_\{?([0-9]{1,2})\}?")
_GAPS = re.compile(r"(?<=\d)(?: ?\\, ?)(?=\d{3}(?!\d))|(?<=\d)(?: |\\,)+(?=i(?![a-zA-Z]))")
_PROGRAM = re.compile(r"__|\b(?:import|exec|eval|compile|getattr|globals|open|exit|quit|lambda|while|def)\b\s*[\w(:]")


def tidy(answer: str) -> str:
    r"""One spelling: no dollar signs, invisible characters, outer `\text{}` or full stop; few spaces."""
    seen = "".join(character for character in answer if unicodedata.category(character) != "Cf")
    text = " ".join(seen.translate(SPELLINGS).replace("\\$", "").replace("$", "").replace("**", "^").split())
    text = _GAPS.sub("", text.rstrip(" .") or text).replace("\\degree", "^\\circ")
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    return text


def is_integer(answer: str) -> bool:
    """A number whose comparison needs no mathematics: most answers."""
    return bool(_INTEGER.fullmatch(answer))


def same_word(answer: str, wanted: str) -> bool:
    """`East` is `east`, which mathematics would not find: it takes the `e` for a number and the `E` for a name."""
    return bool(_WORD.fullmatch(answer) and _WORD.fullmatch(wanted)) and answer.lower() == wanted.lower()


def other_base(answer: str, wanted: str) -> bool:
    """Numerals that each name a base, and not the same one: `204_5` and `204_8`."""
    bases = [_BASED.fullmatch(text) for text in (answer, wanted)]
    return all(bases) and len({base[1] for base in bases if base}) == 2


def without_unit(answer: str) -> str:
    """`12 marbles` is 12; `12 million` is not."""
    found = _WITH_UNIT.fullmatch(answer)
    return found[1] if found and not NO_UNITS & set(found[2].lower().split()) else answer


def unfit(answer: str) -> str | None:
    """Why an answer is not read as mathematics, or None."""
    if len(answer) > LONGEST:
        return f"longer than {LONGEST} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn") for character in answer):
        return "holds characters that nobody writes"
    return "looks like a program" if _PROGRAM.search(answer.replace("\\", " \\")) else None
