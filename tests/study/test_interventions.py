"""What is done inside a model, as data: published numbers, what is refused, and what can be stored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fillerscope.study.arm_presets import ARM_PRESETS
from fillerscope.study.interventions import Intervention, Knockout, Redistribution, Shift

ANY: TypeAdapter[Any] = TypeAdapter(Intervention)

# Typed again from the tables of ARM's settings: c or a fixed fraction, and p1.
PUBLISHED: dict[tuple[str, str], tuple[float | None, float | None, float]] = {
    ("Qwen2.5-Math-1.5B", "MATH-500"): (0.13, None, 99.5),
    ("Qwen2.5-Math-7B", "MATH-500"): (0.10, None, 95.0),
    ("Qwen2.5-7B-Instruct", "MATH-500"): (0.10, None, 99.5),
    ("Llama-3.1-8B-Instruct", "MATH-500"): (0.32, None, 90.0),
    ("Gemma-3-4b-it", "MATH-500"): (None, 0.25, 85.0),
    ("Gemma-3-27b-it", "MATH-500"): (None, 0.25, 85.0),
    ("Qwen2.5-Math-1.5B", "AIME 2024"): (0.13, None, 99.5),
    ("Qwen2.5-Math-7B", "AIME 2024"): (0.05, None, 90.0),
    ("Qwen2.5-32B-Instruct", "AIME 2024"): (0.13, None, 99.5),
    ("Llama-3.1-8B-Instruct", "AIME 2024"): (0.32, None, 90.0),
    ("Gemma-3-4b-it", "AIME 2024"): (None, 0.25, 85.0),
    ("Gemma-3-27b-it", "AIME 2024"): (None, 0.25, 96.5),
    ("Qwen2.5-Math-1.5B", "AIME 2025"): (0.13, None, 99.5),
    ("Qwen2.5-Math-7B", "AIME 2025"): (0.13, None, 99.5),
    ("Qwen2.5-7B-Instruct", "AIME 2025"): (0.10, None, 99.5),
    ("Qwen2.5-32B-Instruct", "AIME 2025"): (0.05, None, 99.0),
    ("Gemma-3-4b-it", "AIME 2025"): (None, 0.25, 85.0),
    ("Gemma-3-27b-it", "AIME 2025"): (None, 0.25, 70.0),
}


def arm(**settings: Any) -> Redistribution:
    return Redistribution.model_validate({"kind": "arm"} | settings)


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        ANY.validate_python(settings)
    return str(caught.value)


@pytest.mark.parametrize(("name", "task"), PUBLISHED)
@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
def test_published_settings(name: str, task: str, kind: str) -> None:
    c, fraction, p1 = PUBLISHED[name, task]
    spec = ANY.validate_python({"kind": kind, "preset": name, "benchmark": task})
    assert (spec.kind, spec.preset, spec.benchmark, spec.p1, spec.fraction) == (kind, name, task, p1, fraction)
    assert c is None or spec.c == c
    assert (spec.p_min, spec.p_max, spec.layers, spec.mode) == (0.02, 0.25, (1,), "add")
    assert (spec.quantile_of, spec.at_least_one) == ("values", False)


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("Qwen2.5-Math-7B", {}),
        ("Llama-3.1-8B-Instruct", {"p_min": 0.2}),
        ("Gemma-3-4b-it", {"quantile_of": "sizes"}),
        ("Gemma-3-27b-it", {"quantile_of": "sizes"}),
    ],
)
def test_a_preset_as_the_released_code_has_it(name: str, differing: dict[str, Any]) -> None:
    always = {"follows": "code", "mode": "replace", "at_least_one": True}
    assert arm(preset=name, follows="code").model_dump() == arm(preset=name).model_dump() | always | differing
    assert arm(preset=name, follows="code", mode="add", p_min=0.1).p_min == 0.1


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct",
             "meta-llama/Meta-Llama-3.1-8B-Instruct", "/models/LLAMA_3.1_8B_Instruct/"],
)  # fmt: skip
@pytest.mark.parametrize("task", [None, "", "MATH-500", "math500", "HuggingFaceH4/MATH-500"])
def test_a_preset_is_known_by_any_owner_and_spelling(name: str, task: str | None) -> None:
    """And is stored as it was published, so that a run is the same run."""
    given = {"preset": name} | ({} if task is None else {"benchmark": task})
    assert arm(**given) == arm(preset="Llama-3.1-8B-Instruct", benchmark="MATH-500")


def test_all_that_was_published_is_there_and_nothing_else() -> None:
    assert {(name, task) for name, known in ARM_PRESETS.items() for task in known} == set(PUBLISHED)


def test_without_settings_it_is_the_first_layer_and_c() -> None:
    spec = arm()
    assert (spec.layers, spec.c, spec.fraction, spec.p1) == ((1,), 0.13, None, 99.5)
    assert (spec.p_min, spec.p_max, spec.mode, spec.preset, spec.benchmark) == (0.02, 0.25, "add", "", "")
    assert (spec.quantile_of, spec.at_least_one, spec.follows) == ("values", False, "text")
    assert Knockout(kind="knockout").layers == ()
    assert Shift(kind="shift").by == 55


@pytest.mark.parametrize(
    "own",
    [
        {"c": 0.5},
        {"p1": 50.0},
        {"fraction": 0.1},
        {"p_min": 0.1},
        {"p_max": 0.5},
        {"layers": (2, 3)},
        {"mode": "replace"},
    ],
)
@pytest.mark.parametrize("name", ["Qwen2.5-Math-7B", "Gemma-3-4b-it"])
def test_what_is_given_beside_a_preset_wins(name: str, own: dict[str, Any]) -> None:
    beside, bare = arm(preset=name, **own).model_dump(), arm(preset=name).model_dump()
    given_way = {"fraction"} if "c" in own else set()
    assert beside == bare | own | ({"fraction": None} if given_way else {})


def test_c_beside_a_preset_with_a_fraction_counts() -> None:
    """It would have no effect, and a sweep of it would be the same condition again and again."""
    assert arm(preset="Gemma-3-4b-it", c=0.2).fraction is None
    assert arm(preset="Gemma-3-4b-it", c=0.2, fraction=0.1).fraction == 0.1
    assert arm(preset="Gemma-3-4b-it", fraction=None).fraction is None


def test_one_layer_stands_for_a_list_of_it() -> None:
    assert arm(layers=7).layers == (7,)
    assert Knockout.model_validate({"kind": "knockout", "layers": 7}).layers == (7,)


@pytest.mark.parametrize(
    ("layers", "applying"), [((), [0, 1, 2, 3]), ((1,), [0]), ((2, 4), [1, 3]), ((4, 2, 4), [1, 3]), ((5,), [])]
)
def test_a_knockout_applies_to_its_layers_and_without_any_to_all(layers: tuple[int, ...], applying: list[int]) -> None:
    change = Knockout(kind="knockout", layers=layers)
    assert [layer for layer in range(4) if change.applies(layer)] == applying


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no kind": ({"c": 0.1}, "Unable to extract tag"),
    "an unknown kind": ({"kind": "amr"}, "'amr'"),
    "an unknown preset": (
        {"kind": "arm", "preset": "GPT-2"},
        "no published settings for 'GPT-2'; there are for Qwen2.5",
    ),
    "a preset that is a list": ({"kind": "arm", "preset": ["GPT-2"]}, "no published settings for ['GPT-2']"),
    "a preset that is a number": ({"kind": "arm", "preset": 3}, "no published settings for 3"),
    "an unknown benchmark": (
        {"kind": "arm", "preset": "qwen2.5-math-7b", "benchmark": "GSM8K"},
        "no published settings of Qwen2.5-Math-7B for 'GSM8K'; there are for MATH-500, AIME 2024, AIME 2025: name one",
    ),
    "a benchmark without settings of this model": (
        {"kind": "arm", "preset": "Llama-3.1-8B-Instruct", "benchmark": "AIME 2025"},
        "no published settings of Llama-3.1-8B-Instruct for 'AIME 2025'; there are for MATH-500, AIME 2024",
    ),
    "no settings for the usual benchmark": (
        {"kind": "arm", "preset": "Qwen2.5-32B-Instruct"},
        "no published settings of Qwen2.5-32B-Instruct for 'MATH-500'; there are for AIME 2024, AIME 2025",
    ),
    "a benchmark that is a number": (
        {"kind": "arm", "preset": "Gemma-3-4b-it", "benchmark": 500},
        "no published settings of Gemma-3-4b-it for 500",
    ),
    "a benchmark without a preset": ({"kind": "arm", "benchmark": "MATH-500"}, "name a model as `preset`"),
    "code without a preset": ({"kind": "arm", "follows": "code"}, "name a model as `preset`"),
    "neither text nor code": ({"kind": "arm", "preset": "Gemma-3-4b-it", "follows": "both"}, "'text' or 'code'"),
    "percentiles of something else": ({"kind": "arm", "quantile_of": "ranks"}, "'values' or 'sizes'"),
    "an unknown key": ({"kind": "arm", "cc": 0.1}, "Extra inputs are not permitted"),
    "a key of another kind": ({"kind": "knockout", "c": 0.1}, "Extra inputs are not permitted"),
    "a key of another kind, too": ({"kind": "arm", "by": 3}, "Extra inputs are not permitted"),
    "a negative c": ({"kind": "arm", "c": -0.1}, "greater than or equal to 0"),
    "no number": ({"kind": "arm", "c": float("nan")}, "finite number"),
    "too large a fraction": ({"kind": "arm", "fraction": 1.1}, "less than or equal to 1"),
    "a negative share": ({"kind": "arm", "p_min": -0.1}, "greater than or equal to 0"),
    "a percentile beyond all": ({"kind": "arm", "p1": 100.1}, "less than or equal to 100"),
    "limits the wrong way round": (
        {"kind": "arm", "p_min": 0.3},
        "p_min is 0.3 and p_max 0.25: p_min must not be the larger",
    ),
    "limits the wrong way round, beside a preset": (
        {"kind": "arm", "p_max": 0.01, "preset": "Gemma-3-4b-it"},
        "p_min is 0.02 and p_max 0.01",
    ),
    "layer 0": ({"kind": "arm", "layers": [1, 0]}, "greater than or equal to 1"),
    "layer 0, of a knock-out": ({"kind": "knockout", "layers": 0}, "greater than or equal to 1"),
    "no layer": ({"kind": "arm", "layers": []}, "at least 1 item"),
    "an unknown mode": ({"kind": "arm", "mode": "set"}, "'add' or 'replace'"),
    "a shift by nothing": ({"kind": "shift", "by": 0}, "greater than or equal to 1"),
    "a shift out of sight": ({"kind": "shift", "by": 100_001}, "less than or equal to 100000"),
}


@pytest.mark.parametrize(("settings", "expected"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused(settings: dict[str, Any], expected: str) -> None:
    assert expected in refusal(**settings)


def test_limits_may_be_equal_and_shares_whole() -> None:
    assert arm(p_min=0.3, p_max=0.3).p_max == 0.3
    assert arm(p_min=0, p_max=1, c=0, p1=100, fraction=1).fraction == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "arm", "preset": "Gemma-3-4b-it", "c": 0.3},
        {"kind": "arm", "preset": "Gemma-3-4b-it"},
        {"kind": "arm", "preset": "Qwen2.5-Math-7B", "fraction": 0.2},
        {"kind": "arm", "preset": "google/gemma-3-4b-it", "benchmark": "aime_2024", "follows": "code"},
        {"kind": "scatter", "layers": 3, "mode": "replace"},
        {"kind": "gaussian", "p_min": 0.0},
        {"kind": "knockout"},
        {"kind": "knockout", "layers": [2, 1]},
        {"kind": "shift", "by": 7},
    ],
)
def test_stored_and_read_again_it_is_the_same(settings: dict[str, Any]) -> None:
    spec = ANY.validate_python(settings)
    assert ANY.validate_python(ANY.dump_python(spec, mode="json")) == spec
    assert ANY.validate_json(ANY.dump_json(spec)) == spec
    assert hash(spec) == hash(ANY.validate_python(settings))
    with pytest.raises(ValidationError, match="frozen"):
        spec.kind = "shift"
