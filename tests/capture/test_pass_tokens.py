"""How many tokens a pass takes: what memory holds, between a floor and a ceiling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fillerscope.capture import memory
from fillerscope.capture.memory import FEWEST, MOST, SHARE, bytes_a_token, free_memory, pass_tokens
from support.families import small_model
from support.tiny import tiny_model


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_free_is_what_the_system_says_is_available(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(total=9, free=1, available=5))
    assert free_memory(torch.device(device)) == 5


def test_on_cuda_what_torch_holds_unused_is_free_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 9999))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 200)
    assert free_memory(torch.device("cuda")) == 1300


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "gemma2", "gpt_neox"])
def test_a_token_needs_at_least_its_sums_and_the_widest_layer(family: str) -> None:
    model = tiny_model(family)
    layers, heads, widest = (3 if family in ("llama", "gpt2", "gpt_neox") else 4), 4, 256 if family == "gpt2" else 96
    sums = 4 * 4 * layers * heads  # three groups and the diagonal, in float32
    assert bytes_a_token(model) >= sums + 4 * (64 + widest)
    # Half the precision needs less, and sums stay as they are.
    half = bytes_a_token(tiny_model(family).to(torch.bfloat16))
    assert bytes_a_token(model) / 2 < half < bytes_a_token(model)


def test_larger_models_need_more_for_a_token() -> None:
    plain = bytes_a_token(tiny_model("llama"))
    for more in ({"num_hidden_layers": 6}, {"hidden_size": 128}, {"intermediate_size": 300}):
        assert bytes_a_token(tiny_model("llama", **more)) > plain


def test_of_layers_of_unequal_width_the_widest_counts() -> None:
    model = small_model("gemma3n_text")
    assert isinstance(model.config.intermediate_size, list)
    assert bytes_a_token(model) >= 4 * (model.config.hidden_size + max(model.config.intermediate_size))


@pytest.mark.parametrize(
    ("free", "tokens"),
    [(0, FEWEST), (1 << 50, MOST["cpu"]), (127, 64), (128, 128), (255, 128), (FEWEST - 1, FEWEST), (257, 256)],
)
def test_as_many_as_memory_holds_within_limits(free: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`free` in tokens; a share of memory is left alone. A power of two, so that equal machines take equal passes."""
    model: Any = tiny_model("llama")
    room = int(free * bytes_a_token(model) / SHARE) + 1
    monkeypatch.setattr(memory, "free_memory", lambda _: room)
    assert pass_tokens(model) == tokens


def test_some_of_the_memory_is_left() -> None:
    assert 0 < SHARE < 1
    assert min(MOST.values()) > FEWEST
