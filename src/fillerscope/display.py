"""Text for people: the text of others made visible, and numbers, intervals, tokens, sizes and errors in words.

Plain text alone; `markup` makes HTML of it.
"""

from __future__ import annotations

import math
import unicodedata

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (which turns lines round), lone surrogates, line breaks
NEVER = "\ufffe\uffff"  # no characters at all, and no XML may hold them


def printable(text: str) -> str:
    """What a model or a data set wrote must not move the cursor, turn the line round or ring the bell."""
    if text.isprintable():  # most texts are, and some are large
        return text
    return "".join("\ufffd" if _is_hidden(c) else c for c in text)


def _is_hidden(letter: str) -> bool:
    return (unicodedata.category(letter) in HIDDEN and letter not in "\n\t") or letter in NEVER


def number(value: float, form: str = "z.3f") -> str:
    return format(value, form) if not math.isnan(value) else "-"


def bounded(value: float, low: float, high: float, form: str = "z.3f") -> str:
    """A value with its interval, where there is one."""
    middle = number(value, form)
    return middle if math.isnan(low) else f"{middle} [{number(low, form)}, {number(high, form)}]"


def token(text: str) -> str:
    """A token in quotes, with its line breaks visible, and not for ever."""
    text = text if len(text) <= 24 else f"{text[:23]}\u2026"
    return f'"{text}"'.replace("\n", "\u21b5").replace("\t", "\u21e5").replace("\r", "\u21b5")


def readable(size: int) -> str:
    """Bytes as a person reads them: `94 MiB`, `1.04 GiB`."""
    if size < 1 << 20:
        return f"{size / (1 << 10):.0f} KiB"
    return f"{size / (1 << 20):.0f} MiB" if size < 1 << 30 else f"{size / (1 << 30):.2f} GiB"


def first_line(error: BaseException) -> str:
    """Other libraries write paragraphs; the first line says what happened."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()
