"""Rows of .parquet files. Columns of lists and structs are not read: no problem is made of them, and a few bytes of
them can fill memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from io import BufferedReader
from itertools import accumulate
from typing import TYPE_CHECKING

from fillerscope.errors import ProblemError
from fillerscope.files import Json
from fillerscope.problems.parquet_footer import refuse_large_footer
from fillerscope.problems.parquet_pages import PageHeaders, refuse_wide
from fillerscope.problems.rows import A_LIST, AN_OBJECT, BadRow, Row, one_line, parse_float

if TYPE_CHECKING:
    from pyarrow import DataType, RecordBatch
    from pyarrow.parquet import ParquetFile, RowGroupMetaData

LARGEST_PAGES = 1 << 30  # bytes of the pages that are in memory at once
LARGEST_BATCH = 1 << 28  # bytes of the rows that are
BATCH = 16  # rows: one text of a dictionary can be repeated in every row


def read_parquet(source: BufferedReader, name: str) -> Iterator[Row | BadRow]:
    """The rows of a file; `name` is what errors call it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        refuse_large_footer(source)
        with closing(pq.ParquetFile(source)) as file:  # which seeks before each read, as the headers do
            table, headers = _Table.of(file, name), PageHeaders(source)
            for group in range(file.metadata.num_row_groups):
                for fields in table.rows(headers, group, number):
                    number += 1
                    place = f"{name}: row {number}"
                    yield Row(place, fields) if isinstance(fields, dict) else BadRow(place, fields)
    except (pa.ArrowException, ValueError) as error:
        reason = f"not a readable Parquet file after row {number}: {one_line(error)}"
        raise ProblemError(f"{name}: {reason}; write it again") from None


@dataclass(frozen=True)
class _Table:
    """A file whose columns are told apart by their names."""

    file: ParquetFile
    name: str
    others: Mapping[str, object]  # what stands for each cell of the columns that are not read
    leaves: tuple[int, ...]  # the columns that are read, by number

    @classmethod
    def of(cls, file: ParquetFile, name: str) -> _Table:
        schema = file.schema_arrow
        refuse_wide(file)
        if twice := _repeated(schema.names):
            raise ProblemError(f"{name}: two columns are called {twice!r}; rename one")
        others = {field.name: value for field in schema if (value := _placeholder(field.type)) is not None}
        return cls(file, name, others, _leaves(file, set(schema.names) - others.keys(), name))

    def rows(self, headers: PageHeaders, group: int, before: int) -> Iterator[Json | str]:
        """The fields of each row of a group, or why it cannot be read."""
        plain = [column for column in self.file.schema_arrow.names if column not in self.others]
        size = self._batch(headers, self.file.metadata.row_group(group))
        for batch in self.file.iter_batches(size, [group], plain, use_threads=False):
            for cells in _cells(batch, self.name, before):
                before += 1
                yield self._whole(cells) if isinstance(cells, dict) else cells

    def _whole(self, cells: Json) -> Json:
        """A row in the order of its columns, those that are not read among them."""
        fields = {**self.others, **cells}
        return {column: fields[column] for column in self.file.schema_arrow.names}

    def _batch(self, headers: PageHeaders, group: RowGroupMetaData) -> int:
        """How many rows of a group are read at once: no value is larger than the largest page of its column."""
        largest = 0
        for leaf in self.leaves:
            largest += max((page.size for page in headers.of(group.column(leaf))), default=0)
        if 2 * largest > LARGEST_PAGES:  # a page and the dictionary of each column
            advice = "write it again with smaller pages, and without columns that are no problems"
            raise ProblemError(f"{self.name}: its pages unpack to more than {LARGEST_PAGES >> 20} MiB; {advice}")
        return max(1, min(BATCH, LARGEST_BATCH // max(largest, 1)))


def _repeated(names: list[str]) -> str | None:
    """The first name that is there twice."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def _placeholder(kind: DataType) -> object:
    """What stands for a cell of a type that is not read; None where it is read."""
    import pyarrow as pa

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_nested(kind):
        return None
    return AN_OBJECT if pa.types.is_struct(kind) else A_LIST


def _leaves(file: ParquetFile, plain: set[str], name: str) -> tuple[int, ...]:
    """The numbers of columns by their names. pyarrow takes those as well whose names go on behind a dot."""
    leaves = []
    for index in range(file.metadata.num_columns):
        column = file.schema.column(index)
        parts = accumulate(column.path.split("."), lambda before, part: f"{before}.{part}")
        if plain.isdisjoint(parts):
            continue
        if column.path not in plain or column.max_repetition_level:
            raise ProblemError(f"{name}: column {one_line(column.path)!r} goes by the name of another; rename one")
        leaves.append(index)
    return tuple(leaves)


def _cells(batch: RecordBatch, name: str, before: int) -> Iterator[Json | str]:
    """The fields of each row, or why it cannot be read: Python cannot hold every date."""
    if batch.nbytes > LARGEST_BATCH:
        advice = "leave out columns that are no problems"
        raise ProblemError(f"{name}: rows after {before} take more than {LARGEST_BATCH >> 20} MiB; {advice}")
    bits = {field.name: _float_bits(field.type) for field in batch.schema}
    for index in range(batch.num_rows):
        try:
            cells = batch.slice(index, 1).to_pylist()[0]
            yield {key: _number(value, bits[key]) if bits[key] else value for key, value in cells.items()}
        except (ValueError, OverflowError) as error:
            yield f"a cell that cannot be read: {one_line(error)}; write it as text"


def _float_bits(kind: DataType) -> int:
    """How many bits the numbers of a column of floats have; 0 for other columns."""
    import pyarrow as pa

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind.bit_width if pa.types.is_floating(kind) else 0


def _number(value: object, bits: int) -> object:
    """A cell of a column of floats; None for NaN, as which pandas writes the gaps in a column of numbers.

    The others are the shortest decimal that is stored as the same bits, which is most likely what was written: 0.1, not
    0.10000000149011612. A whole number with more digits than its type is sure to keep is what is stored."""
    import numpy as np

    if not isinstance(value, float) or math.isnan(value):
        return None
    stored = np.dtype(f"f{bits // 8}").type(value)
    shortest = str(stored)
    digits = shortest.partition("e")[0].replace(".", "").strip("-0")
    is_exact = value.is_integer() and len(digits) > np.finfo(stored.dtype).precision
    return parse_float(str(int(value)) if is_exact else shortest)
