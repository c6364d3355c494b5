"""CSV and TSV as spreadsheets and pandas write them, and tables that must be refused with their line."""

from __future__ import annotations

import csv
import io
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems.readers import read_rows
from fillerscope.problems.rows import BadRow, Row

ROWS = [
    {"question": 'She said "two", then\nasked: 2, or 3?', "answer": "2"},
    {"question": "Semicolons; tabs\tand é 数", "answer": ""},
]


def sound(rows: Iterable[Row | BadRow]) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, BadRow):
            raise row
        yield row


def rows(folder: Path, content: str | bytes, name: str = "rows.csv") -> list[dict[str, Any]]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [row.fields for row in sound(read_rows(path, name))]


def refusal(folder: Path, content: str | bytes, name: str = "rows.csv") -> str:
    with pytest.raises(ProblemError) as caught:
        rows(folder, content, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(delimiter: str, line_end: str = "\r\n") -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, ["question", "answer"], delimiter=delimiter, lineterminator=line_end)
    table.writeheader()
    table.writerows(ROWS)
    return text.getvalue()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("A.CSV", ","), ("a.tsv", "\t")]
)
def test_what_the_csv_module_writes_is_read_back(
    tmp_path: Path, name: str, delimiter: str, mark: bytes, line_end: str
) -> None:
    assert rows(tmp_path, mark + written(delimiter, line_end).encode(), name) == ROWS


def test_a_row_is_named_by_the_line_it_begins_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question\n"a\nb"\n\n  \nc\n')
    assert [row.place for row in read_rows(path, "r")] == ["r:2", "r:6"]


def test_one_column_needs_no_delimiter(tmp_path: Path) -> None:
    assert rows(tmp_path, "question\nWhat is 2; or 3?\n") == [{"question": "What is 2; or 3?"}]


def test_spaces_after_a_delimiter_belong_to_nobody(tmp_path: Path) -> None:
    assert rows(tmp_path, 'question , answer\n"a, b", "4"\n') == [{"question": "a, b", "answer": "4"}]


def test_a_tsv_file_is_divided_by_tabs_alone(tmp_path: Path) -> None:
    assert rows(tmp_path, "question, long\tanswer\na, b\t4\n", "a.tsv") == [{"question, long": "a, b", "answer": "4"}]


def test_cells_may_be_large(tmp_path: Path) -> None:
    text = "word " * 200_000
    assert rows(tmp_path, f'question,answer\n"{text}",1\n') == [{"question": text, "answer": "1"}]


@pytest.mark.parametrize("content", ["", "\n\n", "question,answer\n"])
def test_no_rows_are_no_rows(tmp_path: Path, content: str) -> None:
    assert rows(tmp_path, content) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\nquestion,answer,question\n", "rows.csv:2: columns 1 and 3 are both called 'question'; rename one"),
        ("question,answer, question\n", "rows.csv:1: columns 1 and 3 are both called 'question'"),
        (",question\n0,x\n", "rows.csv:1: column 1 of the header has no name; name every column (pandas"),
        ("question,\nx,\n", "rows.csv:1: column 2 of the header has no name"),
        ('question,answer\n"a\nb",1\nWhat, is it?,2,3\n', "rows.csv:4: 4 cells, and the header has 2; put text"),
        ("question,answer\nx\n", "rows.csv:2: 1 cell, and the header has 2"),
        ('question,answer\nx,1\n"y,2\nz,3\n', "rows.csv:3: not a readable row: unexpected end of data; close every"),
        ('question,answer\n"x" y,1\n', "rows.csv:2: not a readable row: ',' expected after '\"'"),
        ("question,answer\rx,1\r", "rows.csv:1: not a readable row: new-line character"),
        ("question,the;answer\nx,1\n", "rows.csv:1: the header can be divided by ',' and by ';'; put names"),
        (b"question\ncaf\xe9\n", "rows.csv:2: byte 4 is not UTF-8; save the file as UTF-8 text"),
        ("question\nx\n".encode("utf-16"), "rows.csv:1: byte 1 is not UTF-8"),
    ],
)
def test_a_table_that_leaves_a_doubt_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    assert message in refusal(tmp_path, content)


@pytest.mark.parametrize(("name", "start"), [("a.jsonl", '{"question": "'), ("a.csv", 'question\n"'), ("a.tsv", "q\n")])
def test_a_line_without_end_is_refused_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, start: str
) -> None:
    monkeypatch.setattr("fillerscope.problems.text_lines.LARGEST_LINE", 1 << 20)
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(start.encode() + b"x" * (1 << 20))
        file.truncate(1 << 32)  # the rest are zeros that take no space on the disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProblemError, match=rf"{name}:[12]: a line of more than 1 MiB"):
        list(sound(read_rows(path, name)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


def test_lines_of_an_unclosed_cell_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.problems.text_lines.LARGEST_LINE", 1 << 16)
    assert "field larger than field limit" in refusal(tmp_path, 'question\n"' + "a line\n" * (1 << 14))


def test_a_json_file_too_large_for_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_JSON", 1 << 20)
    reason = refusal(tmp_path, "[" + " " * (1 << 20) + "]", "a.json")
    assert reason == "a.json is larger than 1 MiB; write it as .jsonl, one object a line"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_brackets_without_end_are_refused(tmp_path: Path, name: str, opening: str) -> None:
    assert "invalid JSON" in refusal(tmp_path, opening * 100_000, name)


def test_a_small_parquet_file_that_takes_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of a dictionary that every row repeats, and a column that packs well."""
    path = tmp_path / "a.parquet"
    text = pa.array(["x" * (1 << 20)] * 256).dictionary_encode()
    pq.write_table(pa.table({"question": text}), path)
    assert path.stat().st_size < 1 << 18
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.problems.readers.LARGEST_TABLE", 1 << 22)
        with pytest.raises(ProblemError, match=r"a\.parquet: 5 rows hold over 4 MiB; take fewer with `problems.limit`"):
            list(read_rows(path, "a.parquet"))
    pq.write_table(pa.table({"question": text}), path, store_schema=False)
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_BATCH", 1 << 22)
    with pytest.raises(ProblemError, match=r"a\.parquet: rows after 0 take more than 4 MiB"):
        list(read_rows(path, "a.parquet"))
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_CHUNK", 1 << 19)
    with pytest.raises(ProblemError, match=r"a\.parquet: a column takes more than 0 MiB of a row group"):
        list(read_rows(path, "a.parquet"))


def test_two_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["question", "question"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ProblemError, match=r"a\.parquet: two columns are called 'question'; rename one"):
        list(read_rows(tmp_path / "a.parquet", "a.parquet"))
