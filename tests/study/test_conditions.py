"""Conditions: filler, an intervention, or both, and the ready-made ones by name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fillerscope.study.conditions import MOST_CONDITIONS, PRESETS, USUAL, Condition, expanded, ready_made
from fillerscope.study.interventions import Knockout, Redistribution, Shift

SLASHES: dict[str, Any] = {"kind": "repeat", "text": " /", "count": 55}
READY_MADE = {
    "none": Condition(name="none", kind="none", label="None"),
    "mless": Condition(name="mless", label="Meaningless tokens", **SLASHES),
    "mful": Condition(name="mful", kind="repeat", text=" he", count=55, label="Meaningful tokens"),
    "random": Condition(name="random", kind="sentence", count=55, label="Random sentence"),
    "arm": Condition(name="arm", intervention=Redistribution(kind="arm"), label="ARM"),
    "scatter": Condition(name="scatter", intervention=Redistribution(kind="scatter"), label="ARM on random elements"),
    "gaussian": Condition(name="gaussian", intervention=Redistribution(kind="gaussian"), label="Noise of ARM's size"),
    "knockout": Condition(
        name="knockout", intervention=Knockout(kind="knockout"), label="Filler knocked out", **SLASHES
    ),
    "positions": Condition(name="positions", intervention=Shift(kind="shift", by=55), label="Positions only"),
}


def condition(**settings: Any) -> Condition:
    return Condition.model_validate({"name": "a"} | settings)


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        condition(**settings)
    return str(caught.value)


@pytest.mark.parametrize("name", READY_MADE)
def test_ready_made_conditions(name: str) -> None:
    assert PRESETS[name] == READY_MADE[name]
    assert ready_made(name) is PRESETS[name]
    assert PRESETS[name].position == "before_question"


def test_there_are_nine_and_four_of_them_are_usual() -> None:
    assert tuple(PRESETS) == tuple(READY_MADE)
    assert [usual.name for usual in USUAL] == ["none", "mless", "mful", "random"]


def test_another_name_is_refused_and_what_is_no_name_left_alone() -> None:
    with pytest.raises(ValueError, match=r"'amr' is not a ready-made condition; there are none, .*, arm, .* positions"):
        ready_made("amr")
    for value in (None, 3, {"name": "arm"}, PRESETS["arm"]):
        assert ready_made(value) is value


@pytest.mark.parametrize(
    ("settings", "filler", "baseline"),
    [
        ({"name": "none"}, False, True),
        (SLASHES, True, False),
        ({"intervention": {"kind": "arm"}}, False, False),
        (SLASHES | {"intervention": {"kind": "arm"}}, True, False),
        (SLASHES | {"intervention": {"kind": "knockout"}}, True, False),
        ({"kind": "none", "intervention": {"kind": "shift"}}, False, False),
    ],
)
def test_the_baseline_is_what_changes_nothing(settings: dict[str, Any], filler: bool, baseline: bool) -> None:
    made = condition(**settings)
    assert (made.has_filler, made.is_baseline) == (filler, baseline)


NOTHING = "a condition needs a `kind` (repeat, text, sentence, characters) or an `intervention`"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, NOTHING),
        ({"kind": "none"}, NOTHING),
        ({"text": " /", "count": 3}, NOTHING),
        ({"kind": "repeat", "count": 3}, "of kind repeat needs `text`"),
        ({"kind": "text"}, "of kind text needs `text`"),
        ({"kind": "sentence"}, "of kind sentence needs `count`"),
        ({"kind": "characters"}, "of kind characters needs `count`"),
        ({"intervention": {"kind": "knockout"}}, "a knock-out needs filler to hide: give the condition a `kind`"),
        ({"name": "none", "intervention": {"kind": "knockout"}}, "a knock-out needs filler to hide"),
        (SLASHES | {"intervention": {"kind": "shift"}}, "a shift stands for filler that is not there"),
        ({"text": " .", "count": 5, "intervention": {"kind": "arm"}}, "`text` is of filler, and there is none"),
        ({"count": 20, "intervention": {"kind": "shift"}}, "`count` is of filler, and there is none: give a `kind`"),
        ({"position": "end", "intervention": {"kind": "arm"}}, "`position` is of filler, and there is none"),
        ({"name": "none", "count": 3}, "`count` is of filler"),
        ({"kind": "sentence", "text": "mine", "count": 5}, "sentences are drawn, and `text` is not used"),
        ({"intervention": {"kind": "arm", "cc": 1}}, "Extra inputs are not permitted"),
        ({"intervention": "arm"}, "Input should be a valid dictionary"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], expected: str) -> None:
    assert expected in refusal(**settings)


@pytest.mark.parametrize("name", PRESETS)
def test_stored_and_read_again_it_is_the_same(name: str) -> None:
    made = PRESETS[name]
    again = Condition.model_validate(made.model_dump(mode="json"))
    assert again == made
    assert hash(again) == hash(made)
    assert type(again.intervention) is type(made.intervention)


def test_sweeps_are_written_out_in_their_place() -> None:
    sweep = {"name": "a", "intervention": {"kind": "arm", "c": [0.1, 0.2]}}
    assert [cell if isinstance(cell, str) else cell["name"] for cell in expanded(["none", sweep, "mless"])] == [
        "none", "a-c0.1", "a-c0.2", "mless",
    ]  # fmt: skip
    assert expanded("none") == "none"


def test_too_many_are_refused_also_inside_an_intervention() -> None:
    sweep = {"name": "a", "intervention": {"kind": "arm", "c": [0.1] * 200, "p1": [90] * 60}}
    with pytest.raises(ValueError, match=f"12001 conditions, and {MOST_CONDITIONS} is the most"):
        expanded(["none", sweep])
