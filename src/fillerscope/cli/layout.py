"""Text and tables of texts on a terminal of any width. Knows nothing of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, TextIO

from fillerscope.display import printable

PADDING = 3  # of a column: a space on each side, and the line before it
_GLUE = "\ue000"  # for private use: no text holds it
_NUMBER = re.compile(r"[+-]?\d[\d.,e+-]*%?( \[.*\])?$")
_INTERVAL = re.compile(r"\S+ \[[^\[\]]{1,40}\]")
LEAST = 24  # columns that a cell of prose needs to be read
NARROWEST = 8  # columns of a name or of prose, where there is no room for whole words


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], keys: int = 1) -> None:
    """Print a table of texts. Numbers stand to the right and are never broken; prose is broken at spaces.

    Where a terminal is too narrow for all columns, they go into several tables, each with the first `keys` columns."""
    if title:
        lines([title], style="bold")
    out = console()
    for chosen in _fitting(columns, rows, keys, out.width):
        out.print(_view([columns[i] for i in chosen], [[row[i] for i in chosen] for row in rows], out.width))


def lines(texts: Sequence[str], style: str = "", indent: str = "") -> None:
    """Print lines of text, broken at spaces to fit a terminal; never inside a word, so that a path stays a path.

    `indent` stands before every row of a text but its first."""
    out = console()
    for text in map(printable, texts):
        parts = [text]
        if out.is_terminal:
            parts = _broken(text, out.width, indent)
        out.print("\n".join(parts), style=style, markup=False, highlight=False, soft_wrap=True)


def _broken(text: str, width: int, indent: str) -> list[str]:
    """A text in rows; a number stays together with its interval."""
    glued = _INTERVAL.sub(lambda match: match[0].replace(" ", _GLUE), text)
    rows = wrap(glued, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return [row.replace(_GLUE, " ") for row in rows] or [""]


def console() -> Any:
    """The terminal, or a wide page where there is none."""
    from rich.console import Console

    terminal = Console()
    # Without a terminal there is no width to respect, and a truncated number is worse than a long line.
    return terminal if terminal.is_terminal else Console(width=200)


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream can hold every character."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def plain(text: str) -> Any:
    """A text that rich prints as it is."""
    from rich.text import Text

    return Text(printable(text))


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], keys: int, width: int) -> list[list[int]]:
    """The columns of each table, by their places: as many in a table as fit beside the first ones."""
    widths = [_least_width(name, [row[i] for row in rows]) + PADDING for i, name in enumerate(columns)]
    first = list(range(min(keys, len(columns))))
    groups = [first]
    for place in range(len(first), len(columns)):
        used = 1 + sum(widths[i] for i in groups[-1])
        if used + widths[place] > width and len(groups[-1]) > len(first):
            groups.append(first)
        groups[-1] = [*groups[-1], place]
    return groups


def _least_width(name: str, cells: Sequence[str]) -> int:
    """The columns that a column needs: headers and prose may be broken at spaces, numbers with intervals may not."""
    widest = max(map(_width, cells), default=0)
    prose = min(widest, max(LEAST, _widest_word(cells)))
    return max(_widest_word([name]), prose if _is_prose(cells) else widest)


def _view(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Any:
    """A table with the width of every column given: where rich chooses, it cuts a table at the right edge."""
    from rich.table import Table

    view = Table(header_style="bold")
    cells = [[row[index] for row in rows] for index in range(len(columns))]
    for name, column, width in zip(columns, cells, _widths(columns, cells, room), strict=True):
        numeric = bool(rows) and all(_is_number(cell) for cell in column)
        view.add_column(name, justify="right" if numeric else "left", overflow="fold", width=width)
    for row in rows:
        view.add_row(*(plain(cell) for cell in row))
    return view


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of columns that fill no more than a terminal: numbers have theirs, texts share what is left."""
    widths = [_least_width(name, column) for name, column in zip(columns, cells, strict=True)]
    most = [max(map(_width, (name, *column))) for name, column in zip(columns, cells, strict=True)]
    spare = room - 1 - sum(width + PADDING for width in widths)
    while spare > 0 and (wanting := [i for i in range(len(widths)) if widths[i] < most[i]]):
        widths[min(wanting, key=widths.__getitem__)] += 1
        spare -= 1
    for floors in _floors(columns, cells):
        while spare < 0 and (wide := [i for i, floor in floors.items() if widths[i] > floor]):
            widths[max(wide, key=widths.__getitem__)] -= 1
            spare += 1
    return widths


def _floors(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[dict[int, int]]:
    """How narrow texts may become, by their places: prose with its words whole at first, then folded, as names are."""
    texts = [i for i, column in enumerate(cells) if _is_text(column)]
    whole = {i: max(NARROWEST, _widest_word((columns[i], *cells[i]))) for i in texts if _is_prose(cells[i])}
    return [whole, dict.fromkeys(texts, NARROWEST)]


def _widest_word(texts: Sequence[str]) -> int:
    return max((_width(word) for text in texts for word in printable(text).split()), default=0)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, printable(text).split("\n")))


def _is_prose(cells: Sequence[str]) -> bool:
    """Whether a column holds sentences: longer than a number with its interval."""
    return any(len(cell.split()) > 4 for cell in cells)


def _is_text(cells: Sequence[str]) -> bool:
    """Whether a column may be folded anywhere: no cell is a number, alone or with its interval."""
    return not any(_NUMBER.match(cell) for cell in cells)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()
