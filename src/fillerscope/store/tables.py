"""Tables of a run folder, read within a limit of memory: a run comes from anybody, and four thousand bytes of Parquet
can hold a hundred million cells. `schema` names the columns."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.errors import StoreError
from fillerscope.files import open_file
from fillerscope.problems.parquet_footer import refuse_large_footer
from fillerscope.problems.parquet_pages import SIMPLE_ENCODINGS, PageHeaders, refuse_wide
from fillerscope.store.schema import COLUMN_TYPES, Columns

if TYPE_CHECKING:
    from pyarrow import DataType, Int64Array, StringArray, Table
    from pyarrow.parquet import ParquetFile

FREE = 1 << 31  # bytes of memory that the tables of a run may take in any case,
RATIO = 400  # and so many more for each of their bytes on disk: answers that repeat themselves pack well
_CELL = 100  # bytes of memory, about, of a cell without its text
_TOKEN = 50  # of a token id in a list
_TEXT_OF = {"ids": 20, "meta": 30}  # what values take that are made of a byte of a column's text


def arrow_type(kind: str) -> DataType:
    """The pyarrow type of a name in the schema: `int64`, `list<int32>`."""
    import pyarrow

    inner = kind.removeprefix("list<").removesuffix(">")
    plain = getattr(pyarrow, inner)()
    return pyarrow.list_(plain) if inner != kind else plain


def table_bytes(columns: Columns) -> memoryview:
    """A table as it is stored, with the types of the schema."""
    import pyarrow
    from pyarrow import parquet

    arrays = {key: pyarrow.array(values, arrow_type(COLUMN_TYPES[key])) for key, values in columns.items()}
    data = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays), data, compression="zstd")
    return data.getbuffer()


def read_table(path: Path, allowed: int) -> tuple[Columns, int]:
    """The columns of a table, and about how many bytes they take; no more than are allowed.

    What no run writes is a ValueError."""
    from pyarrow import parquet

    with open_file(path) as source, open_file(path) as again:
        refuse_large_footer(again)
        with closing(parquet.ParquetFile(source)) as file:
            _check_columns(file)
            size = _size_of_cells(file, PageHeaders(again))
            _refuse_large(path, size, allowed)
            texts = [field.name for field in file.schema_arrow if field.type == arrow_type("string")]
            with closing(parquet.ParquetFile(source, metadata=file.metadata, read_dictionary=texts)) as packed:
                table = packed.read(use_threads=False)  # texts that are repeated are there once
    size += _size_of_texts(table)
    _refuse_large(path, size, allowed)
    return table.to_pydict(), size


def _check_columns(file: ParquetFile) -> None:
    """Refuse a table with other columns than a run has, or with other types. Format 2 wrote token ids as text."""
    refuse_wide(file)
    schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        raise ValueError("it has two columns of one name")
    for field in schema:
        kinds = (COLUMN_TYPES.get(field.name), "string" if field.name == "ids" else None)
        if _unnamed(field.type) not in [arrow_type(kind) for kind in kinds if kind]:
            raise ValueError(f"it has a column {field.name[:60]!r} of type {str(field.type)[:60]}, as no run has")


def _unnamed(kind: DataType) -> DataType:
    """A type without the name that writers give to the elements of lists."""
    import pyarrow

    return pyarrow.list_(kind.value_type) if pyarrow.types.is_list(kind) else kind


def _size_of_cells(file: ParquetFile, headers: PageHeaders) -> int:
    """About how many bytes a table takes beside texts that are repeated, by the headers of its pages."""
    size = 0
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        size += _CELL * group.num_rows * group.num_columns
        for index in range(group.num_columns):
            for page in headers.of(group.column(index)):
                if page.encoding not in SIMPLE_ENCODINGS:
                    raise ValueError("its pages are encoded as no run has them")
                size += page.size + (_TOKEN * page.values if file.schema.column(index).max_repetition_level else 0)
    return size


def _size_of_texts(table: Table) -> int:
    """How many bytes texts take where each cell has its own, and what is made of them."""
    import pyarrow.compute as pc
    from pyarrow import types

    size = 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        if types.is_dictionary(column.type):
            lengths = (_text_memory(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
            size += sum(pc.sum(one).as_py() or 0 for one in lengths) * _TEXT_OF.get(name, 1)
    return size


def _text_memory(texts: StringArray) -> Int64Array:
    """How many bytes each text takes: a byte a character, or up to four where not all are ASCII."""
    import pyarrow.compute as pc

    stored, characters = (count(texts).cast("int64") for count in (pc.binary_length, pc.utf8_length))
    return pc.if_else(pc.equal(stored, characters), characters, pc.multiply(characters, 4))


def _refuse_large(path: Path, size: int, allowed: int) -> None:
    if size > allowed:
        takes = (
            f"would take {size >> 20:,} MiB of memory, with the tables read before more than any run of its size does"
        )
        raise StoreError(f"{path} {takes}; ask for the run again where it comes from")
