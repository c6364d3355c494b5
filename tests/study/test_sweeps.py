"""Conditions with lists in them: which conditions they stand for, and what these are called."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.study.study import Study
from fillerscope.study.sweeps import expand, places, size, swept
from support.watchdog import watched

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


ARM: dict[str, Any] = {"name": "a", "intervention": {"kind": "arm", "mode": "replace"}}


def inside(**changes: Any) -> dict[str, Any]:
    return ARM | {"intervention": ARM["intervention"] | changes}


@pytest.mark.parametrize(
    ("key", "values", "names"),
    [
        ("c", [0.05, 0.13, 1e-05], ["a-c0.05", "a-c0.13", "a-c1-05"]),
        ("p1", [90, 99.5], ["a-p190", "a-p199.5"]),
        ("fraction", [0.02, 0.25], ["a-fraction0.02", "a-fraction0.25"]),
        ("p_min", [0.01, 0.02], ["a-p_min0.01", "a-p_min0.02"]),
        ("p_max", [0.25, 0.5], ["a-p_max0.25", "a-p_max0.5"]),
        ("layers", [[1], [2, 3], (12,)], ["a-layers1", "a-layers2-3", "a-layers12"]),
        ("layers", [1, [2]], ["a-layers1", "a-layers2"]),
    ],
)
def test_numbers_of_an_intervention_are_swept_inside_it(key: str, values: list[Any], names: list[str]) -> None:
    sweep = inside(**{key: values})
    assert expand(sweep) == [
        inside(**{key: value}) | {"name": name, "sweep": "a"} for value, name in zip(values, names, strict=True)
    ]
    assert sweep == inside(**{key: values})  # what was given is left as it was
    assert size(sweep) == len(values)
    made = study(sweep).conditions[1:]
    assert [(cell.name, cell.sweep) for cell in made] == [(name, "a") for name in names]
    wanted = [tuple(v) if isinstance(v, list | tuple) else (v,) if key == "layers" else v for v in values]
    assert [getattr(cell.intervention, key) for cell in made] == wanted
    assert {(cell.intervention.kind, cell.intervention.mode) for cell in made} == {("arm", "replace")}


def test_positions_are_swept_by_how_far_they_move() -> None:
    made = study({"name": "s", "intervention": {"kind": "shift", "by": [1, 55]}}).conditions[1:]
    assert [(cell.name, cell.intervention.by) for cell in made] == [("s-by1", 1), ("s-by55", 55)]


def test_layers_are_a_list_and_swept_only_where_they_hold_lists() -> None:
    value = inside(layers=[1, 2, 3])
    (cell,) = expand(value)
    assert cell is value
    assert study(value).conditions[1].intervention.layers == (1, 2, 3)


def test_filler_and_intervention_are_swept_together() -> None:
    sweep = MLESS | {"count": [0, 5, 9], "intervention": {"kind": "knockout", "layers": [[1], [2]]}}
    made = study(sweep).conditions[1:]
    assert [(cell.name, cell.count, cell.intervention.layers) for cell in made] == [
        ("m-5-layers1", 5, (1,)), ("m-5-layers2", 5, (2,)), ("m-9-layers1", 9, (1,)), ("m-9-layers2", 9, (2,)),
    ]  # fmt: skip


def test_lists_of_an_intervention_run_in_a_fixed_order() -> None:
    """However they are written, `c` runs slowest and `layers` fastest."""
    cells = expand(inside(layers=[[1], [2]], p1=[90, 95], c=[0.1, 0.2]))
    found = [(cell["intervention"]["c"], cell["intervention"]["p1"], cell["intervention"]["layers"]) for cell in cells]
    assert found == list(product([0.1, 0.2], [90, 95], [[1], [2]]))
    assert cells[0]["name"] == "a-c0.1-p190-layers1"


def test_c_swept_beside_a_preset_with_a_fraction_makes_conditions_that_differ() -> None:
    made = study(inside(preset="Gemma-3-4b-it", c=[0.1, 0.2])).conditions[1:]
    assert [(cell.intervention.c, cell.intervention.fraction, cell.intervention.p1) for cell in made] == [
        (0.1, None, 85.0), (0.2, None, 85.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value", [inside(c=[]), inside(layers=[]), inside(mode=["add", "replace"]), {"intervention": 3}]
)
def test_what_cannot_be_swept_inside_is_left_to_the_check_of_conditions(value: Any) -> None:
    (cell,) = expand(value)
    assert cell is value
    with pytest.raises(ValueError, match=r"conditions\.1"):
        study(value)


def test_a_study_with_interventions_swept_is_stored_with_its_cells() -> None:
    made = study(
        inside(c=[0.1, 0.2], layers=[[1], [2, 3]]), {"name": "s", "intervention": {"kind": "shift", "by": [3]}}
    )
    assert len(made.conditions) == 6
    again = Study.model_validate(made.model_dump(mode="json"))
    assert again == made
    by_hand = [
        inside(c=c, layers=layers) | {"name": name}
        for c, layers, name in (
            (0.1, 1, "a-c0.1-layers1"), (0.1, [2, 3], "a-c0.1-layers2-3"),
            (0.2, 1, "a-c0.2-layers1"), (0.2, [2, 3], "a-c0.2-layers2-3"),
        )
    ]  # fmt: skip
    assert study(*by_hand, {"name": "s-by3", "intervention": {"kind": "shift", "by": 3}}).measured() == made.measured()


@pytest.mark.parametrize("change", [{"c": [0.1, 0.10]}, {"layers": [[1, 2], [1, 2]]}, {"layers": [[1], 1]}])
def test_cells_of_an_intervention_with_the_same_name_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is given 2 times; names must differ"):
        study(inside(**change))


def test_what_a_sweep_goes_through() -> None:
    sweep = MLESS | {"count": [1, 2], "intervention": {"kind": "arm", "layers": [1, 2], "c": [0.1]}}
    assert swept(sweep) == {"count": [1, 2], "c": [0.1]}
    assert swept(MLESS) == swept("mless") == swept(None) == {}


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
        st.fixed_dictionaries({"intervention": st.fixed_dictionaries({"by": st.lists(st.integers(1, 9))})}),
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


def test_long_texts_are_named_in_time() -> None:
    """Each sign has a name in Unicode, which takes a while to look up."""
    with watched(20):
        made = names(text=["\u00a4" * 100_000], count=list(range(1, 501)))
    assert made[0] == "m-currency-sign-currency-s-1"
