"""Problems that repeat a question are said to do so, in findings, headline and methods, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.run import Run, open_run
from fillerscope.report.headline import headline
from fillerscope.report.methods.page import methods
from fillerscope.store.run_folder import RunStore
from support.answered import Key, Row, answer, build
from support.synthetic import Synthetic

TEXT = (
    "7 of 10 problems repeat the question of an earlier one: intervals and p values take them for independent, which "
    "makes both too small."
)


def statistics(run: Run) -> str:
    return " ".join(next(section for section in methods(run) if section.title == "Statistics").paragraphs)


def test_answers_to_the_same_question_are_not_independent(tmp_path: Path) -> None:
    def draw(key: Key) -> Row:
        return answer("right" if key[3] == "mless" else "wrong", np.random.default_rng(0), truncated=False)

    questions = ["What is 1?", "What is 2?", "What is 3?", *["What  is 1? "] * 7]
    run = build(tmp_path / "run", draw, 10, conditions=("none", "mless"), questions=questions)
    first = findings_of(run[None], available_comparison(run))[0]
    assert (first.name, first.text) == ("repeated_problems", f"Repeated problems: {TEXT}")
    assert (first.numbers, first.verdict) == ({"repeated": 7, "problems": 10}, None)
    assert brief(first) == first.text
    assert headline(run).lines[0] == first.text
    assert "a significant gain" in headline(run).verdict
    assert TEXT in statistics(run)


def test_attention_alone_has_noted_how_many_questions_are_repeated(tmp_path: Path) -> None:
    Synthetic().build(tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    for key, value in {"data": {"repeated": 7}, "problems": 10}.items():
        store.note(key, value)
    run = open_run(tmp_path / "run")
    assert findings_of(run[None], [])[0].text == f"Repeated problems: {TEXT}"
    assert TEXT in statistics(run)


def test_where_every_question_is_another_one_nothing_is_said(tmp_path: Path) -> None:
    for number, recipe in enumerate((Synthetic(), Synthetic(attention=False, right={"none": 0.5}))):
        run = recipe.build(tmp_path / str(number))
        names = [finding.name for finding in findings_of(run[None], available_comparison(run))]
        assert names
        assert "repeated_problems" not in names
        assert "repeat the question" not in statistics(run)
