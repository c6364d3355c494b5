"""With `exact`, logits and answers of a prompt are the same to the bit, whatever is answered beside it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from support.tiny import tiny_model, tiny_tokenizer

ROWS = 4
START = tuple(range(40, 51))
LENGTHS = (21, 12, 1, 25, 30, 18, 9, 2)
GREEDY, DRAWN = Decoding(max_tokens=6), Decoding(max_tokens=6, temperature=1.3, top_p=0.95)
WATCHED = (0, 2, 4)  # prompts that are answered alone as well: of middling length, the shortest and the longest
ARM = Redistribution(kind="arm", layers=(1, 2))
KNOCKOUT = Knockout(kind="knockout")


def requests(change: Any = None, vocabulary: int = 500) -> list[Request]:
    random = np.random.default_rng(5)
    texts = [(*START, *(int(token) for token in random.integers(3, vocabulary, size=n))) for n in LENGTHS]
    return [Request(ids, seed, len(START), change, key=7 * seed, filler=(2, 6)) for seed, ids in enumerate(texts)]


def answered(
    model: LoadedModel, asked: Sequence[Request], decoding: Decoding, exact: bool = True, order: int | None = None
) -> tuple[list[Reply], list[Tensor]]:
    """Replies, and the logits [token, vocabulary] of each."""
    logits: dict[int, list[Tensor]] = {}
    engine = LocalGenerator(model, ROWS, exact, order)
    engine.on_logits = lambda number, one: logits.setdefault(number, []).append(one.clone())
    replies = engine.answer(asked, decoding, lambda _: None)
    return replies, [torch.stack(logits[number]) for number in range(len(asked))]


def differing(
    model: LoadedModel,
    asked: Sequence[Request],
    decoding: Decoding,
    exact: bool = True,
    watched: Sequence[int] = WATCHED,
) -> list[int]:
    """Watched requests whose answer or any logit is another than alone: with seven neighbours, of which three are
    there at once, and with more in another order."""
    expected = {asked[place]: answered(model, [asked[place]], decoding, exact) for place in watched}
    found = set()
    for some, order in ((asked, None), ((*asked[::-1], *asked[:3]), 3)):
        replies, logits = answered(model, some, decoding, exact, order)
        for request, reply, numbers in zip(some, replies, logits, strict=True):
            if request in expected:
                replied, known = expected[request]
                if reply != replied[0] or not torch.equal(numbers, known[0]):
                    found.add(asked.index(request))
    return sorted(found)


SLOW = pytest.mark.slow  # some processors compute half precision a hundred times slower


@pytest.mark.parametrize("change", [None, ARM, KNOCKOUT], ids=["plain", "arm", "knockout"])
@pytest.mark.parametrize("decoding", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=SLOW)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_neighbours_change_no_bit(family: str, dtype: torch.dtype, decoding: Decoding, change: Any) -> None:
    model = wrap(tiny_model(family).to(dtype), tiny_tokenizer())
    assert differing(model, requests(change), decoding) == []


@SLOW
def test_experts_are_computed_one_row_at_a_time() -> None:
    model = wrap(tiny_model("gpt_oss"), tiny_tokenizer())
    assert LocalGenerator(model, ROWS, exact=True).rows == 1
    assert differing(model, requests(), GREEDY) == []


@SLOW
@pytest.mark.weights
@pytest.mark.parametrize("change", [None, ARM], ids=["plain", "arm"])
def test_neighbours_change_no_bit_of_a_trained_model(smollm2: Any, change: Any) -> None:
    for decoding in (GREEDY, DRAWN):
        assert differing(smollm2, requests(change, 40_000), decoding) == []


@SLOW
@pytest.mark.weights
def test_neighbours_change_no_bit_of_a_trained_model_in_half_precision(smollm2: Any) -> None:
    """On short prompts: some processors take minutes for long ones."""
    model = wrap(copy.deepcopy(smollm2.model).to(torch.bfloat16), smollm2.tokenizer)  # others use it as it is
    short = sorted(requests(None, 40_000), key=lambda request: len(request.ids))[:3]
    assert differing(model, short, Decoding(max_tokens=2), watched=(0, 2)) == []


def test_without_exact_neighbours_do() -> None:
    assert differing(wrap(tiny_model("llama"), tiny_tokenizer()), requests(), GREEDY, exact=False)
