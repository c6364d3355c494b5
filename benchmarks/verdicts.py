"""How often the rule for verdicts errs, and how often it sees what is there, by simulation.

    python benchmarks/verdicts.py --out benchmarks/results/verdicts.json

Draws runs of eight claims at the level that the rule sees: a number for each problem of the model, and a mean for each
twin and layer. Prints the tables of docs/verdicts.md. Two minutes on one core, the same numbers each time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.findings.claim import CLAIMS, Claim, Evidence, Twins
from fillerscope.analysis.findings.decision import decide
from fillerscope.analysis.findings.finding import Verdict
from fillerscope.analysis.stats import sample_interval

Floats = NDArray[np.float64]
Generator = np.random.Generator
Draw = Callable[[Generator, tuple[int, ...]], Floats]
SIZES = (6, 12, 48, 200)  # problems
HOLDING = (Verdict.HOLDS, Verdict.LITTLE)
PILOT = 12  # problems of a run that names how many it needs
SMALL = 0.05
MOST = 2_000  # problems that a named number is followed up to

# Each with mean 0 and standard deviation 1.
SHAPES: dict[str, Draw] = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "t with 3 degrees of freedom": lambda generator, shape: generator.standard_t(3, shape) / np.sqrt(3),
    "lognormal, sigma 0.5": lambda generator, shape: _lognormal(generator, 0.5, shape),
    "lognormal, sigma 1": lambda generator, shape: _lognormal(generator, 1.0, shape),
    "gamma, shape 0.5": lambda generator, shape: (generator.gamma(0.5, size=shape) - 0.5) / np.sqrt(0.5),
}


def _lognormal(generator: Generator, sigma: float, shape: tuple[int, ...]) -> Floats:
    mean, square = np.exp(sigma**2 / 2), np.exp(sigma**2)
    return np.asarray((generator.lognormal(0, sigma, shape) - mean) / np.sqrt(square * (square - 1)))


@dataclass(frozen=True)
class Alike:
    """Models that are exchangeable with their twins: all show the same dilution, and differ by their weights alone."""

    weights: str  # the shape of the distribution over seeds, in each layer
    problems: str  # and over problems
    noise: float = 3.0  # standard deviation over problems, in units of that over seeds
    twins: int = 3
    layers: int = 30
    mirrored: bool = False  # the long tail on the other side than the claim


@dataclass(frozen=True)
class Planted:
    """A model that goes `effect` beyond its twins."""

    effect: float
    deviation: float  # over problems
    spread: float  # of twins
    twins: int = 3
    layers: int = 30


@dataclass(frozen=True)
class Row:
    kind: str
    case: dict[str, object]
    n: int
    runs: int
    share: float  # of runs with any claim that holds, or of claims that hold
    needed: float = 0.0  # problems named, the median


def any_holds(case: Alike, n: int, runs: int, seed: int) -> float:
    """The share of runs in which any of the eight claims holds, be it by little."""
    generator, count = np.random.default_rng([seed, n]), runs * len(CLAIMS)
    sign = -1.0 if case.mirrored else 1.0
    weights = sign * SHAPES[case.weights](generator, (case.twins + 1, count, case.layers))
    noise = sign * case.noise * SHAPES[case.problems](generator, (n, count))
    tables = weights[1:] + case.noise / np.sqrt(n) * generator.normal(size=weights[1:].shape)
    claim = Claim(none=-40.0, side=1, small=0.05)
    estimates = Estimates(*sample_interval(weights[0, :, 0] + noise, claim.confidence))
    holds = [
        decide(Evidence(claim, estimates.at(k, n=n), case.noise, Twins.of(tables[:, k], 0))).verdict in HOLDING
        for k in range(count)
    ]
    return float(np.reshape(holds, (runs, len(CLAIMS))).any(axis=1).mean())


def planted_holds(case: Planted, runs: int, seed: int) -> tuple[float, float]:
    """The share of claims that hold in a run of 12 problems or in one of as many as that run names, and the median
    number of problems that are named."""
    generator = np.random.default_rng(seed)
    decided, named = [], []
    for _ in range(runs):
        twins = Twins.of(case.spread * generator.normal(size=(case.twins, case.layers)), 0)
        n, found = _followed(case, twins, generator)
        named.append(n)
        decided.append(found)
    return float(np.mean(decided)), float(np.median(named))


def _followed(case: Planted, twins: Twins, generator: Generator) -> tuple[int, bool]:
    """One run, and where it names a number of problems, another with so many and the same weights."""
    n, model = PILOT, case.effect + case.spread * float(generator.normal())
    for _ in range(2):
        samples = model + case.deviation * generator.normal(size=n)
        decision = decide(Evidence.of(Claim(0.0, 1, SMALL), samples, twins))
        if decision.verdict in HOLDING:
            return n, True
        needs = decision.numbers.get("needs", np.inf)
        if not needs <= MOST:
            break
        n = int(needs)
    return n, False


ALIKE = (
    *(Alike(weights, "normal") for weights in SHAPES),
    *(Alike(weights, "lognormal, sigma 1") for weights in SHAPES),
    Alike("lognormal, sigma 1", "lognormal, sigma 1", mirrored=True),
    Alike("normal", "normal", noise=0.1),
    Alike("lognormal, sigma 0.5", "normal", noise=0.1),
    Alike("lognormal, sigma 1", "normal", noise=0.1),
    Alike("lognormal, sigma 1", "normal", noise=0.1, twins=8),
    Alike("t with 3 degrees of freedom", "normal", noise=0.1, twins=8),
    Alike("normal", "normal", noise=0.1, layers=3),
    Alike("lognormal, sigma 0.5", "normal", noise=0.1, layers=3),
    Alike("lognormal, sigma 1", "normal", noise=0.1, layers=3),
    Alike("lognormal, sigma 1", "normal", noise=0.1, layers=1),
)
PLANTED = (
    *(Planted(0.1, deviation, 0.001) for deviation in (0.02, 0.1, 0.2, 0.4)),
    *(Planted(0.1, 0.1, 0.004, twins) for twins in (3, 5)),
    *(Planted(times * 0.01, 0.02, 0.01, twins) for twins in (3, 5, 8) for times in (8, 10, 12, 15, 20)),
)


def rows(runs: int) -> Iterator[Row]:
    for number, case in enumerate(ALIKE):
        for n in SIZES:
            yield Row("alike", asdict(case), n, runs, any_holds(case, n, runs, number))
    for number, planted in enumerate(PLANTED):
        share, needed = planted_holds(planted, 2 * runs, 100 + number)
        yield Row("planted", asdict(planted), PILOT, 2 * runs, share, needed)


def table(found: list[Row]) -> str:
    lines = ["| weights | problems | noise | twins | layers | " + " | ".join(f"n = {n}" for n in SIZES) + " |"]
    lines.append("|---" * (5 + len(SIZES)) + "|")
    for case in ALIKE:
        shares = [f"{100 * row.share:.1f}" for row in found if row.kind == "alike" and row.case == asdict(case)]
        tail = ", tail on the other side" if case.mirrored else ""
        cells = [f"{case.weights}{tail}", case.problems, f"{case.noise:g}", str(case.twins), str(case.layers), *shares]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| effect | sd over problems | sd of twins | twins | problems named | hold |", "|---" * 6 + "|"]
    for row in (row for row in found if row.kind == "planted"):
        planted = Planted(**row.case)  # type: ignore[arg-type]
        sizes = [f"{size:g}" for size in (planted.effect, planted.deviation, planted.spread)]
        cells = [*sizes, str(planted.twins), f"{row.needed:.0f}"]
        lines.append("| " + " | ".join([*cells, f"{100 * row.share:.0f}%"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=800, help="of each case; twice as many where an effect is planted")
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    chosen = parser.parse_args()
    found = list(rows(chosen.runs))
    print(table(found))
    if chosen.out:
        chosen.out.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
