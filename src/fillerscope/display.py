"""Text that somebody else wrote, made safe to show: whatever cannot be seen is replaced by a mark that can.

For terminals as it is, for notebooks as pieces of HTML: the one place where text is escaped. Knows nothing of what the
text is about.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from html import escape

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (which turns lines round), lone surrogates, line breaks
NEVER = "\ufffe\uffff"  # no characters at all, and no XML may hold them


def printable(text: str) -> str:
    """What a model or a data set wrote must not move the cursor, turn the line round or ring the bell."""
    if text.isprintable():  # most texts are, and some are large
        return text
    return "".join("\ufffd" if _is_hidden(c) else c for c in text)


def _is_hidden(letter: str) -> bool:
    return (unicodedata.category(letter) in HIDDEN and letter not in "\n\t") or letter in NEVER


def shown(text: object) -> str:
    """Any text as text of HTML or XML, and as the value of an attribute."""
    return escape(printable(str(text)))


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


def block(title: str, *parts: str) -> str:
    """What one output consists of, below its title. The parts are HTML already."""
    heading = f'<div style="font-weight:600;margin:2px 0 6px">{shown(title)}</div>'
    return f'<div style="line-height:1.45">{heading}{"".join(parts)}</div>'


def note(text: str) -> str:
    return f'<div style="font-size:90%;opacity:0.8;margin:4px 0">{shown(text)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Names stand to the left, everything else to the right."""
    cell = "padding:2px 10px;font-weight:{};text-align:{};border:0"
    sides = ["left" if index == 0 else "right" for index in range(len(columns))]

    def row(tag: str, texts: Sequence[str], weight: str) -> str:
        pairs = zip(texts, sides, strict=True)
        return "".join(f'<{tag} style="{cell.format(weight, side)}">{shown(text)}</{tag}>' for text, side in pairs)

    body = "".join(f"<tr>{row('td', texts, 'normal')}</tr>" for texts in rows)
    head = f"<thead><tr>{row('th', columns, '600')}</tr></thead>"
    return f'<table style="border-collapse:collapse;margin:4px 0;font-size:90%">{head}<tbody>{body}</tbody></table>'


def readable(size: int) -> str:
    """Bytes as a person reads them: `94 MiB`, `1.04 GiB`."""
    if size < 1 << 20:
        return f"{size / (1 << 10):.0f} KiB"
    return f"{size / (1 << 20):.0f} MiB" if size < 1 << 30 else f"{size / (1 << 30):.2f} GiB"


def first_line(error: BaseException) -> str:
    """Other libraries write paragraphs; the first line says what happened."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()
