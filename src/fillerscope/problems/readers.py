"""Read the rows of a .jsonl, .json, .parquet, .csv or .tsv file, one at a time, each with its place in the file.

Knows files and formats, not problems: `sources.py` decides what a column means.
"""

from __future__ import annotations

import csv
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from fillerscope.errors import ProblemError
from fillerscope.files import Json
from fillerscope.study.data_sets import DATA_SETS

DELIMITERS = ",;\t"  # of a .csv file; spreadsheets of many countries write `;`
LARGEST_LINE = 1 << 24  # bytes of a line, and characters of a cell: a question is shorter
LARGEST_JSON = 1 << 28  # bytes of a .json file, which is read as a whole
LIST_KEYS = ("data", "rows", "problems", "questions")


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    place: str  # `file:line` in JSON Lines, CSV and TSV, `file: row n` elsewhere, both counted from 1
    fields: Json


def read_rows(path: Path, name: str) -> Iterator[Row]:
    """Yield the rows in file order; `name` is what errors call the file. Rows that nobody takes are not checked."""
    reader = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise ProblemError(f"{name} is a folder; give one file in it that ends in {' or '.join(READERS)}")
    if reader is None:
        raise ProblemError(
            f"{name} is not a source of problems; give `builtin`, a data set ({', '.join(DATA_SETS)}), "
            f"hub:owner/name, or a file that ends in {' or '.join(READERS)}"
        )
    try:
        yield from reader(path, name)
    except FileNotFoundError:
        raise ProblemError(f"no file of problems at {name}; check the path in problems.source") from None
    except OSError as error:
        raise ProblemError(f"cannot read {name}: {one_line(error.strerror or error)}") from None


def one_line(reason: object, width: int = 200) -> str:
    """A text on one line, shortened to a width."""
    return textwrap.shorten(str(reason), width, placeholder=" ...")


def _jsonl(path: Path, name: str) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, raw in enumerate(_lines(lines, name), start=1):
            place = f"{name}:{number}"
            text = _decoded(raw.rstrip(b"\r\n"), place)
            if text.strip():
                value = _parsed(text, name, number, "a .jsonl file holds one JSON object a line")
                yield _row(place, value)


def _json(path: Path, name: str) -> Iterator[Row]:
    hint = "if it holds one object a line, name it .jsonl"
    with path.open("rb") as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ProblemError(f"{name} is larger than {LARGEST_JSON >> 20} MiB; write it as .jsonl, one object a line")
    value = _parsed(_decoded(content, name), name, 1, hint)
    for number, item in enumerate(_list_in(value, name), start=1):
        yield _row(f"{name}: row {number}", item)


def _parquet(path: Path, name: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{name}: row {number}", fields)
    except (pa.ArrowException, ValueError) as error:  # ValueError: a cell that Python cannot hold
        reason = f"not a readable Parquet file after row {number}: {one_line(error)}"
        raise ProblemError(f"{name}: {reason}; write it again") from None


class _Table(Protocol):
    """What `csv.reader` returns."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


def _csv(path: Path, name: str) -> Iterator[Row]:
    return _delimited(path, name, DELIMITERS)


def _tsv(path: Path, name: str) -> Iterator[Row]:
    return _delimited(path, name, "\t")


def _delimited(path: Path, name: str, delimiters: str) -> Iterator[Row]:
    """Rows below a header. A quoted cell may hold line breaks, so that a row is named by the line it begins on."""
    csv.field_size_limit(LARGEST_LINE)  # Python refuses more than 131,072 unless told
    with path.open("rb") as file:
        rows = _numbered(_table(file, name, _delimiter(path, name, delimiters)), name)
        line, names = next(rows, (1, []))
        header = [column.strip() for column in names]
        _check_header(header, f"{name}:{line}")
        for line, cells in rows:
            if len(cells) != len(header):
                reason = f"{_cells(len(cells))}, and the header has {len(header)}"
                raise ProblemError(f"{name}:{line}: {reason}; put text that holds a delimiter in double quotes")
            yield Row(f"{name}:{line}", dict(zip(header, cells, strict=True)))


def _table(file: BinaryIO, name: str, delimiter: str) -> _Table:
    """A reader of cells. Without `skipinitialspace`, quotes after `, ` would be taken for text."""
    lines = (_decoded(raw, f"{name}:{number}") for number, raw in enumerate(_lines(file, name), start=1))
    return csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)


def _numbered(table: _Table, name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line that each begins on; blank lines are skipped."""
    while True:
        line = table.line_num + 1
        try:
            cells = next(table, None)
        except csv.Error as error:
            is_line_end = "new-line" in str(error)  # a lone carriage return, as old spreadsheets write
            quotes = "close every double quote, and write one inside a quoted text twice"
            advice = "save it with the line ends of Unix or Windows" if is_line_end else quotes
            raise ProblemError(f"{name}:{line}: not a readable row: {one_line(error)}; {advice}") from None
        if cells is None:
            return
        if cells and (len(cells) > 1 or cells[0].strip()):
            yield line, cells


def _delimiter(path: Path, name: str, known: str) -> str:
    """The delimiter that divides the header into most columns."""
    counts: dict[str, int] = {}
    for delimiter in known:
        with path.open("rb") as file:
            try:
                counts[delimiter] = len(next((cells for cells in _table(file, name, delimiter) if cells), []))
            except csv.Error:  # a quote ends before something that is no delimiter: it is another one
                continue
    most = max(counts.values(), default=1)
    fitting = [delimiter for delimiter, count in counts.items() if count == most]
    if most > 1 and len(fitting) > 1:
        shown = " and by ".join(map(repr, fitting))
        raise ProblemError(f"{name}:1: the header can be divided by {shown}; put names that hold one in double quotes")
    return fitting[0] if fitting else known[0]


def _check_header(header: list[str], place: str) -> None:
    for number, column in enumerate(header, start=1):
        if not column.strip():
            advice = "name every column (pandas writes one without a name unless told index=False)"
            raise ProblemError(f"{place}: column {number} of the header has no name; {advice}")
        if header.index(column) + 1 < number:
            first = header.index(column) + 1
            raise ProblemError(f"{place}: columns {first} and {number} are both called {column!r}; rename one")


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


READERS: dict[str, Callable[[Path, str], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".csv": _csv,
    ".tsv": _tsv,
}


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a file, each read no further than a line may reach."""
    number = 0
    while raw := file.readline(LARGEST_LINE + 1):
        number += 1
        if len(raw) > LARGEST_LINE:
            advice = "write one problem a line, and a shorter one"
            raise ProblemError(f"{name}:{number}: a line of more than {LARGEST_LINE >> 20} MiB; {advice}")
        yield raw


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8-sig")  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} is not UTF-8"
        raise ProblemError(f"{place}: {reason}; save the file as UTF-8 text") from None


def _parsed(text: str, name: str, first_line: int, hint: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{name}:{first_line + error.lineno - 1}"
        raise ProblemError(f"{place}: invalid JSON at column {error.colno}: {error.msg}; {hint}") from None
    except (ValueError, RecursionError) as error:  # an endless number, or brackets without end
        raise ProblemError(f"{name}:{first_line}: invalid JSON: {one_line(error)}; {hint}") from None


def _row(place: str, value: object) -> Row:
    if not isinstance(value, dict):
        raise ProblemError(f"{place}: expected an object with named fields, found {kind_of(value)}")
    return Row(place, value)


def _list_in(value: object, name: str) -> list[object]:
    """The array itself, or the one array in an object under a usual name."""
    if isinstance(value, list):
        return value
    fields = value if isinstance(value, dict) else {}
    lists = [fields[key] for key in LIST_KEYS if isinstance(fields.get(key), list)]
    if len(lists) != 1:
        kind = f"an object with {len(lists)} of them" if isinstance(value, dict) else kind_of(value)
        expected = f"an array of objects, or an object with one array under {', '.join(LIST_KEYS)}"
        raise ProblemError(f"{name}: expected {expected}; found {kind}")
    rows: list[object] = lists[0]
    return rows


def kind_of(value: object) -> str:
    """What JSON calls a value, for people."""
    if value is None:
        return "null"
    names = {bool: "true or false", str: "text", list: "an array", dict: "an object"}
    numbers = {int: "a number", float: "a number"}
    return (names | numbers).get(type(value), f"a value of type {type(value).__name__}")
