"""Answers one at a time with the model's own cache: those of the slots where both can answer, and those of plain passes
where only this can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.request import Request
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from support.families import small_model
from support.tiny import tiny_model, tiny_tokenizer

DECODINGS = {"greedy": Decoding(max_tokens=8), "drawn": Decoding(max_tokens=8, temperature=1.3)}
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "arm": {"change": Redistribution(kind="arm", fraction=0.25, layers=(1, 3)), "key": 3},
    "knock-out": {"change": Knockout(kind="knockout"), "filler": (4, 9)},
    "positions": {"gap": (6, 11)},
}


def asked(**change: Any) -> list[Request]:
    random = np.random.default_rng(1)
    return [Request(tuple(random.integers(5, 500, n).tolist()), n, **change) for n in (14, 31, 22)]


def written(engine: LocalGenerator, requests: list[Request], decoding: Decoding) -> list[tuple[int, ...]]:
    return [reply.ids for reply in engine.answer(requests, decoding, lambda _: None)]


@pytest.mark.parametrize("decoding", DECODINGS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_it_writes_what_the_slots_write(family: str, change: str, decoding: str) -> None:
    model = wrap(tiny_model(family).double(), tiny_tokenizer())
    requests = asked(**CHANGES[change])
    mine = written(AloneGenerator(model), requests, DECODINGS[decoding])
    assert mine == written(LocalGenerator(model, 4), requests, DECODINGS[decoding])
    if change != "plain":
        assert mine != written(AloneGenerator(model), asked(), DECODINGS[decoding])


@torch.inference_mode()
def greedily(model: LoadedModel, ids: tuple[int, ...], count: int) -> list[int]:
    """Without a cache."""
    tokens = list(ids)
    for _ in range(count):
        tokens.append(int(model.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(ids) :]


@pytest.mark.parametrize("family", ["falcon_h1", "qwen3_next", "granitemoehybrid", "jamba", "lfm2"])
def test_hybrids_write_what_plain_passes_write(family: str) -> None:
    model = wrap(small_model(family), tiny_tokenizer(), family)
    for request, ids in zip(asked(), written(AloneGenerator(model), asked(), Decoding(max_tokens=6)), strict=True):
        assert list(ids) == greedily(model, request.ids, 6)[: len(ids)]
