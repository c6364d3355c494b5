"""Verdicts on tricky pairs, class by class: `pairs.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from fillerscope.answers.grading.grade import Grader, Verdict

PAIRS = tomllib.loads(Path(__file__).with_name("pairs.toml").read_text(encoding="utf-8"))
LEAST = 200


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """Short of time, as an ordinary pair takes some hundredths of a second and a hostile one all there is."""
    with Grader(limit=0.5) as grader:
        yield grader


@pytest.mark.parametrize("name", PAIRS)
def test_tricky_pairs(grader: Grader, name: str) -> None:
    others = []
    for reference, answer, verdict, reason in PAIRS[name]["pairs"]:
        text = answer if PAIRS[name].get("whole") else rf"\boxed{{{answer}}}"
        grade = grader.grade(text, reference, "stop")
        if grade.verdict != verdict:
            others.append(f"{answer!r} for {reference!r} is {verdict} ({reason}), was {grade}")
    assert not others, "\n".join(others)


def test_the_list_is_sound() -> None:
    pairs = [tuple(pair) for group in PAIRS.values() for pair in group["pairs"]]
    assert len(pairs) >= LEAST
    assert {verdict for _, _, verdict, _ in pairs} <= set(get_args(Verdict))
    assert len({pair[:2] for pair in pairs}) == len(pairs)
