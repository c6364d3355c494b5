"""The capture against whole matrices from the models' own eager attention, family by family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fillerscope.capture import blocks
from fillerscope.capture.attention import GROUPS, capturing, observe, record, row_groups
from fillerscope.errors import CaptureError
from fillerscope.models.structure import decoder_of
from fillerscope.study import QUERIES
from tiny import tiny_model

FAMILIES = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "gemma3",
    "mistral",
    "phi3",
    "gpt2",
    "gpt_neox",
)
LENGTHS = (37, 12, 1, 25)  # some longer than the sliding window of 8, one of a single token


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Texts this short would fit in one block, and the seams between blocks would never be tried."""
    monkeypatch.setattr(blocks, "SMALLEST_BLOCK", 5)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 1)


def texts(seed=0, lengths=LENGTHS):
    random = np.random.default_rng(seed)
    ids = [random.integers(3, 500, size=n).tolist() for n in lengths]
    original = [random.random(n) < 0.6 for n in lengths]
    return ids, original


def eager(model, ids, **inputs):
    """[layer, head, row, key] and the last hidden states, the slow and obvious way."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    tokens = torch.tensor(ids if isinstance(ids[0], list) else [ids])
    with torch.inference_mode():
        out = decoder_of(model)(input_ids=tokens, output_attentions=True, use_cache=False, **inputs)
    model.set_attn_implementation(before)
    return torch.stack(out.attentions).transpose(0, 1).double().numpy(), out.last_hidden_state


def expected(matrix, original, diagonal):
    """The definition, position by position."""
    n = matrix.shape[-1]
    groups = (np.ones(n, bool), original, np.arange(n) == n - 1)
    result = np.full((3, *matrix.shape[:2], n), np.nan)
    for g, rows in enumerate(groups):
        for j in range(n):
            voters = [i for i in range(j if diagonal else j + 1, n) if rows[i]]
            if voters:
                result[g, ..., j] = matrix[:, :, voters, j].mean(-1)
    return result


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_eager_for_every_layer_head_and_position(family, diagonal):
    model = tiny_model(family)
    ids, original = texts()
    with capturing(model):
        found = record(model, ids, original)
    for text, rows, mine in zip(ids, original, found, strict=True):
        matrix = eager(model, text)[0][0]
        np.testing.assert_allclose(mine.mean_received(diagonal), expected(matrix, rows, diagonal), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_row_entropy_equals_eager(family):
    model = tiny_model(family)
    ids, original = texts()
    with capturing(model):
        found = record(model, ids, original)
    for text, rows, mine in zip(ids, original, found, strict=True):
        matrix = eager(model, text)[0][0]
        entropy = -np.where(matrix > 0, matrix * np.log(np.maximum(matrix, 1e-300)), 0).sum(-1)
        np.testing.assert_allclose(mine.mean_entropy()[0], entropy.mean(-1), atol=2e-5)
        np.testing.assert_allclose(mine.mean_entropy()[2], entropy[..., -1], atol=2e-5)
        if rows.any():
            np.testing.assert_allclose(mine.mean_entropy()[1], entropy[..., rows].mean(-1), atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_either_side_changes_nothing(family, side):
    model = tiny_model(family)
    ids, original = texts(lengths=(30, 11))
    width = 30
    tokens, mask = torch.zeros(2, width, dtype=torch.long), torch.zeros(2, width, dtype=torch.long)
    rows = torch.zeros(2, 3, width)
    for i, (text, kept) in enumerate(zip(ids, original, strict=True)):
        place = slice(width - len(text), width) if side == "left" else slice(0, len(text))
        tokens[i, place], mask[i, place] = torch.tensor(text), 1
        rows[i, :, place] = torch.from_numpy(row_groups([kept], len(text))[0]).float()
    with capturing(model):
        padded = observe(model, tokens, rows, mask)
        alone = record(model, ids, original)
    for i, text in enumerate(ids):
        place = slice(width - len(text), width) if side == "left" else slice(0, len(text))
        for layer, sums in padded.received.items():
            np.testing.assert_allclose(
                sums[i, :, :, place].transpose(0, 1).numpy(), alone[i].received[:, layer], atol=1e-5
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_output_is_the_models_own(family):
    model = tiny_model(family)
    ids, original = texts(lengths=(37,))
    reference = eager(model, ids[0])[1]
    outputs = []
    handle = decoder_of(model).register_forward_hook(lambda *args: outputs.append(args[-1].last_hidden_state))
    with capturing(model):
        record(model, ids, original)
    handle.remove()
    torch.testing.assert_close(outputs[0], reference, atol=2e-5, rtol=1e-4)


def test_block_size_does_not_matter(monkeypatch):
    model = tiny_model("gemma2")
    ids, original = texts()
    found = []
    for smallest in (1, 7, 64):
        monkeypatch.setattr(blocks, "SMALLEST_BLOCK", smallest)
        with capturing(model):
            found.append(record(model, ids, original))
    for small, other, large in zip(*found, strict=True):
        np.testing.assert_allclose(small.received, large.received, atol=1e-5)
        np.testing.assert_allclose(other.received, large.received, atol=1e-5)


def test_model_has_its_own_attention_again_afterwards():
    model = tiny_model("llama")
    before = model.config._attn_implementation
    with pytest.raises(RuntimeError, match="stop"), capturing(model):
        raise RuntimeError("stop")
    assert model.config._attn_implementation == before
    model(input_ids=torch.tensor([[3, 4, 5]]))


def test_attention_sinks_are_refused_by_name():
    model = tiny_model("gpt_oss")
    with capturing(model), pytest.raises(CaptureError, match="s_aux"):
        record(model, [[3, 4, 5]], [np.ones(3, bool)])


def test_dropout_is_refused():
    model = tiny_model("llama", attention_dropout=0.5).train()
    with capturing(model), pytest.raises(CaptureError, match=r"model\.eval"):
        record(model, [[3, 4, 5]], [np.ones(3, bool)])


def test_groups_are_in_the_order_in_which_studies_name_queries():
    assert GROUPS == QUERIES
