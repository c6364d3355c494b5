"""Intervals and reliability. Arrays in, arrays out; no torch, no pandas, no knowledge of models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


def mean_interval(
    count: NDArray[np.int64], deviation: Floats, mean: Floats, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Student's interval of a mean, from count and sample standard deviation; NaN below two samples."""
    freedom = np.maximum(count - 1, 1)
    reach = stdtrit(freedom, 0.5 + level / 2) * deviation / np.sqrt(np.maximum(count, 1))
    reach = np.where(count > 1, reach, np.nan)
    return mean - reach, mean + reach


def sample_interval(samples: Floats, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """Mean and Student's interval over the first axis, leaving NaN samples out."""
    valid = np.isfinite(samples)
    count = valid.sum(axis=0)
    total = np.where(valid, samples, 0.0).sum(axis=0)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    squares = np.where(valid, (samples - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.sqrt(np.where(count > 1, squares / np.maximum(count - 1, 1), np.nan))
    low, high = mean_interval(count, deviation, mean, level)
    return mean, low, high


def ratio_interval(after: Floats, before: Floats, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """The typical ratio of pairs on the first axis: the geometric mean, its interval taken on the logs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(after) - np.log(before)
    mean, low, high = sample_interval(np.where(np.isfinite(logs), logs, np.nan), level)
    return np.exp(mean), np.exp(low), np.exp(high)


def split_half(samples: Floats, splits: int = 100, seed: int = 0) -> float:
    """How far a ranking repeats itself: mean Spearman correlation of the item means of random halves.

    `samples` is [sample, item]. NaN below four samples or three items.
    """
    samples = samples[:, np.isfinite(samples).all(axis=0)]
    if samples.shape[0] < 4 or samples.shape[1] < 3:
        return float("nan")
    generator = np.random.default_rng(seed)
    half = samples.shape[0] // 2
    found = []
    for _ in range(splits):
        order = generator.permutation(samples.shape[0])
        found.append(rank_correlation(samples[order[:half]].mean(0), samples[order[half : 2 * half]].mean(0)))
    return float(np.mean(found))


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rho; NaN where one side is constant."""
    from scipy.stats import rankdata

    ranks = np.stack([rankdata(a), rankdata(b)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    scale = np.sqrt((ranks**2).sum(axis=1).prod())
    return float(ranks[0] @ ranks[1] / scale) if scale > 0 else float("nan")
