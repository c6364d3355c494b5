"""Read the rows of a .jsonl, .json, .parquet, .csv or .tsv file, one at a time, each with its place in the file.

Knows files and formats, not problems: `sources.py` decides what a column means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.errors import ProblemError
from fillerscope.files import Json, open_file
from fillerscope.problems.delimited import read_csv, read_tsv
from fillerscope.problems.rows import BadRow, Row, kind_of, one_line
from fillerscope.problems.text_lines import decoded, read_lines
from fillerscope.study.data_sets import DATA_SETS

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

LARGEST_JSON = 1 << 28  # bytes of a .json file, which is read as a whole
LARGEST_CHUNK = 1 << 30  # bytes of a column in a row group of Parquet once it is decompressed
LARGEST_BATCH = 1 << 28  # bytes of BATCH rows of Parquet
LARGEST_TABLE = 1 << 31  # characters of all rows that are taken
BATCH = 16  # one text of a dictionary can be repeated in every row
LIST_KEYS = ("data", "rows", "problems", "questions")


def read_rows(path: Path, name: str) -> Iterator[Row | BadRow]:
    """Yield the rows in file order, those that cannot be read as well; `name` is what errors call the file.

    Rows that nobody takes are not checked. What is wrong with the file as a whole is a ProblemError."""
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


def _jsonl(path: Path, name: str) -> Iterator[Row | BadRow]:
    with open_file(path) as file:
        for line in read_lines(file):
            if line.fault:
                yield BadRow(f"{name}:{line.number}", line.fault)
            elif line.text.strip():
                yield _json_line(line.text.rstrip("\r\n"), name, line.number)


def _json_line(text: str, name: str, number: int) -> Row | BadRow:
    try:
        return _row(f"{name}:{number}", _parsed(text, name, number, "a .jsonl file holds one JSON object a line"))
    except BadRow as bad:
        return bad


def _json(path: Path, name: str) -> Iterator[Row | BadRow]:
    hint = "if it holds one object a line, name it .jsonl"
    with open_file(path) as file:
        content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ProblemError(f"{name} is larger than {LARGEST_JSON >> 20} MiB; write it as .jsonl, one object a line")
    text, fault = decoded(content)
    if fault:
        raise ProblemError(f"{name}: {fault}")
    for number, item in enumerate(_list_in(_parsed(text, name, 1, hint), name), start=1):
        yield _row(f"{name}: row {number}", item)


def _parquet(path: Path, name: str) -> Iterator[Row | BadRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, size = 0, 0
    try:
        with open_file(path) as source, pq.ParquetFile(source) as file:
            _check_table(file, name)
            for batch in file.iter_batches(batch_size=BATCH):
                for fields in _cells(batch, name, number):
                    number += 1
                    size += _characters(fields)
                    if size > LARGEST_TABLE:
                        advice = "take fewer with `problems.limit`"
                        raise ProblemError(f"{name}: {number:,} rows hold over {LARGEST_TABLE >> 20} MiB; {advice}")
                    place = f"{name}: row {number}"
                    yield Row(place, fields) if isinstance(fields, dict) else BadRow(place, fields)
    except (pa.ArrowException, ValueError) as error:
        reason = f"not a readable Parquet file after row {number}: {one_line(error)}"
        raise ProblemError(f"{name}: {reason}; write it again") from None


def _check_table(file: ParquetFile, name: str) -> None:
    """Refuse a table whose columns are called the same, or take too much memory: small files can hold gigabytes."""
    names = file.schema_arrow.names
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise ProblemError(f"{name}: two columns are called {twice!r}; rename one")
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    sizes = (group.column(index).total_uncompressed_size for group in groups for index in range(group.num_columns))
    if max(sizes, default=0) > LARGEST_CHUNK:
        advice = "write it again with smaller row groups"
        raise ProblemError(f"{name}: a column takes more than {LARGEST_CHUNK >> 20} MiB of a row group; {advice}")


def _cells(batch: RecordBatch, name: str, before: int) -> Iterator[Json | str]:
    """The fields of each row, or why it cannot be read: Python cannot hold every date."""
    if batch.nbytes > LARGEST_BATCH:
        advice = "leave out columns that are no problems"
        raise ProblemError(f"{name}: rows after {before} take more than {LARGEST_BATCH >> 20} MiB; {advice}")
    for index in range(batch.num_rows):
        try:
            yield {key: _without_nan(value) for key, value in batch.slice(index, 1).to_pylist()[0].items()}
        except (ValueError, OverflowError) as error:
            yield f"a cell that cannot be read: {one_line(error)}; write it as text"


def _characters(fields: Json | str) -> int:
    """How many characters the texts of a row have."""
    return sum(len(value) for value in fields.values() if isinstance(value, str)) if isinstance(fields, dict) else 0


def _without_nan(value: object) -> object:
    """A cell; None for NaN, as which pandas writes the gaps in a column of numbers."""
    return None if isinstance(value, float) and math.isnan(value) else value


READERS: dict[str, Callable[[Path, str], Iterator[Row | BadRow]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".csv": read_csv,
    ".tsv": read_tsv,
}


class _Repeated(dict[str, object]):
    """A JSON object that has a key twice: which of the two values is meant?"""

    key = ""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    repeated, seen = _Repeated(fields), set[str]()
    repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return repeated


def _parsed(text: str, name: str, first_line: int, hint: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"{name}:{first_line + error.lineno - 1}"
        raise BadRow(place, f"invalid JSON at column {error.colno}: {error.msg}; {hint}") from None
    except (ValueError, RecursionError) as error:  # an endless number, or brackets without end
        raise BadRow(f"{name}:{first_line}", f"invalid JSON: {one_line(error)}; {hint}") from None


def _row(place: str, value: object) -> Row | BadRow:
    if isinstance(value, _Repeated):
        return BadRow(place, f"key {value.key!r} is given twice; remove one")
    if not isinstance(value, dict):
        return BadRow(place, f"expected an object with named fields, found {kind_of(value)}")
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
