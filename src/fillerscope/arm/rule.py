"""ARM on plain arrays: the elements nearest to zero are moved; how many, the elements themselves decide.

Also two perturbations without its rule whose change has the same L2 norm in every row: as many elements at random, and
noise on all of them. Order statistics are elements, never between two: rank ceil(q * n), at least 1, and the lower of
two medians. Thresholds and sums are made in float32 for shorter numbers, else in the elements' own, and results are
rounded back. Each row is a sequence by itself; other rows change no bit of it on a CPU. Knows nothing of
models and passes no gradients. Elements must be finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from fillerscope.arm import rng
from fillerscope.study.interventions import Redistribution

NORMAL_MAD = 1.4826  # a normal distribution's standard deviation, in median absolute deviations
MOST_AT_ONCE = 2**27  # elements


@dataclass(frozen=True)
class Ranks:
    """Ranks in a sorted row, counted from 1, and how many elements are moved at least and at most."""

    least: int
    most: int
    top: int  # of the signed elements, or of their sizes
    sized: bool
    scale: float | None  # eps in median absolute deviations; None: the number to move is fixed

    @classmethod
    def of(cls, spec: Redistribution, count: int) -> Ranks:
        return _ranks(spec, count)


@lru_cache(maxsize=1024)
def _ranks(spec: Redistribution, count: int) -> Ranks:
    """Shares times the count in float64, rounded to the nearest, halves to even; the percentile as a decimal fraction,
    so that 99.9% of 1,000 are 999."""
    shares = (spec.p_min, spec.p_max) if spec.fraction is None else (spec.fraction, spec.fraction)
    least, most = (max(int(spec.at_least_one), round(share * count)) for share in shares)
    top = max(1, math.ceil(Fraction(repr(float(spec.p1))) * count / 100))
    scale = NORMAL_MAD * spec.c if spec.fraction is None else None
    return Ranks(least, most, top, spec.quantile_of == "sizes", scale)


@torch.no_grad()
def redistribute(values: Tensor, spec: Redistribution, seeds: Tensor) -> Tensor:
    """Return `values` [sequence, element] changed as `spec` says, each row with its own seed of `seeds` [sequence],
    which are best left on the host."""
    if not values.numel():
        return values.clone()
    rows = max(1, MOST_AT_ONCE // values.shape[1])
    if len(values) <= rows:
        return _perturbed(values, spec, seeds)
    parts = zip(torch.split(values, rows), torch.split(seeds, rows), strict=True)
    return torch.cat([_perturbed(part, spec, its) for part, its in parts])


def _perturbed(values: Tensor, spec: Redistribution, seeds: Tensor) -> Tensor:
    moved = _moved(values, spec, seeds, scattered=False)
    if spec.kind == "arm":
        return moved
    length = _lengths(_change(values, moved))
    if spec.kind == "scatter":
        return _scaled(values, _change(values, _moved(values, spec, seeds, scattered=True)), length)
    noise = rng.normal(rng.sent(seeds, values.device), values.shape[1], working(values.dtype))
    return _scaled(values, noise, length)


def _moved(values: Tensor, spec: Redistribution, seeds: Tensor, scattered: bool) -> Tensor:
    ranks, replaced = Ranks.of(spec, values.shape[1]), spec.mode == "replace"
    if suits_kernels(values):
        from fillerscope.arm import kernels  # needs triton

        limits = (ranks.least, ranks.most, ranks.top, ranks.scale)
        return kernels.moved(values, seeds, *limits, sized=ranks.sized, scattered=scattered, replaced=replaced)
    seeds = rng.sent(seeds, values.device)
    chosen = _chosen(values, ranks, seeds, scattered)
    moves = _moves(values, ranks, seeds)
    moved = moves if replaced else moves.add_(values)
    return torch.where(chosen, moved.to(values.dtype), values)


def suits_kernels(values: Tensor) -> bool:
    return values.is_cuda and values.dtype == torch.bfloat16 and find_spec("triton") is not None


def _moves(values: Tensor, ranks: Ranks, seeds: Tensor) -> Tensor:
    """How far every element would be moved. Zero, also negative zero, moves up."""
    wide = working(values.dtype)
    highest = _ranked(values.abs() if ranks.sized else values, ranks.top).to(wide)
    highest = torch.where(highest > 0, highest, 0.0)
    lowest = values.amin(1, keepdim=True).to(wide).clamp(max=0)
    return rng.uniform(seeds, rng.MOVES, values.shape[1], wide).mul_(torch.where(values < 0, lowest, highest))


def _chosen(values: Tensor, ranks: Ranks, seeds: Tensor, scattered: bool) -> Tensor:
    """[sequence, element]: which ones move."""
    sizes = values.abs()
    if ranks.scale is None:
        number = torch.full_like(values[:, :1], ranks.most, dtype=torch.int64)
        threshold = None if scattered else _ranked(sizes, ranks.most)
    else:
        near = _near(sizes, ranks.scale)
        count = (sizes < near).sum(1, keepdim=True)
        # As many as are near zero where that is within the limits, else the limit.
        number = count.clamp(ranks.least, ranks.most)
        threshold = None if scattered else _clipped(sizes, near, count, ranks)
    if threshold is None:
        sizes = rng.choices(seeds, values.shape[1])
        threshold = _place(sizes, number)
    return _smallest(sizes, threshold, number)


def _near(sizes: Tensor, scale: float) -> Tensor:
    """[sequence, 1]: eps, below which a size counts as near zero."""
    wide, middle = sizes.to(working(sizes.dtype)), (sizes.shape[1] + 1) // 2
    return _ranked((wide - _ranked(wide, middle)).abs_(), middle) * scale


def _clipped(sizes: Tensor, near: Tensor, count: Tensor, ranks: Ranks) -> Tensor:
    """Eps, or the size of the last element that moves in the rows where eps takes too few or too many."""
    for rank, beyond in ((ranks.least, count < ranks.least), (ranks.most, count > ranks.most)):
        if not _on_host(sizes) or beyond.any():
            near = torch.where(beyond, _ranked(sizes, rank).to(near.dtype), near)
    return near


def _smallest(keys: Tensor, threshold: Tensor, number: Tensor) -> Tensor:
    """All below the threshold, and of those that equal it the first ones, until the count is reached."""
    below, equal = keys < threshold, keys == threshold
    left = number - below.sum(1, keepdim=True)
    if _on_host(keys) and not left.any():
        return below
    if _on_host(keys) and torch.equal(equal.sum(1, keepdim=True), left):
        return below.logical_or_(equal)
    return below | (equal & (equal.cumsum(1, dtype=torch.int32) <= left))


def _place(keys: Tensor, ranks: Tensor) -> Tensor:
    """[sequence, 1]: the key at a rank that differs from row to row, of keys of 16 bits."""
    if _on_host(keys):
        return torch.cat([_ranked(row[None], int(rank)) for row, rank in zip(keys, ranks, strict=True)])
    counts = torch.zeros(len(keys), 1 << rng.CHOICE_BITS, dtype=torch.int32, device=keys.device)
    counts.scatter_add_(1, keys.long(), torch.ones((), dtype=torch.int32, device=keys.device).expand_as(keys))
    return (counts.cumsum(1) < ranks).sum(1, keepdim=True)


def _ranked(values: Tensor, rank: int) -> Tensor:
    """The element of a rank [sequence, 1]; the smallest for rank 1 or less. On a host numpy is faster."""
    rank = max(rank, 1)
    if not _on_host(values):
        return values.kthvalue(rank, dim=1, keepdim=True).values
    array = (values.to(working(values.dtype)) if values.is_floating_point() else values).numpy()
    return torch.from_numpy(np.partition(array, rank - 1, axis=1)[:, rank - 1 : rank].copy()).to(values.dtype)


def _change(values: Tensor, moved: Tensor) -> Tensor:
    return moved.to(working(values.dtype)) - values


def _scaled(values: Tensor, change: Tensor, length: Tensor) -> Tensor:
    """`values` with a change added that is scaled to a length [sequence, 1] for each row. A change of nothing stays."""
    own = _lengths(change)
    # Rounded from float64, so that the order in which lengths were summed up is not seen in it.
    factor = torch.where(own > 0, length / own, 0.0).to(change.dtype)
    return torch.where(change == 0, values, (change * factor).add_(values).to(values.dtype))


def _lengths(rows: Tensor) -> Tensor:
    """[sequence, 1] float64. On a host row by row: how a sum is split must not depend on the other rows."""
    if not _on_host(rows):
        lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        return lengths
    return torch.stack([torch.linalg.vector_norm(row, dtype=torch.float64) for row in rows])[:, None]


def working(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def _on_host(values: Tensor) -> bool:
    """Whether values are on the host, where reading them is free; elsewhere it makes the host wait."""
    return values.device.type == "cpu"
