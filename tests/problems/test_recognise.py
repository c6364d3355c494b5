"""What is recognised in a data set: columns by their names, answers by how all rows write them; doubts are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems.recognise import Recognised
from fillerscope.problems.sources import ProblemSet, read_problems
from fillerscope.study.study import ProblemsSpec
from support.watchdog import watched

GSM8K = "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\nShe makes 9 * 2 = $18.\n#### 18"
SOLVED = "We add. #### Step 1 is done.\nThe sum is $\\boxed{\\frac{1}{2}}$."


def read(folder: Path, *rows: dict[str, Any], **options: Any) -> ProblemSet:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_problems(ProblemsSpec(source=str(path), **options))


def recognised(folder: Path, *rows: dict[str, Any], **options: Any) -> Recognised:
    result = read(folder, *rows, **options).recognised
    assert result is not None
    return result


def answers(data: ProblemSet) -> list[str]:
    return [problem.answer for problem in data.problems]


def refusal(folder: Path, *rows: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ProblemError) as caught:
        read(folder, *rows, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{folder}/", "")


def test_answers_behind_hashes_are_recognised_and_said(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": GSM8K}, {"question": "b?", "answer": "#### 1,234 \n"}]
    data = read(tmp_path, *rows)
    assert answers(data) == ["18", "1,234"]
    assert data.recognised is not None
    assert data.recognised.form == "hashes"
    assert data.recognised.answers == "what follows #### at its end"
    assert data.recognised.record()["columns"] == {"id": [], "question": ["question"], "answer": ["answer"]}


def test_answers_of_which_only_some_have_hashes_are_refused_with_the_place(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": GSM8K}, {"question": "b?", "answer": "18"}, {"question": "c?", "answer": None}]
    message = refusal(tmp_path, *rows)
    assert message.startswith("rows.jsonl:2: answer: 1 of 2 answers end with #### and a text, and this one does not;")
    assert "problems.answer_form" in message
    assert answers(read(tmp_path, *rows, answer_form="whole")) == [GSM8K, "18", ""]
    assert "rows.jsonl:2: answer: `problems.answer_form` is hashes" in refusal(tmp_path, *rows, answer_form="hashes")


def test_very_many_hashes_take_no_longer_than_their_text(tmp_path: Path) -> None:
    text = "#### " * 200_000
    with watched():
        data = read(tmp_path, {"question": "a?", "answer": f"{text}\nx"}, {"question": "b?", "answer": "#" * 1_000_000})
    assert answers(data) == [f"{text}\nx", "#" * 1_000_000]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 1 #### 2", "1 #### 2"),
        ("##### 1 #### 2\n\t\n", "2"),
        ("#### 1\n2", "#### 1\n2"),
        ("a ####\r\n\r\n", ""),
        ("##### 1", "##### 1"),
    ],
)
def test_an_answer_follows_the_first_hashes_of_the_last_line(tmp_path: Path, text: str, answer: str) -> None:
    assert answers(read(tmp_path, {"question": "a?", "answer": text})) == [answer]


def test_a_heading_is_no_answer(tmp_path: Path) -> None:
    data = read(tmp_path, {"question": "a?", "answer": "#### Step 1\nAdd.\nIt is 5"})
    assert answers(data) == ["#### Step 1\nAdd.\nIt is 5"]


@pytest.mark.parametrize("column", ["solution", "Solution", "output", "answer"])
def test_boxed_solutions_give_the_answer(tmp_path: Path, column: str) -> None:
    data = read(tmp_path, {"problem": "a?", column: SOLVED}, {"problem": "b?", column: "\\boxed{3}"})
    assert answers(data) == ["\\frac{1}{2}", "3"]
    assert data.recognised is not None
    assert (data.recognised.form, data.recognised.columns["answer"]) == ("box", (column,))


def test_a_solution_is_not_taken_where_there_is_an_answer(tmp_path: Path) -> None:
    data = read(tmp_path, {"problem": "a?", "solution": SOLVED, "answer": "7"})
    assert answers(data) == ["7"]
    assert data.recognised is not None
    assert data.recognised.others == ("solution",)


def test_solutions_without_a_box_give_no_answer_and_that_is_said(tmp_path: Path) -> None:
    some = read(tmp_path, {"problem": "a?", "solution": SOLVED}, {"problem": "b?", "solution": "long " * 20})
    assert answers(some) == ["\\frac{1}{2}", ""]
    assert some.recognised is not None
    assert some.recognised.answers == "what stands in its last \\boxed{} (1 of 2 have it)"
    assert answers(read(tmp_path, {"problem": "a?", "solution": "long " * 20})) == [""]
    assert answers(read(tmp_path, {"problem": "a?", "solution": ["\\boxed{1}"]})) == [""]


def test_short_solutions_are_answers(tmp_path: Path) -> None:
    assert answers(read(tmp_path, {"question": "a?", "output": 4}, {"question": "b?", "output": "x + 1"})) == [
        "4",
        "x + 1",
    ]


def test_some_boxes_among_answers_stay_and_are_counted(tmp_path: Path) -> None:
    data = read(tmp_path, {"problem": "a?", "answer": "\\boxed{3}"}, {"problem": "b?", "answer": "4"})
    assert answers(data) == ["\\boxed{3}", "4"]
    assert data.recognised is not None
    assert "1 of 2 are in a \\boxed{}" in data.recognised.answers


def test_an_instruction_with_an_input_is_refused(tmp_path: Path) -> None:
    row = {"instruction": "Add the numbers.", "input": "2 and 3", "output": "5"}
    assert "rows.jsonl:1: both instruction and input hold text" in refusal(tmp_path, row)
    (problem,) = read(tmp_path, row, fields={"question": "input"}).problems
    assert (problem.question, problem.answer) == ("2 and 3", "5")
    assert read(tmp_path, row | {"input": ""}).problems[0].question == "Add the numbers."


def test_the_record_names_all_columns(tmp_path: Path) -> None:
    data = recognised(
        tmp_path, {"id": 1, "question": "a?", "level": 3}, {"id": 2, "prompt": "b?"}, {"id": 3, "prompt": "c?"}
    )
    assert data.record() == {
        "rows": 3,
        "columns": {"id": ["id"], "question": ["prompt", "question"], "answer": []},
        "named": {},
        "others": ["level"],
        "answer_form": None,
        "answers": "",
    }
