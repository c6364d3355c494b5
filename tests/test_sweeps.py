"""Conditions with lists in them: which conditions they stand for, and what these are called."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.study import Study
from fillerscope.sweeps import expand, places, size

MLESS = {"name": "m", "kind": "repeat", "text": " /", "count": 5}


def study(*conditions: Any) -> Study:
    return Study(name="a", models=("b",), conditions=("none", *conditions))


def names(**changes: Any) -> list[str]:
    return [cell["name"] for cell in expand(MLESS | changes)]


@pytest.mark.parametrize("value", [MLESS, "mless", None, 3, ["none"], {"kind": ["repeat"]}, {**MLESS, "count": []}])
def test_what_has_no_lists_is_left_as_it_is(value: Any) -> None:
    """An empty list too: the check of the conditions refuses it, at its place."""
    (cell,) = expand(value)
    assert cell is value


def test_every_combination_is_a_condition_and_the_last_list_runs_fastest() -> None:
    sweep = MLESS | {"position": ["start", "end"], "count": (2, 7), "text": [" /", " he"], "draw": "problem"}
    cells = expand(sweep)
    assert [(cell["text"], cell["count"], cell["position"]) for cell in cells] == list(
        product([" /", " he"], [2, 7], ["start", "end"])
    )
    assert [cell["name"] for cell in cells[:3]] == ["m-solidus-2-start", "m-solidus-2-end", "m-solidus-7-start"]
    assert {(cell["sweep"], cell["kind"], cell["draw"]) for cell in cells} == {("m", "repeat", "problem")}
    assert sweep["count"] == (2, 7)


def test_only_what_is_swept_is_in_the_name() -> None:
    assert names(count=[5]) == ["m-5"]
    assert names(position=["before_question", "random"]) == ["m-before-question", "m-random"]
    assert names(text=["cat", " a b ", "...", "é", "\t", "x" * 99]) == [
        "m-cat", "m-a-b", "m-full-stop-full-stop-full", "m-latin-small-letter-e-wit", "m-blank", f"m-{'x' * 24}",
    ]  # fmt: skip


def test_a_count_of_nothing_is_the_baseline_that_is_there_anyway() -> None:
    assert names(count=[0, 3]) == ["m-3"]
    assert names(count=[0, 3], position=["start", "end"]) == ["m-3-start", "m-3-end"]
    assert expand(MLESS | {"count": [0]}) == []
    assert [c.name for c in study(MLESS | {"count": [0, 3]}, "mful").conditions] == ["none", "m-3", "mful"]


def test_a_sweep_without_a_name_is_said_to_have_none() -> None:
    with pytest.raises(ValueError, match=r"conditions\.1\.name\n +Field required"):
        study({key: value for key, value in MLESS.items() if key != "name"} | {"count": [1, 2]})


@pytest.mark.parametrize(
    ("conditions", "clash"),
    [
        ([MLESS | {"count": [3, 3]}], "m-3"),
        ([MLESS | {"text": ["/", " /"]}], "m-solidus"),  # they differ in what is not in a name
        ([MLESS | {"count": [3, 4]}, MLESS | {"name": "m-4"}], "m-4"),
        ([MLESS | {"count": [3, 4]}, MLESS | {"name": "m-4", "count": [1, 2]}, MLESS | {"name": "m-4-1"}], "m-4-1"),
    ],
)
def test_cells_of_the_same_name_are_refused(conditions: list[Any], clash: str) -> None:
    with pytest.raises(ValueError, match=f"condition {clash!r} is given 2 times; names must differ"):
        study(*conditions)


def test_more_cells_than_anybody_can_read_are_refused_before_they_are_made() -> None:
    texts, counts = [f" a{n}" for n in range(5000)], list(range(1, 5001))
    with pytest.raises(ValueError, match="25000002 conditions, and 10000 is the most; give the sweeps fewer values"):
        study(MLESS | {"text": texts, "count": counts}, "mless")


@pytest.mark.parametrize(
    "value", ["mless", None, MLESS, MLESS | {"count": []}, MLESS | {"count": [1, 2], "text": [""]}]
)
def test_the_size_of_a_sweep_is_the_number_of_its_cells(value: Any) -> None:
    assert size(value) == len(expand(value))


CONDITIONS = st.lists(
    st.one_of(
        st.just("mless"),
        st.fixed_dictionaries({"count": st.one_of(st.integers(1, 9), st.lists(st.integers(0, 9), unique=True))}),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(CONDITIONS)
def test_every_cell_knows_where_it_comes_from(values: list[Any]) -> None:
    cells = [(place, cell) for place, value in enumerate(values) for cell in expand(value)]
    assert places(values) == [place for place, _ in cells]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from([" /", "he", "…", "\n", "x y"]), min_size=1, max_size=3, unique=True),
)
def test_a_stored_study_has_the_cells_and_no_lists(counts: list[int], texts: list[str]) -> None:
    made = study(MLESS | {"count": counts, "text": texts})
    assert len(made.conditions) == 1 + len(texts) * sum(count > 0 for count in counts)
    assert all(condition.sweep == "m" for condition in made.conditions[1:])
    again = Study.model_validate_json(made.model_dump_json())
    assert again == made
    assert again.measured() == made.measured()


def test_written_out_by_hand_it_is_the_same_measurement() -> None:
    swept = study(MLESS | {"count": [3, 4], "label": "Slashes"})
    by_hand = study(MLESS | {"name": "m-3", "count": 3}, MLESS | {"name": "m-4", "count": 4})
    assert swept.measured() == by_hand.measured()
