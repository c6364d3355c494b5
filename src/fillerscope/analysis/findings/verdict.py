"""Verdicts on claims about filler: their degrees, and the rule that decides between them.

An untrained model shows a fall of attention, a scaled output and a bias in one direction too, and its filler differs
from every control: what is claimed of a model must lie beyond what its untrained twins show. Knows numbers only, no
run. docs/method.md states the rule, docs/verdicts.md shows by simulation how often it errs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, hypot, inf, isfinite, log2, nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from fillerscope.analysis.stats import sample_interval

Floats = NDArray[np.float64]
Interval = tuple[float, float, float]  # value, low and high


class Degree(StrEnum):
    HOLDS = "holds"
    LITTLE = "holds by little"  # beyond its reference, by less than the size in docs/method.md
    UNTESTED = "not tested against its control"
    FAILS = "does not hold"
    UNKNOWN = "cannot be told"


# The claims that are decided of one model, by the names of their findings: at most 5% of models like their twins may
# get any `holds`, so that each claim has an equal part of it.
CLAIMS = ("first_layer", "collapse", "scaling", "direction", "near_zero", "variance", "later", "deeper")
ALPHA = 0.05
LEVEL = ALPHA / len(CLAIMS)  # chance of a wrong `holds` of one claim
POWER = 0.9  # aimed at where a number of problems is named: 80% is left once the spread is estimated from few
FEWEST = ceil(log2(1 / LEVEL))  # problems: fewer lie all on one side by chance more often than LEVEL
TWINS = 3  # untrained models that a study should measure
MOST_TWINS, MOST_PROBLEMS = 100, 10**9  # searches for more end here
# Standard deviations beyond which, for every distribution with one peak, no more than LEVEL lies (Vysochanskij and
# Petunin): few twins cannot show how skewed they are.
FAR = sqrt(4 / (9 * LEVEL) - 1)
MEASURE_TWINS = f"references: {{twin: {TWINS}}}"


@dataclass(frozen=True)
class Twins:
    """What untrained twins show of one measure: a value each, and the spread of twins over all layers together.

    Three values may lie close to each other by chance; where layers of a kind spread more, that is taken instead."""

    values: tuple[float, ...] = ()
    spread: float = 0.0

    @classmethod
    def of(cls, table: Floats, layers: int | Sequence[int]) -> Twins:
        """From means over problems [twin, layer]: of one layer, or the mean over several."""
        chosen = [layers] if isinstance(layers, int) else list(layers)
        kept = table[np.isfinite(table[:, chosen]).all(axis=1)] if len(table) else table
        if not len(kept) or not chosen:
            return cls()
        values = tuple(kept[:, chosen].mean(axis=1).tolist())
        return cls(values, _pooled(kept) / sqrt(len(chosen)) if len(kept) > 1 else 0.0)


def _pooled(table: Floats) -> float:
    """The standard deviation over twins, from all layers that have numbers."""
    variances = table[:, np.isfinite(table).all(axis=0)].var(axis=0, ddof=1)
    return sqrt(float(variances.mean()))


@dataclass(frozen=True)
class Claim:
    """That a mean over problems lies to one side of `none` (-1 below, +1 above, 0 either), on a scale of differences:
    ratios come as logarithms. Intervals must be at `confidence(side)`; `Claim.of` takes samples and sees to it.

    `controls` are the paired differences of filler and control, by the control's name; `twins` the same means of
    untrained twins, and `twin_spread` the least that their standard deviation is taken for. `within` turns the claim
    round: that the mean lies within `small` of `none`, and nearer than in the twins."""

    estimate: Interval
    none: float
    side: int
    small: float
    n: int
    deviation: float = nan  # over problems
    twins: tuple[float, ...] = ()
    twin_spread: float = 0.0
    controls: Mapping[str, Interval] = field(default_factory=dict)
    needs: int = FEWEST
    within: bool = False
    words: str = ""  # `small` as people write it, where that is not the plain number

    @classmethod
    def of(
        cls, samples: Floats, none: float, side: int, small: float, *, twins: Twins | None = None,
        controls: Mapping[str, Floats] | None = None, needs: int = FEWEST, within: bool = False, words: str = "",
    ) -> Claim:  # fmt: skip
        """From a number for each problem, NaN where it is missing."""
        others = twins or Twins()
        kept = samples[np.isfinite(samples)]
        paired = {name: adjusted(values, side) for name, values in (controls or {}).items()}
        spread = float(kept.std(ddof=1)) if len(kept) > 1 else nan
        return cls(
            adjusted(samples, side), none, side, small, len(kept), spread,
            others.values, others.spread, paired, needs, within, words,
        )  # fmt: skip

    @property
    def size(self) -> str:
        return self.words or f"{self.small:g}"


@dataclass(frozen=True)
class Decision:
    degree: Degree
    reason: str  # in a few words, empty where the degree says it all
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """As the end of a sentence that begins with the claim."""
        word = {Degree.UNTESTED: f"is {self.degree}"}.get(self.degree, f"{self.degree} on this model")
        return f"{word} ({self.reason})" if self.reason else word


def confidence(side: int) -> float:
    """Of an interval one of whose ends, or both for claims that go either way, may err with chance `LEVEL`."""
    return 1 - (2 if side else 1) * LEVEL


def adjusted(samples: Floats, side: int) -> Interval:
    """Mean and interval over problems at the level of one claim among all."""
    value, low, high = sample_interval(samples, confidence(side))
    return float(value), float(low), float(high)


def decide(claim: Claim) -> Decision:
    """The verdict: too few problems, then the claim against no change, against controls, and against twins."""
    if not isfinite(claim.estimate[0]):
        return Decision(Degree.UNKNOWN, "nothing to measure it by")
    if claim.n < claim.needs or not np.isfinite(claim.estimate).all():
        return Decision(Degree.UNKNOWN, f"needs {claim.needs} problems", {"needs": float(claim.needs)})
    if decision := _whether_near(claim) if claim.within else _against_none(claim):
        return decision
    if missed := [one for one in (_against_controls(claim), _against_twins(claim)) if one]:
        return weakest(*missed)
    if not claim.within and _excess(claim) < claim.small:
        return Decision(Degree.LITTLE, f"beyond its references by less than {claim.size}", twin_numbers(claim))
    return Decision(Degree.HOLDS, "", twin_numbers(claim))


def weakest(*decisions: Decision) -> Decision:
    """Of a claim with several parts, all of which must hold: the first of the lowest degree."""
    order = (Degree.FAILS, Degree.UNKNOWN, Degree.UNTESTED, Degree.LITTLE, Degree.HOLDS)
    return min(decisions, key=lambda one: order.index(one.degree))


def _against_none(claim: Claim) -> Decision | None:
    _, low, high = (bound - claim.none for bound in claim.estimate)
    if max(abs(low), abs(high)) < claim.small:
        return Decision(Degree.FAILS, f"no change as large as {claim.size}")
    if (claim.side > 0 and high < 0) or (claim.side < 0 and low > 0):
        return Decision(Degree.FAILS, "the other way")
    if low > 0 or high < 0:
        return None
    problems = _more_problems(claim, 2 * claim.small, _reach_within(claim, 2 * claim.small))
    return _needs(claim, problems, "", f" to tell a change of twice {claim.size}")


def _reach_within(claim: Claim, change: float) -> float:
    """How far twins reach, where such a change could go beyond it; 0 where it could not, or there are none."""
    reach = _prediction(claim, len(claim.twins)) if len(claim.twins) > 1 else 0.0
    return reach if reach < change else 0.0


def _whether_near(claim: Claim) -> Decision | None:
    _, low, high = (bound - claim.none for bound in claim.estimate)
    if max(abs(low), abs(high)) < claim.small:
        return None
    if low > claim.small or high < -claim.small:
        return Decision(Degree.FAILS, f"farther from {claim.none:g} than {claim.size}")
    room = abs(claim.small - abs(claim.estimate[0] - claim.none))
    return _needs(claim, _more_problems(claim, room), f"not wholly within {claim.size} of {claim.none:g}, ")


def _more_problems(claim: Claim, change: float, reach: float = 0.0) -> float:
    """How many problems would show such a change, if they spread as these do."""
    return max(needed_problems(change, claim.deviation, claim.side, reach), claim.n + 1)


def _needs(claim: Claim, problems: float, before: str = "", after: str = "") -> Decision:
    words = f"{before}needs about {problems:,.0f} problems{after}"
    return Decision(Degree.UNKNOWN, words, twin_numbers(claim) | {"needs": problems})


def _against_controls(claim: Claim) -> Decision | None:
    side = 0 if claim.within else toward(claim)
    for name, paired in claim.controls.items():
        low, high = sorted(side * bound for bound in paired[1:])
        if not np.isfinite(paired).all():
            return Decision(Degree.UNKNOWN, f"cannot be compared with {name}")
        if low <= 0:
            sure = high < claim.small
            words = "no more than" if sure else "cannot be told from what it is"
            return Decision(Degree.FAILS if sure else Degree.UNKNOWN, f"{words} under {name}")
    return None


def _against_twins(claim: Claim) -> Decision | None:
    """An untrained model dilutes too, and shows more of it than any control: twins are needed for every claim."""
    if len(claim.twins) < 2:
        controls = f"beyond {' and '.join(claim.controls)}; " if claim.controls and not claim.within else ""
        return Decision(Degree.UNTESTED, f"{controls}not held against untrained models: measure {MEASURE_TWINS}")
    side, numbers = toward(claim), twin_numbers(claim)
    if side * claim.estimate[0] <= max(side * value for value in claim.twins):
        word = f"no nearer to {claim.none:g}" if claim.within else "no more"
        return Decision(Degree.FAILS, f"{word} than in an untrained model", numbers)
    return None if beyond_twins(claim) > 0 else _near_twins(claim, f"beyond {len(claim.twins)} untrained models, ")


def toward(claim: Claim) -> int:
    """The side on which the claim lies: where it goes either way that of the estimate, and for a claim of no change
    the one that leads from the twins to `none`."""
    if claim.within:
        return 1 if np.mean(claim.twins) < claim.none else -1
    return claim.side or (1 if claim.estimate[0] > claim.none else -1)


def beyond_twins(claim: Claim) -> float:
    """By how much at least the estimate is beyond one more twin.

    The reach of the estimate over problems and that of Student's prediction interval over twins are combined as the
    legs of a right angle (Zou and Donner), which keeps the level where one of them is skewed."""
    side, (value, low, high) = toward(claim), claim.estimate
    own = value - low if side > 0 else high - value
    return side * (value - float(np.mean(claim.twins))) - hypot(own, _prediction(claim, len(claim.twins)))


def _prediction(claim: Claim, count: int) -> float:
    """How far from their mean one more twin may lie."""
    level = (1 - confidence(claim.side)) / 2
    spread = max(float(np.std(claim.twins, ddof=1)), claim.twin_spread)
    return max(float(stdtrit(count - 1, 1 - level)), FAR) * sqrt(1 + 1 / count) * spread


def _near_twins(claim: Claim, before: str) -> Decision:
    """Beyond all twins and not beyond one more: how many problems, or twins, could tell, if they spread as these."""
    ahead = toward(claim) * (claim.estimate[0] - float(np.mean(claim.twins)))
    problems = _more_problems(claim, ahead, _prediction(claim, len(claim.twins)))
    if isfinite(problems):
        return _needs(claim, problems, before)
    words = "but too near to them to tell"
    if _prediction(claim, MOST_TWINS) < ahead:  # which falls as the number of twins grows
        counts = range(len(claim.twins) + 1, MOST_TWINS + 1)
        words = f"needs about {next(count for count in counts if _prediction(claim, count) < ahead)} of them"
    return Decision(Degree.UNKNOWN, f"{before}{words}", twin_numbers(claim))


def needed_problems(change: float, deviation: float, side: int = 1, reach: float = 0.0) -> float:
    """The problems from which on such a change is told apart, where it must also be beyond twins that reach so far; inf
    where no number is enough."""
    if not (isfinite(deviation) and change > reach):
        return inf
    return _fewest(lambda n: _is_told(n, change, deviation, side, reach))


def _is_told(n: int, change: float, deviation: float, side: int, reach: float) -> bool:
    error = deviation / sqrt(n)
    own = float(stdtrit(n - 1, (1 + confidence(side)) / 2)) * error
    return change - float(ndtri(POWER)) * error > hypot(own, reach)


def _fewest(enough: Callable[[int], bool]) -> float:
    low, high = FEWEST - 1, FEWEST
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_PROBLEMS:
            return inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)


def _excess(claim: Claim) -> float:
    """How far the estimate is beyond the nearest of its references."""
    side, value = toward(claim), claim.estimate[0]
    controls = [side * paired[0] for paired in claim.controls.values()]
    return min(side * (value - claim.none), side * (value - float(np.mean(claim.twins))), *controls, inf)


def twin_numbers(claim: Claim) -> dict[str, float]:
    """What the twins show: their mean and range, and how far one more of them might lie."""
    if not claim.twins:
        return {}
    found = {"twins": len(claim.twins), "twin_mean": float(np.mean(claim.twins))}
    found |= {"twin_low": min(claim.twins), "twin_high": max(claim.twins)}
    return found | ({"twin_reach": _prediction(claim, len(claim.twins))} if len(claim.twins) > 1 else {})
