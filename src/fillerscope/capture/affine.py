"""Affine fits: a head's outputs under a condition as lambda times those of the baseline, plus a bias.

Texts that are compared share a pass, so each layer's outputs are added up as soon as they are computed and nothing is
stored. Definitions are in docs/method.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import Packing

NO_SHIFT = 1e-5  # of the norm of the outputs, or the dtype's epsilon: a smaller shift has no direction
NO_SPREAD = 1e-2  # of the norm of the outputs: where outputs vary less, there is no variance to explain


@dataclass(frozen=True)
class Pairs:
    """Tokens under a condition and the same tokens of the baseline, for all pairs of texts in a pass."""

    texts: Tensor  # [pair]: the number of the changed text in the pass
    plain: Tensor  # [token]: places in the row
    changed: Tensor
    pair: Tensor  # [token]
    member: Tensor  # [pair, token] float64: 1 where a token belongs to a pair

    @classmethod
    def of(cls, packing: Packing, device: torch.device) -> Pairs:
        places, texts = packing.places(), packing.texts
        base = {text.problem: number for number, text in reversed(list(enumerate(texts)))}  # the first of each problem
        numbers = [(base[text.problem], number) for number, text in enumerate(texts) if base[text.problem] != number]
        plain, changed = [], []
        for one, other in numbers:
            kept = _after_filler(packing, one, other)
            plain.append(places[one].start + np.flatnonzero(texts[one].probed)[kept] - texts[one].shared)
            changed.append(places[other].start + np.flatnonzero(texts[other].probed)[kept] - texts[other].shared)
        pair = np.repeat(np.arange(len(numbers)), [len(some) for some in plain])
        member = (pair == np.arange(len(numbers))[:, None]).astype(np.float64)
        arrays = np.array([n for _, n in numbers], np.int64), *map(np.concatenate, (plain, changed)), pair, member
        return cls(*(to_device(array, device) for array in arrays))


def _after_filler(packing: Packing, one: int, other: int) -> np.ndarray:
    """Which of the probed tokens, the same in both texts, come after the other's filler."""
    text = packing.texts[other]
    wanted = np.flatnonzero(text.probed)
    filler = np.flatnonzero(~text.original)
    kept = wanted > filler[-1] if len(filler) else np.ones(len(wanted), np.bool_)
    assert len(wanted) == packing.texts[one].probed.sum(), "texts that are compared have the same tokens"
    return kept


def affine(output: Tensor, pairs: Pairs, texts: int) -> tuple[Tensor, Tensor]:
    """Fit outputs [token, head, dim] and return the numbers of AFFINE_METRICS [text, metric, head] and the bias
    [text, head, dim], both NaN for texts that are compared with no other."""
    before, after = (output.index_select(0, rows).double() for rows in (pairs.plain, pairs.changed))
    count = pairs.member.sum(1)[:, None]

    def total(values: Tensor) -> Tensor:
        return torch.unflatten(pairs.member @ values.flatten(1), 1, values.shape[1:])

    lengths = torch.linalg.vector_norm(before, dim=-1)
    products = total(torch.linalg.vecdot(after, before)), total(lengths.square()), total(_squares(after))
    slope = products[0] / products[1]  # [pair, head]
    centre, origin = (total(values) / count[..., None] for values in (after, before))
    bias = centre - slope[..., None] * origin
    shift = torch.linalg.vector_norm(after.sub_(before.mul_(slope[pairs.pair][..., None])), dim=-1)
    size, reach, length = total(lengths) / count, total(shift) / count, torch.linalg.vector_norm(bias, dim=-1)
    # In float64 nothing is lost by taking what the mean accounts for from sums of squares.
    rest = total(shift.square()) - count * length.square()
    variation = products[2] - count * _squares(centre)
    varies = (count > 1) & (variation > count * (NO_SPREAD * size).square())  # one token does not
    explained = torch.where(varies, 1.0 - rest / variation, torch.nan)
    alone = products[1] - count * _squares(origin)
    varied = (count > 1) & (alone > count * (NO_SPREAD * size).square())
    centred = torch.where(varied, (products[0] - count * (centre * origin).sum(-1)) / alone, torch.nan)
    least = max(NO_SHIFT, torch.finfo(output.dtype).eps)
    direction = torch.where(reach > least * size, length / reach, torch.nan)
    numbers = torch.stack([slope, explained, direction, length, size, centred], dim=1)
    return _spread(numbers, pairs.texts, texts), _spread(bias, pairs.texts, texts)


def _squares(values: Tensor) -> Tensor:
    return values.square().sum(-1)


def _spread(values: Tensor, places: Tensor, texts: int) -> Tensor:
    result = values.new_full((texts, *values.shape[1:]), torch.nan)
    return result.index_copy_(0, places, values)
