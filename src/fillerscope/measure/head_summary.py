"""The few numbers that say what a head does on one problem under one condition.

They are kept for every problem, because they are small and because intervals and pairs need them. Definitions
are in docs/method.md. Knows prompts and mean values, not where these come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fillerscope.store.schema import FILLER_MASS_ROWS, METRICS

if TYPE_CHECKING:
    from torch import Tensor

    from fillerscope.prompts.prompt import Prompt

MEANS = METRICS[:4]


@dataclass(frozen=True)
class Tokens:
    """Which positions of some prompts count for what; the same for every layer and head."""

    kept: Tensor  # [query, problem, position]: original tokens that somebody votes on
    shares: Tensor  # [query, problem, mean, position]: weights that make each of MEANS of a profile
    first: Tensor  # [query, problem]: 0, and NaN where position 0 has no value
    mass: Tensor  # [problem]: filler tokens, NaN where no original row comes after them
    numbers: Tensor  # [1, problem, position]: of the original token, counted from 0

    @classmethod
    def of(
        cls,
        prompts: Sequence[Prompt],
        plain: Sequence[Prompt],
        voted: NDArray[np.bool_],
        skip_first: bool,
        device: torch.device,
    ) -> Tokens:
        """`voted` [query, problem, position] says where there is a value."""
        from fillerscope.capture.memory import to_device

        original = np.zeros(voted.shape[1:], dtype=np.bool_)
        filler = np.zeros_like(original)
        for number, prompt in enumerate(prompts):
            original[number, : len(prompt)] = prompt.original
            filler[number, : len(prompt)] = ~prompt.original
        numbers = original.cumsum(axis=-1) - 1
        boundary = np.array([_boundary(p, base) for p, base in zip(prompts, plain, strict=True)])[:, None]
        wanted = original & (numbers >= int(skip_first))
        chosen = np.stack([wanted, wanted & (numbers < boundary), wanted & (numbers >= boundary), filler], axis=1)
        arrays = (
            wanted & voted,
            _shares(chosen & voted[:, :, None]),
            np.where(voted[..., 0], 0.0, np.nan),
            np.where((filler & voted[1]).any(-1), filler.sum(-1), np.nan),
            numbers[None],
        )
        return cls(*(to_device(array, device) for array in arrays))


def _boundary(prompt: Prompt, plain: Prompt) -> int:
    """How many original tokens stand before the filler."""
    start = prompt.filler_start
    return plain.question_start if start is None else int(prompt.original[:start].sum())


def _shares(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Equal shares of the positions that are chosen; NaN, not zero, where there are none."""
    count = chosen.sum(axis=-1, keepdims=True)
    return np.where(count > 0, chosen / np.maximum(count, 1), np.nan)


def summarise(values: Tensor, entropy: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """[query, problem, metric, head] and the number of the peak's token [query, problem, head], -1 without one.

    `values` [query, problem, position, head] are means, 0 where nobody votes, of heads of any layers; `entropy`
    [query, problem, head]. The peak is named by the number of its original token, the same under every condition.
    """
    import torch  # here, because whoever only reads a run needs the names above and no torch

    means = tokens.shares @ values
    centred = values - means[:, :, :1]
    squares = centred.mul_(centred)
    share = tokens.shares[:, :, :1]
    variance, fourth = (share @ squares).squeeze(2), (share @ squares.mul_(squares)).squeeze(2)
    alike = variance <= (1e-6 * means[:, :, 0]) ** 2  # sums are in float32: below this they differ by rounding
    kurtosis = (fourth / variance.square() - 3.0).masked_fill(alike, float("nan"))
    peak, peak_at = _peak(values, tokens)
    first = values[:, :, 0] + tokens.first[..., None]
    mass = tokens.mass[:, None] * torch.stack([means[query, :, 3] for query in FILLER_MASS_ROWS])
    rest = (first, peak, variance.sqrt(), kurtosis, entropy, mass)
    return torch.cat([means, torch.stack(rest, dim=2)], dim=2), peak_at


def _peak(values: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    only = values.masked_fill(~tokens.kept[..., None], -float("inf"))
    at = only.argmax(dim=2)  # the first of equal ones
    none = ~tokens.kept.any(-1)[..., None]
    peak = only.gather(2, at[:, :, None]).squeeze(2).masked_fill(none, float("nan"))
    return peak, tokens.numbers.expand(len(values), -1, -1).gather(2, at).masked_fill(none, -1)
