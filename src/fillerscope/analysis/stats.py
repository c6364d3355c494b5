"""Intervals, tests and reliability. Arrays in, arrays out; no torch, no pandas, no knowledge of models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, ndtr, ndtri, stdtrit

from fillerscope.store.moments import Moments

Floats = NDArray[np.float64]

FARTHEST = 2.5  # times as far as Student's interval, an interval of a mean reaches at most
BLOCK = 1_000_000  # random numbers held at once
PATTERNS = 10_000  # of signs that a permutation test tries, where there are more
FINEST = 1024  # the largest common denominator that a lattice of differences is looked for with
LEAST_P = 1e-13  # of an exact test: what is smaller is rounding of its transform
TOLERANCE = 1e-9  # differences of shares that only rounding tells apart are equal


def mean_interval(moments: Moments, level: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of a mean; each end is the farther one of Student's and Hall's intervals. NaN below two samples.

    Student's alone misses the mean of skewed samples on their long side too often, and Hall's alone, which takes
    the skewness out of t, that of heavy-tailed ones. Few samples seem less skewed than what they come from, hence
    1 + 5 / n; beyond `FARTHEST` times Student's reach more width covers no more. docs/coverage.md has the simulation.
    """
    n = np.maximum(moments.counts, 2)
    t = stdtrit(n - 1, 0.5 + level / 2)
    skew = (1 + 5 / n) * moments.skewness() / (3 * np.sqrt(n))
    mean, error = moments.value(), moments.deviation() / np.sqrt(n)
    down, up = np.clip(_skewed(t, skew), t, FARTHEST * t), np.clip(-_skewed(-t, skew), t, FARTHEST * t)
    return mean - down * error, mean + up * error


def _skewed(t: Floats, skew: Floats) -> Floats:
    """The x for which Hall's transformation, x + skew x^2 + skew^2 x^3 / 3 + skew / 2, is t."""
    past = t - skew / 2
    root: Floats = np.cbrt(1 + 3 * skew * past)
    return 3 * past / (root**2 + root + 1)


def sample_interval(samples: Floats, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """Mean and its interval over the first axis, leaving NaN samples out."""
    moments = Moments.of(samples, np.isfinite(samples))
    return moments.value(), *mean_interval(moments, level)


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
    from scipy.stats import spearmanr  # takes half a second to load, and few need it

    return float("nan") if 0 in (np.ptp(a), np.ptp(b)) else float(spearmanr(a, b).statistic)


def wilson_interval(successes: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share; NaN where n is zero."""
    # By hand: scipy's binomtest takes one share at a time.
    hits, total = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    z = ndtri(0.5 + level / 2)
    spread = hits * (total - hits) / np.maximum(total, 1) + z**2 / 4
    centre = np.where(total > 0, (hits + z**2 / 2) / (total + z**2), np.nan)
    reach = z * np.sqrt(spread) / (total + z**2)
    return np.clip(centre - reach, 0, 1), np.clip(centre + reach, 0, 1)


def mcnemar_exact(gained: ArrayLike, lost: ArrayLike) -> Floats:
    """Exact two-sided p of as many pairs gained as lost, given the discordant ones; 1 where there are none."""
    up, down = np.asarray(gained, dtype=np.float64), np.asarray(lost, dtype=np.float64)
    rarer, commoner = np.minimum(up, down), np.maximum(up, down)
    # The binomial distribution function; scipy.special.bdtr is off by 1e-11, and scipy.stats slow to load.
    tail: Floats = betainc(np.maximum(commoner, 1), rarer + 1, 0.5)
    return np.minimum(1.0, 2 * tail)


def permutation_test(differences: ArrayLike, generator: np.random.Generator, draws: int = PATTERNS) -> float:
    """Two-sided p of a mean difference of zero, from flipping the signs of paired differences.

    Exact where the differences are multiples of a common step, as those between means of samples are, and
    where there are no more than `draws` patterns of signs; from that many random patterns otherwise, the
    observed one counted among them. NaN without differences or with a missing one.
    """
    # By hand: scipy's permutation_test is exact for few samples alone, where the lattice is for thousands.
    found = np.asarray(differences, dtype=np.float64)
    if found.size == 0 or not np.isfinite(found).all():
        return float("nan")
    moved = found[np.abs(found) > TOLERANCE * np.abs(found).max()]  # flipping a zero does nothing
    if moved.size == 0:
        return 1.0
    steps = _on_lattice(moved)
    return _flipped_signs(moved, generator, draws) if steps is None else _flipped_steps(steps)


def _on_lattice(differences: Floats) -> NDArray[np.int64] | None:
    """The differences as whole multiples of a common step, or None where none is found."""
    relative = differences / np.abs(differences).min()
    sizes = np.unique(relative)
    for denominator in range(1, FINEST + 1):
        if (np.abs(sizes * denominator - np.rint(sizes * denominator)) < TOLERANCE * denominator).all():
            steps = np.rint(relative * denominator).astype(np.int64)
            return steps if np.abs(steps).sum() < 4 * BLOCK else None
    return None


def _flipped_steps(steps: NDArray[np.int64]) -> float:
    """The exact p for whole numbers: the product of cosines is the transform of their sum under random signs."""
    from scipy.fft import irfft, next_fast_len

    observed, reach = abs(int(steps.sum())), int(np.abs(steps).sum())
    length = next_fast_len(2 * reach + 1)
    angles = 2 * np.pi / length * np.arange(length // 2 + 1)
    transform = np.ones(len(angles))
    for size, times in zip(*np.unique(np.abs(steps), return_counts=True), strict=True):
        transform *= np.cos(angles * size) ** times
    tail = float(irfft(transform, length)[observed : reach + 1].sum())
    return 1.0 if observed == 0 else min(1.0, max(2 * tail, 2.0 ** (1 - len(steps)), LEAST_P))


def _flipped_signs(differences: Floats, generator: np.random.Generator, draws: int) -> float:
    """The p for any numbers: over every pattern of signs where these are few, over random ones otherwise."""
    sizes, observed = np.abs(differences), abs(float(differences.sum()))
    m, exact = len(sizes), len(sizes) < 63 and 2 ** len(sizes) <= draws
    extreme, total = 0, 2**m if exact else draws
    for start in range(0, total, max(1, BLOCK // m)):
        rows = np.arange(start, min(total, start + max(1, BLOCK // m)))
        ups = rows[:, None] >> np.arange(m) & 1 if exact else generator.integers(2, size=(len(rows), m), dtype=np.int8)
        sums = 2 * (ups @ sizes) - sizes.sum()
        extreme += int((np.abs(sums) >= observed - TOLERANCE * sizes.sum()).sum())
    return extreme / total if exact else (extreme + 1) / (total + 1)


def permutation_tests(differences: ArrayLike, generator: np.random.Generator, draws: int = PATTERNS) -> Floats:
    """The same of many rows [row, problem] at once, which share their patterns of signs; NaN as above, row by row.

    Over every pattern where there are no more than `draws`, over that many random ones otherwise."""
    found = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    n = found.shape[1]
    exact = n < 63 and 2**n <= draws
    total = 2**n if exact else draws
    sizes = np.abs(found).sum(axis=1)
    observed = np.abs(found.sum(axis=1)) - TOLERANCE * sizes
    extreme = np.zeros(len(found))
    step = max(1, BLOCK // max(n, 1))
    for start in range(0, total, step):
        rows = np.arange(start, min(total, start + step))
        ups = rows[:, None] >> np.arange(n) & 1 if exact else generator.integers(2, size=(len(rows), n), dtype=np.int8)
        extreme += (np.abs((2.0 * ups - 1.0) @ found.T) >= observed).sum(axis=0)
    p = extreme / total if exact else (extreme + 1) / (total + 1)
    return np.where(np.isfinite(sizes) & (n > 0), p, np.nan)


def paired_interval(
    differences: ArrayLike,
    generator: np.random.Generator,
    draws: int = 10_000,
    level: float = 0.95,
    span: tuple[float, float] = (-1.0, 1.0),
) -> tuple[Floats, Floats]:
    """Bootstrap interval of the mean of paired differences, [..., problem], that lie within `span`.

    Problems are resampled, and with them half a problem on either side of the mean, as far out as the
    differences that make up the variance: without it percentile, BCa and studentised intervals all cover too
    seldom where few problems differ, because no resample holds what the sample happened to miss.
    NaN below two problems or with a missing one.
    """
    found = np.asarray(differences, dtype=np.float64)
    if found.shape[-1] < 2:
        return _missing(found.shape[:-1])
    mean = found.mean(axis=-1, keepdims=True)
    squares = (found - mean) ** 2
    out = np.sqrt((squares**2).sum(axis=-1, keepdims=True) / np.maximum(squares.sum(axis=-1, keepdims=True), 1e-300))
    return _bootstrap(np.concatenate([found, mean - out, mean + out], axis=-1), 2, generator, draws, level, span)


def accuracy_interval(
    means: ArrayLike, generator: np.random.Generator, draws: int = 10_000, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Bootstrap interval of the accuracy of one condition from the mean of each problem's samples, [..., problem].

    Problems are resampled, and with them a quarter of a problem that is never solved and one that always is:
    accuracies near 0 or 1 are too skewed for the symmetric choice of `paired_interval`.
    """
    found = np.asarray(means, dtype=np.float64)
    if found.shape[-1] < 2:
        return _missing(found.shape[:-1])
    never = np.zeros((*found.shape[:-1], 1))
    return _bootstrap(np.concatenate([found, never, never + 1], axis=-1), 4, generator, draws, level, (0.0, 1.0))


def _missing(shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    return np.full(shape, np.nan), np.full(shape, np.nan)


def _bootstrap(
    pool: Floats, copies: int, generator: np.random.Generator, draws: int, level: float, span: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Interval of the mean of all but the last two values, which are imagined and weigh 1/copies each.

    All rows share their resamples. The percentiles lie as far out as Student's t is wider than a normal
    with the variance of a resample (Hesterberg's expanded percentiles). Where all values are equal no
    resample differs: there the interval reaches as far as if the largest share of problems that could have
    stayed unseen, as of Clopper and Pearson, lay at the end of the span.
    """
    n = pool.shape[-1] - 2
    means = np.concatenate([pool @ counts.T / n for counts in _resamples(n, copies, draws, generator)], axis=-1)
    tail = ndtr(-np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 + level / 2))
    low, high = np.clip(np.quantile(means, [tail, 1 - tail], axis=-1), *span)
    first, equal = pool[..., 0], np.ptp(pool[..., :n], axis=-1) <= TOLERANCE
    unseen = 1 - ((1 - level) / 2) ** (1 / n)
    low = np.where(equal, first - unseen * (first - span[0]), low)
    return low, np.where(equal, first + unseen * (span[1] - first), high)


def _resamples(n: int, copies: int, draws: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Blocks of [draw, value]: how often each of n values, and two of weight 1/copies, are among n drawn."""
    tickets = np.append(np.repeat(np.arange(n), copies), [n, n + 1])
    step = max(1, BLOCK // n)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        drawn = tickets[generator.integers(len(tickets), size=(rows, n), dtype=np.int32)]
        drawn += (n + 2) * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * (n + 2)).reshape(rows, n + 2).astype(np.float64)


def holm(p: ArrayLike) -> Floats:
    """Holm's adjusted p values of one family; what is NaN stays NaN and is not counted."""
    # By hand: scipy controls the false discovery rate alone.
    found = np.asarray(p, dtype=np.float64)
    adjusted = np.full(found.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(found))
    order = tested[np.argsort(found[tested], kind="stable")]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(found[order] * np.arange(len(order), 0, -1)))
    return adjusted


def pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> Floats:
    """Unbiased chance that one of k samples is correct, 1 - C(n-c, k) / C(n, k), by problem; NaN where k > n."""
    n, c = np.asarray(samples, dtype=np.float64)[..., None], np.asarray(correct, dtype=np.float64)[..., None]
    drawn = np.arange(k)
    missed = (n - c - drawn) / np.maximum(n - drawn, 1)  # one factor is 0 where fewer than k are wrong
    return np.where(n[..., 0] >= k, 1 - missed.prod(axis=-1), np.nan)
