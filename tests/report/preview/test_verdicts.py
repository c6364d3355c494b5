"""Which verdicts a study can reach: what is missing is named with the line to write."""

from __future__ import annotations

from typing import Any

import pytest

from fillerscope.report.preview.verdicts import outlooks
from fillerscope.study.study import Study

ASKED: dict[str, Any] = {
    "conditions": ["none", "mless", "random", "positions"],
    "references": {"twin": 3},
    "probes": {"affine": True, "activations": True},
    "generation": {},
}


def told(problems: int = 500, **changes: Any) -> list[tuple[bool, str]]:
    study = Study.model_validate({"name": "a", "models": ["b"]} | ASKED | changes)
    return [(one.reachable, one.text) for one in outlooks(study, problems)]


def test_a_complete_study_can_tell_everything() -> None:
    (attention, text), (mechanism, _), (accuracy, power) = told()
    assert (attention, mechanism, accuracy) == (True, True, True)
    assert text == "Compared with 3 untrained models and with positions, random."
    assert "500 problems show a difference of 6 percentage points or more" in power


@pytest.mark.parametrize(
    ("problems", "changes", "place", "text"),
    [
        (500, {"references": {"twin": 0}}, 0, "add `references: {twin: 3}`"),
        (500, {"references": {"twin": 0}}, 1, "add `references: {twin: 3}`"),
        (500, {"probes": {"attention": False}, "references": {"twin": 0}}, 0, "probes.attention is off"),
        (500, {"probes": {"affine": True}}, 1, "add `probes: {activations: on}`"),
        (500, {"generation": None}, 2, "add `generation: {max_tokens: 512}`"),
        (5, {}, 0, "Needs 8 problems, and there are 5"),
        (1, {}, 2, "With 1 no difference can be shown"),
        (60, {}, 2, "60 problems show a difference of 16 percentage points or more"),
    ],
)
def test_what_is_missing_is_named(problems: int, changes: dict[str, Any], place: int, text: str) -> None:
    reachable, reason = told(problems, **changes)[place]
    assert not reachable
    assert text in reason


def test_missing_controls_are_named() -> None:
    (_, text), *_ = told(conditions=["none", "mless"])
    assert text.endswith(
        "Without a control of positions alone and meaningful text of equal length: add positions and random."
    )
    dots = {"name": "dots", "kind": "repeat", "text": " .", "count": 20}
    (_, other), *_ = told(conditions=["none", dots, "random", "positions"])
    assert other.endswith("add positions and random, with 20 tokens.")


def test_nothing_to_compare_is_said() -> None:
    assert told(conditions=["none"]) == [(False, "Nothing is compared: add a condition with filler, such as mless.")]
