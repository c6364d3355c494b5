"""The weights of one head: the model's own eager matrices, family by family, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.capture import head_matrix as module
from fillerscope.capture.attention import capturing
from fillerscope.capture.head_matrix import LONGEST, head_matrix
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import PassRunner
from fillerscope.errors import CaptureError
from fillerscope.models.structure import decoder_of
from fillerscope.study.interventions import Knockout
from support.tiny import tiny_model

IDS = tuple(np.random.default_rng(1).integers(3, 500, size=37).tolist())
ORIGINAL = np.arange(37) // 8 != 1  # a filler from 8 up to 16


def eager(model: Any, ids: tuple[int, ...]) -> Any:
    """[layer, head, query, key], the slow and obvious way."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False)
    model.set_attn_implementation(before)
    return torch.stack([layer[0] for layer in out.attentions]).double().numpy()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "phi3"])
def test_equals_eager_and_the_sums_of_the_capture(family: str) -> None:
    model, text = tiny_model(family), Text(IDS, ORIGINAL)
    whole = eager(model, IDS)
    with capturing(model):
        sums = PassRunner(model, 64).one_pass([text]).text(0)
    for layer, head in ((1, 1), (whole.shape[0], whole.shape[1])):
        matrix = head_matrix(model, text, layer, head)
        np.testing.assert_allclose(matrix.weights, whole[layer - 1, head - 1], atol=1e-5)
        np.testing.assert_allclose(matrix.weights.sum(axis=1), 1.0, atol=1e-5)
        assert not np.triu(matrix.weights, 1).any()
        for group, rows in ((0, None), (1, ORIGINAL)):
            profile = sums.mean_received()[group, layer - 1, head - 1]
            np.testing.assert_allclose(matrix.received(rows), profile, atol=1e-6)
        own = sums.mean_received(diagonal=True)[0, layer - 1, head - 1]
        np.testing.assert_allclose(matrix.received(diagonal=True), own, atol=1e-6)


def test_a_learned_sink_takes_its_share_of_every_row() -> None:
    model, text = tiny_model("gpt_oss"), Text(IDS, ORIGINAL)
    with capturing(model):
        measured = PassRunner(model, 64).one_pass([text])
    assert measured.sink_sums is not None
    matrix = head_matrix(model, text, 2, 3)
    assert matrix.sinks is not None
    assert matrix.sinks.min() > 0
    np.testing.assert_allclose(matrix.weights.sum(axis=1) + matrix.sinks, 1.0, atol=1e-5)
    np.testing.assert_allclose(matrix.sinks.sum(), measured.sink_sums[1, 0, 2, 0].item(), rtol=1e-4)


def test_interventions_and_moved_positions_are_in_it() -> None:
    model, plain = tiny_model("llama"), Text(IDS, ORIGINAL)
    changes = (
        Text(IDS, ORIGINAL, change=Knockout(kind="knockout", layers=(2,))),
        Text(IDS, ORIGINAL, gap=(16, 9)),
    )
    for text in changes:
        with capturing(model):
            profile = PassRunner(model, 64).one_pass([text]).text(0).mean_received()[0, 1, 2]
        matrix = head_matrix(model, text, 2, 3)
        np.testing.assert_allclose(matrix.received(), profile, atol=1e-6)
        assert np.abs(matrix.weights - head_matrix(model, plain, 2, 3).weights).max() > 1e-3
    hidden = head_matrix(model, changes[0], 2, 3).weights
    assert not hidden[np.ix_(np.arange(37) >= 16, ~ORIGINAL)].any()


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 0), (99, 1), (1, 99)])
def test_a_head_that_is_not_there_is_refused(layer: int, head: int) -> None:
    with pytest.raises(CaptureError, match=rf"there is no layer {layer} head {head}: the model has layers 1 to"):
        head_matrix(tiny_model("llama"), Text(IDS, ORIGINAL), layer, head)


def test_a_text_that_is_too_long_is_refused() -> None:
    long = Text((5,) * (LONGEST + 1), np.ones(LONGEST + 1, np.bool_))
    with pytest.raises(CaptureError, match=f"the prompt has {LONGEST + 1} tokens, and .* is shown for {LONGEST}"):
        head_matrix(tiny_model("llama"), long, 1, 1)


def test_a_matrix_that_is_not_what_the_pass_added_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = module._weights
    monkeypatch.setattr(module, "_weights", lambda *given: (weights(*given)[0] * 1.01, None))
    with pytest.raises(CaptureError, match="differs from what the same pass added up"):
        head_matrix(tiny_model("llama"), Text(IDS, ORIGINAL), 1, 1)
