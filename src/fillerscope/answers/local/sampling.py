"""Sampling of the next token of each row with the row's own random number, so that other rows do not matter."""

from __future__ import annotations

import torch
from torch import Tensor

from fillerscope.answers.local.rows import NO_TOKEN
from fillerscope.study.generation import Decoding


def choose(logits: Tensor, decoding: Decoding, draws: Tensor | None) -> Tensor:
    """Token ids [row] from logits [row, vocabulary] and uniform random numbers [row], which greedy choice needs none
    of; NO_TOKEN where logits are not finite. One that is -inf is of a token that is never chosen."""
    if decoding.temperature == 0:
        tokens = logits.argmax(dim=-1)  # a NaN, where there is one
        return _where_finite(logits.gather(-1, tokens[:, None])[:, 0], tokens)
    if draws is None:
        raise TypeError("a temperature above 0 needs random numbers, and none were given")
    probabilities = (logits.float() / decoding.temperature).softmax(dim=-1)
    if decoding.top_p == 1:
        return _where_finite(probabilities[:, 0], _inverse_cdf(probabilities, draws))
    probabilities, tokens = probabilities.sort(dim=-1, descending=True)
    # The smallest set of tokens whose probability reaches top_p; the first is always in it.
    before = probabilities.double().cumsum(dim=-1) - probabilities
    kept = torch.where(before < decoding.top_p, probabilities, 0)
    return _where_finite(probabilities[:, 0], tokens.gather(-1, _inverse_cdf(kept, draws)[:, None]).squeeze(-1))


def _where_finite(values: Tensor, tokens: Tensor) -> Tensor:
    """Tokens of rows whose value is finite. If one logit is NaN or inf, all probabilities of its row are NaN."""
    return torch.where(values.isfinite(), tokens, NO_TOKEN)


def _inverse_cdf(probabilities: Tensor, draws: Tensor) -> Tensor:
    """The index at which the cumulative sum passes `draws` of its total; never one of probability 0."""
    reached = probabilities.double().cumsum(dim=-1)
    index = torch.searchsorted(reached, draws[:, None] * reached[:, -1:], right=True).squeeze(-1)
    last = (reached < reached[:, -1:]).sum(dim=-1)
    return torch.minimum(index, last)
