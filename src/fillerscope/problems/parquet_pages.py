"""The pages of Parquet files from elsewhere, as their own headers describe them.

What a file says about a column at its end can be wrong: each page says again how many bytes it unpacks to and how many
values it holds, and readers believe the page. Here these headers are read without unpacking anything, so that a small
file that would fill memory is refused before it does. Knows nothing of what a table holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, ParquetFile

MOST_PAGES = 20_000  # of a column in a row group: a page has some thousand values
MOST_COLUMNS = 10_000
LARGEST_HEADER = 1 << 18  # bytes of the header of a page: writers cut the values that they note there
WIDEST = 1 << 16  # bytes of a value whose column says how many all have: a missing one takes as many
SIMPLE_ENCODINGS = {0, 2, 3, 8}  # plain, and by a dictionary: a value takes no more than it does on its page
_FIRST_READ = 1 << 10
_DEEPEST = 16  # structs in structs
_LISTS = (9, 10)  # the kinds of a list and of a set
_DICTIONARY = 2  # the kind of a page
_HEADERS = {0: 5, 2: 7, 3: 8}  # the field with the header of a data page, of a dictionary, of a data page of version 2
_ENCODING = {0: 2, 2: 2, 3: 4}  # the field of that header


@dataclass(frozen=True)
class Page:
    """A page of a column."""

    size: int  # in bytes, unpacked
    values: int  # missing ones counted; 0 for a dictionary
    encoding: int


def refuse_wide(file: ParquetFile) -> None:
    """Raise a ValueError for a table of too many columns, of two of one name, or of columns of very long values."""
    names, leaves = file.schema_arrow.names, file.metadata.num_columns
    if max(leaves, len(names)) > MOST_COLUMNS:
        raise ValueError(f"it has more than {MOST_COLUMNS:,} columns")
    if any(file.schema.column(index).length > WIDEST for index in range(leaves)):
        raise ValueError(f"a column has values of more than {WIDEST >> 10} KiB each")


class PageHeaders:
    """The headers of the pages of a file. Columns may point at the same ones: no more is read than the file has."""

    def __init__(self, source: BinaryIO) -> None:
        self.source, self.left = source, source.seek(0, os.SEEK_END)

    def of(self, chunk: ColumnChunkMetaData) -> Iterator[Page]:
        """The pages of a column in a row group, from where pyarrow looks for them. What is wrong is a ValueError."""
        for page, length in _pages(self.source, chunk):
            self.left -= length
            if self.left < 0:
                raise ValueError("its columns lie at the same place")
            yield page


def _pages(source: BinaryIO, chunk: ColumnChunkMetaData) -> Iterator[tuple[Page, int]]:
    """Each page, and how many bytes its header has."""
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        place = min(place, chunk.dictionary_page_offset)
    end = place + (chunk.total_compressed_size if chunk.num_values > 0 else 0)  # of no values, no page is read
    for _ in range(MOST_PAGES):
        if place >= end:
            return
        header, length = _header(source, place)
        packed = _size(header, 3)
        place += length + packed
        yield _page(header), length
    raise ValueError(f"a column of a row group has more than {MOST_PAGES:,} pages")


def _page(header: dict[int, object]) -> Page:
    kind = header.get(1)
    about = header.get(_HEADERS.get(kind, 0)) if isinstance(kind, int) else None
    if not isinstance(kind, int) or not isinstance(about, dict):
        return Page(_size(header, 2), 0, 0)  # of an index, which is not unpacked
    return Page(_size(header, 2), 0 if kind == _DICTIONARY else _size(about, 1), _size(about, _ENCODING[kind]))


def _size(header: dict[int, object], field: int) -> int:
    value = header.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError("the header of a page is damaged")
    return value


def _header(source: BinaryIO, place: int) -> tuple[dict[int, object], int]:
    """The fields of the header at a place, by number, and how many bytes it has."""
    length = _FIRST_READ
    while True:
        source.seek(place, os.SEEK_SET)
        content = source.read(length)
        try:
            reader = Compact(content)
            return reader.struct(), reader.place
        except IndexError:
            if len(content) < length or length >= LARGEST_HEADER:
                raise ValueError("the header of a page is cut off or too long") from None
            length *= 16


class Compact:
    """Values in the compact protocol of Thrift, of which Parquet's headers are made. Past the end is an IndexError."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0
        self.path: list[int] = []  # the number of the field that is read, in each struct around it

    def struct(self) -> dict[int, object]:
        self.path.append(0)
        if len(self.path) > _DEEPEST:
            raise ValueError("a header is nested too deeply")
        fields: dict[int, object] = {}
        while head := self._byte():
            number = self.path[-1] + (head >> 4) if head >> 4 else self._number()
            if number in fields or not 0 < number < 1 << 15:  # of the two readers would believe one or the other
                raise ValueError("a header is damaged")
            self.path[-1] = number
            fields[number] = (head & 15) == 1 if head & 15 in (1, 2) else self._value(head & 15)
        self.path.pop()
        return fields

    def _value(self, kind: int) -> object:
        if kind in (1, 2, 3):  # true or false in a list, and a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind in (7, 8):
            self._skip(8 if kind == 7 else self._unsigned())
        elif kind in _LISTS:
            self._list(*self._opening())
        elif kind == 12:
            return self.struct()
        else:
            raise ValueError("a header is damaged")
        return None

    def _opening(self) -> tuple[int, int]:
        """How many values a list or a set has, and of which kind."""
        head = self._byte()
        return head >> 4 if head >> 4 < 15 else self._unsigned(), head & 15

    def _list(self, count: int, kind: int) -> None:
        """Read over the values of a list or a set. Parquet has no lists of lists."""
        if kind in _LISTS:
            raise ValueError("a header is damaged")
        for _ in range(count):
            self._value(kind)

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _skip(self, length: int) -> None:
        self.place += length
        if self.place > len(self.content):
            raise IndexError

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a header is damaged")
        return value | byte << shift

    def _number(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
