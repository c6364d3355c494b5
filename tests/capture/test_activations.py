"""Activations counted as they pass, against all of them stored: sorted, cut and added up by the definitions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.capture import activations as counting
from fillerscope.capture.activations import (
    Cells,
    Scale,
    activity,
    gini,
    index_of,
    pattern_counts,
    rounded,
    watching_activations,
)
from fillerscope.capture.packing import Packing, Text
from fillerscope.measure.prepare import Shard
from fillerscope.problems.problem import Problem
from fillerscope.store.array_file import Part
from fillerscope.store.schema import ACTIVATION_METRICS
from fillerscope.study.token_classes import class_names
from support.grid import grid
from support.stock import (
    ALL_PROBES,
    FAMILIES,
    activation_of,
    classes_of,
    gini_of,
    kept_tokens,
    loaded,
    measure,
    probed,
    prompts_of,
    scale_for,
    stored,
)
from support.tiny import tiny_model

CLOSE = 1e-5
SHARES = ("near_zero", "below_median")
BATCHES = [(tokens, prefix) for tokens in (1, 256, 100_000) for prefix in ("share", "off")]
# Activations this small are differences of large numbers, and float32 knows them no better than this.
NOISE = 4e-6


@cache
def reference(family: str) -> dict[str, list[list[np.ndarray]]]:
    """By condition and problem, for every class [layer, token, width]: all activations that count."""
    study, model = probed(), loaded(family)
    found: dict[str, list[list[np.ndarray]]] = {}
    for _, condition, prompt, plain in prompts_of(study, model):
        values = stored(model.model, prompt.ids).activations[:, kept_tokens(prompt)]
        kinds = np.array(classes_of(study, model, plain))[kept_tokens(plain)]
        names = class_names(study.probes.activations.classes)
        chosen = [values if name == "all" else values[:, kinds == name] for name in names]
        found.setdefault(condition.name, []).append(chosen)
    return found


@cache
def scale_of(family: str) -> Scale:
    return scale_for(probed(), loaded(family))


@cache
def measured(family: str, tokens: int, prefix: str) -> Part:
    return measure(probed(batch={"tokens": tokens, "prefix": prefix}), loaded(family), scale=scale_of(family))


def assert_numbers(found: np.ndarray, values: np.ndarray, scale: Scale, layer: int) -> None:
    """[metric] of one text, class and layer."""
    mine = dict(zip(ACTIVATION_METRICS, found.tolist(), strict=True))
    wanted = activation_of(values, scale.eps[layer], scale.median[layer])
    assert mine["tokens"] == wanted["tokens"]
    if not len(values):
        assert all(np.isnan(mine[name]) for name in ACTIVATION_METRICS[1:])
        return
    typical = np.abs(values).mean()
    np.testing.assert_allclose(mine["mean"], wanted["mean"], rtol=CLOSE, atol=CLOSE * typical)
    for name in ("variance", "l1", "l2"):
        np.testing.assert_allclose(mine[name], wanted[name], rtol=CLOSE, err_msg=name)
    np.testing.assert_allclose(mine["gini"], wanted["gini"], rtol=CLOSE)
    for name, limit in zip(SHARES, (scale.eps[layer], scale.median[layer]), strict=True):
        fewest, most = (np.mean(np.abs(values) < limit + shift) for shift in (-NOISE, NOISE))
        assert fewest - CLOSE <= mine[name] <= most + CLOSE, (name, fewest, mine[name], most)


def assert_histogram(found: np.ndarray, values: np.ndarray, edges: np.ndarray) -> None:
    """How many are below every edge, but for those that stand on it."""
    assert found.sum() == values.size
    assert len(found) == len(edges) - 1
    below, ordered = np.cumsum(found)[:-1], np.sort(values.ravel())
    fewest, most = (np.searchsorted(ordered, edges[1:-1] + shift) for shift in (-NOISE, NOISE))
    assert (fewest <= below).all()
    assert (below <= most).all()


@pytest.mark.parametrize(("family", "batch"), grid(FAMILIES, BATCHES), ids=str)
def test_every_number_is_that_of_all_activations(family: str, batch: tuple[int, str]) -> None:
    scale, part = scale_of(family), measured(family, *batch)
    for name, problems in reference(family).items():
        found = part.arrays[f"{name}/activations"]
        layers = problems[0][0].shape[0]
        assert found.shape == (4, len(ACTIVATION_METRICS), 5, layers)
        for problem, kind, layer in np.ndindex(4, 5, layers):
            assert_numbers(found[problem, :, kind, layer], problems[problem][kind][layer], scale, layer)


@pytest.mark.parametrize(("family", "batch"), grid(FAMILIES, BATCHES), ids=str)
def test_the_histogram_is_that_of_all_activations(family: str, batch: tuple[int, str]) -> None:
    scale, part = scale_of(family), measured(family, *batch)
    for name, problems in reference(family).items():
        counts = part.arrays[f"{name}/histogram/counts"]
        assert counts.dtype == np.int64
        for layer, kind in np.ndindex(counts.shape[:2]):
            values = np.concatenate([classes[kind][layer].ravel() for classes in problems])
            assert_histogram(counts[layer, kind], values, scale.edges)
        np.testing.assert_array_equal(counts[:, 0], counts[:, 1:].sum(1))


def test_the_reference_tries_what_is_hard() -> None:
    """One class has tokens in no problem, another in some of them, and the rest in all; problems differ in length."""
    sizes = np.array([[kind.shape[1] for kind in problem] for problem in reference("llama")["mless"]])
    assert (sizes > 0).sum(axis=0).tolist() == [4, 4, 0, 3, 4]
    assert len(set(sizes[:, 0])) > 1


# The same without a model: here nothing is rounded, and what is counted must be exact


def scale(eps: float = 0.05, median: float = 0.4, octaves: tuple[int, int] = (-8, 3)) -> Scale:
    return Scale((rounded(eps),), (rounded(median),), octaves, 1, 1)


def two_texts(lengths: tuple[int, int] = (7, 4), classes: int = 3) -> Packing:
    random = np.random.default_rng(1)
    made = []
    for number, length in enumerate(lengths):
        wanted = np.arange(length) > number
        made.append(
            Text(
                tuple(range(length)), np.ones(length, np.bool_), problem=number, probed=wanted,
                classes=random.integers(0, classes - 1, length),
            )
        )  # fmt: skip
    return Packing.of(made)


SPREADS = st.sampled_from([1e-9, 1e-3, 0.1, 1.0, 30.0, 1e6])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), SPREADS, st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_what_is_counted_is_exact(seed: int, spread: float, dtype: torch.dtype) -> None:
    packing, width = two_texts(), 64
    drawn = np.random.default_rng(seed).normal(size=(packing.tokens, width)) * spread
    drawn.ravel()[::17] = np.repeat([0.0, -0.0, rounded(0.05), -rounded(0.4)], 99)[: len(drawn.ravel()[::17])]
    values = torch.tensor(np.clip(drawn, -6e4, 6e4)).to(dtype)
    cells = Cells.of(packing, 3, torch.device("cpu"))
    numbers, counts = (part.numpy() for part in activity(values, cells, scale(), 0))
    exact, edges = values.double().numpy(), scale().edges
    for text, place in enumerate(packing.places()):
        wanted = np.flatnonzero(packing.texts[text].probed)
        rows, kinds = exact[place][wanted], packing.texts[text].classes[wanted]
        for kind in range(4):
            some = rows if kind == 0 else rows[kinds == kind - 1]
            mine = dict(zip(ACTIVATION_METRICS, numbers[text, kind], strict=True))
            assert mine["tokens"] == len(some)
            np.testing.assert_array_equal(counts[text, kind], histogram(some, edges))
            if not len(some):
                assert np.isnan(numbers[text, kind, 1:]).all()
                continue
            sizes = np.abs(some)
            assert mine["near_zero"] == np.mean(sizes < rounded(0.05))
            assert mine["below_median"] == np.mean(sizes < rounded(0.4))
            np.testing.assert_allclose(mine["mean"], some.mean(), rtol=CLOSE, atol=1e-6 * sizes.mean())
            for name, value in (("variance", some.var()), ("l1", sizes.sum(-1).mean())):
                np.testing.assert_allclose(mine[name], value, rtol=CLOSE, err_msg=name)
            np.testing.assert_allclose(mine["l2"], np.sqrt((some**2).sum(-1)).mean(), rtol=CLOSE)


def histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """By numpy, side by side: bins hold their edge towards zero and not the other, so that zero has one bin."""
    side = np.concatenate([edges[len(edges) // 2 :][:-1], [np.inf]])
    up, down = (np.histogram(some[some >= side[0]], side)[0] for some in (values, -values))
    return np.concatenate([down[::-1], [(np.abs(values) < side[0]).sum()], up])


def test_edges_are_symmetric_powers_of_two_in_quarters() -> None:
    edges = scale(octaves=(-2, 1)).edges
    np.testing.assert_array_equal(edges, -edges[::-1])
    side = edges[len(edges) // 2 :]
    np.testing.assert_array_equal(side, [0.25, 0.3125, 0.375, 0.4375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 1.75, 2])


@pytest.mark.parametrize("value", [0.25, -0.25])
def test_a_value_on_an_edge_is_in_the_outer_bin(value: float) -> None:
    packing = two_texts((3, 3), 2)
    cells = Cells.of(packing, 1, torch.device("cpu"))
    counts = activity(torch.full((6, 8), value), cells, scale(octaves=(-2, 1)), 0)[1].numpy()
    middle = counts.shape[-1] // 2
    assert counts[0, 0, middle + (1 if value > 0 else -1)] == packing.texts[0].probed.sum() * 8


def test_values_are_counted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    values, cell = torch.randn(50, 16), torch.arange(50) % 3
    whole = pattern_counts(values, cell, 3)
    monkeypatch.setattr(counting, "ELEMENTS", 7 * 16)
    torch.testing.assert_close(pattern_counts(values, cell, 3), whole, rtol=0, atol=0)
    assert whole[0].sum((1, 2)).tolist() == [17 * 16, 17 * 16, 16 * 16]


@settings(deadline=None)
@given(st.floats(1e-7, 6e4))
def test_limits_are_rounded_to_the_nearest_step(limit: float) -> None:
    near = rounded(limit)
    assert abs(near - limit) <= limit * 2**-8
    assert rounded(near) == near
    assert counting.values_of(np.array([index_of(near)])) == near


def counted_gini(values: torch.Tensor) -> float:
    counts, above = pattern_counts(values, torch.zeros(len(values), dtype=torch.int64), 1)
    return float(gini(counts.sum(1).double().cumsum(-1), above, even=values.dtype != torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("elements", [50, 500, 5000, 500_000])
@pytest.mark.parametrize("nonlinearity", [torch.nn.functional.silu, torch.nn.functional.gelu, torch.relu])
def test_gini_is_that_of_the_sorted_sizes(elements: int, nonlinearity: Any, dtype: torch.dtype) -> None:
    for seed in range(3):
        values = nonlinearity(torch.randn(elements, 1, generator=torch.Generator().manual_seed(seed))).to(dtype)
        exact = gini_of(values.abs().double().numpy().ravel())
        np.testing.assert_allclose(counted_gini(values), exact, rtol=CLOSE)


def test_gini_of_equal_sizes_is_none_and_of_one_that_has_all_is_nearly_one() -> None:
    for values, wanted in ((torch.full((1000, 1), 0.5), 0.0), ((torch.arange(1000.0) == 7).float()[:, None], 0.999)):
        assert abs(counted_gini(values) - wanted) < 2e-3  # a step is as wide as that


# Prompts that are hard


def test_a_class_without_tokens_has_no_numbers_and_a_question_may_be_one_token() -> None:
    study = probed(prompt={"system": "Think.", "template": "raw", "raw": "{system}\n\n{question}"})
    model, shard = loaded(), Shard(0, 0, (Problem("a", "7", "7"), Problem("b", "3 and 4", "")))
    part = measure(study, model, shard, scale_of("llama"))
    found = part.arrays["mless/activations"]
    tokens = found[:, ACTIVATION_METRICS.index("tokens"), :, 0]
    np.testing.assert_array_equal(tokens, [[1, 1, 0, 0, 0], [3, 2, 0, 1, 0]])
    assert np.isfinite(found[:, :, 0]).all()
    for problem, kind in np.ndindex(tokens.shape):
        numbers = found[problem, 1:, kind]
        assert np.isfinite(numbers).all() if tokens[problem, kind] else np.isnan(numbers).all()
    assert not part.arrays["mless/histogram/counts"][:, 2].any()  # no operator anywhere
    np.testing.assert_array_equal(found[0, :, 0], found[0, :, 1])


def test_where_most_are_zero_these_are_what_is_near_zero() -> None:
    """Behind a ReLU the median may be 0: zeros are below the threshold, and in the middle of the histogram."""
    study, model = probed(), loaded("gpt2", activation_function="relu")
    frozen = scale_for(study, model)
    assert min(frozen.eps) < 1e-7  # in one layer more than half of them are
    part = measure(study, model, scale=frozen)
    for name in ("none", "mless"):
        values = np.concatenate([
            stored(model.model, prompt.ids).activations[:, kept_tokens(prompt)]
            for _, condition, prompt, _ in prompts_of(study, model)
            if condition.name == name
        ], axis=1)  # fmt: skip
        counts = part.arrays[f"{name}/histogram/counts"][:, 0]
        zeros = (values == 0).sum(axis=(1, 2))
        assert (np.abs(counts[:, counts.shape[1] // 2] - zeros) <= 2).all()
        layer = int(np.argmin(frozen.eps))
        share = part.arrays[f"{name}/activations"][:, :, 0, layer]
        tokens = share[:, ACTIVATION_METRICS.index("tokens")]
        near = (share[:, ACTIVATION_METRICS.index("near_zero")] * tokens).sum() / tokens.sum()
        np.testing.assert_allclose(near, np.mean(values[layer] == 0), rtol=1e-3)


def test_nothing_listens_afterwards() -> None:
    model = tiny_model("llama")

    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in model.modules())

    with watching_activations(model, lambda *_: None):
        assert hooks() == 3
    with pytest.raises(RuntimeError, match="stop"), watching_activations(model, lambda *_: None):
        raise RuntimeError("stop")
    assert hooks() == 0


def test_without_the_probe_there_is_nothing() -> None:
    part = measure(probed(probes={"attention": {}, "affine": True}), loaded())
    assert not [key for key in part.arrays if "activations" in key or "histogram" in key]
    part = measure(probed(probes={key: ALL_PROBES[key] for key in ("attention", "activations")}), loaded())
    assert not [key for key in part.arrays if "affine" in key or "bias" in key]
