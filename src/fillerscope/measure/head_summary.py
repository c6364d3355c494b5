"""The summary of a head on one problem under one condition: the metrics that are stored for every problem.

Intervals and pairs need them problem by problem. Definitions are in docs/method.md. Knows prompts and mean values, not
where these come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.memory import to_device
from fillerscope.prompts.prompt import Prompt
from fillerscope.store.schema import FILLER_MASS_ROWS, METRICS

MEANS = METRICS[:4]


@dataclass(frozen=True)
class Tokens:
    """Which positions of some prompts each metric is taken over; the same for every layer and head."""

    kept: Tensor  # [query, problem, position]: original tokens that a query row attends to
    shares: Tensor  # [query, problem, mean, position]: weights that make each of MEANS of a profile
    first: Tensor  # [query, problem]: 0, and NaN where position 0 has no value
    mass: Tensor  # [problem]: filler tokens, NaN where no original query row comes after them
    numbers: Tensor  # [1, problem, position]: of the original token, counted from 0

    @classmethod
    def of(
        cls,
        prompts: Sequence[Prompt],
        plain: Sequence[Prompt],
        valid: NDArray[np.bool_],
        skip_first: bool,
        device: torch.device,
    ) -> Tokens:
        """`valid` [query, problem, position] says where there is a value; `plain` are the prompts of the baseline."""
        original = np.zeros(valid.shape[1:], dtype=np.bool_)
        filler = np.zeros_like(original)
        for number, prompt in enumerate(prompts):
            original[number, : len(prompt)] = prompt.original
            filler[number, : len(prompt)] = ~prompt.original
        numbers = original.cumsum(axis=-1) - 1
        boundary = np.array([_boundary(p, base) for p, base in zip(prompts, plain, strict=True)])[:, None]
        wanted = original & (numbers >= int(skip_first))
        chosen = np.stack([wanted, wanted & (numbers < boundary), wanted & (numbers >= boundary), filler], axis=1)
        arrays = (
            wanted & valid,
            _shares(chosen & valid[:, :, None]),
            np.where(valid[..., 0], 0.0, np.nan),
            np.where((filler & valid[1]).any(-1), filler.sum(-1), np.nan),
            numbers[None],
        )
        return cls(*(to_device(array, device) for array in arrays))


def _boundary(prompt: Prompt, plain: Prompt) -> int:
    """How many original tokens come before the filler; without filler, before the question."""
    start = prompt.filler_start
    return plain.question_start if start is None else int(prompt.original[:start].sum())


def _shares(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Equal weights for the chosen positions, which sum to 1; NaN, not zero, where none is chosen."""
    count = chosen.sum(axis=-1, keepdims=True)
    return np.where(count > 0, chosen / np.maximum(count, 1), np.nan)


def summarise(values: Tensor, entropy: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Metrics [query, problem, metric, head] and the number of the peak's token [query, problem, head], or -1.

    `values` [query, problem, position, head] are means, 0 where there is none, of heads of any layers; `entropy`
    [query, problem, head]. The peak is named by the number of its original token, the same under every condition.
    """
    means = tokens.shares @ values
    centred = values - means[:, :, :1]
    squares = centred.mul_(centred)
    share = tokens.shares[:, :, :1]
    variance, fourth = (share @ squares).squeeze(2), (share @ squares.mul_(squares)).squeeze(2)
    is_flat = variance <= (1e-6 * means[:, :, 0]) ** 2  # sums are in float32: below this they differ by rounding
    kurtosis = (fourth / variance.square() - 3.0).masked_fill(is_flat, float("nan"))
    peak, peak_at = _peak(values, tokens)
    first = values[:, :, 0] + tokens.first[..., None]
    mass = tokens.mass[:, None] * torch.stack([means[query, :, 3] for query in FILLER_MASS_ROWS])
    rest = (first, peak, variance.sqrt(), kurtosis, entropy, mass)
    return torch.cat([means, torch.stack(rest, dim=2)], dim=2), peak_at


def _peak(values: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """The highest value among original tokens, and the number of its token."""
    masked = values.masked_fill(~tokens.kept[..., None], -float("inf"))
    at = masked.argmax(dim=2)  # the first of equal ones
    none = ~tokens.kept.any(-1)[..., None]
    peak = masked.gather(2, at[:, :, None]).squeeze(2).masked_fill(none, float("nan"))
    return peak, tokens.numbers.expand(len(values), -1, -1).gather(2, at).masked_fill(none, -1)
