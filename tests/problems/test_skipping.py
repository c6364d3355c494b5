"""Rows that cannot be read or are no problem, left out and counted: rows read = problems + rows skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.errors import ProblemError
from fillerscope.problems.recognise import recognise
from fillerscope.problems.rows import BadRow, Row
from fillerscope.problems.sources import ProblemSet, _Reading, load_problems, read_problems
from fillerscope.study.study import ProblemsSpec

GOOD = "good"
# Texts of lines of a .jsonl file that hold no problem, and of a .csv file with the columns id, question and answer.
BAD_JSON = [
    '{"question": "x",', "[1]", "7", "{}", '{"answer": "4"}', '{"question": 5}', '{"question": null}',
    '{"question": " "}', '{"question": "x", "answer": true}', '{"question": "x", "answer": 1e400}',
    '{"question": "x", "answer": NaN}', '{"question": "x", "answer": []}', '{"question": "x", "question": "y"}',
    '{"question": "half \\ud800"}', '{"question": "x", "id": {}}', '{"instruction": "a", "input": "b"}',
    '{"question": ' + "[" * 10_000, b'{"question": "caf\xe9"}', '{"question": "' + "x" * 70_000 + '"}',
]  # fmt: skip
BAD_CSV: list[str | bytes] = [
    "a,b", "a,b,c,d", '"open', '"x" y,b,c', "e, ,4", b"e,caf\xe9,4", 'e,"' + "x" * 70_000 + '",4',
]  # fmt: skip
BAD_CELLS: list[dict[str, Any]] = [
    {"question": None}, {"question": " "}, {"id": "first"}, {"when": 2**62},
]  # fmt: skip


def lines(path: Path, *rows: str | bytes) -> Path:
    path.write_bytes(b"".join((row.encode() if isinstance(row, str) else row) + b"\n" for row in rows))
    return path


def skipping(path: Path, **options: Any) -> ProblemSet:
    data = read_problems(ProblemsSpec(source=str(path), on_error="skip", **options))
    assert data.rows == len(data.problems) + len(data.skipped)
    return data


def check(path: Path, kinds: list[object], first: int = 1) -> None:
    """All good rows are problems, in order and with their numbers; each bad one is named by its line."""
    good = [number for number, kind in enumerate(kinds, 1) if kind is GOOD]
    if not good:
        with pytest.raises(ProblemError, match=f"none of its {len(kinds)} rows is a problem" if kinds else "no prob"):
            skipping(path)
        return
    data = skipping(path)
    assert data.rows == len(kinds)
    assert [problem.question for problem in data.problems] == [f"What is {number}?" for number in good]
    bad = [number for number, kind in enumerate(kinds, 1) if kind is not GOOD]
    separator = ": row " if path.suffix in (".json", ".parquet") else ":"
    assert [row.place for row in data.skipped] == [f"{path}{separator}{number + first - 1}" for number in bad]
    assert all(row.reason and "\n" not in row.reason for row in data.skipped)
    limited = skipping(path, limit=max(1, len(good) - 1))
    assert limited.problems == data.problems[: max(1, len(good) - 1)]
    if bad:
        with pytest.raises(ProblemError):
            load_problems(ProblemsSpec(source=str(path)))


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.problems.text_lines.LARGEST_LINE", 1 << 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.mark.usefixtures("_short_lines")
@settings(max_examples=60, deadline=None)
@given(kinds=st.lists(st.one_of(st.just(GOOD), st.sampled_from(BAD_JSON)), max_size=12))
def test_rows_of_json_lines_reconcile(folder: Path, kinds: list[object]) -> None:
    rows = [
        json.dumps({"question": f"What is {number}?", "answer": number}) if kind is GOOD else kind
        for number, kind in enumerate(kinds, 1)
    ]
    check(lines(folder / "rows.jsonl", *rows), kinds)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(kinds=st.lists(st.one_of(st.just(GOOD), st.sampled_from(BAD_CSV)), max_size=12))
def test_rows_of_csv_reconcile(folder: Path, kinds: list[object]) -> None:
    rows = [f"r{number},What is {number}?,{number}" if kind is GOOD else kind for number, kind in enumerate(kinds, 1)]
    check(lines(folder / "rows.csv", "id,question,answer", *rows), kinds, first=2)  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(kinds=st.lists(st.one_of(st.just(GOOD), st.sampled_from(BAD_CELLS)), max_size=12))
def test_rows_of_parquet_reconcile(folder: Path, kinds: list[object]) -> None:
    kinds = [GOOD, *kinds]
    rows: list[dict[str, Any]] = [
        {"id": "first" if number == 1 else f"r{number}", "question": f"What is {number}?", "answer": 1.0, "when": 0}
        | ({} if kind is GOOD else kind)  # type: ignore[operator]
        for number, kind in enumerate(kinds, 1)
    ]
    types = [("id", pa.string()), ("question", pa.string()), ("answer", pa.float64()), ("when", pa.timestamp("us"))]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(types)), folder / "rows.parquet")
    check(folder / "rows.parquet", kinds)


def test_a_date_that_python_holds_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["x"], "when": [datetime(2024, 1, 1)]}), tmp_path / "rows.parquet")
    assert len(skipping(tmp_path / "rows.parquet").problems) == 1


@settings(max_examples=30, deadline=None)
@given(kinds=st.lists(st.one_of(st.just(GOOD), st.sampled_from(BAD_JSON[1:16])), max_size=12))
def test_rows_of_a_json_array_reconcile(folder: Path, kinds: list[object]) -> None:
    rows = [
        json.dumps({"question": f"What is {number}?"}) if kind is GOOD else str(kind)
        for number, kind in enumerate(kinds, 1)
    ]
    (folder / "rows.json").write_text(f"[{','.join(rows)}]")
    check(folder / "rows.json", kinds)


def test_an_unclosed_quote_costs_one_line(tmp_path: Path) -> None:
    rows = [f"q{number},{number}" for number in range(100)]
    path = lines(tmp_path / "rows.csv", "question,answer", '"open,1', *rows, 'x,"open')
    data = skipping(path)
    assert [problem.question for problem in data.problems] == [f"q{number}" for number in range(100)]
    assert [bad.place for bad in data.skipped] == [f"{path}:2", f"{path}:103"]


def test_quotes_that_take_for_ever_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.problems.delimited.MOST_AGAIN", 10_000)
    path = lines(tmp_path / "rows.csv", "question,answer", *['a","'] * 1000)
    with pytest.raises(ProblemError, match=r"rows\.csv: too many rows with broken quotes"):
        skipping(path)


def test_lines_that_a_quote_joins_are_limited_together(tmp_path: Path) -> None:
    """Each line is short enough, and a row of all of them would fill memory."""
    path = lines(tmp_path / "rows.csv", "question,answer", '"' + "x" * 30_000, *["x" * 30_000] * 3, '",1', "q,2")
    data = skipping(path)
    assert [problem.question for problem in data.problems] == ["q"]
    assert data.skipped[0].place == f"{path}:2"
    assert "it goes on for more than 0 MiB" in data.skipped[0].reason
    joined = lines(tmp_path / "joined.csv", "question,answer", *['"' + "x" * 30_000 + "\n" + "x" * 30_000 + '",1'] * 5)
    assert len(skipping(joined).problems) == 5


def test_a_row_with_a_form_of_its_own_is_replaced_by_the_next(tmp_path: Path) -> None:
    answers = ["#### 1", "two", "#### 3", "#### 4"]
    rows = [json.dumps({"question": "x", "answer": answer}) for answer in answers]
    path = lines(tmp_path / "rows.jsonl", *rows)
    data = skipping(path, answer_form="hashes", limit=3)
    assert [problem.answer for problem in data.problems] == ["1", "3", "4"]
    assert [problem.id for problem in data.problems] == ["row-000001", "row-000003", "row-000004"]
    assert data.recognised is not None
    assert data.recognised.answers == "what follows #### at its end"
    with pytest.raises(ProblemError, match="3 of 4 answers end with ####"):
        skipping(path)  # which rows are meant is a question about all of them


def test_a_row_without_an_answer_is_bad_where_answers_are_graded(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", '{"question": "x", "answer": "1"}', '{"question": "y"}')
    spec = ProblemsSpec(source=str(path), on_error="skip")
    assert len(read_problems(spec).problems) == 2
    (bad,) = read_problems(spec, graded=True).skipped
    assert str(bad) == f"{path}:2: no answer to grade by; give one"


def test_many_reasons_are_cut_and_still_counted(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", '{"question": "x"}', *["7"] * 1500)
    record = skipping(path).record()
    assert (record["rows"], record["skipped"], len(record["skipped_rows"])) == (1501, 1500, 1000)
    assert record["skipped_rows"][0]["place"] == f"{path}:2"


def test_repeated_questions_are_kept_and_counted(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "rows.jsonl", *['{"question": "x y", "answer": "1"}'] * 3, '{"question": " x  y", "answer": "2"}'
    )
    data = read_problems(ProblemsSpec(source=str(path)))
    assert (len(data.problems), data.repeated, data.record()["repeated"]) == (4, 3, 3)
    assert read_problems(ProblemsSpec(limit=64)).repeated == 0


ANSWERS = ["#### 1", "#### ", "x", "", "\\boxed{1}", "\\boxed{}", "\\boxed{1} #### 2", True, 3, "####"]
COLUMNS = ["answer", "target", "solution", "Solution"]


@st.composite
def judged_together(draw: st.DrawFn) -> tuple[list[Row | BadRow], str | None]:
    """Rows of which most are alike, as some can be problems or not by what others hold; and how their file ends."""
    usual = [draw(st.sampled_from(ANSWERS)) for _ in range(2)]
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=2))
    rows: list[Row | BadRow] = []
    for number in range(draw(st.integers(0, 40))):
        place = f"rows:{number}"
        answer = draw(st.sampled_from(usual * 5 + ANSWERS))
        row = Row(place, {"question": f"What is {number}?", draw(st.sampled_from(columns)): answer})
        rows.append(row if draw(st.integers(0, 20)) else BadRow(place, "broken"))
    return rows, draw(st.sampled_from([None, None, "the file ends early"]))


def outcome(rows: list[Row | BadRow], end: str | None, spec: ProblemsSpec, graded: bool) -> object:
    def source() -> Iterator[Row | BadRow]:
        yield from rows
        if end:
            raise ProblemError(end)

    try:
        data = _Reading(spec, source(), graded).problem_set()
    except ProblemError as error:
        return str(error)
    return data.problems, data.record()


@settings(max_examples=300, deadline=None)
@given(
    file=judged_together(),
    limit=st.sampled_from([None, 1, 2, 3, 5, 8]),
    form=st.sampled_from(["auto", "hashes", "box", "whole"]),
    graded=st.booleans(),
)
def test_rounds_that_are_left_out_would_change_nothing(
    file: tuple[list[Row | BadRow], str | None], limit: int | None, form: Any, graded: bool
) -> None:
    """By definition all rows are recognised anew whenever others take the place of those that are skipped."""
    spec = ProblemsSpec(source="rows.jsonl", on_error="skip", limit=limit, answer_form=form)
    quick = outcome(*file, spec, graded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Reading, "_replace", lambda *_: None)
        assert outcome(*file, spec, graded) == quick


@pytest.mark.parametrize("form", ["hashes", "auto"])
def test_one_place_that_many_rows_are_tried_for_takes_few_rounds(monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    rounds = Mock(wraps=recognise)
    monkeypatch.setattr("fillerscope.problems.sources.recognise", rounds)
    answers = ["#### 1"] * 9 + ["x" if form == "hashes" else ""] * 5000 + ["#### 2"] * 2
    rows: list[Row | BadRow] = [Row(f"rows:{n}", {"question": "x", "answer": a}) for n, a in enumerate(answers, 1)]
    spec = ProblemsSpec(source="rows.jsonl", on_error="skip", limit=10, answer_form=form)
    data = _Reading(spec, iter(rows), graded=True).problem_set()
    assert (len(data.problems), data.problems[-1].answer) == (10, "2")
    assert (data.rows, len(data.skipped), data.skipped[-1].place) == (5010, 5000, "rows:5009")
    assert rounds.call_count < 20


def test_rows_that_are_judged_again_for_ever_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two forms worked solutions have changes with each row, and so it is all rows that are judged."""
    monkeypatch.setattr("fillerscope.problems.sources.MOST_AGAIN", 10_000)
    texts = [r"\boxed{1} #### 1"] * 999 + [r"\boxed{}", "####"] * 500
    rows: list[Row | BadRow] = [Row(f"rows:{n}", {"question": "x", "solution": text}) for n, text in enumerate(texts)]
    spec = ProblemsSpec(source="rows.jsonl", on_error="skip", limit=1000)
    with pytest.raises(ProblemError, match="too many of its rows are skipped because of others; name the"):
        _Reading(spec, iter(rows), graded=True).problem_set()


def test_of_a_skipped_row_no_more_is_kept_than_is_shown(tmp_path: Path) -> None:
    """A private letter is written as ten characters where it is quoted."""
    path, name = tmp_path / "a.jsonl", "\U000e0041" * 250
    path.write_text(3 * (json.dumps({"id": name, "question": "x"}) + "\n"))
    data = read_problems(ProblemsSpec(source=str(path), on_error="skip"))
    assert len(data.problems) == 1
    assert [len(bad.reason) <= 200 for bad in data.skipped] == [True, True]
    with pytest.raises(ProblemError, match="is also at") as caught:
        read_problems(ProblemsSpec(source=str(path)))
    assert len(str(caught.value)) < 1000 + len(str(path))
