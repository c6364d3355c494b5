"""What is done inside the model, in passes that many texts share, against a stock model given one prompt alone.

Models are in float64, so that what is told apart by sizes (which elements ARM moves) is told apart alike: with
float32, rounding that depends on the pass may put one element on the other side of a threshold.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.arm.hooks import arm
from fillerscope.arm.rng import sequence_seed
from fillerscope.capture.activations import Scale
from fillerscope.capture.attention import capturing
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.passes import Measured, PassRunner
from fillerscope.capture.probes import Collector, Probing, intervening
from fillerscope.measure.shard import texts_of
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length, decoder_of
from fillerscope.prompts.prompt import Prompt
from fillerscope.store.schema import ACTIVATION_METRICS, AFFINE_METRICS, METRICS
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study
from support.grid import grid, some_fast
from support.shards import prepare_shard
from support.stock import (
    FAMILIES,
    Stored,
    activation_of,
    affine_of,
    behind_filler,
    kept_tokens,
    loaded,
    maker_for,
    measure,
    probed,
    probing_for,
    prompts_of,
    scale_for,
    shard_of,
    stored,
)
from support.tiny import tiny_model

SLASHES = {"kind": "repeat", "text": " /", "count": 6}
STRONG = {"fraction": 0.2, "p1": 99.0}
CHANGED: tuple[Any, ...] = (
    "none",
    {"name": "arm", "intervention": {"kind": "arm", "layers": [1]}},
    {"name": "arm-twice", "intervention": {"kind": "arm", "layers": [1, 3], **STRONG}},
    {"name": "arm-filled", "intervention": {"kind": "arm", "layers": [1], "mode": "replace"}, **SLASHES},
    {"name": "scatter", "intervention": {"kind": "scatter", "layers": [1, 3]}},
    {"name": "gaussian", "intervention": {"kind": "gaussian", "layers": [1, 3]}},
    {"name": "knockout", "intervention": {"kind": "knockout"}, **SLASHES},
    {"name": "knockout-some", "intervention": {"kind": "knockout", "layers": [2]}, **SLASHES, "position": "random"},
    {"name": "knockout-first", "intervention": {"kind": "knockout", "layers": [1, 3]}, **SLASHES, "position": "start"},
    {"name": "moved", "intervention": {"kind": "shift", "by": 6}},
    {"name": "mless", **SLASHES},
)
BATCHES = [{"tokens": 1, "prefix": "share"}, {"tokens": 100_000, "prefix": "share"}, {"tokens": 256, "prefix": "off"}]
CLOSE = 1e-5


def study_with(**changes: Any) -> Study:
    """With problems of which no activation stands so near to ARM's threshold (within 1e-6) that rounding decides."""
    return probed(**({"conditions": CHANGED, "problems": {"limit": 3, "seed": 2}} | changes))


def stock(study: Study, model: LoadedModel, condition: Condition, prompt: Prompt) -> Stored:
    """The prompt alone, with what the condition does to a stock model."""
    change = condition.intervention
    redistributed = isinstance(change, Redistribution)
    positions = [i + prompt.gap * (i >= prompt.question_start) for i in range(len(prompt))] if prompt.gap else None
    unseen = (prompt.original[:, None] & ~prompt.original)[None, None]

    def hidden(layer: int) -> Any:
        assert isinstance(change, Knockout)
        return unseen if not change.layers or layer + 1 in change.layers else None

    with arm(model.model, change, seed=study.seed) if redistributed else nullcontext():
        return stored(model.model, prompt.ids, positions, hidden if isinstance(change, Knockout) else None)


@cache
def reference(family: str) -> dict[tuple[int, str], tuple[Prompt, Prompt, Stored]]:
    study, model = study_with(), loaded(family, double=True)
    return {
        (number, condition.name): (prompt, plain, stock(study, model, condition, prompt))
        for number, condition, prompt, plain in prompts_of(study, model)
    }


@cache
def scale_of(family: str) -> Scale:
    return scale_for(study_with(), loaded(family, double=True))


def measured(study: Study, model: LoadedModel, scale: Scale) -> Measured:
    context = context_length(model.model)
    items = prepare_shard(study, shard_of(study), maker_for(study, model), context)
    runner = PassRunner(model.model, study.batch.tokens or 4096, probing=probing_for(study, model, scale))
    with capturing(model.model):
        return runner.measure(texts_of(study, items))


def received(weights: np.ndarray, original: np.ndarray) -> np.ndarray:
    """[query, layer, head, position] from the definition, in the order all, original, last."""
    row, key = np.indices(weights.shape[-2:])
    votes = np.stack([row > key, (row > key) & original[:, None], (row > key) & (row == len(row) - 1)])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.einsum("lhij,gij->glhj", weights, votes) / votes.sum(axis=1)[:, None, None]


@pytest.mark.parametrize(("family", "batch"), grid(FAMILIES, BATCHES), ids=str)
def test_every_condition_is_what_a_stock_model_gives(family: str, batch: dict[str, Any]) -> None:
    """Attention received, activations (as they are after ARM) and outputs."""
    study, scale = study_with(batch=batch), scale_of(family)
    found = measured(study, loaded(family, double=True), scale)
    for text, ((number, name), (prompt, plain, wanted)) in enumerate(reference(family).items()):
        case = f"{family} {number} {name}"
        mine = found.text(text).mean_received()
        np.testing.assert_allclose(mine, received(wanted.weights, prompt.original), atol=CLOSE, rtol=0, err_msg=case)
        assert_activity(found.probes["activity"][:, text].numpy(), wanted.activations[:, kept_tokens(prompt)], scale)
        if name != "none":
            base = reference(family)[number, "none"][2]
            assert_affine(found.probes["affine"][:, text].numpy(), wanted, base, *behind_filler(prompt, plain))


def assert_activity(found: np.ndarray, values: np.ndarray, scale: Scale) -> None:
    """[layer, class, metric] against [layer, token, width]."""
    for layer, some in enumerate(values):
        mine = dict(zip(ACTIVATION_METRICS, found[layer, 0], strict=True))
        wanted = activation_of(some, scale.eps[layer], scale.median[layer])
        for name in ("mean", "variance", "l1", "l2"):
            np.testing.assert_allclose(mine[name], wanted[name], rtol=CLOSE, atol=1e-6, err_msg=name)
        assert mine["tokens"] == wanted["tokens"]
        for name in ("near_zero", "below_median"):  # one element may stand on the other side
            assert abs(mine[name] - wanted[name]) * some.size < 1.5, name


def assert_affine(found: np.ndarray, with_it: Stored, without: Stored, here: list[int], there: list[int]) -> None:
    """[layer, metric, head]; where nothing moved but by rounding there is no direction."""
    for layer, head in np.ndindex(found.shape[0], found.shape[2]):
        wanted, _ = affine_of(with_it.outputs[layer, here, head], without.outputs[layer, there, head])
        mine = dict(zip(AFFINE_METRICS, found[layer, :, head], strict=True))
        reach = np.nan_to_num(wanted["bias"] / wanted["direction"] / wanted["output"])
        assert np.isnan(mine["direction"]) == (reach < 1e-5)
        if reach > 1e-5:  # a small shift is known less well
            assert abs(mine["direction"] - wanted["direction"]) < CLOSE * max(1, 1 / reach)
        for name in ("lambda_fit", "explained", "output"):
            np.testing.assert_allclose(mine[name], wanted[name], rtol=CLOSE, atol=CLOSE, err_msg=name)
        assert abs(mine["bias"] - wanted["bias"]) < CLOSE * wanted["output"]


@pytest.mark.parametrize("family", some_fast(FAMILIES, "llama"))
def test_every_condition_differs_from_every_other(family: str) -> None:
    """Or nothing would have been shown: by far more than what is allowed. Two of them are alike, as they should."""
    for number in range(3):
        last = {
            name: found.activations[-1, prompt.original]
            for (n, name), (prompt, _, found) in reference(family).items()
            if n == number
        }
        for one in last:
            for other in last:
                alike = one == other or {one, other} == {"knockout", "moved"}
                assert alike or np.abs(last[one] - last[other]).max() > 1e-3, (family, one, other)


def test_what_is_hidden_in_all_layers_is_a_mask_of_four_dimensions() -> None:
    """As transformers takes one from anybody: the hook of the reference does no more than that."""
    model = loaded("llama", double=True)
    for number in range(3):
        prompt, _, wanted = reference("llama")[number, "knockout"]
        seen = np.tril(np.ones((len(prompt), len(prompt)), np.bool_)) & ~(prompt.original[:, None] & ~prompt.original)
        lowest = torch.finfo(torch.float64).min
        mask = torch.zeros(1, 1, *seen.shape, dtype=torch.float64).masked_fill(~torch.tensor(seen), lowest)
        model.model.set_attn_implementation("eager")
        with torch.inference_mode():
            found = decoder_of(model.model)(
                input_ids=torch.tensor([prompt.ids]), attention_mask=mask, output_attentions=True, use_cache=False
            )
        weights = torch.stack(found.attentions)[:, 0].numpy()
        np.testing.assert_allclose(weights, wanted.weights, atol=1e-12)


# What is knocked out is as good as gone


@pytest.mark.parametrize("family", some_fast(["llama", "qwen2", "phi3", "gpt2"], "qwen2", "gpt2"))
def test_filler_knocked_out_everywhere_leaves_its_positions_and_nothing_else(family: str) -> None:
    study, model = study_with(), loaded(family)
    part = measure(study, model, scale=scale_of(family))
    for name, tolerance in (("affine", 2e-5), ("activations", 2e-5)):
        mine, theirs = (part.arrays[f"{condition}/{name}"] for condition in ("knockout", "moved"))
        if name == "affine":
            mine, theirs = (np.delete(array, AFFINE_METRICS.index("direction"), axis=1) for array in (mine, theirs))
        else:  # a share may differ by an element
            shares = [ACTIVATION_METRICS.index(metric) for metric in ("near_zero", "below_median", "gini")]
            mine, theirs = (np.delete(array, shares, axis=1) for array in (mine, theirs))
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    for view in ("aligned", "difference"):
        mine, theirs = (part.arrays[f"{condition}/{view}/mean"][1] for condition in ("knockout", "moved"))
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    assert np.abs(part.arrays["knockout/difference/mean"][1]).max() > 1e-3
    assert np.abs(part.arrays["knockout/aligned/mean"][1] - part.arrays["mless/aligned/mean"][1]).max() > 1e-3


def test_nobody_but_filler_looks_at_filler_that_is_knocked_out() -> None:
    part = measure(study_with(), loaded("llama"), scale=scale_of("llama"))
    mass = {name: part.arrays[f"{name}/heads"][:, METRICS.index("filler_mass")] for name in ("knockout", "mless")}
    assert not mass["knockout"].any()
    assert (mass["mless"] > 0).all()
    some = part.arrays["knockout-first/heads"][:, METRICS.index("filler_mass"), 1]  # of original rows
    assert not some[:, [0, 2]].any()
    assert (some[:, 1] > 0).all()


# Texts and their changes in one pass


def test_each_text_is_changed_by_its_own_key_and_as_a_whole() -> None:
    study, model = study_with(), loaded("llama")
    items = prepare_shard(study, shard_of(study), maker_for(study, model), 1024)
    for text in texts_of(study, items):
        if isinstance(text.change, Redistribution):
            assert text.key == sequence_seed(study.seed, text.ids)
            assert text.shared == 0
    knocked = [text for text in texts_of(study, items) if isinstance(text.change, Knockout)]
    assert {text.shared for text in knocked} == {0, int(np.flatnonzero(~knocked[0].original)[0])}  # up to the filler


def test_written_tokens_are_changed_one_by_one() -> None:
    """A prompt as a whole, and each token of an answer alone: the same as calls with a cache."""
    model, random = tiny_model("llama").double(), np.random.default_rng(0)
    change = Redistribution(kind="arm", layers=(1, 2), fraction=0.3)
    prompts = [random.integers(3, 400, size=n).tolist() for n in (9, 14)]
    answers = [random.integers(3, 400, size=n).tolist() for n in (4, 2)]
    texts = [
        Text((*prompt, *answer), np.ones(len(prompt) + len(answer), np.bool_), change=change,
             key=sequence_seed(7, prompt), generated=len(answer))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]  # fmt: skip
    with capturing(model):
        found = PassRunner(model, 1000).measure(texts)
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        weights = stepping(model, change, 7, prompt, answer)
        mine = found.text(number).mean_received()
        np.testing.assert_allclose(mine, received(weights, np.ones(len(weights[0, 0]), bool)), atol=CLOSE)
        whole = stored_whole(model, change, [*prompt, *answer])
        assert np.abs(whole - weights).max() > 1e-3  # in one call it would have been another


def stepping(model: Any, change: Redistribution, seed: int, prompt: list[int], answer: list[int]) -> np.ndarray:
    """[layer, head, row, key] of a prompt read at once and an answer token by token, with a cache."""
    model.set_attn_implementation("eager")
    total = len(prompt) + len(answer)
    rows = []
    with torch.inference_mode(), arm(model, change, seed=seed):
        cache_of = None
        for ids in (prompt, *([token] for token in answer)):
            found = model(input_ids=torch.tensor([ids]), past_key_values=cache_of, use_cache=True,
                          output_attentions=True)  # fmt: skip
            cache_of = found.past_key_values
            some = torch.stack(found.attentions)[:, 0].numpy()
            rows.append(np.pad(some, [(0, 0)] * 3 + [(0, total - some.shape[-1])]))
    return np.concatenate(rows, axis=2)


def stored_whole(model: Any, change: Redistribution, ids: list[int]) -> np.ndarray:
    with arm(model, change, seed=7):
        return stored(model, ids).weights


def test_nothing_is_left_in_the_model() -> None:
    model = tiny_model("llama")
    text = Text((3, 4, 5), np.ones(3, np.bool_), change=Redistribution(kind="arm"), key=1)
    with intervening(model, Packing.of([text])):
        assert sum(len(module._forward_hooks) for module in model.modules()) == 1
    with pytest.raises(RuntimeError, match="stop"), intervening(model, Packing.of([text])):
        raise RuntimeError("stop")
    assert not any(module._forward_hooks for module in model.modules())


def test_a_pass_collects_what_it_can() -> None:
    """Outputs where a problem has two texts, activations where somebody looks at tokens."""
    ids, original = (3, 4, 5), np.ones(3, np.bool_)
    frozen = Scale((0.1,) * 3, (0.5,) * 3, (-8, 4), 1, 1)
    looked = [Text(ids, original, problem=n, probed=original, classes=np.zeros(3, np.int64)) for n in (0, 0, 1)]
    plain = [Text(ids, original), Text(ids[:2], original[:2])]
    cpu = torch.device("cpu")
    both = Collector.of(Probing(True, frozen, 1), Packing.of(looked), cpu)
    assert both.pairs is not None
    assert both.cells is not None
    assert Collector.of(Probing(True, frozen, 1), Packing.of(looked[1:]), cpu).pairs is None
    assert Collector.of(Probing(False, frozen, 1), Packing.of(looked), cpu).pairs is None
    assert Collector.of(Probing(True, None, 1), Packing.of(looked), cpu).cells is None
    assert Collector.of(Probing(False, frozen, 1), Packing.of(plain), cpu).cells is None
