"""The capture against whole matrices from the models' own eager attention, family by family."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from fillerscope.capture import blocks
from fillerscope.capture.attention import Recorder, captured_attention, capturing, observe
from fillerscope.capture.packing import GROUPS, Packing, Text
from fillerscope.capture.passes import record
from fillerscope.errors import CaptureError
from fillerscope.models.structure import attention_modules, decoder_of
from fillerscope.study.study import QUERIES
from support.families import small_model
from support.grid import grid
from support.tiny import tiny_model

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
# Some longer than the sliding window of 8, one of a single token; three stand in a band, one of them filled up.
LENGTHS = (37, 12, 1, 25, 36, 12, 37)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Texts this short would fit in one block, and the seams between blocks would never be tried: five rows at a
    time, and two of three texts of a band."""
    monkeypatch.setattr(blocks, "_block_rows", lambda _: 5)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 2 * 4 * blocks.BLOCK_ROWS * 37)


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


@cache
def captured(family):
    """What is recorded of each text, and its matrices by eager attention."""
    model = tiny_model(family)
    ids, original = texts()
    with capturing(model):
        found = record(model, ids, original)
    return [(mine, rows, eager(model, text)[0][0]) for mine, rows, text in zip(found, original, ids, strict=True)]


def expected(matrix, original, diagonal):
    """The definition, position by position."""
    n = matrix.shape[-1]
    groups = (np.ones(n, bool), original, np.arange(n) == n - 1)
    result = np.full((3, *matrix.shape[:2], n), np.nan)
    for g, rows in enumerate(groups):
        for j in range(n):
            later = [i for i in range(j if diagonal else j + 1, n) if rows[i]]
            if later:
                result[g, ..., j] = matrix[:, :, later, j].mean(-1)
    return result


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_eager_for_every_layer_head_and_position(family, diagonal):
    for mine, rows, matrix in captured(family):
        np.testing.assert_allclose(mine.mean_received(diagonal), expected(matrix, rows, diagonal), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_row_entropy_equals_eager(family):
    for mine, rows, matrix in captured(family):
        entropy = -np.where(matrix > 0, matrix * np.log(np.maximum(matrix, 1e-300)), 0).sum(-1)
        np.testing.assert_allclose(mine.mean_entropy()[0], entropy.mean(-1), atol=2e-5)
        np.testing.assert_allclose(mine.mean_entropy()[2], entropy[..., -1], atol=2e-5)
        if rows.any():
            np.testing.assert_allclose(mine.mean_entropy()[1], entropy[..., rows].mean(-1), atol=2e-5)


def assert_alike(a, b, atol=1e-5):
    for name in ("received", "diagonal", "entropy", "rows"):
        rtol = 1e-6 if atol else 0  # sums over many rows
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=atol, rtol=rtol, err_msg=name)


@pytest.mark.parametrize(("family", "neighbours"), grid(FAMILIES, [(30, 30), (31,), (11, 29, 1), (90, 31, 2)]), ids=str)
def test_neighbours_in_the_row_change_nothing(family, neighbours):
    """As long as the text, a little longer so that it is filled up, much longer, shorter, before it and after."""
    model = tiny_model(family)
    ids, original = texts(lengths=(30, *neighbours))
    with capturing(model):
        (alone,) = record(model, ids[:1], original[:1])
        first = record(model, ids, original)
        last = record(model, ids[::-1], original[::-1])
    assert_alike(first[0], alone)
    assert_alike(last[-1], alone)
    for one, other in zip(first, last[::-1], strict=True):
        assert_alike(one, other)


def test_what_neighbours_say_changes_nothing():
    """Other tokens in the rest of the row, and what is left is the same to the last bit."""
    model = tiny_model("gemma2")
    ids, original = texts(lengths=(30, 31, 30))
    others = [ids[0], [7] * 31, ids[2][::-1]]
    with capturing(model):
        one, other = record(model, ids, original)[0], record(model, others, original)[0]
    assert_alike(one, other, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_output_is_the_models_own(family):
    model = tiny_model(family)
    ids, original = texts()
    packing = Packing.of([Text(tuple(text), mask) for text, mask in zip(ids, original, strict=True)])
    outputs = []
    handle = decoder_of(model).register_forward_hook(lambda *args: outputs.append(args[-1].last_hidden_state))
    with capturing(model):
        observe(model, Recorder.of(model, packing))
    handle.remove()
    found = outputs[0][0, packing.kept_queries()].split([len(text) for text in ids])
    for text, output in zip(ids, found, strict=True):
        torch.testing.assert_close(output, eager(model, text)[1][0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_block_size_does_not_matter(rows, monkeypatch):
    model = tiny_model("gemma2")
    ids, original = texts()
    with capturing(model):
        usual = record(model, ids, original)
        for elements in (1, 1 << 21):  # one text at a time, and all of a band
            monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
            for one, other in zip(record(model, ids, original, rows), usual, strict=True):
                assert_alike(one, other)


def test_rows_at_a_time_suit_the_shape(monkeypatch):
    monkeypatch.undo()
    assert [blocks._block_rows(elements) for elements in (1, 1 << 14, 1 << 16, 1 << 20)] == [96, 96, 32, 16]


def test_model_has_its_own_attention_again_afterwards():
    model = tiny_model("llama")
    before = model.config._attn_implementation
    with pytest.raises(RuntimeError, match="stop"), capturing(model):
        raise RuntimeError("stop")
    assert model.config._attn_implementation == before
    model(input_ids=torch.tensor([[3, 4, 5]]))


def test_what_changes_the_weights_in_an_unknown_way_is_refused_by_name():
    model = small_model("inkling_text")
    with capturing(model), pytest.raises(CaptureError, match="InklingAttention passes position_bias to its attention"):
        record(model, [[3, 4, 5]], [np.ones(3, bool)])


def test_a_mask_of_the_models_own_is_refused():
    """Nobody knows whether it keeps packed texts apart."""
    model = tiny_model("llama")
    recorder = Recorder.of(model, Packing.of([Text((3, 4, 5), np.ones(3, bool))]))
    module, rest = attention_modules(decoder_of(model))[0], torch.zeros(1, 4, 3, 16)

    def with_mask(*_, **__):
        captured_attention(module, rest, rest, rest, torch.zeros(1, 1, 3, 3))

    handle = decoder_of(model).register_forward_pre_hook(with_mask)
    with capturing(model), pytest.raises(CaptureError, match="LlamaAttention makes its own mask, which is not known"):
        observe(model, recorder)
    handle.remove()


def test_the_attention_alone_is_refused():
    model = tiny_model("llama")
    with capturing(model), pytest.raises(CaptureError, match="for use inside `record`; set another implementation"):
        model(input_ids=torch.tensor([[3, 4, 5]]))


def test_layers_that_are_not_seen_are_named():
    model = tiny_model("llama")
    recorder = Recorder.of(model, Packing.of([Text((3, 4, 5), np.ones(3, bool))]))

    class Forgetful(dict):
        def __setitem__(self, layer, parts):
            if layer != 1:
                super().__setitem__(layer, parts)

    recorder.parts = Forgetful()
    with capturing(model), pytest.raises(CaptureError, match="layers 2 do not attend through transformers' attention"):
        observe(model, recorder)


def test_dropout_is_refused():
    model = tiny_model("llama", attention_dropout=0.5).train()
    with capturing(model), pytest.raises(CaptureError, match=r"model\.eval"):
        record(model, [[3, 4, 5]], [np.ones(3, bool)])


def test_groups_are_in_the_order_in_which_studies_name_queries():
    assert GROUPS == QUERIES
