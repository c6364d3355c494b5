"""Footers that would fill memory, byte by byte, as no writer makes them."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from fillerscope.problems import parquet_footer
from fillerscope.problems.parquet_footer import refuse_large_footer
from fillerscope.problems.parquet_pages import Compact
from fillerscope.problems.readers import read_rows


def number(value: int) -> bytes:
    """A number as Thrift's compact protocol writes those with a sign."""
    return _unsigned(value << 1)


def text(value: bytes) -> bytes:
    return _unsigned(len(value)) + value


def listed(structs: list[bytes]) -> bytes:
    return b"\xfc" + _unsigned(len(structs)) + b"".join(structs)


def column(name: bytes, children: int | None = None) -> bytes:
    """A column, or a struct of some."""
    last = b"\x15" + number(children) if children is not None else b""
    return (b"\x48" if last else b"\x15\x04\x25\0\x18") + text(name) + last + b"\0"


def footer_of(schema: list[bytes]) -> bytes:
    """A file with a schema and no rows."""
    return whole(b"\x15" + number(1) + b"\x19" + listed(schema) + b"\x16\0\x19\x0c\0")


def many_chunks(count: int) -> bytes:
    """A footer that says three bytes about each of so many columns."""
    schema = listed([column(b"r", 1), column(b"question")])
    group = b"\x19" + listed([b"\x26\0\0"] * count) + b"\x16\0\x16\0\0"
    return b"\x15" + number(1) + b"\x19" + schema + b"\x16\0\x19" + listed([group]) + b"\0"


def whole(footer: bytes) -> bytes:
    """A file that is all footer."""
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _unsigned(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + _unsigned(rest) if rest else bytes([low])


def refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        refuse_large_footer(io.BytesIO(content))


def test_a_footer_is_no_longer_than_memory_holds_what_is_made_of_it() -> None:
    refuse_large_footer(io.BytesIO(whole(many_chunks(1000))))
    refused(whole(many_chunks(parquet_footer.LARGEST_FOOTER // 3)), "its footer has more than 8 MiB")


def test_long_names_of_structs_are_counted_once_for_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 680 kB of them pyarrow makes nine gigabytes."""
    monkeypatch.setattr(parquet_footer, "LARGEST_PATHS", 100_000)
    leaf = column(b"x")
    refuse_large_footer(io.BytesIO(footer_of([column(b"r", 1), column(b"s" * 900, 90), *[leaf] * 90])))
    refused(footer_of([column(b"r", 1), column(b"s" * 900, 200), *[leaf] * 200]), "names of its columns take more than")
    refuse_large_footer(io.BytesIO(footer_of([column(b"r", 201), column(b"s" * 900, 1), *[leaf] * 201])))
    refused(footer_of([column(b"r", 1 << 30), leaf]), "names of its columns")
    refused(footer_of([leaf] * 40_001), "it has more than 10,000 columns")


def test_a_schema_cannot_hide_behind_another() -> None:
    """pyarrow keeps the last of two, and does not look at what a list says that it holds."""
    schema = b"\x29" + listed([column(b"r", 0)])
    refused(whole(schema + b"\x09" + number(2) + listed([column(b"r", 0)]) + b"\0"), "a header is damaged")
    refused(whole(schema + b"\x29\x13\0\0"), "its footer is damaged")  # row groups that are bytes
    refused(whole(schema), "its footer is cut off")


def test_a_long_note_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_footer, "LARGEST_NOTE", 1000)
    for length, is_long in [(900, False), (1100, True)]:
        note = b"\x18" + text(b"k") + b"\x18" + text(b"v" * length) + b"\0"
        content = whole(b"\x29" + listed([column(b"r", 0)]) + b"\x39" + listed([note]) + b"\0")
        if is_long:
            refused(content, "its footer has a note of more than")
        else:
            refuse_large_footer(io.BytesIO(content))


@pytest.mark.parametrize("content", [b"", b"PAR1", struct.pack("<I", 1 << 30) + b"PARE", b"\xff" * 4 + b"PAR1"])
def test_what_has_no_footer_is_left_to_pyarrow(content: bytes) -> None:
    refuse_large_footer(io.BytesIO(content))


def test_footers_of_many_kinds_of_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({
        "question": ["What is 1 + 1?"] * 50, "steps": [[["1"], None]] * 50, "about": [{"a": {"b": 1.5}}] * 50,
        "pairs": pyarrow.array([[(1, 2)]] * 50, pyarrow.map_("int8", "int8")),
    })  # fmt: skip
    sorting = [parquet.SortingColumn(0)]
    for version in ("1.0", "2.6"):
        parquet.write_table(table, path, version=version, row_group_size=7, sorting_columns=sorting)
        assert len(list(read_rows(path, "a.parquet"))) == 50


def test_lists_in_lists_are_refused() -> None:
    """Parquet has none, and its reader would go as deep as they do."""
    refused(whole(b"\x19" + b"\x19" * 5000 + b"\0"), "damaged")
    page = Compact(b"\xf9" + b"\x02" + b"\x19" * 5000)
    with pytest.raises(ValueError, match="damaged"):
        page.struct()
