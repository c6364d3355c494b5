"""How often each kind of printed interval holds the true value, by simulation.

    python benchmarks/coverage.py --out benchmarks/results/coverage.json

Draws problems from distributions whose true value is known, takes the interval that the tool would print, and counts.
Prints the tables of docs/coverage.md: intervals in use, those that were not chosen, and data that had no part in the
choice. Some minutes on one core, the same numbers each time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from math import gamma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri, stdtrit

from fillerscope.analysis.stats import (
    accuracy_interval,
    mean_interval,
    paired_interval,
    ratio_interval,
    sample_interval,
    wilson_interval,
)
from fillerscope.store.moments import Moments

Floats = NDArray[np.float64]
Generator = np.random.Generator
Bounds = tuple[Floats, Floats]
SIZES = (12, 48, 100)  # problems
SHARD = 8  # problems whose moments are merged
CHUNK = 250  # repetitions that are resampled together
RESAMPLES = 2000  # of intervals that are only compared


@dataclass(frozen=True)
class Data:
    """`draw(generator, repetitions, n)` gives problems [n, repetition], or what `Kind.interval` takes."""

    name: str
    truth: float
    draw: Callable[[Generator, int, int], Floats]


@dataclass(frozen=True)
class Kind:
    name: str
    interval: Callable[[Floats], Bounds]
    data: tuple[Data, ...]
    share: float = 1.0  # of the repetitions: bootstraps take their time


@dataclass(frozen=True)
class Row:
    interval: str
    data: str
    n: int
    repetitions: int
    coverage: float
    error: float  # standard error of the simulation
    above: float  # share of intervals that lie above the true value
    below: float


def outliers(share: float, size: float) -> Data:
    def draw(generator: Generator, repetitions: int, n: int) -> Floats:
        shape = (n, repetitions)
        return generator.normal(size=shape) + size * (generator.random(shape) < share)

    return Data(f"normal, {share:.0%} of problems {size:g} sd higher", share * size, draw)


SAMPLES = (
    Data("normal", 0.0, lambda generator, r, n: generator.normal(size=(n, r))),
    Data("t with 3 degrees of freedom", 0.0, lambda generator, r, n: generator.standard_t(3, (n, r))),
    Data("lognormal, sigma 0.5", np.exp(0.125), lambda generator, r, n: generator.lognormal(0, 0.5, (n, r))),
    Data("lognormal, sigma 1", np.exp(0.5), lambda generator, r, n: generator.lognormal(0, 1, (n, r))),
    Data("gamma, shape 1", 1.0, lambda generator, r, n: generator.gamma(1.0, size=(n, r))),
    Data("gamma, shape 0.5", 0.5, lambda generator, r, n: generator.gamma(0.5, size=(n, r))),
    outliers(0.05, 5),
    outliers(0.1, 5),
    outliers(0.02, 10),
)

HELD_OUT = (  # the interval was chosen by those above, not by these
    Data("uniform", 0.5, lambda generator, r, n: generator.random((n, r))),
    Data("Laplace", 0.0, lambda generator, r, n: generator.laplace(size=(n, r))),
    Data("two humps, 30% of problems 4 sd higher", 1.2, outliers(0.3, 4).draw),
    Data("beta, 0.5 and 3", 0.5 / 3.5, lambda generator, r, n: generator.beta(0.5, 3, (n, r))),
    Data("inverse Gaussian, 1 and 1", 1.0, lambda generator, r, n: generator.wald(1, 1, (n, r))),
    Data("Weibull, shape 0.7", gamma(1 + 1 / 0.7), lambda generator, r, n: generator.weibull(0.7, (n, r))),
    Data("Pareto, shape 3", 0.5, lambda generator, r, n: generator.pareto(3, (n, r))),
    Data("lognormal, sigma 1.5", np.exp(1.125), lambda generator, r, n: generator.lognormal(0, 1.5, (n, r))),
)


def mean(samples: Floats) -> Bounds:
    return sample_interval(samples)[1:]


def ratio(logs: Floats) -> Bounds:
    """On the scale of logarithms, on which the true value is known."""
    before = np.random.default_rng(0).lognormal(size=logs.shape)
    _, low, high = ratio_interval(before * np.exp(logs), before)
    return np.log(low), np.log(high)


def profile(samples: Floats) -> Bounds:
    """Shard by shard, as positions of a profile are stored."""
    shards = (samples[start : start + SHARD] for start in range(0, len(samples), SHARD))
    return mean_interval(reduce(Moments.merge, (Moments.of(shard, np.isfinite(shard)) for shard in shards)))


def student(samples: Floats) -> Bounds:
    n = len(samples)
    reach = stdtrit(n - 1, 0.975) * samples.std(axis=0, ddof=1) / np.sqrt(n)
    return samples.mean(axis=0) - reach, samples.mean(axis=0) + reach


def hall(samples: Floats) -> Bounds:
    """With the sample skewness as it is, and nothing of Student's but the quantile."""
    n, moments = len(samples), Moments.of(samples, np.isfinite(samples))
    skew, t = moments.skewness() / (3 * np.sqrt(n)), stdtrit(n - 1, 0.975)
    past = np.array([[t], [-t]]) - skew / 2
    root = np.cbrt(1 + 3 * skew * past)
    low, high = moments.value() - 3 * past / (root**2 + root + 1) * moments.deviation() / np.sqrt(n)
    return low, high


def bootstrap_t(rows: Floats) -> Bounds:
    mean, deviation, n = rows.mean(axis=1), rows.std(axis=1), rows.shape[1]
    counts = _resampled(n)
    means = counts @ rows.T / n
    deviations = np.sqrt(np.maximum(counts @ (rows**2).T / n - means**2, 1e-12))
    high, low = np.quantile((means - mean) / deviations, [0.025, 0.975], axis=0)
    return mean - low * deviation, mean - high * deviation


def bca(rows: Floats) -> Bounds:
    mean, apart = rows.mean(axis=1), rows - rows.mean(axis=1, keepdims=True)
    means = np.sort(_resampled(rows.shape[1]) @ rows.T / rows.shape[1], axis=0)
    bias = ndtri(np.clip((means < mean).mean(axis=0), 0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))
    acceleration = (apart**3).sum(axis=1) / (6 * (apart**2).sum(axis=1) ** 1.5)
    z = bias + ndtri(np.array([[0.025], [0.975]]))
    places = (ndtr(bias + z / (1 - acceleration * z)) * RESAMPLES).astype(np.int64)
    low, high = np.take_along_axis(means, np.clip(places, 0, RESAMPLES - 1), axis=0)
    return low, high


def _resampled(n: int) -> Floats:
    """[resample, problem]: how often each problem is drawn."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(np.float64)


def graded(discordance: float, difference: float) -> Data:
    """Differences of right and wrong: gained, lost or neither."""

    def draw(generator: Generator, repetitions: int, n: int) -> Floats:
        place = generator.random((n, repetitions))
        gained, lost = (discordance + difference) / 2, (discordance - difference) / 2
        return np.where(place < gained, 1.0, np.where(place < gained + lost, -1.0, 0.0))

    return Data(f"1 sample, {discordance:.0%} of problems differ, difference {difference:+.0%}", difference, draw)


def sampled(samples: int, before: float, after: float, concentration: float) -> Data:
    """Differences of means of samples; chances of a problem are beta, half of the problems keep their rank."""

    def draw(generator: Generator, repetitions: int, n: int) -> Floats:
        rank = generator.random((n, repetitions))
        other = np.where(generator.random(rank.shape) < 0.5, rank, generator.random(rank.shape))
        found = []
        for accuracy, place in ((before, rank), (after, other)):
            chance = betaincinv(accuracy * concentration, (1 - accuracy) * concentration, place)
            found.append(generator.binomial(samples, np.clip(chance, 0, 1)) / samples)
        return np.asarray(found[1] - found[0])

    return Data(f"{samples} samples, accuracy {before:.0%} and {after:.0%}", after - before, draw)


def answered(samples: int, accuracy: float, concentration: float) -> Data:
    def draw(generator: Generator, repetitions: int, n: int) -> Floats:
        chance = generator.beta(accuracy * concentration, (1 - accuracy) * concentration, (n, repetitions))
        return generator.binomial(samples, chance) / samples

    return Data(f"{samples} samples, accuracy {accuracy:.0%}", accuracy, draw)


def in_chunks(interval: Callable[[Floats], Bounds]) -> Callable[[Floats], Bounds]:
    """Of [n, repetition], some repetitions at a time."""

    def whole(samples: Floats) -> Bounds:
        chunks = range(0, samples.shape[1], CHUNK)
        lows, highs = zip(*(interval(samples[:, start : start + CHUNK].T) for start in chunks), strict=True)
        return np.concatenate(lows), np.concatenate(highs)

    return whole


def wilson(samples: Floats) -> Bounds:
    return wilson_interval(samples.sum(axis=0), len(samples))


def right(accuracy: float) -> Data:
    return Data(
        f"accuracy {accuracy:.0%}",
        accuracy,
        lambda generator, r, n: np.float64(1.0) * (generator.random((n, r)) < accuracy),
    )


CANDIDATES = (
    Kind("Student's alone, as before", student, SAMPLES),
    Kind("Hall's alone", hall, SAMPLES),
    Kind("bootstrap-t", in_chunks(bootstrap_t), SAMPLES, 0.2),
    Kind("BCa", in_chunks(bca), SAMPLES, 0.2),
    Kind("mean over problems, other data", mean, HELD_OUT),
    Kind("Student's alone, other data", student, HELD_OUT),
)
KINDS = (
    Kind("mean over problems", mean, SAMPLES),
    Kind("geometric mean of ratios (data: their logarithms)", ratio, SAMPLES),
    Kind("profile, from merged moments", profile, SAMPLES),
    Kind(
        "difference of accuracies",
        in_chunks(lambda rows: paired_interval(rows, np.random.default_rng(0))),
        (
            graded(0.1, 0.0), graded(0.1, 0.1), graded(0.2, 0.05), graded(0.4, 0.15), graded(0.4, -0.4),
            sampled(4, 0.5, 0.5, 1.0), sampled(4, 0.8, 0.9, 0.5), sampled(16, 0.5, 0.65, 1.0),
        ),
        0.2,
    ),
    Kind(
        "accuracy from several samples",
        in_chunks(lambda rows: accuracy_interval(rows, np.random.default_rng(0))),
        (answered(4, 0.5, 1.0), answered(4, 0.9, 1.0), answered(16, 0.5, 0.3), answered(16, 0.95, 0.5)),
        0.2,
    ),
    Kind("accuracy from one sample (Wilson)", wilson, tuple(map(right, (0.02, 0.05, 0.2, 0.5, 0.9)))),
)  # fmt: skip


def covered(kind: Kind, data: Data, n: int, repetitions: int, seed: int) -> Row:
    low, high = kind.interval(data.draw(np.random.default_rng([seed, n]), repetitions, n))
    above, below = float((low > data.truth + 1e-9).mean()), float((high < data.truth - 1e-9).mean())
    coverage = 1 - above - below
    error = float(np.sqrt(coverage * (1 - coverage) / repetitions))
    return Row(kind.name, data.name, n, repetitions, coverage, error, above, below)


def rows(repetitions: int) -> Iterator[Row]:
    for number, kind in enumerate(KINDS + CANDIDATES):
        for place, data in enumerate(kind.data):
            for n in SIZES:
                yield covered(kind, data, n, int(repetitions * kind.share), 100 * number + place)


def table(kind: Kind, found: list[Row]) -> str:
    """Coverage in per cent with its standard error; bold where it lies outside 93.5 to 97."""
    lines = [f"| {kind.name} | " + " | ".join(f"n = {n}" for n in SIZES) + " |", "|---|" + "---|" * len(SIZES)]
    for data in kind.data:
        cells = []
        for row in (row for row in found if (row.interval, row.data) == (kind.name, data.name)):
            text = f"{100 * row.coverage:.1f} ± {100 * row.error:.1f}"
            cells.append(text if 0.935 <= row.coverage <= 0.97 else f"**{text}**")
        lines.append(f"| {data.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20_000, help="a fifth of them for bootstraps")
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    chosen = parser.parse_args()
    found = list(rows(chosen.repetitions))
    print("\n\n".join(table(kind, found) for kind in KINDS + CANDIDATES))
    if chosen.out:
        chosen.out.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
