"""Tokens drawn as often as they should be, from the row's own random number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.answers.local.rows import NO_TOKEN
from fillerscope.answers.local.sampling import choose
from fillerscope.study.generation import Decoding

N = 20_000


def frequencies(logits: torch.Tensor, decoding: Decoding) -> np.ndarray:
    """Of tokens drawn with evenly spread numbers: no luck is involved."""
    draws = (torch.arange(N, dtype=torch.float64) + 0.5) / N
    tokens = choose(logits.expand(N, -1), decoding, draws)
    return np.bincount(tokens.numpy(), minlength=logits.shape[-1]) / N


def test_greedy_takes_the_highest_whatever_is_drawn() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9], [5.0, 3.0, 2.9]])
    assert choose(logits, Decoding(), torch.tensor([0.0, 0.999])).tolist() == [1, 0]


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=12), st.sampled_from([0.3, 1.0, 2.5]))
@settings(max_examples=50, deadline=None)
def test_tokens_come_up_as_often_as_the_softmax_says(values: list[float], temperature: float) -> None:
    logits = torch.tensor(values)
    expected = torch.softmax(logits.double() / temperature, dim=0).numpy()
    found = frequencies(logits, Decoding(temperature=temperature))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.log(torch.tensor([0.1, 0.5, 0.15, 0.25]))
    np.testing.assert_allclose(frequencies(logits, Decoding(temperature=1, top_p=0.7)), [0, 2 / 3, 0, 1 / 3], atol=1e-4)
    np.testing.assert_allclose(frequencies(logits, Decoding(temperature=1, top_p=0.01)), [0, 1, 0, 0])
    np.testing.assert_allclose(
        frequencies(logits, Decoding(temperature=1, top_p=0.8)), [0, 5 / 9, 1.5 / 9, 2.5 / 9], atol=1e-4
    )


def test_rows_are_drawn_apart() -> None:
    logits = torch.zeros(3, 100)
    tokens = choose(logits, Decoding(temperature=1), torch.tensor([0.0, 0.5, 0.99999], dtype=torch.float64))
    assert len(set(tokens.tolist())) == 3


@pytest.mark.parametrize(
    "decoding", [Decoding(), Decoding(temperature=1.0), Decoding(temperature=1.0, top_p=0.5)], ids=str
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_choose_no_token(decoding: Decoding, value: float) -> None:
    logits = torch.zeros(4, 5)
    logits[1, 3] = value
    logits[2] = -float("inf")
    logits[3, :4] = -float("inf")  # a token that must not be chosen is one thing, no choice at all another
    tokens = choose(logits, decoding, torch.full((4,), 0.5, dtype=torch.float64))
    assert tokens[0] >= 0
    assert tokens[1:].tolist() == [NO_TOKEN, NO_TOKEN, 4]
