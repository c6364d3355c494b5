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
_WITH_UNIT = re.compile(r"(-?[\d.,]*\d(?:/\d+)?) ([a-zA-Z]{3,}(?: [a-zA-Z]+){0,4})")
_PROGRAM = re.compile(r"__|\b(?:import|exec|eval|compile|getattr|globals|open|exit|quit|lambda|while|def)\b\s*[\w(:]")


def tidy(answer: str) -> str:
    r"""One spelling: no dollar signs, invisible characters, outer `\text{}` or full stop; single spaces."""
    seen = "".join(character for character in answer if unicodedata.category(character) != "Cf")
    text = " ".join(seen.translate(SPELLINGS).replace("\\$", "").replace("$", "").replace("**", "^").split())
    text = text.rstrip(" .") or text
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    return text


def is_integer(answer: str) -> bool:
    """A number whose comparison needs no mathematics: most answers."""
    return bool(_INTEGER.fullmatch(answer))


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
