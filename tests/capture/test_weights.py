"""Real weights: what the capture measures is what the models' own eager attention gives, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import record
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import decoder_of, text_config

pytestmark = pytest.mark.weights

QUESTIONS = (
    "What is the smallest positive perfect cube that can be written as the sum of three consecutive integers?",
    "Let $p(x)$ be a quadratic polynomial such that $[p(x)]^3 - x$ is divisible by $(x - 1)(x + 1)(x - 8).$ "
    "Find $p(13).$",
    "The set of points $(x,y,z)$ that satisfy\n\\[2x = 3y = -z\\]is a line.\n\nThe set of points $(x,y,z)$ that "
    "satisfy\n\\[6x = -y = -4z\\]is another line.\n\nFind the angle between these lines, in degrees. Please reason "
    "step by step, and put your final answer within \\boxed{}.",
)


def encoded(loaded: LoadedModel, lengthened_to: int = 0) -> list[list[int]]:
    """Three prompts of unequal length; the last is repeated until it is long enough, and cut there."""
    ids = [list(loaded.tokenizer.encode(question)) for question in QUESTIONS]
    while len(ids[-1]) < lengthened_to:
        ids[-1] += loaded.tokenizer.encode("\n\n" + QUESTIONS[-1], add_special_tokens=False)
    ids[-1] = ids[-1][: lengthened_to or None]
    assert len({len(text) for text in ids}) == 3
    return ids


def eager(loaded: LoadedModel, ids: list[int], original: np.ndarray) -> np.ndarray:
    """[query, layer, head, position] from whole matrices, one text at a time."""
    model: Any = loaded.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            out = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False)
    finally:
        model.set_attn_implementation(before)
    row, key = np.indices((len(ids), len(ids)))
    votes = np.stack([row > key, (row > key) & original[:, None], (row > key) & (row == len(ids) - 1)])
    with np.errstate(invalid="ignore", divide="ignore"):
        layers = [
            np.einsum("hij,gij->ghj", layer[0].double().numpy(), votes) / votes.sum(axis=1)[:, None]
            for layer in out.attentions
        ]
    return np.stack(layers, axis=1)


def assert_equal_to_eager(loaded: LoadedModel, ids: list[list[int]]) -> None:
    original = [np.ones(len(text), dtype=np.bool_) for text in ids]
    for mask in original:
        mask[3:9] = False  # as if filler stood there
    with capturing(loaded.model):
        measured = record(loaded.model, ids, original)
    for text, mask, mine in zip(ids, original, measured, strict=True):
        expected = eager(loaded, text, mask)
        assert expected.shape == (3, loaded.layers, loaded.heads, len(text))
        assert np.isnan(expected[..., -1]).all()
        assert np.isfinite(expected[..., :-1]).all()
        np.testing.assert_allclose(mine.mean_received(), expected, atol=1e-5, rtol=0)


def test_smollm2_equals_eager(smollm2: LoadedModel) -> None:
    assert (smollm2.dtype, smollm2.layers, smollm2.heads) == ("float32", 30, 9)
    assert_equal_to_eager(smollm2, encoded(smollm2))


@pytest.mark.slow
def test_gemma3_equals_eager_past_its_sliding_window(gemma3: LoadedModel) -> None:
    config = text_config(gemma3.model)
    assert (gemma3.dtype, gemma3.layers, gemma3.heads) == ("float32", 18, 4)
    assert config.sliding_window == 512
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}
    ids = encoded(gemma3, lengthened_to=560)
    assert all(text[0] == gemma3.tokenizer.bos_token_id for text in ids)
    assert_equal_to_eager(gemma3, ids)
