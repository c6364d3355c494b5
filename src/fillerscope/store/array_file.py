"""A file of arrays and the records of their problems, in the format of safetensors, written without copies."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np

from fillerscope.files import LARGEST_JSON, Json, open_file, parse_json
from fillerscope.store.layouts import Layouts
from fillerscope.store.reading import Stamp, refuse_hollow, stamp_of, unusable
from fillerscope.store.schema import Array, ProblemRecord

DTYPES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32"}  # as numpy and as safetensors write them
NAMES = {name: dtype for dtype, name in DTYPES.items()}
RECORDS = "records"  # the small fields of all records, and the bytes of the large ones, which are the file's last
LAYOUTS = "layouts"  # bytes before those, of what all prompts have together
SIZES = "sizes"  # of the large fields of each record, in bytes
LARGE = ("prompts", "tokens")  # fields; a header may not be long, nor memory hold those of very many problems
MOST_KEPT = 1 << 24  # bytes of the large fields of a file that stay in memory once read, where they take 40 times more


@dataclass(frozen=True)
class Stacked:
    """Arrays concatenated on the first axis, fetched one at a time: together they need not fit in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    pieces: Callable[[], Iterator[Array]]

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> Array:
        return np.concatenate(list(self.pieces())).astype(dtype or self.dtype, copy=bool(copy))


@dataclass(frozen=True)
class Part:
    """The contents of one stored file: named arrays and the records of their problems."""

    arrays: Mapping[str, Any]  # numpy arrays, or `Stacked` where they are to be written
    records: list[ProblemRecord]
    joined: Layouts | None = None  # of the records, where they are known: those of very many take long to read

    @cached_property
    def layouts(self) -> Layouts:
        """Where spans stand in the prompts of the records."""
        return _layouts_of(self.records) if self.joined is None else self.joined


class StoredRecord(Mapping[str, object]):
    """A record in a file. Its large fields, which lie at `start`, are read when they are asked for."""

    def __init__(self, small: Json, path: Path, start: int, size: int, keep: bool) -> None:
        self.small, self.size, self._path, self._start, self._keep = small, size, path, start, keep
        self._large: Json | None = None

    def __getitem__(self, key: str) -> object:
        if key not in LARGE:
            return self.small[key]
        if key not in (large := self._read()):
            raise unusable(self._path, ValueError(f"a record has no {key}"))
        return large[key]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.small, *self._read()])

    def __len__(self) -> int:
        return len(self.small) + len(self._read())

    def __or__(self, other: Mapping[str, object]) -> dict[str, object]:
        return {**self.whole(), **other}

    def whole(self) -> Json:
        """The record as a plain one, of which nothing stays in memory that was not there before."""
        return {**self.small, **(self._large or self._parsed())}

    def _read(self) -> Json:
        large = self._large or self._parsed()
        if self._keep:
            self._large = large
        return large

    def _parsed(self) -> Json:
        try:
            fields = dict(parse_json(self.large()))
            return {key: fields[key] for key in LARGE if key in fields}
        except (OSError, ValueError, TypeError) as error:
            raise unusable(self._path, error) from None

    def large(self) -> bytes:
        with open_file(self._path) as file:
            file.seek(self._start)
            return file.read(self.size)


def read_part(path: Path, keys: list[str] | None = None) -> Part:
    """The contents of a file; of `keys`, where they are given, those arrays alone, and where they are empty the records
    alone. A file that is none is an error."""
    from safetensors import SafetensorError, safe_open

    if keys:
        return Part(_read_arrays(path, keys), [])
    try:
        with safe_open(path, framework="numpy") as file:
            there = file.keys()
            wanted = [key for key in there if key not in (RECORDS, LAYOUTS)] if keys is None else []
            arrays = {key: file.get_tensor(key) for key in wanted}
            refuse_hollow(arrays.values())
            large = math.prod(file.get_slice(RECORDS).get_shape()) if RECORDS in there else None
            records = _stored_records(path, file.metadata() or {}, large)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise unusable(path, error) from None
    return Part(arrays, records)


def _read_arrays(path: Path, keys: list[str]) -> dict[str, Array]:
    """Arrays of a file, without its records. It is not mapped: what is cut short meanwhile would end the process."""
    try:
        with open_file(path) as file:
            start, entries = _entries(path, stamp_of(file.fileno()))
            arrays = {key: _array_at(file, start, entries[key]) for key in keys}
        refuse_hollow(arrays.values())
        return arrays
    except (struct.error, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise unusable(path, error) from None


@lru_cache(maxsize=256)
def _entries(path: Path, stamp: Stamp | None) -> tuple[int, Json]:
    """Where the arrays of a file begin, and what its header says of each. Merging asks for one array of all files after
    the other, and a header holds records, which take long to read."""
    with open_file(path) as file:
        if stamp_of(file.fileno()) != stamp:
            raise ValueError("it was replaced while it was read")
        (length,) = struct.unpack("<Q", file.read(8))
        if length > LARGEST_JSON or len(data := file.read(length)) != length:
            raise ValueError("its header is longer than it")
        return 8 + length, {key: entry for key, entry in parse_json(data).items() if key != "__metadata__"}


def _array_at(file: BufferedReader, start: int, entry: Json) -> Array:
    dtype, shape = np.dtype(NAMES[entry["dtype"]]), tuple(entry["shape"])
    first, last = entry["data_offsets"]
    if min(first, *shape, 0) < 0 or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array has another size than its shape")
    if start + last > os.fstat(file.fileno()).st_size:
        raise ValueError("an array ends behind the file")
    array = np.empty(shape, dtype)
    file.seek(start + first)
    if array.size and file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
        raise ValueError("an array ends behind the file")
    return array


def read_layouts(path: Path, problems: int) -> Layouts:
    """The layouts of the prompts of a file with so many problems that did not fail. Older formats have none: all their
    records are read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            if LAYOUTS in file.keys():  # noqa: SIM118  # it is no mapping
                large = math.prod(file.get_slice(RECORDS).get_shape())  # where a token takes two bytes at least
                return Layouts.from_bytes(file.get_tensor(LAYOUTS).tobytes(), problems, large // 2)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise unusable(path, error) from None
    return read_part(path, []).layouts


def read_slices(path: Path, keys: list[str], index: tuple[int | slice, ...]) -> list[Array]:
    """Slices of some arrays of a file; the rest is not read. An axis of size 1 is broadcast."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return [_slice_of(file, key, index) for key in keys]
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise unusable(path, error) from None


def _stored_records(path: Path, metadata: Mapping[str, str], large: int | None) -> list[ProblemRecord]:
    """The records of a file, of which `large` bytes are large fields; None in formats that had all in the header.

    Whatever does not fit together is a ValueError."""
    records = parse_json(metadata.get(RECORDS, "[]"))
    if large is None:
        return cast(list[ProblemRecord], records)
    sizes = parse_json(metadata.get(SIZES, "[]"))
    if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != large:
        raise ValueError("the sizes of its records are not those of its bytes")
    starts, keep = accumulate(sizes, initial=path.stat().st_size - large), large <= MOST_KEPT
    made = [
        StoredRecord(record, path, start, size, keep) if size else record
        for record, size, start in zip(records, sizes, starts, strict=False)
    ]
    if len(made) != len(records):
        raise ValueError("it has another number of records than of their sizes")
    return cast(list[ProblemRecord], made)


def _layouts_of(records: Iterable[ProblemRecord]) -> Layouts:
    """Where spans stand in the prompts of some records, each of which is read once."""
    whole = (record.whole() if isinstance(record, StoredRecord) else record for record in records)
    return Layouts.of_records(cast(Iterable[ProblemRecord], whole))


def _small(record: ProblemRecord) -> Json:
    if isinstance(record, StoredRecord):
        return record.small
    return {key: value for key, value in record.items() if key not in LARGE}


def bytes_beside(part: Part) -> int:
    """The bytes of a part's file that are not those of its arrays."""
    header, layouts, large = _written(part)
    return len(header) + len(layouts) + large


def _large_fields(record: ProblemRecord) -> bytes:
    """The bytes of a record's large fields; none where it has none."""
    if isinstance(record, StoredRecord):
        return record.large()
    large = {key: value for key, value in record.items() if key in LARGE}
    return json.dumps(large, sort_keys=True).encode() if large else b""


def file_pieces(part: Part) -> Iterator[bytes | memoryview]:
    """A safetensors file in pieces, without copies of the arrays, of which the library's own `save` makes two."""
    header, layouts, _ = _written(part)
    yield header
    for key in _order(part):
        array = part.arrays[key]
        for piece in array.pieces() if isinstance(array, Stacked) else [array]:
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data
    yield layouts
    yield from map(_large_fields, part.records)


def _order(part: Part) -> list[str]:
    return sorted(part.arrays, key=lambda key: (-part.arrays[key].itemsize, key))  # so that all are aligned


def _written(part: Part) -> tuple[bytes, bytes, int]:
    """The header of a part's file, its layouts, and how many bytes the large fields of its records take."""
    small = [_small(record) for record in part.records]
    sizes = [one.size if isinstance(one, StoredRecord) else len(_large_fields(one)) for one in part.records]
    layouts = part.layouts.to_bytes()
    header: Json = {"__metadata__": {RECORDS: json.dumps(small, sort_keys=True), SIZES: json.dumps(sizes)}}
    stop = 0
    for key in _order(part):
        array = part.arrays[key]
        start, stop = stop, stop + array.nbytes
        header[key] = {"dtype": DTYPES[array.dtype.str], "shape": array.shape, "data_offsets": (start, stop)}
    for key, size in ((LAYOUTS, len(layouts)), (RECORDS, sum(sizes))):
        start, stop = stop, stop + size
        header[key] = {"dtype": "U8", "shape": (size,), "data_offsets": (start, stop)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, layouts, sum(sizes)


def _slice_of(file: Any, key: str, index: tuple[int | slice, ...]) -> Array:
    piece = file.get_slice(key)
    shape = piece.get_shape()
    whole = piece if all(shape) else file.get_tensor(key)  # of what is empty no slice can be asked for
    return np.asarray(whole[fitted(index, shape)])


def fitted(index: tuple[int | slice, ...], shape: Sequence[int]) -> tuple[int | slice, ...]:
    """An index for an array in which axes of size 1 are broadcast."""
    return tuple(
        slice(None) if size == 1 and isinstance(one, slice) else one for one, size in zip(index, shape, strict=False)
    )
