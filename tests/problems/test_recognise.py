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


@pytest.mark.parametrize(
    ("row", "first", "second", "role"),
    [
        ({"question": "a?", "answer": "First 1 + 1.", "final_answer": "2"}, "answer", "final_answer", "answer"),
        ({"question": "a?", "answer": "#### 3", "gold": 2.0}, "answer", "gold", "answer"),
        ({"question": "a?", "Answer": "3", "answer": "2"}, "Answer", "answer", "answer"),
        ({"question": "a?", "answer": "3", "final_answer": ["2"]}, "answer", "final_answer", "answer"),
        ({"prompt": "a?", "query": "b?"}, "prompt", "query", "question"),
        ({"problem": "A story.", "question": "a?"}, "problem", "question", "question"),
        ({"prompt": "Be brief.", "instruction": "a?"}, "prompt", "instruction", "question"),
    ],
)
def test_two_columns_that_differ_are_refused_until_the_study_names_one(
    tmp_path: Path, row: dict[str, Any], first: str, second: str, role: str
) -> None:
    message = refusal(tmp_path, row)
    assert f"rows.jsonl:1: both {first} and {second} hold text, and either may be the {role}; name one" in message
    assert f"`problems.fields.{role}`" in message
    (problem,) = read(tmp_path, row, fields={role: first}).problems
    assert (problem.question if role == "question" else problem.answer) in str(row[first])


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"problem": "a?", "solution": SOLVED, "answer": "7", "unique_id": "x", "id": 3}, "a?", "7"),
        ({"question": "a?", "answer": GSM8K, "final_answer": "18"}, "a?", "18"),
        ({"question": "a?", "answer": 2.0, "target": "2", "gold": None}, "a?", "2"),
        ({"ID": "2024-I-1", "Problem": "a?", "Solution": "long " * 20, "Answer": 204}, "a?", "204"),
        ({"question": "a?", "prompt": "Solve: a?", "answer": "2", "label": "algebra"}, "a?", "2"),
    ],
)
def test_columns_that_agree_or_stand_beside_the_usual_ones_are_no_doubt(
    tmp_path: Path, row: dict[str, Any], question: str, answer: str
) -> None:
    (problem,) = read(tmp_path, row).problems
    assert (problem.question, problem.answer) == (question, answer)


def test_columns_left_aside_are_named(tmp_path: Path) -> None:
    row = {"question": "a?", "prompt": "Solve: a?", "answer": "2", "label": "algebra"}
    data = recognised(tmp_path, row)
    assert [data.aside(role) for role in ("id", "question", "answer")] == [(), ("prompt",), ("label",)]
    assert recognised(tmp_path, row, fields={"question": "question"}).aside("question") == ()


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ({"choices": ["1", "2"]}, "choices"),
        ({"Options": "A) 1 B) 2"}, "Options"),
        ({"A": 1, "B": 2, "C": 3, "D": 4}, "A, B, C, D"),
        ({"option_A": 1, "option_B": 2, "option_C": 3}, "option_A, option_B, option_C"),
        ({"option_a": 1, "option_b": 2, "option_c": 3}, "option_a, option_b, option_c"),
        ({"a": 1, "b": 2, "c": 3}, "a, b, c"),
    ],
)
def test_choices_that_are_not_asked_are_said(tmp_path: Path, choices: dict[str, Any], names: str) -> None:
    data = recognised(tmp_path, {"question": "a?", **choices, "answer": 1})
    start = f"of a multiple-choice question only question is asked, not {names}; write the choices into question"
    assert data.not_asked.startswith(start)


@pytest.mark.parametrize(("answers", "said"), [((2, 0), True), ((2, 10), False), (("C", 1), False), (("", ""), False)])
def test_answers_that_may_be_places_are_said(tmp_path: Path, answers: tuple[Any, ...], said: bool) -> None:
    rows = ({"question": f"{n}?", "choices": ["a", "b", "c", "d"], "answer": each} for n, each in enumerate(answers))
    assert ("all answers may be places among them, from 0" in recognised(tmp_path, *rows).not_asked) is said


def test_two_numbers_and_empty_columns_are_no_choices(tmp_path: Path) -> None:
    row = {"question": "3 + 4?", "A": 3, "B": 4, "choices": [], "options": None, "answer": 7}
    assert recognised(tmp_path, row).not_asked == ""


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
