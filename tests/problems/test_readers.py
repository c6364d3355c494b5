"""CSV and TSV as spreadsheets and pandas write them, and tables that must be refused with their line."""

from __future__ import annotations

import csv
import io
import json
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fillerscope.errors import ProblemError
from fillerscope.files import open_file
from fillerscope.problems.parquet_pages import PageHeaders
from fillerscope.problems.readers import read_rows
from fillerscope.problems.recognise import recognise
from fillerscope.problems.rows import BadRow, Row, kind_of, one_line
from fillerscope.study.study import ProblemsSpec
from support.watchdog import watched

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
    assert "it goes on for more than" in refusal(tmp_path, 'question\n"' + "a line\n" * (1 << 14))


def test_a_json_file_too_large_for_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_JSON", 1 << 20)
    reason = refusal(tmp_path, "[" + " " * (1 << 20) + "]", "a.json")
    assert reason == "a.json is larger than 1 MiB; write it as .jsonl, one object a line"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_brackets_without_end_are_refused(tmp_path: Path, name: str, opening: str) -> None:
    assert "invalid JSON" in refusal(tmp_path, opening * 100_000, name)


def parquet_refusal(path: Path) -> str:
    with pytest.raises(ProblemError) as caught:
        list(read_rows(path, "a.parquet"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_small_parquet_file_that_takes_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of a dictionary that every row repeats, and a column that packs well."""
    path = tmp_path / "a.parquet"
    text = pa.array(["x" * (1 << 20)] * 256).dictionary_encode()
    pq.write_table(pa.table({"question": text}), path)
    assert path.stat().st_size < 1 << 18
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.problems.readers.LARGEST_TABLE", 5 << 20)
        assert "a.parquet: 5 rows take over 5 MiB of memory; take fewer with `problems.limit`" in parquet_refusal(path)
    pq.write_table(pa.table({"question": text}), path, store_schema=False)
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.problems.parquet_rows.LARGEST_BATCH", 1 << 20)
        assert "a.parquet: rows after 0 take more than 1 MiB" in parquet_refusal(path)
    monkeypatch.setattr("fillerscope.problems.parquet_rows.LARGEST_PAGES", 1 << 20)
    assert "a.parquet: its pages unpack to more than 1 MiB" in parquet_refusal(path)


def test_a_footer_that_would_fill_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its length, before pyarrow makes up to 240 bytes of each of it."""
    monkeypatch.setattr("fillerscope.problems.parquet_footer.LARGEST_FOOTER", 1 << 8)
    pq.write_table(pa.table({"question": ["What is 1 + 1?"]}), tmp_path / "a.parquet")
    assert "after row 0: its footer has more than" in parquet_refusal(tmp_path / "a.parquet")


def test_fewer_rows_are_read_at_once_where_values_may_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["x" * (1 << 20)] * 64}), path, store_schema=False)
    sizes: list[int] = []

    def counted(file: pq.ParquetFile, size: int, *rest: Any, **_: Any) -> Iterator[pa.RecordBatch]:
        sizes.append(size)
        return file.reader.iter_batches(size, row_groups=rest[0], column_indices=[0], use_threads=False)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr("fillerscope.problems.parquet_rows.LARGEST_BATCH", 6 << 20)
    assert len(list(read_rows(path, "a.parquet"))) == 64
    assert sizes == [5]


def test_the_size_that_a_page_has_is_believed_and_not_that_of_the_file(tmp_path: Path) -> None:
    """The end of the file is that of a small column, and its one page unpacks to two gigabytes."""
    path = tmp_path / "a.parquet"
    honest = pa.table({"question": ["What is 1 + 1?"]})
    pq.write_table(honest, path, compression="zstd", use_dictionary=False, write_statistics=False)
    content = path.read_bytes()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = chunk.data_page_offset
    (page,) = PageHeaders(io.BytesIO(content)).of(chunk)
    assert content[start + 2 : start + 4] == bytes([0x15, page.size << 1])  # field 2, zigzag
    path.write_bytes(content[: start + 3] + b"\xfe\xff\xff\xff\x0f" + content[start + 4 :])
    assert "its pages unpack to more than 1024 MiB" in parquet_refusal(path)


def test_lists_and_structs_of_parquet_are_not_read(tmp_path: Path) -> None:
    """200 million nulls in a thousand bytes: neither their size nor their number is told by pyarrow."""
    path, count = tmp_path / "a.parquet", 20_000_000
    nulls = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))
    pairs = pa.array([[(1, 2)]], pa.map_("int8", "int8"))
    table = {"x": nulls, "question": ["What is 1 + 1?"], "s": [{"a": 1}], "m": pairs}
    pq.write_table(pa.table(table), path, compression="zstd", data_page_size=1 << 30)
    assert path.stat().st_size < 3000
    (row,) = sound(read_rows(path, "a.parquet"))
    assert len(row.fields["x"]) == 1
    assert list(row.fields) == ["x", "question", "s", "m"]
    assert row.fields["question"] == "What is 1 + 1?"
    assert [kind_of(row.fields[key]) for key in "xsm"] == ["an array", "an object", "an array"]


def test_a_list_does_not_come_along_with_a_column_of_its_first_name(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["What is 1 + 1?"], "question.x": [[None]]}), path)
    assert "column 'question.x.list.element' goes by the name of another; rename one" in parquet_refusal(path)


def test_a_table_of_lists_alone_has_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1], [2], [3]]}), tmp_path / "a.parquet")
    assert [list(row.fields) for row in sound(read_rows(tmp_path / "a.parquet", "a.parquet"))] == [["x"]] * 3


def test_values_that_take_their_width_when_they_are_missing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.nulls(1, pa.binary(1 << 20))}), path)
    assert "values of more than 64 KiB each" in parquet_refusal(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_wide_table_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """300,000 names were each compared with all before it."""
    names, path = [f"c{number}" for number in range(300_000)], tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text(",".join(names) + "\n")
    else:
        names = names[:11_000]
        pq.write_table(pa.table([pa.array(["x"])] * len(names), names), path)
    with watched(), pytest.raises(ProblemError, match="more than 10,000 columns"):
        list(read_rows(path, path.name))


def test_fields_of_rows_together_are_limited() -> None:
    rows = [Row(f"a:{number}", {"question": "q", **{f"{number}-{i}": 1 for i in range(100)}}) for number in range(101)]
    with pytest.raises(ProblemError, match="more than 10,000 different fields"):
        recognise(rows, ProblemsSpec(source="a.jsonl"))
    recognise(rows[:100], ProblemsSpec(source="a.jsonl"))


@pytest.mark.parametrize(
    ("name", "line"), [("a.jsonl", b"{}\n"), ("a.csv", b"q\n"), ("a.csv", b"q,q\n"), ("a.jsonl", b'{"a": [[]]}\n')]
)
def test_many_small_rows_are_limited_by_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(b"question\n" + line * 5000)
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_TABLE", 1 << 20)
    with pytest.raises(ProblemError, match=rf"{name}: [0-9,]+ rows take over 1 MiB of memory; take fewer with"):
        list(read_rows(path, name))


@pytest.mark.parametrize(
    ("text", "rows"), [("x" * 999, 3), ("\U0001f600" + "x" * 999, 2), ("\U0001f600" + " " * 999, 1)]
)
def test_a_text_counts_as_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, rows: int) -> None:
    """Four bytes a character where one of them is beyond the first 65,536, and a copy without blanks at its end."""
    path = tmp_path / "a.jsonl"
    path.write_text(10 * (json.dumps({"question": "x", "answer": text}) + "\n"))
    monkeypatch.setattr("fillerscope.problems.readers.LARGEST_TABLE", 10_000 if rows < 3 else 6000)
    with pytest.raises(ProblemError, match=f"a.jsonl: {rows + 1} rows take over"):
        list(read_rows(path, "a.jsonl"))


def test_of_arrays_and_objects_in_json_only_that_they_are_there_is_kept(tmp_path: Path) -> None:
    lists = [[[]] * 1000, [], {"a": [[]] * 1000}, {}]
    (fields,) = rows(tmp_path, json.dumps({str(number): value for number, value in enumerate(lists)}), "a.jsonl")
    assert list(fields.values()) == [[None], [], {"": None}, {}]


def test_a_line_of_many_small_values_is_refused(tmp_path: Path) -> None:
    """16 MiB of empty lists take 400 MiB, and a .json file of them gigabytes."""
    line = '{"question": "q", "x": [' + "[]," * 2_500_000 + "[]]}"
    assert "its values take more than 256 MiB of memory" in refusal(tmp_path, line, "a.jsonl")


def test_a_json_file_of_many_small_values_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.files.MOST_MEMORY", 1 << 20)
    assert "its values take more than 1 MiB of memory" in refusal(tmp_path, "[" + "{}," * 5000 + "{}]", "a.json")


def test_a_row_of_very_many_lines_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open quote before 16 million empty lines took gigabytes; leading empty lines do no harm."""
    monkeypatch.setattr("fillerscope.problems.delimited.MOST_LINES", 1000)
    assert rows(tmp_path, "\n" * 5000 + "question\nq\n") == [{"question": "q"}]
    assert "it goes on for more than 1,000 lines" in refusal(tmp_path, 'question\n"' + "\n" * 5000)


def test_a_message_is_made_of_the_beginning_of_a_long_text() -> None:
    with watched(10):
        assert one_line("word " * 10_000_000) == " ".join(["word"] * 39) + " ..."


def test_two_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["question", "question"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ProblemError, match=r"a\.parquet: two columns are called 'question'; rename one"):
        list(read_rows(tmp_path / "a.parquet", "a.parquet"))


def parquet_bytes() -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table({"question": ["2 + 5"], "answer": ["7"]}), content)
    return content.getvalue()


SOURCES = {
    ".csv": b"question,answer\n2 + 5,7\n",
    ".tsv": b"question\tanswer\n2 + 5\t7\n",
    ".jsonl": b'{"question": "2 + 5", "answer": "7"}\n',
    ".json": b'[{"question": "2 + 5", "answer": "7"}]',
    ".parquet": parquet_bytes(),
}


@pytest.mark.parametrize("suffix", SOURCES)
def test_a_link_counts_by_what_it_leads_to(tmp_path: Path, suffix: str) -> None:
    """A private file, whose questions would be kept and sent, has another ending."""
    link = tmp_path / f"data{suffix}"
    for name, is_taken in (
        (f"other{suffix}", True),
        ("blobs/" + "a" * 64, True),
        ("blobs/ab/" + "b" * 64, True),
        ("id_ed25519", False),
    ):
        target = tmp_path / "elsewhere" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(SOURCES[suffix])
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        if is_taken:
            assert [row.fields for row in sound(read_rows(link, "data"))] == [{"question": "2 + 5", "answer": "7"}]
        else:
            with pytest.raises(ProblemError, match=r"data is a link to a file that does not end in \.jsonl"):
                next(read_rows(link, "data"))


@pytest.mark.parametrize("suffix", SOURCES)
def test_a_file_is_opened_once_and_that_one_is_looked_at(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is at its path before and after."""
    path, private, opened = tmp_path / f"data{suffix}", tmp_path / "id_ed25519", list[Path]()
    path.write_bytes(SOURCES[suffix])
    private.write_bytes(SOURCES[suffix])

    def exchanged(given: Path) -> io.BufferedReader:
        opened.append(given)
        path.unlink()
        path.symlink_to(private)
        file = open_file(given)
        path.unlink()
        path.write_bytes(SOURCES[suffix])
        return file

    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.problems.readers.open_file", exchanged)
        with pytest.raises(ProblemError, match=r"a link to a file that does not end in|it was replaced"):
            list(read_rows(path, "data"))
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.problems.readers.open_file", lambda given: opened.append(given) or open_file(given))
        assert len(list(read_rows(path, "data"))) == 1
    assert opened == [path, path]
    rows = read_rows(path, "data")
    first = next(rows)
    path.unlink()
    assert [first, *rows] == [Row(first.place, {"question": "2 + 5", "answer": "7"})]  # type: ignore[union-attr]
