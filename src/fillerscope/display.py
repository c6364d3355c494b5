"""Text for people: untrusted text made printable and searched for keys, and numbers, intervals, tokens, sizes and
errors as text.

Plain text only; `markup` makes HTML.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (which can reverse a line), lone surrogates, line breaks
LONGEST_WORD, LONGEST_MESSAGE = 400, 2000  # characters of an error; paths can be long
NEVER = "\ufffe\uffff"  # not characters, and not allowed in XML


def printable(text: str) -> str:
    """Text of a model or a data set without characters that move the cursor, reverse the line or ring the bell."""
    if text.isprintable():  # most texts are, and some are large
        return text
    return "".join("\ufffd" if _is_hidden(c) else c for c in text)


def escaped(text: str) -> str:
    """JSON whose strings hold such characters as escapes: the same values."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(json.dumps(c)[1:-1] if _is_hidden(c) else c for c in text)


def single_line(text: str) -> str:
    """The same on one line."""
    return printable(" ".join(text.splitlines()))


def message(text: str) -> str:
    """A text for an error: one line, printable, and not long, whatever names and values of others are in it."""
    words = single_line(text).split(" ")
    line = " ".join(_shortened(word, LONGEST_WORD) for word in words)
    return _shortened(line, LONGEST_MESSAGE)


def _shortened(text: str, most: int) -> str:
    """A text with its middle left out where it is too long."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def _is_hidden(letter: str) -> bool:
    return (unicodedata.category(letter) in HIDDEN and letter not in "\n\t") or letter in NEVER


def number(value: float, form: str = "z.3f") -> str:
    """A number as text; a dash for NaN."""
    return format(value, form) if not math.isnan(value) else "-"


def bounded(value: float, low: float, high: float, form: str = "z.3f") -> str:
    """A value with its interval, where there is one."""
    middle = number(value, form)
    return middle if math.isnan(low) else f"{middle} [{number(low, form)}, {number(high, form)}]"


def token(text: str) -> str:
    """A token in quotes, with visible line breaks, shortened to 24 characters."""
    text = text if len(text) <= 24 else f"{text[:23]}\u2026"
    return f'"{text}"'.replace("\n", "\u21b5").replace("\t", "\u21e5").replace("\r", "\u21b5")


def visible(text: str) -> str:
    """A token as text in which everything can be seen: line breaks, tabs, control characters, spaces that stand alone
    and marks that would sit on the letter before. A part of a character is shown as the replacement character."""
    if text and not text.strip(" "):
        return "\u2423" * len(text) if len(text) <= 4 else f"\u2423\u00d7{len(text)}"
    shown = "".join(_VISIBLE.get(letter, letter) for letter in text)
    mark = "\u25cc" if shown and unicodedata.combining(shown[0]) else ""
    return mark + printable(shown)


_VISIBLE = {chr(code): chr(0x2400 + code) for code in range(32)} | {
    "\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d", "\x7f": "\u2421", "\xa0": "\u237d",
}  # fmt: skip


def readable(size: int) -> str:
    """A number of bytes as text: `94 MiB`, `1.04 GiB`."""
    if size < 1 << 20:
        return f"{size / (1 << 10):.0f} KiB"
    return f"{size / (1 << 20):.0f} MiB" if size < 1 << 30 else f"{size / (1 << 30):.2f} GiB"


_PASSWORD = re.compile(r"(?<=://)[^\s/]*@")
_WORD = re.compile(r"[^\s'\"]+")  # an address ends where a word does


def first_line(error: BaseException) -> str:
    """The first line of an error, of addresses the place alone: other libraries write paragraphs, with passwords."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
    return _WORD.sub(_without_signature, _PASSWORD.sub("", line))


def _without_signature(word: re.Match[str]) -> str:
    """A word, of an address in it nothing from the question mark on, where keys stand. One pass: lines can be long."""
    before, mark, address = word[0].partition("://")
    return before + mark + address.partition("?")[0]


LONG_KEY = 16  # characters; a shorter one may stand in a text by chance, with spaces between
_PIECE = 1 << 20  # characters that are searched at once
_NOT_SEEN = bytes([*range(32), 127])
_NOT_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


def holds_key(text: str, keys: Iterable[str]) -> bool:
    """Whether a text holds a key: as it is, in other letters, or with characters between that nobody sees. Of a long
    one letters and digits tell it. Empty keys are in no text."""
    keys = [key for key in keys if key]
    if not keys or any(key in text for key in keys):
        return bool(keys)
    seen_keys = {_seen(key) for key in keys} - {""}
    letter_keys = {_letters(_seen(key)) for key in keys if len(key) >= LONG_KEY} - {""}
    overlap = max(map(len, seen_keys), default=1)
    seen = letters = ""
    for start in range(0, len(text), _PIECE):  # texts of hundreds of megabytes would take gigabytes at once
        more = _seen(text[start : start + _PIECE])
        seen, letters = seen[-overlap:] + more, letters[-overlap:] + _letters(more)
        if any(key in seen for key in seen_keys) or any(key in letters for key in letter_keys):
            return True
    return False


def letter_count(text: str) -> int:
    """How many characters of a text can be letters and digits of a key."""
    return len(_letters(_seen(text)))


def _seen(text: str) -> str:
    """Of a text in small letters what a key can have, which is printable ASCII."""
    if text.isascii():  # most texts are, and some are large
        return text.lower().encode().translate(None, _NOT_SEEN).decode()
    return "".join(map(_ascii, text))


def _letters(seen: str) -> str:
    return seen.encode().translate(None, _NOT_LETTERS).decode()


@lru_cache(1 << 16)
def _ascii(character: str) -> str:
    """One by itself: a text of marks takes `normalize` the square of its length."""
    return "".join(c for c in unicodedata.normalize("NFKD", character).casefold() if " " <= c <= "~")


_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # the last four are full-width ones of the first
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?", re.IGNORECASE)


def spreadsheet_text(text: str) -> str:
    """A text for a cell of a CSV file, with an apostrophe before what a spreadsheet would run as a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def command(*words: object) -> str:
    """A command of ours that can be typed as it is: paths may hold spaces and worse."""
    return shlex.join(["fillerscope", *map(str, words)])
