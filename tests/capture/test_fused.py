"""The road that CUDA takes, walked without a GPU: the same kernels in Triton's interpreter, with our own forward in the
place of the fused one, against the blocks. On a machine with a GPU, the real road as well."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fillerscope.capture import attention, fused, memory
from fillerscope.capture.attention import capturing
from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.precision import in_float32
from support.tiny import tiny_model

kernels = pytest.importorskip("fillerscope.capture.kernels", reason="triton is not installed", exc_type=ImportError)
CUDA = torch.cuda.is_available()


def texts():
    """Two prefixes and none, of unequal lengths, some of them alike; filler in prefixes and behind them."""
    random = np.random.default_rng(0)
    heads = [tuple(random.integers(3, 500, size=n).tolist()) for n in (11, 5)]
    made = []
    for number, (own, which) in enumerate([(7, 0), (7, 0), (1, 1), (12, None), (9, 1), (7, None)]):
        head = () if which is None else heads[which]
        ids = (*head, *random.integers(3, 500, size=own).tolist())
        original = np.ones(len(ids), bool)
        original[2:4] = number % 2 == 0 or which is not None
        if which == 0:
            original[3:8] = False
        made.append(Text(ids, original, len(head)))
    return made


FEW = slice(1, 5)  # of the texts: both prefixes and none, filler in them and behind them, a single token
SLIDING, FULL = "sliding_attention", "full_attention"
SHALLOW = {
    "llama": {"num_hidden_layers": 1},  # grouped heads
    "gemma2": {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL]},  # soft-capping, with a window of 8 and without
    "mistral": {"num_hidden_layers": 1},  # a window of 8
    "gpt_oss": {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL]},  # learned sinks
}


@pytest.mark.skipif(CUDA, reason="the real road is tried instead")
@pytest.mark.parametrize("family", SHALLOW)
def test_the_kernels_give_what_the_blocks_give(family, monkeypatch):
    assert_kernels_give_what_blocks_give(tiny_model(family, **SHALLOW[family]), texts()[FEW], monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(CUDA, reason="the real road is tried instead")
@pytest.mark.parametrize("family", SHALLOW)
def test_the_kernels_give_what_the_blocks_give_in_all_layers(family, monkeypatch):
    assert_kernels_give_what_blocks_give(tiny_model(family), texts(), monkeypatch)


def assert_kernels_give_what_blocks_give(model, given, monkeypatch):
    with capturing(model):
        expected = PassRunner(model, 10**6).measure(given)
    served = []

    def serve(query, rule, packing):
        served.append(
            fused._obstacle(
                SimpleNamespace(dtype=torch.bfloat16, shape=query.shape, device=query.device), rule, packing
            )
        )
        return True

    monkeypatch.setattr(fused, "can_serve", serve)
    monkeypatch.setattr(fused, "_flash", kernels.forward)
    monkeypatch.setattr(fused, "_prefers_cudnn", lambda *_: False)
    monkeypatch.setattr(kernels, "_tiles", lambda *_: (16, 16, 4, 2, 255))
    with capturing(model):
        found = PassRunner(model, 10**6).measure(given)
    assert set(served) == {""}
    for name in ("received", "diagonal", "entropy", *(["sink_sums"] if model.config.model_type == "gpt_oss" else [])):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=2e-5, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "mistral", "gpt_oss"])
@pytest.mark.parametrize("share", [0, memory.SUMS_SHARE])
def test_a_gpu_gives_what_its_blocks_give(family, share, monkeypatch):
    monkeypatch.setattr(memory, "SUMS_SHARE", share)
    model = tiny_model(family).to("cuda", torch.bfloat16)
    with capturing(model):
        found = PassRunner(model, 10**6).measure(texts())
        monkeypatch.setattr(fused, "can_serve", lambda *_: False)
        expected = PassRunner(model, 10**6).measure(texts())
    for name in ("received", "diagonal", "entropy"):
        torch.testing.assert_close(
            getattr(found, name)[0].cpu(), getattr(expected, name)[0].cpu(), rtol=1e-3, atol=1e-3
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [8, 1000])
def test_learned_sinks_on_a_gpu(dtype, window, monkeypatch):
    """From the queries, keys and sinks that each layer was given, in float64."""
    model = tiny_model("gpt_oss", sliding_window=window).to("cuda", dtype)
    given = {}

    def noting(module, query, key, value, *rest, **more):
        given[module.layer_idx] = query[0].double(), key[0].double(), more["s_aux"].double(), more.get("sliding_window")
        return captured(module, query, key, value, *rest, **more)

    captured = attention.captured_attention
    monkeypatch.setattr(attention, "captured_attention", noting)
    text = Text(tuple(np.random.default_rng(0).integers(3, 500, 300).tolist()), np.ones(300, bool))
    with capturing(model):
        measured = PassRunner(model, 10**6).measure([text])
    for layer, (query, key, sinks, reach) in given.items():
        weights = weights_with_sinks(query, key, sinks, reach)
        received = weights.tril(-1).sum(1) / torch.arange(299, -1, -1, device="cuda")
        mine = torch.tensor(measured.text(0).mean_received()[0, layer, :, :-1])
        torch.testing.assert_close(mine, received[:, :-1].cpu(), rtol=0, atol=1e-5)
        sunk = measured.sink_sums[layer, 0, :, 0].double()
        torch.testing.assert_close(sunk, 300 - weights.sum((1, 2)), rtol=1e-5, atol=1e-3)


def weights_with_sinks(query, key, sinks, reach):
    """[head, row, key]: a logit more in every row, left out again."""
    key = key.repeat_interleave(len(query) // len(key), 0)
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    behind = torch.arange(len(scores[0]), device="cuda")[:, None] - torch.arange(len(scores[0]), device="cuda")
    scores = scores.masked_fill((behind < 0) | (behind >= (reach or 10**6)), -torch.inf)
    more = sinks[:, None, None].expand(-1, scores.shape[1], 1)
    return torch.cat([scores, more], -1).softmax(-1)[..., :-1]


def tensor(device="cuda", dtype=torch.bfloat16, dim=64):
    return SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(4, 30, dim))


PACKING = Packing.of([Text((1, 2, 3), np.ones(3, bool))])
ODD = MaskRule(lambda batch, head, row, key: (key <= row) & (key != 1), causal=True, reach=None)  # noqa: ARG005


@pytest.mark.parametrize(
    ("query", "rule", "said"),
    [
        (tensor(dtype=torch.float32), PLAIN_CAUSAL, "float32 is not for tensor cores"),
        (tensor(dim=512), PLAIN_CAUSAL, "heads of size 512 are larger than 256"),
        (tensor(), ODD, "neither causal nor a sliding window"),
    ],
)
def test_what_the_kernels_cannot_serve_goes_to_the_blocks_and_is_said_once(query, rule, said, caplog):
    fused._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [fused.can_serve(query, rule, PACKING) for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert said in caplog.text


def test_a_check_in_another_precision_does_not_say_that_the_study_is_slow(caplog):
    fused._warn.cache_clear()
    single = tensor(dtype=torch.float32)
    model = tiny_model("llama").to(torch.bfloat16)
    with caplog.at_level(logging.WARNING), in_float32(model) as possible:
        assert possible
        assert not fused.can_serve(single, PLAIN_CAUSAL, PACKING)
    assert not caplog.records
    assert not fused.can_serve(single, PLAIN_CAUSAL, PACKING)
    assert len(caplog.records) == 1


def test_without_a_gpu_nothing_is_said(caplog):
    assert not fused.can_serve(tensor("cpu"), PLAIN_CAUSAL, PACKING)
    assert not caplog.records
    assert fused.can_serve(tensor(), PLAIN_CAUSAL, PACKING)


def test_without_triton_too(monkeypatch, caplog):
    fused._warn.cache_clear()
    monkeypatch.setattr(fused, "find_spec", lambda _: None)
    assert not fused.can_serve(tensor(), PLAIN_CAUSAL, PACKING)
    assert "triton is not installed" in caplog.text
