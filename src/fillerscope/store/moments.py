"""Statistics that can be computed in parts and merged.

A reducer is a value with `of`, `merge` and `state`: the merged parts of any split of the samples equal the whole, the
empty one is the identity, and it can be restored from its state. numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import StoreError
from fillerscope.store.schema import MOMENTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sums of squared and cubed deviations of each cell, over the samples that have the cell.

    The last axis is positions and may differ in length between parts: positions beyond it are missing.
    `count` may be smaller than `mean` along axes where validity does not vary (size 1 there).
    """

    count: NDArray[np.int64]
    mean: Floats
    m2: Floats
    m3: Floats

    def __post_init__(self) -> None:
        """Refuse arrays that would be spread against each other: small ones of a run from elsewhere fill memory so."""
        count, *sums = (np.shape(getattr(self, name)) for name in MOMENTS)
        fitting = len(count) <= len(sums[0]) and _spread(count, sums[0]) == sums[0]
        if not fitting or any(shape != sums[0] for shape in sums):
            shapes = ", ".join(map(str, (count, *sums)))
            raise StoreError(f"moments of the shapes {shapes} do not belong together; run the study again")

    @classmethod
    def of(cls, values: Floats, valid: NDArray[np.bool_]) -> Moments:
        """The moments of samples on the first axis; `valid` broadcasts against `values`, with as many axes."""
        valid = np.broadcast_to(valid, (values.shape[0], *valid.shape[1:]))  # each sample counts
        count = valid.sum(axis=0, dtype=np.int64)
        kept = np.where(valid, values, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(count > 0, kept.sum(axis=0) / count, 0.0)
        deviations = np.where(valid, kept - mean, 0.0)
        squares = deviations**2
        return cls(count, mean, squares.sum(axis=0), (squares * deviations).sum(axis=0))

    def merge(self, other: Moments) -> Moments:
        """The moments of both samples, by the updates of Chan and Pébay, which do not subtract large sums."""
        length = _common_length(self.mean, other.mean)
        a, b = self._padded(length), other._padded(length)
        count = a.count + b.count
        share = np.where(count > 0, b.count / np.maximum(count, 1), 0.0)
        delta = b.mean - a.mean
        between = delta**2 * (a.count * share)
        m3 = a.m3 + b.m3 + between * delta * (1 - 2 * share) + 3 * delta * ((1 - share) * b.m2 - share * a.m2)
        return Moments(count, a.mean + delta * share, a.m2 + b.m2 + between, m3)

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {name: getattr(self, name) for name in MOMENTS}

    @property
    def counts(self) -> NDArray[np.int64]:
        """The count of every cell."""
        return np.broadcast_to(self.count, self.mean.shape)

    def value(self) -> Floats:
        """The mean, NaN where there are no samples."""
        return np.where(self.counts > 0, self.mean, np.nan)

    def deviation(self) -> Floats:
        """The sample standard deviation, NaN below two samples."""
        freedom = self.counts - 1
        return np.sqrt(np.where(freedom > 0, self.m2 / np.maximum(freedom, 1), np.nan))

    def skewness(self) -> Floats:
        """The sample skewness G1, clipped to sqrt(n) either way; 0 below three samples."""
        n, spread = self.counts, np.sqrt(self.m2)
        is_defined = (n > 2) & (spread > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            skewness = n * np.sqrt(n - 1.0) / (n - 2) * (self.m3 / self.m2 / spread)
        return np.where(is_defined, np.clip(skewness, -np.sqrt(n), np.sqrt(n)), 0.0)

    def _padded(self, length: int) -> Moments:
        missing = length - self.mean.shape[-1]
        if not missing:
            return self
        count = np.broadcast_to(self.count, (*self.count.shape[:-1], self.mean.shape[-1]))
        edge = [(0, 0)] * (self.mean.ndim - 1) + [(0, missing)]
        return Moments(np.pad(count, edge), *(np.pad(sums, edge) for sums in (self.mean, self.m2, self.m3)))


@dataclass(frozen=True)
class Counts:
    """How often each cell occurred. The last axis may differ between parts: cells beyond it did not occur."""

    counts: NDArray[np.int64]

    @classmethod
    def of(cls, samples: NDArray[np.int64]) -> Counts:
        """The counts of samples on the first axis."""
        return cls(samples.sum(axis=0, dtype=np.int64))

    def merge(self, other: Counts) -> Counts:
        length = _common_length(self.counts, other.counts)
        return Counts(self._padded(length) + other._padded(length))

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {"counts": self.counts}

    def _padded(self, length: int) -> NDArray[np.int64]:
        edge = [(0, 0)] * (self.counts.ndim - 1) + [(0, length - self.counts.shape[-1])]
        return np.pad(self.counts, edge)


def _spread(count: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which a count is spread over cells; empty where it cannot be."""
    try:
        return np.broadcast_shapes(count, shape)
    except ValueError:
        return ()


def _common_length(one: NDArray[np.generic], other: NDArray[np.generic]) -> int:
    """The length of the longer of two arrays, which must be equal on all other axes."""
    if one.shape[:-1] != other.shape[:-1]:
        raise StoreError(f"parts of the shapes {one.shape} and {other.shape} are not of one run; run the study again")
    return max(int(one.shape[-1]), int(other.shape[-1]))
