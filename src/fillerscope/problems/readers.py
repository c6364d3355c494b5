"""Read the rows of a .jsonl, .json, .parquet, .csv or .tsv file, one at a time, each with its place in the file.

Knows files and formats, not problems: `sources.py` decides what a column means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from sys import getsizeof

from fillerscope.errors import ProblemError
from fillerscope.files import open_file, real_path, refuse_large_json
from fillerscope.problems.delimited import read_csv, read_tsv
from fillerscope.problems.parquet_rows import read_parquet
from fillerscope.problems.rows import A_LIST, AN_OBJECT, BadRow, Row, WrittenFloat, kind_of, one_line, parse_float
from fillerscope.problems.text_lines import decoded, read_lines
from fillerscope.study.data_sets import DATA_SETS

LARGEST_JSON = 1 << 28  # bytes of a .json file, which is read as a whole
LARGEST_ROW = 1 << 28  # bytes of memory that the values of a line of .jsonl may take
LARGEST_TABLE = 1 << 31  # bytes of memory that all rows that are taken may take, about
LIST_KEYS = ("data", "rows", "problems", "questions")
Reader = Callable[[BufferedReader, str], Iterator[Row | BadRow]]
_BLOB = re.compile(r"blobs/([0-9a-f]{2}/)?([0-9a-f]{40}|[0-9a-f]{64})$")  # what the names in a cache of the hub lead to


def read_rows(path: Path, name: str) -> Iterator[Row | BadRow]:
    """Yield the rows in file order, those that cannot be read as well; `name` is what errors call the file.

    Rows that nobody takes are not checked. What is wrong with the file as a whole is a ProblemError."""
    reader = reader_of(path, name)
    try:
        with open_file(path) as file:  # once: another file may be at its path when it is opened again
            _refuse_other_kind(real_path(file, path), name)
            yield from _limited(reader(file, name), name)
    except FileNotFoundError:
        raise ProblemError(f"no file of problems at {name}; check the path in problems.source") from None
    except OSError as error:
        raise ProblemError(f"cannot read {name}: {one_line(error.strerror or error)}") from None


def reader_of(path: Path, name: str) -> Reader:
    """What reads a file of problems, by the end of its name; a ProblemError where nothing does."""
    reader = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise ProblemError(f"{name} is a folder; give one file in it that ends in {' or '.join(READERS)}")
    if path.exists() and not path.is_file():
        raise ProblemError(f"cannot read {name}: it is a pipe or a device, not a file")
    if reader is None:
        raise ProblemError(
            f"{name} is not a source of problems; give `builtin`, a data set ({', '.join(DATA_SETS)}), "
            f"hub:owner/name, or a file that ends in {' or '.join(READERS)}"
        )
    return reader


def _refuse_other_kind(path: Path, name: str) -> None:
    """Refuse what a link leads to where it is no file of problems by its own name: a private file, such as a key."""
    if path.suffix.lower() not in READERS and not _BLOB.search(path.as_posix()):
        raise ProblemError(
            f"{name} is a link to a file that does not end in {' or '.join(READERS)}; copy the file there"
        )


def _limited(rows: Iterator[Row | BadRow], name: str) -> Iterator[Row | BadRow]:
    """Rows up to what memory holds of them: each takes hundreds of bytes, and few in a file."""
    size = 0
    for number, row in enumerate(rows, start=1):
        size += _memory(row)
        if size > LARGEST_TABLE:
            advice = "take fewer with `problems.limit`"
            raise ProblemError(f"{name}: {number:,} rows take over {LARGEST_TABLE >> 20} MiB of memory; {advice}")
        yield row


def _memory(row: Row | BadRow) -> int:
    """About how many bytes a row takes, with what is kept about it elsewhere."""
    if isinstance(row, BadRow):
        return 1000 + getsizeof(row.reason)
    values = (value.text if isinstance(value, WrittenFloat) else value for value in row.fields.values())
    texts = (_text_memory(value) for value in values if isinstance(value, str | bytes))
    return 500 + sum(100 + getsizeof(key) for key in row.fields) + sum(texts)


def _text_memory(text: str | bytes) -> int:
    """One character beyond the first 65,536 makes all take four bytes; blanks at an end, a copy without them."""
    has_blanks = text[:1].isspace() or text[-1:].isspace()
    return getsizeof(text) * (2 if has_blanks else 1)


def _jsonl(file: BufferedReader, name: str) -> Iterator[Row | BadRow]:
    for line in read_lines(file):
        if line.fault:
            yield BadRow(f"{name}:{line.number}", line.fault)
        elif line.text.strip():
            yield _json_line(line.text.rstrip("\r\n"), name, line.number)


def _json_line(text: str, name: str, number: int) -> Row | BadRow:
    try:
        return _row(
            f"{name}:{number}", _parsed(text, name, number, "a .jsonl file holds one JSON object a line", LARGEST_ROW)
        )
    except BadRow as bad:
        return bad


def _json(file: BufferedReader, name: str) -> Iterator[Row | BadRow]:
    hint = "if it holds one object a line, name it .jsonl"
    content = file.read(LARGEST_JSON + 1)
    if len(content) > LARGEST_JSON:
        raise ProblemError(f"{name} is larger than {LARGEST_JSON >> 20} MiB; write it as .jsonl, one object a line")
    text, fault = decoded(content)
    if fault:
        raise ProblemError(f"{name}: {fault}")
    for number, item in enumerate(_list_in(_parsed(text, name, 1, hint), name), start=1):
        yield _row(f"{name}: row {number}", item)


READERS: dict[str, Reader] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": read_parquet,
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


def _parsed(text: str, name: str, first_line: int, hint: str, most: int | None = None) -> object:
    try:
        refuse_large_json(text, most)
        return json.loads(text, object_pairs_hook=_object, parse_float=parse_float)
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
    return Row(place, {key: _kept(item) for key, item in value.items()})


def _kept(value: object) -> object:
    """A value of a row. Of an array or object only that it is one, and not empty: no problem is made of it."""
    if isinstance(value, list | dict):
        full: object = A_LIST if isinstance(value, list) else AN_OBJECT
        return full if value else type(value)()
    return value


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
