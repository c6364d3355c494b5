"""Rows of .csv and .tsv files, as spreadsheets and pandas write them.

A row with a broken quote may swallow the rows after it. Only its first line is taken for bad, and reading resumes on
the next one.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from io import BufferedReader

from fillerscope.errors import ProblemError
from fillerscope.problems import text_lines
from fillerscope.problems.rows import BadRow, Row, one_line
from fillerscope.problems.text_lines import Line, read_lines

DELIMITERS = ",;\t"  # of a .csv file; spreadsheets of many countries write `;`
MOST_COLUMNS = 10_000
MOST_LINES = 100_000  # of one row
MOST_AGAIN = 1_000_000  # lines that are read again after broken quotes: a file may be made so that it takes for ever


def read_csv(file: BufferedReader, name: str) -> Iterator[Row | BadRow]:
    """Rows below a header, divided by a comma, a semicolon or a tab."""
    return _delimited(file, name, DELIMITERS)


def read_tsv(file: BufferedReader, name: str) -> Iterator[Row | BadRow]:
    """Rows below a header, divided by tabs."""
    return _delimited(file, name, "\t")


def _delimited(file: BufferedReader, name: str, delimiters: str) -> Iterator[Row | BadRow]:
    """Rows below a header. A quoted cell may hold line breaks, so that a row is named by the line it begins on."""
    delimiter = _delimiter(file, name, delimiters)
    file.seek(0)
    rows = _numbered(_Feed(read_lines(file)), name, delimiter)
    line, names = next(rows, (1, []))
    if isinstance(names, BadRow):
        raise names
    header = [column.strip() for column in names]
    _check_header(header, f"{name}:{line}")
    for line, cells in rows:
        yield cells if isinstance(cells, BadRow) else _row(f"{name}:{line}", header, cells)


def _row(place: str, header: list[str], cells: list[str]) -> Row | BadRow:
    if len(cells) == len(header):
        return Row(place, dict(zip(header, cells, strict=True)))
    reason = f"{_cells(len(cells))}, and the header has {len(header)}"
    return BadRow(place, f"{reason}; put text that holds a delimiter in double quotes")


class _Feed:
    """Lines for `csv.reader`; those of a row can be put back."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.taken: list[Line] = []  # by the row that is being read
        self._lines = lines
        self._back: deque[Line] = deque()
        self._again = 0
        self._length = 0  # characters of the lines taken

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= MOST_LINES:
            raise csv.Error(f"it goes on for more than {MOST_LINES:,} lines")
        self.taken.append(self._back.popleft() if self._back else next(self._lines))
        self._length += len(self.taken[-1].text)
        if self._length > text_lines.LARGEST_LINE:
            raise csv.Error(f"it goes on for more than {text_lines.LARGEST_LINE >> 20} MiB")
        return self.taken[-1].text

    def begin(self) -> None:
        """Begin a row."""
        self.taken.clear()
        self._length = 0

    def put_back(self) -> bool:
        """Put back all lines of a row but its first. False where too many were put back already."""
        self._again += len(self.taken) - 1
        self._back.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]
        return self._again <= MOST_AGAIN


def _numbered(feed: _Feed, name: str, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Rows with the line that each begins on; blank lines are skipped."""
    table = _table(feed, delimiter)
    while True:
        feed.begin()
        try:
            cells = next(table, None)
        except csv.Error as error:
            is_within = feed.put_back()
            yield feed.taken[0].number, _broken(name, feed.taken[0], error)
            if not is_within:
                raise ProblemError(f"{name}: too many rows with broken quotes; write the file again") from None
            continue
        if cells is None:
            return
        if fault := next((line for line in feed.taken if line.fault), None):
            yield feed.taken[0].number, BadRow(f"{name}:{fault.number}", fault.fault)
        elif cells and (len(cells) > 1 or cells[0].strip()):
            yield feed.taken[0].number, cells


def _broken(name: str, line: Line, error: csv.Error) -> BadRow:
    """The row that `csv` cannot read."""
    is_line_end = "new-line" in str(error)  # a lone carriage return, as old spreadsheets write
    quotes = "close every double quote, and write one inside a quoted text twice"
    advice = "save it with the line ends of Unix or Windows" if is_line_end else quotes
    reason = line.fault or f"not a readable row: {one_line(error)}; {advice}"
    return BadRow(f"{name}:{line.number}", reason)


def _table(feed: _Feed, delimiter: str) -> Iterator[list[str]]:
    """A reader of cells. Without `skipinitialspace`, quotes after `, ` would be taken for text."""
    csv.field_size_limit(text_lines.LARGEST_LINE)  # Python refuses more than 131,072 unless told
    return csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True)


def _delimiter(file: BufferedReader, name: str, known: str) -> str:
    """The delimiter that divides the header into most columns."""
    counts: dict[str, int] = {}
    for delimiter in known:
        file.seek(0)
        try:
            table = _table(_Feed(read_lines(file)), delimiter)
            counts[delimiter] = len(next((cells for cells in table if cells), []))
        except csv.Error:  # a quote ends before something that is no delimiter: it is another one
            continue
    most = max(counts.values(), default=1)
    fitting = [delimiter for delimiter, count in counts.items() if count == most]
    if most > 1 and len(fitting) > 1:
        shown = " and by ".join(map(repr, fitting))
        raise ProblemError(f"{name}:1: the header can be divided by {shown}; put names that hold one in double quotes")
    return fitting[0] if fitting else known[0]


def _check_header(header: list[str], place: str) -> None:
    if len(header) > MOST_COLUMNS:
        raise ProblemError(f"{place}: the header has more than {MOST_COLUMNS:,} columns; leave out those of no problem")
    first: dict[str, int] = {}
    for number, column in enumerate(header, start=1):
        if not column.strip():
            advice = "name every column (pandas writes one without a name unless told index=False)"
            raise ProblemError(f"{place}: column {number} of the header has no name; {advice}")
        if first.setdefault(column, number) < number:
            both = f"columns {first[column]} and {number}"
            raise ProblemError(f"{place}: {both} are both called {column!r}; rename one")


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
