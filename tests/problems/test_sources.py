"""Where problems come from: files of every kind, the hub, and rows that must be refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems.hub import choose_files
from fillerscope.problems.hub_listing import Listing
from fillerscope.problems.sources import Problem, load_problems, problems_digest
from fillerscope.study.study import ProblemsSpec
from support.hub import Hub, serving, use

MATH500 = Path(__file__).parents[3] / "shared/data/math500.jsonl"
ROWS: list[dict[str, Any]] = [
    {"question": "What is 2 + 2?", "answer": "4", "id": "first"},
    {"question": "What is 3 + 3?", "answer": "6", "id": "second"},
]


def load(path: Path, **options: Any) -> list[Problem]:
    return load_problems(ProblemsSpec(source=str(path), **options))


def refusal(path: Path, **options: Any) -> str:
    """The message, after checking what every message must be: one line that names the file."""
    with pytest.raises(ProblemError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message.replace(f"{path.parent}/", "")


def jsonl(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def parquet(folder: Path, rows: list[dict[str, Any]], name: str = "rows.parquet") -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / name)
    return folder / name


def test_a_problem_checks_itself() -> None:
    assert Problem("a", "b", "").meta == {}
    with pytest.raises(ProblemError, match="non-empty id"):
        Problem(" ", "what?", "")
    with pytest.raises(ProblemError, match="'a' has an empty question"):
        Problem("a", "\n", "")


def test_builtin_gives_64_or_as_many_as_asked() -> None:
    assert len(load_problems(ProblemsSpec())) == 64
    some = load_problems(ProblemsSpec(limit=5, seed=3, difficulty=(2,)))
    assert [problem.meta["difficulty"] for problem in some] == [2] * 5
    assert some[0].id == "builtin-3-2-00000"


@pytest.mark.skipif(not MATH500.exists(), reason="MATH-500 is not on this machine")
def test_math500_needs_no_mapping() -> None:
    problems = load(MATH500)
    assert len(problems) == 500
    first = problems[0]
    assert first.id == "test/precalculus/807.json"
    assert first.question.startswith("Convert the point $(0,3)$")
    assert first.answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert first.meta == {"subject": "Precalculus", "level": 2}
    assert all(set(problem.meta) == {"subject", "level"} for problem in problems)


@pytest.mark.parametrize("key", [None, "data", "rows", "problems", "questions"])
def test_json_is_an_array_or_an_object_with_one(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(ROWS if key is None else {"version": 1, key: ROWS}))
    assert [problem.id for problem in load(path)] == ["first", "second"]


def test_all_formats_give_the_same_problems(tmp_path: Path) -> None:
    array = tmp_path / "rows.json"
    array.write_text(json.dumps(ROWS))
    expected = [Problem("first", "What is 2 + 2?", "4"), Problem("second", "What is 3 + 3?", "6")]
    for path in (
        jsonl(tmp_path, *ROWS),
        array,
        parquet(tmp_path, ROWS),
        parquet(tmp_path, ROWS, "A.PARQUET"),
    ):
        assert load(path) == expected


@pytest.mark.parametrize("question", ["problem", "question", "prompt", "input", "Problem", "QUESTION"])
@pytest.mark.parametrize("answer", ["answer", "target", "expected_answer", "final_answer", "Answer"])
def test_usual_names_are_recognised(tmp_path: Path, question: str, answer: str) -> None:
    (problem,) = load(jsonl(tmp_path, {question: "What is 1 + 1?", answer: 2}))
    assert (problem.id, problem.question, problem.answer) == ("row-000001", "What is 1 + 1?", "2")


def test_earlier_names_win_and_the_rest_is_meta(tmp_path: Path) -> None:
    row = {"id": 7, "unique_id": "u/1", "prompt": "raw", "problem": "What?", "target": "a", "answer": "a"}
    (problem,) = load(jsonl(tmp_path, row))
    assert (problem.id, problem.question, problem.answer) == ("u/1", "What?", "a")
    assert problem.meta == {"id": 7, "prompt": "raw", "target": "a"}


def test_a_mapping_names_the_columns(tmp_path: Path) -> None:
    row = {"key": 12, "frage": "Was ist 1 + 1?", "antwort": 2.0, "question": "ignored"}
    fields = {"id": "key", "question": "frage", "answer": "antwort"}
    (problem,) = load(jsonl(tmp_path, row), fields=fields)
    assert problem == Problem("12", "Was ist 1 + 1?", "2", {"question": "ignored"})


def test_the_question_is_kept_to_the_character(tmp_path: Path) -> None:
    text = "  Two spaces, a tab\t, a line\n\u2028 and é, 数.\n"
    for path in (jsonl(tmp_path, {"question": text}), parquet(tmp_path, [{"question": text}])):
        assert load(path)[0].question == text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("She has 6 * 7.\n#### 42", "42"),
        ("#### 1,234 ", "1,234"),
        (" x^2 ", "x^2"),
        (3, "3"),
        (2.5, "2.5"),
        (4.0, "4"),
        (None, ""),
    ],
)
def test_answers_become_text(tmp_path: Path, given: Any, expected: str) -> None:
    assert load(jsonl(tmp_path, {"question": "What?", "answer": given}))[0].answer == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("6.02e23", "602000000000000000000000"),
        ("1e23", "100000000000000000000000"),
        ("12345678901234567890.5", "12345678901234567890.5"),
        ("2.00000000000000000001", "2.00000000000000000001"),
        ("1.6e-19", "1.6e-19"),
        ("2.50", "2.50"),
        ("18.0", "18"),
        ("-1.8E1", "-18"),
        ("-0.0", "0"),
        ("0e99999999999999999999", "0"),
        ("1e-99999999999999999999", "1e-99999999999999999999"),
    ],
)
def test_numbers_stay_as_they_are_written(tmp_path: Path, written: str, expected: str) -> None:
    (problem,) = load(jsonl(tmp_path, f'{{"question": "What?", "answer": {written}, "weight": {written}}}'))
    assert problem.answer == expected
    assert json.dumps(problem.meta["weight"]) == repr(float(written))


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.float16(), [0.1, 18, 2048], ["0.1", "18", "2048"]),
        (pa.float32(), [0.1, 2.7, 18, 1e23, 2**30], ["0.1", "2.7", "18", "1" + "0" * 23, "1073741824"]),
        (pa.float64(), [0.1, 18, 1e23, 2**60], ["0.1", "18", "1" + "0" * 23, "1152921504606846976"]),
    ],
)
def test_stored_numbers_are_the_shortest_decimals(
    tmp_path: Path, kind: pa.DataType, stored: list[float], expected: list[str]
) -> None:
    answers = pa.array([float(value) for value in stored], pa.float64()).cast(kind)
    pq.write_table(pa.table({"question": ["What?"] * len(stored), "answer": answers}), tmp_path / "rows.parquet")
    assert [problem.answer for problem in load(tmp_path / "rows.parquet")] == expected


def test_meta_holds_small_scalars_only(tmp_path: Path) -> None:
    small = {"subject": "s" * 200, "level": 2, "weight": 0.5, "hard": True}
    large: dict[str, Any] = {"text": "s" * 201, "solution": "short", "tags": ["a"], "more": {}, "none": None}
    odd = {"huge": 2**63, "nan": float("nan"), "broken": "\ud800"}
    (problem,) = load(jsonl(tmp_path, {"question": "What?"} | small | large | odd))
    assert problem.meta == small


def test_limit_takes_the_first_and_never_too_many(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *ROWS)
    assert [problem.id for problem in load(path, limit=1)] == ["first"]
    assert len(load(path, limit=99)) == 2


def test_blank_lines_and_a_byte_order_mark_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\n" + json.dumps(ROWS[0]).encode() + b"\r\n  \n" + json.dumps(ROWS[1]).encode())
    assert [problem.id for problem in load(path)] == ["first", "second"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question": "x",', "rows.jsonl:3: invalid JSON at column 18"),
        ("[1]", "rows.jsonl:3: expected an object with named fields, found an array"),
        ("7", "rows.jsonl:3: expected an object with named fields, found a number"),
        (
            {"frage": "x", "level": 1},
            "rows.jsonl:3: no field problem or question or prompt or instruction or input or query; the row has ",
        ),
        (
            {"frage": "x", "level": 1},
            "the row has frage, level; name the question's column in `problems.fields`",
        ),
        ({}, "the row has no fields"),
        ({"question": 5}, "rows.jsonl:3: question: a question is text, found a number"),
        ({"question": None}, "rows.jsonl:3: question: a question is text, found null"),
        ({"question": " \n"}, "rows.jsonl:3: question: the question is empty"),
        ({"question": "half \ud83d"}, "rows.jsonl:3: question: holds half a character"),
        (
            {"question": "x", "answer": ["4"]},
            "rows.jsonl:3: answer: expected text or a number, found an array",
        ),
        ({"question": "x", "answer": True}, "rows.jsonl:3: answer: expected text or a number, found true or false"),
        ('{"question": "x", "answer": NaN}', "rows.jsonl:3: answer: expected text or a number, found nan; write null"),
        ('{"question": "x", "answer": 1e400}', "rows.jsonl:3: answer: expected text or a number, found inf"),
        ({"question": "x", "id": False}, "rows.jsonl:3: id: expected text or a number, found true or false"),
        ('{"question": "x", "a": 1, "question": "y"}', "rows.jsonl:3: key 'question' is given twice; remove one"),
        ({"question": "x", "id": {}}, "rows.jsonl:3: id: expected text or a number, found an object"),
        ({"question": "x", "id": "x" * 900}, "rows.jsonl:3: an id of 900 characters, 250 at most; name another column"),
        ({"question": "x", "id": "first"}, "rows.jsonl:3: id 'first' is also at rows.jsonl:1; give each row"),
        pytest.param('{"question": ' + "[" * 100_000, "rows.jsonl:3: invalid JSON", id="brackets"),
        pytest.param('{"question": ' + "1" * 5000 + "}", "rows.jsonl:3: invalid JSON", id="digits"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_field(tmp_path: Path, row: Any, message: str) -> None:
    assert message in refusal(jsonl(tmp_path, ROWS[0], "", row))


def test_rows_of_arrays_and_parquet_are_named_by_their_number(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"question": None, "answer": "", "id": "third"}]
    array = tmp_path / "rows.json"
    array.write_text(json.dumps(rows))
    assert "rows.json: row 3: question: a question is text, found null" in refusal(array)
    assert "rows.parquet: row 3: question: a question is text" in refusal(parquet(tmp_path, rows))
    twice = parquet(tmp_path, [ROWS[0], ROWS[0]])
    assert "rows.parquet: row 2: id 'first' is also at rows.parquet: row 1" in refusal(twice)


@pytest.mark.parametrize("role", ["id", "question", "answer"])
def test_a_mapping_to_a_missing_column_says_what_there_is(tmp_path: Path, role: str) -> None:
    message = refusal(jsonl(tmp_path, ROWS[0]), fields={role: "absent"})
    assert f"no field 'absent', which problems.fields.{role} names; the row has question, answer, id" in message


@pytest.mark.parametrize("role", ["id", "answer"])
def test_a_mapped_column_may_not_be_empty_but_a_recognised_one_may(tmp_path: Path, role: str) -> None:
    path = jsonl(tmp_path, {"question": "What?", role: " "})
    assert load(path)[0] == Problem("row-000001", "What?", "")
    assert f"rows.jsonl:1: {role}: is empty" in refusal(path, fields={role: role})


def test_a_mapped_answer_needs_something_after_the_mark(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "What?", "answer": "working ####"})
    assert load(path)[0].answer == ""
    assert "nothing follows ####" in refusal(path, fields={"answer": "answer"})


def test_json_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for text, found in (
        ("5", "found a number"),
        ('{"a": []}', "found an object with 0 of them"),
        ('{"data": [], "rows": []}', "found an object with 2 of them"),
    ):
        path.write_text(text)
        assert found in refusal(path)
    path.write_text('{"question": "a"}\n{"question": "b"}\n')
    assert "rows.json:2: invalid JSON at column 1: Extra data; if it holds one object a line" in refusal(path)
    path.write_text('[{"question": "a"}, 5]')
    assert "rows.json: row 2: expected an object" in refusal(path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_nothing_is_not_a_source(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    assert "holds no problems; give a source with at least one row" in refusal(path)


def test_empty_arrays_and_tables_are_no_source(tmp_path: Path) -> None:
    array = tmp_path / "rows.json"
    array.write_text("[]")
    pq.write_table(pa.table({"question": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    for path in (array, tmp_path / "rows.parquet"):
        assert "holds no problems" in refusal(path)


def test_files_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    assert "no file of problems at gone.jsonl; check the path" in refusal(tmp_path / "gone.jsonl")
    assert "no file of problems at gone.parquet" in refusal(tmp_path / "gone.parquet")
    assert "is a folder; give one file in it that ends in .jsonl or .json or .parquet or .csv or .tsv" in refusal(
        tmp_path
    )
    table = tmp_path / "rows.xlsx"
    table.write_text("question\nx\n")
    assert "rows.xlsx is not a source of problems; give `builtin`, a data set (gsm8k, math500" in refusal(table)
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    assert "cannot read loop.jsonl: Too many levels of symbolic links" in refusal(loop)


def test_bytes_that_are_not_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(ROWS[0]).encode() + b'\n{"question": "caf\xe9"}\n')
    assert "rows.jsonl:2: byte 18 is not UTF-8; save the file as UTF-8 text" in refusal(path)
    array = tmp_path / "rows.json"
    array.write_text("[]", encoding="utf-16")
    assert "rows.json: byte 1 is not UTF-8" in refusal(array)


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, ROWS)
    whole = path.read_bytes()
    for damaged in (b"", b"not parquet", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert "rows.parquet: not a readable Parquet file" in refusal(path)
    bad = pa.array([b"caf\xe9"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"question": bad}), path)
    assert "rows.parquet: row 1: a cell that cannot be read: 'utf-8' codec" in refusal(path)


def test_the_digest_covers_id_question_answer_and_order() -> None:
    base = [Problem("a", "What?", "1"), Problem("b", "Why?", "2")]
    others = [
        [Problem("c", "What?", "1"), base[1]],
        [Problem("a", "What!", "1"), base[1]],
        [Problem("a", "What?", "3"), base[1]],
        base[::-1],
        base[:1],
    ]
    digests = {problems_digest(problems) for problems in (base, *others)}
    assert len(digests) == 6
    assert all(len(digest) == 64 for digest in digests)
    assert problems_digest([Problem("a", "What?", "1", {"level": 5}), base[1]]) == problems_digest(base)


@pytest.mark.parametrize(
    ("files", "split", "chosen"),
    [
        (["README.md", "test.jsonl"], "test", ["test.jsonl"]),
        (["data/problems.parquet", "README.md"], "test", ["data/problems.parquet"]),
        (["data/train.jsonl", "dataset_infos.json"], "test", ["data/train.jsonl"]),
        (["test.jsonl", "train.jsonl"], "train", ["train.jsonl"]),
        (
            [
                "data/test-00001-of-00002.parquet",
                "data/test-00000-of-00002.parquet",
                "data/train-00000-of-00001.parquet",
            ],
            "test",
            ["data/test-00000-of-00002.parquet", "data/test-00001-of-00002.parquet"],
        ),
        (
            ["main/test-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"],
            "test",
            ["main/test-00000-of-00001.parquet"],
        ),
        (
            ["main/test-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"],
            "socratic/test",
            ["socratic/test-00000-of-00001.parquet"],
        ),
        (
            ["data/test-00000-of-00001-0a1b2c.parquet", "data/dev.json"],
            "test",
            ["data/test-00000-of-00001-0a1b2c.parquet"],
        ),
        (
            ["test/0000.parquet", "test/0001.parquet", "train/0000.parquet"],
            "test",
            ["test/0000.parquet", "test/0001.parquet"],
        ),
        (["contest.jsonl", "gsm_test.jsonl", "latest.jsonl"], "test", ["gsm_test.jsonl"]),
        (["test.jsonl", "test_hard.jsonl"], "test", ["test.jsonl"]),
        (["v2/test.jsonl", "v2/test_hard.jsonl"], "test", ["v2/test.jsonl"]),
        (
            ["test-00000-of-00002-0a1b.parquet", "test-00001-of-00002-2c3d.parquet"],
            "test",
            ["test-00000-of-00002-0a1b.parquet", "test-00001-of-00002-2c3d.parquet"],
        ),
        (["test.parquet", "test.jsonl", "train.json"], "test", ["test.jsonl"]),
    ],
)
def test_the_files_of_a_split_are_chosen(files: list[str], split: str, chosen: list[str]) -> None:
    assert choose_files("owner/name", files, split) == chosen


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["name.py", "README.md"],
            r"hub:o/n is made by a script \(name.py\), which fillerscope does not run; save",
        ),
        (
            ["README.md", "test.txt"],
            "hub:o/n has no file that ends in .jsonl or .json or .parquet or .csv or .tsv; save the data",
        ),
        (
            ["train.jsonl", "dev.jsonl"],
            "no file fits split 'test'; set problems.split to one of: dev, train$",
        ),
        (
            ["easy/test.jsonl", "hard/test.jsonl"],
            "several files fit split 'test'; .* one of: easy/test, hard/test$",
        ),
        *(
            (files, f"hub:o/n: these files are not the pieces of one split, each once: {', '.join(files)}; download")
            for files in (
                ["test-00000-of-00001-0123abcd.parquet", "test-00000-of-00001-89efabcd.parquet"],
                ["test-00000-of-00001.parquet", "test-00000-of-00002.parquet", "test-00001-of-00002.parquet"],
                ["test-00000-of-00003.parquet", "test-00002-of-00003.parquet"],
                ["test-00000-of-00001.parquet", "test.parquet"],
                ["test/0000.parquet", "test/0002.parquet"],
                ["test-00000-of-00001.parquet", "test/0000.parquet"],
            )
        ),
    ],
)
def test_a_split_that_is_not_clear_is_refused(files: list[str], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        choose_files("o/n", files, "test")


def test_a_data_set_on_the_hub_is_read_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are read in order, and a limit that the first one fills leaves the second one on the hub."""
    files = [f"data/test-0000{piece}-of-00002.parquet" for piece in (0, 1)]
    rows = {file: [{"question": f"What is in {file}?"}] for file in (*files, "data/train.parquet")}
    held = {file: parquet(tmp_path, rows[file], file.replace("/", "-")).read_bytes() for file in rows}
    with serving(Hub(held)) as stand_in:
        use(stand_in, tmp_path / "first", monkeypatch)
        (problem,) = load_problems(ProblemsSpec(source="hub:owner/name", limit=1))
        assert [file for file, _ in stand_in.ranges] == files[:1]
        problems = load_problems(ProblemsSpec(source="hub:owner/name"))
    assert [one.id for one in problems] == ["row-000001", "row-000002"]
    assert [one.question for one in problems] == [f"What is in {file}?" for file in files]
    assert problem == problems[0]
    assert [file for file, _ in stand_in.ranges] == files  # none of them twice


def hub_error(name: str) -> Exception:
    """An error of the hub's client as it comes after an answer from the server."""
    import huggingface_hub.errors as errors

    kind: type[Exception] = getattr(errors, name)
    error = kind.__new__(kind)
    Exception.__init__(error, "401 Client Error.\n\nRepository not found for url: https://...")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            hub_error("GatedRepoError"),
            "hub:o/n is gated: run `hf auth login`, and ask for access at https://huggingface.co/datasets/o/n if",
        ),
        (
            hub_error("RepositoryNotFoundError"),
            "hub:o/n does not exist or is private; check the name, or run `hf auth",
        ),
        (hub_error("HfHubHTTPError"), r"cannot download hub:o/n from the hub \(401 Client Error.\); check"),
        (
            OSError(28, "No space left on device"),
            r"hub:o/n does not fit on the disk of .* \(No space left on device\); make room",
        ),
        (
            RuntimeError("connection\nreset"),
            r"cannot download hub:o/n from the hub \(connection\); check the network, or give a",
        ),
    ],
)
@pytest.mark.parametrize("failing", ["list", "download"])
def test_what_the_hub_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, failing: str
) -> None:
    def fail(*_args: object, **_options: object) -> list[str]:
        raise error

    listing = fail if failing == "list" else lambda *_args, **_options: Listing("1" * 40, {"test.jsonl": {}})
    monkeypatch.setattr("fillerscope.problems.hub_download.list_files", listing)
    monkeypatch.setattr("fillerscope.problems.hub_download.download", fail)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ProblemError, match=message) as caught:
        load_problems(ProblemsSpec(source="hub:o/n"))
    assert "\n" not in str(caught.value)


def test_a_name_the_hub_cannot_have_is_refused() -> None:
    for source in ("hub:", "hub:a//b", "hub:a/b/c"):
        with pytest.raises(ProblemError, match="is not the name of a data set; expected hub:owner/name"):
            load_problems(ProblemsSpec(source=source))


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints: settings of the hub's client are read when it is imported."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_a_network_the_advice_is_a_local_file(tmp_path: Path) -> None:
    code = (
        "from fillerscope.problems.sources import load_problems, ProblemsSpec\n"
        "try: load_problems(ProblemsSpec(source='hub:owner/name'))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    printed = run_python(code, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert printed.startswith("ProblemError cannot download hub:owner/name from the hub (")
    assert "offline mode is enabled" in printed
    assert printed.endswith("check the network, or give a local file or `builtin`")
    assert len(printed.splitlines()) == 1


def test_importing_problems_brings_in_nothing_heavy() -> None:
    heavy = "{'torch', 'pyarrow', 'huggingface_hub', 'numpy', 'transformers'}"
    printed = run_python(f"import sys, fillerscope.problems.sources; print({heavy} & set(sys.modules))")
    assert printed == "set()"
