"""Tables as plain text: what a Python prompt and `print` show of rows."""

from __future__ import annotations

from collections.abc import Sequence

MOST_LINES = 12  # rows of a table; the rest is counted
WIDEST = 40  # characters of a cell; sentences, in the last column, may be longer
WIDEST_LAST = 160


def text_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], more: str = "") -> str:
    """A title, a header and the rows with their columns aligned, numbers to the right; `more` is the last line."""
    cells = [[_short(text, at == len(columns) - 1) for at, text in enumerate(row)] for row in rows]
    aligned = [_aligned(name, [row[at] for row in cells]) for at, name in enumerate(columns)]
    lines = ["  ".join(parts).rstrip() for parts in zip(*aligned, strict=True)]
    return "\n".join([title, *lines, *([more] if more else [])])


def left_out(count: int, source: str = "records()") -> str:
    """The last line of a table that does not show all rows; empty where it does."""
    return f"... {count} more; {source} has all rows and columns" if count > 0 else ""


def _aligned(name: str, cells: Sequence[str]) -> list[str]:
    width = max(map(len, (name, *cells)))
    if cells and all(_is_number(text) for text in cells):
        return [text.rjust(width) for text in (name, *cells)]
    return [text.ljust(width) for text in (name, *cells)]


def _is_number(text: str) -> bool:
    return text[:1] in "0123456789+-" and not text[-1:].isalpha()


def _short(text: str, is_last: bool) -> str:
    text, most = " ".join(text.split()), WIDEST_LAST if is_last else WIDEST
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
