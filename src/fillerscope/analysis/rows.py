"""Rows of a table, as the library gives them: a sequence, shown as a table in text and in a notebook; `to_pandas`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from fillerscope.analysis.notebook_html import block, note, picture, table
from fillerscope.analysis.text_table import MOST_LINES, left_out, text_table
from fillerscope.display import printable
from fillerscope.errors import FillerscopeError
from fillerscope.files import Json

if TYPE_CHECKING:
    import pandas

MOST_SHOWN = 24  # rows in a notebook
LONGEST = 300  # characters of a cell in a notebook


class Recorded(Protocol):
    def record(self) -> Json: ...


Row = TypeVar("Row", bound=Recorded | Json)


class Rows(Sequence[Row]):
    """A list that knows its title and which of its columns are shown. `brief` gives the last of these in one line of
    text, where it is too long for one."""

    def __init__(
        self, title: str, items: Iterable[Row], shown: Sequence[str], brief: Callable[[Row], str] | None = None
    ) -> None:
        self.title, self._items, self._shown, self._brief = title, list(items), tuple(shown), brief

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Rows[Row]:
        if isinstance(index, slice):
            return Rows(self.title, self._items[index], self._shown, self._brief)
        return self._items[index]

    def records(self) -> list[Json]:
        """The rows as plain dictionaries."""
        return [item if isinstance(item, dict) else item.record() for item in self._items]

    def to_pandas(self) -> pandas.DataFrame:
        """All columns, a row each."""
        frame: pandas.DataFrame = optional("pandas").DataFrame(self.records())
        return frame

    def __repr__(self) -> str:
        """A table of the first rows, as a Python prompt and `print` show it."""
        first = self[:MOST_LINES]
        rows = first._cells()
        if self._brief is not None:
            rows = [[*row[:-1], self._brief(item)] for row, item in zip(rows, first, strict=True)]
        title = f"{self.title} ({len(self)} row{'s' * (len(self) != 1)})"
        return text_table(title, self._shown, rows, left_out(len(self) - len(rows)))

    def _repr_html_(self) -> str:
        rows = self[:MOST_SHOWN]._cells()
        left = len(self) - len(rows)
        more = [note(f"{left} more; to_pandas() has all rows and columns.")] if left else []
        return block(self.title, table(self._shown, rows), *more)

    def _cells(self) -> list[list[str]]:
        return [[_cell(record.get(name)) for name in self._shown] for record in self.records()]


def _cell(value: object) -> str:
    """A value in few letters: of an answer, what was taken from it."""
    if isinstance(value, dict):
        value = f"{value.get('verdict', '')}: {value.get('extracted') or '-'}"
    if value is None or value != value:  # NaN
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else printable(str(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"


def optional(name: str) -> Any:
    """A library that is installed on request; an error that says how where it is missing."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise FillerscopeError(f"this needs {name}: pip install 'fillerscope[tables]'") from None


class Figures(dict[str, list[Path]]):
    """The files of each figure that was drawn, by its name; a notebook shows the pictures."""

    def __repr__(self) -> str:
        return f"<Figures {', '.join(self) or 'none'}>"

    def _repr_html_(self) -> str:
        return "".join(picture(name, file) for name, files in self.items() for file in files if file.suffix == ".png")
