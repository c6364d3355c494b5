"""What activations are held against: that of the first prompts without filler, whatever else a study asks for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fillerscope.capture import calibration as calibrating
from fillerscope.capture.activations import HIGHEST, LOWEST, Scale
from fillerscope.capture.calibration import TOKENS, first_texts
from fillerscope.capture.packing import Text
from fillerscope.measure.engines.local import calibration
from fillerscope.measure.prepare import Shard, ShardPrompts, shards_of
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import load_problems
from fillerscope.study.study import Study
from support.grid import some_fast
from support.stock import FAMILIES, kept_tokens, loaded, maker_for, probed, prompts_of, stored

ROUNDING = 2**-8  # to a step


def shard_prompts(study: Study, model: LoadedModel) -> ShardPrompts:
    return ShardPrompts(study, maker_for(study, model), context_length(model.model))


def calibrated(study: Study, model: LoadedModel, shards: list[Shard] | None = None) -> Scale:
    shards = shards or shards_of(load_problems(study.problems), study.batch.shard)
    return Scale.read(calibration(shard_prompts(study, model), model.model, shards))


def first_prompts(study: Study, model: LoadedModel) -> list[Any]:
    """As many of the prompts without filler as fit, counted one by one."""
    found: list[Any] = []
    for _, condition, prompt, _ in prompts_of(study, model):
        if condition.is_baseline and (not found or sum(map(len, found)) + len(prompt) <= TOKENS):
            found.append(prompt)
    return found


@cache
def sizes(family: str) -> tuple[np.ndarray, int]:
    """Of all activations that count [layer, element], and of how many prompts."""
    study, model = ten(), loaded(family)
    prompts = first_prompts(study, model)
    values = [stored(model.model, prompt.ids).activations[:, kept_tokens(prompt)] for prompt in prompts]
    return np.abs(np.concatenate(values, axis=1)).reshape(values[0].shape[0], -1), len(prompts)


def ten(**changes: Any) -> Study:
    return probed(**({"problems": {"limit": 10, "seed": 1}, "batch": {"shard": 10, "tokens": 256}} | changes))


@cache
def usual() -> Scale:
    return calibrated(ten(), loaded())


def lower_median(values: np.ndarray) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


@pytest.mark.parametrize("family", some_fast(FAMILIES, "llama", "gemma3_text", "phi3", "gpt2"))
def test_threshold_and_median_are_those_of_the_first_prompts(family: str) -> None:
    found = calibrated(ten(), loaded(family))
    everything, prompts = sizes(family)
    assert 1 < prompts < 10
    assert (found.problems, found.tokens) == (prompts, sum(len(kept_tokens(p)) for p in first_prompts(ten(), loaded())))
    for layer, values in enumerate(everything):
        median = lower_median(values)
        eps = 1.4826 * lower_median(np.abs(values - median)) * 0.13
        assert abs(found.median[layer] - median) <= 1.001 * ROUNDING * median
        assert abs(found.eps[layer] - eps) <= 1.001 * ROUNDING * eps
    # The histogram goes beyond all that was seen, and below every threshold.
    assert 2.0 ** found.octaves[1] >= everything.max() > 2.0 ** (found.octaves[1] - 3)
    assert 2.0 ** found.octaves[0] <= min(found.eps) / 8 < 2.0 ** (found.octaves[0] + 1)
    assert LOWEST < found.octaves[0] < found.octaves[1] <= HIGHEST


def test_texts_in_rows_of_their_own_give_the_same() -> None:
    """As hybrid models have them, whose state goes on from text to text."""
    study, model = ten(), loaded()
    shards = shards_of(load_problems(study.problems), study.batch.shard)
    apart = Scale.read(calibration(shard_prompts(study, model), model.model, shards, "apart"))
    assert (apart.problems, apart.tokens, apart.octaves) == (usual().problems, usual().tokens, usual().octaves)
    np.testing.assert_allclose(apart.eps, usual().eps, rtol=2 * ROUNDING)
    np.testing.assert_allclose(apart.median, usual().median, rtol=2 * ROUNDING)


def test_the_threshold_follows_c() -> None:
    small, large = (calibrated(ten(probes={"attention": {}, "activations": {"c": c}}), loaded()) for c in (0.13, 0.39))
    np.testing.assert_allclose(np.array(large.eps) / small.eps, 3.0, rtol=3 * ROUNDING)
    assert large.median == small.median


@pytest.mark.parametrize("batch", [{"tokens": 1}, {"tokens": 100_000}, {"prefix": "off"}], ids=str)
def test_how_texts_share_passes_changes_nothing(batch: dict[str, Any]) -> None:
    assert calibrated(ten(batch={"shard": 10} | batch), loaded()) == usual()


def test_the_scale_is_the_same_every_time() -> None:
    assert calibrated(ten(), loaded()) == usual()


def test_conditions_change_nothing() -> None:
    changed = ten(conditions=["none", "arm", "positions", {"name": "few", "kind": "repeat", "text": " he", "count": 2}])
    assert calibrated(changed, loaded()) == usual()


@pytest.mark.parametrize("shard", [1, 3])
def test_the_size_of_shards_changes_nothing(shard: int) -> None:
    assert calibrated(ten(batch={"shard": shard}), loaded()) == usual()


def test_problems_without_a_prompt_are_passed_over() -> None:
    study, model = ten(), loaded()
    problems = load_problems(study.problems)
    long = Problem("long", "and then " * 900, "")
    early, late = Shard(0, 0, (long,)), Shard(1, 1, (problems[0], long, *problems[1:3]))
    assert calibrated(study, model, [early, late]) == calibrated(study, model, shards_of(problems[:3], 3))
    assert calibration(shard_prompts(study, model), model.model, [early]) == {}


def test_what_is_kept_is_read_again() -> None:
    study, model = ten(), loaded()
    record = calibration(shard_prompts(study, model), model.model, shards_of(load_problems(study.problems), 10))
    assert Scale.read(record).record() == record
    np.testing.assert_array_equal(record["edges"], Scale.read(record).edges)


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [((100, 100), 2), ((TOKENS, 1), 1), ((TOKENS - 1, 1, 1), 2), ((TOKENS + 9, 3), 1), ((1, TOKENS, 2), 1), ((7,), 1)],
)
def test_as_many_texts_as_fit_and_one_at_least(lengths: tuple[int, ...], kept: int) -> None:
    texts = [Text(tuple(range(length)), np.ones(length, np.bool_)) for length in lengths]
    assert first_texts(texts) == texts[:kept]


def test_layers_without_any_activity_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds that no number is below, and a histogram that has bins all the same."""
    monkeypatch.setattr(calibrating, "_levels", lambda *_: (0.0, 0.0, 0.0))
    found = calibrated(ten(), loaded())
    assert found.octaves[0] < found.octaves[1]
    assert all(0 < eps < 1e-7 for eps in found.eps)
    assert len(found.edges) % 2 == 0
    monkeypatch.setattr(calibrating, "_levels", lambda *_: (1e9, 1e9, 1e30))
    found = calibrated(ten(), loaded())
    assert found.octaves == (HIGHEST - 4, HIGHEST)
