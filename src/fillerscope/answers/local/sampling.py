"""The next token of each row, drawn with the row's own random number: neighbours change nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from fillerscope.study.generation import Decoding


def choose(logits: Tensor, decoding: Decoding, draws: Tensor) -> Tensor:
    """[row] of token ids from logits [row, vocabulary] and uniform numbers [row]."""
    if decoding.temperature == 0:
        return logits.argmax(dim=-1)
    shares = (logits.float() / decoding.temperature).softmax(dim=-1)
    if decoding.top_p == 1:
        return _place(shares, draws)
    shares, tokens = shares.sort(dim=-1, descending=True)
    # The smallest set of tokens whose share reaches top_p; the first is always in it.
    before = shares.double().cumsum(dim=-1) - shares
    kept = torch.where(before < decoding.top_p, shares, 0)
    return tokens.gather(-1, _place(kept, draws)[:, None]).squeeze(-1)


def _place(shares: Tensor, draws: Tensor) -> Tensor:
    """Where the sum of the shares passes the drawn part of their total; never where a share is nothing."""
    reached = shares.double().cumsum(dim=-1)
    place = torch.searchsorted(reached, draws[:, None] * reached[:, -1:], right=True).squeeze(-1)
    last = (reached < reached[:, -1:]).sum(dim=-1)
    return torch.minimum(place, last)
