"""Read the rows of a .jsonl, .json or .parquet file, one at a time, each with its place in the file.

Knows files and formats, not problems: `sources.py` decides what a column means.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fillerscope.errors import ProblemError
from fillerscope.files import Json

LIST_KEYS = ("data", "rows", "problems", "questions")


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    place: str  # `file:line` in JSON Lines, `file: row n` elsewhere, both counted from 1
    fields: Json


def read_rows(path: Path, name: str) -> Iterator[Row]:
    """Yield the rows in file order; `name` is what errors call the file. Rows that nobody takes are not checked."""
    reader = READERS.get(path.suffix.lower())
    if path.is_dir():
        raise ProblemError(f"{name} is a folder; give one file in it that ends in {' or '.join(READERS)}")
    if reader is None:
        raise ProblemError(
            f"{name} is not a source of problems; give `builtin`, hub:owner/name, "
            f"or a file that ends in {' or '.join(READERS)}"
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
        for number, raw in enumerate(lines, start=1):
            place = f"{name}:{number}"
            text = _decoded(raw.rstrip(b"\r\n"), place)
            if text.strip():
                value = _parsed(text, name, number, "a .jsonl file holds one JSON object a line")
                yield _row(place, value)


def _json(path: Path, name: str) -> Iterator[Row]:
    hint = "if it holds one object a line, name it .jsonl"
    value = _parsed(_decoded(path.read_bytes(), name), name, 1, hint)
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


READERS: dict[str, Callable[[Path, str], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


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
