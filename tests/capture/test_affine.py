"""The affine picture against outputs that are all stored, and the definitions in plain loops."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.capture.affine import Pairs, affine
from fillerscope.capture.packing import Packing, Text
from fillerscope.measure.prepare import Shard
from fillerscope.problems.problem import Problem
from fillerscope.store.array_file import Part
from fillerscope.store.schema import AFFINE_METRICS
from fillerscope.study.study import Study
from support.grid import grid
from support.stock import FAMILIES, affine_of, behind_filler, loaded, measure, probed, prompts_of, stored
from support.studies import CONDITIONS

FILLED = tuple(condition["name"] for condition in CONDITIONS[1:])
ONLY_AFFINE: dict[str, Any] = {"attention": {"positions": 200}, "affine": True}
BATCHES = [{"tokens": tokens, "prefix": prefix} for tokens in (1, 256, 100_000) for prefix in ("share", "off")]
CLOSE = 1e-5


def only_affine(**changes: Any) -> Study:
    return probed(**({"probes": ONLY_AFFINE} | changes))


@cache
def reference(family: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By condition: the numbers [problem, metric, layer, head] and the bias [problem, layer, head, dim]."""
    study, model = only_affine(), loaded(family)
    numbers: dict[str, list[np.ndarray]] = {}
    biases: dict[str, list[np.ndarray]] = {}
    for _, condition, prompt, plain in prompts_of(study, model):
        found = stored(model.model, prompt.ids).outputs
        if condition.is_baseline:
            base = found
            continue
        here, there = behind_filler(prompt, plain)
        layers, _, heads, dim = found.shape
        bias, table = np.zeros((layers, heads, dim)), np.zeros((len(AFFINE_METRICS), layers, heads))
        for layer, head in np.ndindex(layers, heads):
            one, bias[layer, head] = affine_of(found[layer, here, head], base[layer, there, head])
            table[:, layer, head] = [one[name] for name in AFFINE_METRICS]
        numbers.setdefault(condition.name, []).append(table)
        biases.setdefault(condition.name, []).append(bias)
    return {name: (np.stack(numbers[name]), np.stack(biases[name])) for name in numbers}


def deviations(found: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """The largest of each metric. Lengths, and numbers made of them, are known to a share of the outputs' size."""
    sizes = expected[:, AFFINE_METRICS.index("output")]
    result = {}
    for place, name in enumerate(AFFINE_METRICS):
        scale = {"bias": np.maximum(sizes, expected[:, place])}.get(name, np.maximum(np.abs(expected[:, place]), 1.0))
        result[name] = float(np.max(np.abs(found[:, place] - expected[:, place]) / scale))
    return result


def assert_is_reference(part: Part, family: str) -> None:
    for name, (numbers, biases) in reference(family).items():
        found = part.arrays[f"{name}/affine"]
        assert found.shape == numbers.shape
        assert found.dtype == np.float32
        worst = deviations(found, numbers)
        assert max(worst.values()) < CLOSE, (name, worst)
        assert part.arrays[f"{name}/bias/count"].tolist() == [[[len(biases)]]]
        size = numbers[:, AFFINE_METRICS.index("output")].max(axis=0)[..., None]
        mean, m2 = biases.mean(axis=0), ((biases - biases.mean(axis=0)) ** 2).sum(axis=0)
        assert np.max(np.abs(part.arrays[f"{name}/bias/mean"] - mean) / size) < CLOSE
        assert np.max(np.abs(part.arrays[f"{name}/bias/m2"] - m2) / size**2) < CLOSE


@pytest.mark.parametrize(("family", "batch"), grid(FAMILIES, BATCHES), ids=str)
def test_outputs_are_compared_as_defined(family: str, batch: dict[str, Any]) -> None:
    """With filler in every place, one problem a pass or all of them, prefixes run once or with every text."""
    assert_is_reference(measure(only_affine(batch=batch), loaded(family)), family)


def test_the_reference_tries_what_is_hard() -> None:
    """Filler changes every head, by more than rounding, and not by a factor alone."""
    for family in FAMILIES:
        for name, (numbers, _) in reference(family).items():
            means = dict(zip(AFFINE_METRICS, numbers.mean(axis=(0, 2, 3)), strict=True))
            assert means["bias"] > 0.005 * means["output"], (family, name)
            assert 0.02 < means["direction"] < 0.999
            assert numbers[:, AFFINE_METRICS.index("explained")].std() > 0.005
    spans = [prompt.spans for _, _, prompt, _ in prompts_of(only_affine(), loaded())]
    assert len({tuple(one).index(1) for one in spans if 1 in one}) > 5


def test_without_filler_there_is_nothing_to_compare() -> None:
    part = measure(only_affine(), loaded())
    names = {key.split("/")[0] for key in part.arrays if "/affine" in key or "/bias/" in key}
    assert names == set(FILLED)
    part = measure(only_affine(conditions=["none"]), loaded())
    assert not [key for key in part.arrays if "affine" in key or "bias" in key]


RAW = {"system": "Think.", "template": "raw"}
END = {"name": "end", "kind": "repeat", "text": " /", "count": 6, "position": "end"}


def test_where_no_token_stands_behind_the_filler_there_are_no_numbers() -> None:
    study = only_affine(prompt=RAW | {"raw": "{system}\n\n{question}"}, conditions=["none", END, CONDITIONS[1]])
    part = measure(study, loaded())
    assert part.arrays["end/affine"].shape == part.arrays["mless/affine"].shape
    assert np.isnan(part.arrays["end/affine"]).all()
    assert part.arrays["end/bias/count"].tolist() == [[[0]]]
    assert not part.arrays["end/bias/mean"].any()
    assert np.isfinite(part.arrays["mless/affine"]).all()
    assert [record["status"] for record in part.records] == ["ok"] * 4


def test_one_token_is_moved_one_way_and_does_not_vary() -> None:
    """A question of one token with one behind it: what stands behind filler at the end is one token."""
    study = only_affine(prompt=RAW | {"raw": "{system}\n\n{question}."}, conditions=["none", END])
    model, shard = loaded(), Shard(0, 0, tuple(Problem(str(n), str(n), "") for n in range(9)))
    numbers = dict(
        zip(AFFINE_METRICS, np.moveaxis(measure(study, model, shard).arrays["end/affine"], 1, 0), strict=True)
    )
    assert np.isnan(numbers["explained"]).all()
    np.testing.assert_allclose(numbers["direction"], 1.0, rtol=1e-6)
    assert np.isfinite(numbers["lambda_fit"]).all()
    assert (numbers["bias"] > 0).all()


def test_the_layers_before_a_change_are_the_same_and_point_nowhere() -> None:
    """ARM in layer 2 cannot show before layer 3: a shift that is rounding has no direction."""
    study = only_affine(conditions=["none", {"name": "arm", "intervention": {"kind": "arm", "layers": [2]}}])
    numbers = dict(zip(AFFINE_METRICS, np.moveaxis(measure(study, loaded()).arrays["arm/affine"], 1, 0), strict=True))
    np.testing.assert_allclose(numbers["lambda_fit"][:, :2], 1.0, atol=1e-6)
    np.testing.assert_allclose(numbers["explained"][:, :2], 1.0, atol=1e-6)
    assert np.isnan(numbers["direction"][:, :2]).all()
    assert np.isfinite(numbers["direction"][:, 2]).all()
    assert np.abs(numbers["lambda_fit"][:, 2] - 1).max() > 1e-3


# The same without a model


def three_texts() -> Packing:
    """One problem: without filler, with two tokens of it before the fourth token, and with none but other values."""
    plain, filled = np.ones(6, np.bool_), np.ones(8, np.bool_)
    filled[3:5] = False
    wanted = np.arange(6) > 1
    texts = [
        Text(tuple(range(6)), plain, problem=3, probed=wanted),
        Text(tuple(range(8)), filled, problem=3, probed=np.insert(wanted, [3, 3], False)),
        Text(tuple(range(6)), plain, problem=3, probed=wanted),
    ]
    return Packing.of(texts)


def test_an_affine_image_is_told_from_one_that_is_not() -> None:
    packing, random = three_texts(), np.random.default_rng(0)
    plain, bias = random.normal(size=(6, 2, 5)), random.normal(size=(2, 5))
    plain[2:] -= plain[2:].mean(axis=0)  # so that slope and bias are told apart exactly
    plain[3:] -= plain[3:].mean(axis=0)
    places = packing.places()
    output = np.full((packing.tokens, 2, 5), 1e3)
    output[places[0]] = plain
    output[places[1]][[5, 6, 7]] = 0.5 * plain[3:] + bias  # the three tokens behind the filler, and no other
    output[places[2]] = -plain
    numbers, biases = affine(torch.tensor(output), Pairs.of(packing, torch.device("cpu")), 3)
    found = [dict(zip(AFFINE_METRICS, one, strict=True)) for one in numbers.numpy()]
    assert all(np.isnan(value).all() for value in found[0].values())
    assert torch.isnan(biases[0]).all()
    for name, value in (("lambda_fit", 0.5), ("explained", 1.0), ("direction", 1.0)):
        np.testing.assert_allclose(found[1][name], value, rtol=1e-12)
    np.testing.assert_allclose(biases[1], bias, rtol=1e-12)
    np.testing.assert_allclose(found[1]["bias"], np.linalg.norm(bias, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(found[1]["output"], np.linalg.norm(plain[3:], axis=-1).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found[2]["lambda_fit"], -1.0, rtol=1e-12)  # without filler all that is looked at counts
    np.testing.assert_allclose(found[2]["output"], np.linalg.norm(plain[2:], axis=-1).mean(axis=0), rtol=1e-12)
    assert np.isnan(found[2]["direction"]).all()


def test_texts_of_several_problems_are_compared_with_their_own() -> None:
    random = np.random.default_rng(2)
    made = []
    for problem in (4, 9, 7):
        wanted = np.arange(5) > 1
        made += [Text(tuple(range(5)), np.ones(5, np.bool_), problem=problem, probed=wanted) for _ in range(3)]
    order = [0, 3, 1, 6, 4, 2, 7, 5, 8]  # mixed, the first of each problem still first
    packing = Packing.of([made[number] for number in order])
    output = random.normal(size=(packing.tokens, 2, 4))
    numbers, biases = affine(torch.tensor(output), Pairs.of(packing, torch.device("cpu")), 9)
    values = {number: output[place] for number, place in zip(order, packing.places(), strict=True)}
    for place, number in enumerate(order):
        if number % 3 == 0:
            assert torch.isnan(numbers[place]).all()
            continue
        for head in range(2):
            wanted, bias = affine_of(values[number][2:, head], values[number - number % 3][2:, head])
            np.testing.assert_allclose(numbers[place, :, head], [wanted[name] for name in AFFINE_METRICS], rtol=1e-9)
            np.testing.assert_allclose(biases[place, head], bias, rtol=1e-9)
    assert math.isfinite(float(numbers[2].sum()))


def pairs_of(tokens: int) -> Pairs:
    """One text of so many tokens beside another."""
    rows = torch.arange(tokens)
    return Pairs(torch.tensor([1]), rows, rows + tokens, rows * 0, torch.ones(1, tokens, dtype=torch.float64))


@pytest.mark.parametrize(("spread", "told"), [(0.1, True), (0.003, False), (0.0, False)])
def test_outputs_that_hardly_vary_leave_nothing_to_explain(spread: float, told: bool) -> None:
    random = torch.Generator().manual_seed(0)
    plain = torch.ones(20, 1, 4, dtype=torch.float64)
    plain = plain + spread * torch.randn(plain.shape, generator=random, dtype=torch.float64)
    output = torch.cat([plain, 0.9 * plain + 0.1])
    numbers = dict(zip(AFFINE_METRICS, affine(output, pairs_of(20), 2)[0][1, :, 0].tolist(), strict=True))
    assert np.isfinite(numbers["explained"]) == told
    assert np.isfinite(numbers["lambda_fit"])


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-7)])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_shift_as_small_as_rounding_points_nowhere(dtype: torch.dtype, least: float, factor: float) -> None:
    """Outputs are orthogonal to the shift, so that its length is known."""
    plain = torch.tensor([1.0, 0.0]).expand(10, 1, 2)
    shifted = plain + torch.tensor([0.0, factor * least])
    numbers = affine(torch.cat([plain, shifted]).to(dtype), pairs_of(10), 2)[0]
    assert np.isfinite(float(numbers[1, AFFINE_METRICS.index("direction"), 0])) == (factor > 1)
