"""How far one more untrained twin may lie, and how many problems or twins would decide a claim.

docs/verdicts.md shows by simulation how often the rule errs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, inf, isfinite, sqrt

from scipy.special import ndtri, stdtrit

from fillerscope.analysis.findings.claim import FEWEST, LEVEL, Claim, Evidence, Twins

POWER = 0.9  # aimed at where a number of problems is named: 80% is left once the spread is estimated from few
MOST_TWINS, MOST_PROBLEMS = 100, 10**9  # searches for more end here
# Standard deviations beyond which, for every distribution with one peak, no more than LEVEL lies (Vysochanskij and
# Petunin): few twins cannot show how skewed they are.
FAR = sqrt(4 / (9 * LEVEL) - 1)


def twin_reach(claim: Claim, twins: Twins, count: int | None = None) -> float:
    """How far from their mean one more twin may lie, if there were `count` of them."""
    n, tail = count or len(twins.values), (1 - claim.confidence) / 2
    return max(float(stdtrit(n - 1, 1 - tail)), FAR) * sqrt(1 + 1 / n) * twins.deviation


def beyond_twins(evidence: Evidence) -> float:
    """By how much at least the estimate is beyond one more twin.

    The reach of the estimate over problems and that of Student's prediction interval over twins are combined as the
    legs of a right angle (Zou and Donner), which keeps the level where one of them is skewed."""
    side, (value, low, high) = evidence.direction, evidence.estimate.bounds
    own = value - low if side > 0 else high - value
    return side * (value - evidence.twins.mean) - hypot(own, twin_reach(evidence.claim, evidence.twins))


def needed_twins(evidence: Evidence, ahead: float) -> int | None:
    """How many twins would show that the model is `ahead` of them; None where no number is enough."""
    counts = range(len(evidence.twins.values) + 1, MOST_TWINS + 1)  # the reach falls as their number grows
    return next((n for n in counts if twin_reach(evidence.claim, evidence.twins, n) < ahead), None)


def needed_problems(claim: Claim, change: float, deviation: float, reach: float = 0.0) -> float:
    """The number of problems that shows such a change, which must also be beyond twins that reach so far; inf where no
    number is enough."""
    if not (isfinite(deviation) and change > reach):
        return inf
    return _fewest(lambda n: _is_shown(n, claim, change, deviation, reach))


def _is_shown(n: int, claim: Claim, change: float, deviation: float, reach: float) -> bool:
    error = deviation / sqrt(n)
    own = float(stdtrit(n - 1, (1 + claim.confidence) / 2)) * error
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
