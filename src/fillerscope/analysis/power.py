"""What a comparison could have seen: power, the smallest difference detected, the number of problems needed.

Numbers in, numbers out. Knows the tests of `stats` by their distribution alone, and no data.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from math import inf, isnan, nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln, ncfdtr, ndtr, ndtri, stdtrit, xlog1py, xlogy

Floats = NDArray[np.float64]

# Expected discordant pairs from which on power is approximated: within 0.001 at a level of 0.05, within 0.01
# where all pairs are discordant.
MANY_PAIRS = 2000
MANY_PROBLEMS = 10**12  # a search for more ends here
PRECISION = 1e-5  # of a detectable difference, relative
TAIL = 9  # standard deviations of a binomial count beyond which nothing is left to sum


def mcnemar_power(n: int, discordance: float, difference: float, alpha: float = 0.05) -> float:
    """Chance that the exact McNemar test rejects, for n pairs of which a share `discordance` differs.

    The share is raised to the difference where it is smaller. Exact, over the binomial number of discordant
    pairs, up to 2,000 expected ones; beyond, a normal approximation with correction for continuity.
    """
    if isnan(discordance + difference):
        return nan
    share = max(discordance, abs(difference))
    if n * share > MANY_PAIRS:
        return _approximate_power(n, share, difference, alpha)
    middle, reach = n * share, TAIL * (sqrt(n * share) + 1)
    pairs = np.arange(max(0, int(middle - reach)), min(n, int(middle + reach)) + 1)
    # The binomial probabilities, by hand: scipy.stats takes half a second to load.
    ways = gammaln(n + 1) - gammaln(pairs + 1) - gammaln(n - pairs + 1)
    chance = np.exp(ways + xlogy(pairs, share) + xlog1py(n - pairs, -share))
    limit, up = _most_rejected(alpha)[pairs], 0.5 + difference / (2 * share) if share > 0 else 0.5
    return float(chance @ (_at_most(limit, pairs, up) + _at_most(limit, pairs, 1 - up)))


def _at_most(k: NDArray[np.int64], n: NDArray[np.int64], share: float) -> Floats:
    """The binomial distribution function, for k from -1 to below n."""
    return np.where(k < 0, 0.0, betainc(np.maximum(n - k, 1), np.maximum(k + 1, 1), 1 - share))


@lru_cache(maxsize=8)
def _most_rejected(alpha: float) -> NDArray[np.int64]:
    """By number of discordant pairs, the most on the rarer side that the exact test rejects; -1 for none."""
    pairs = np.arange(int(MANY_PAIRS + TAIL * (sqrt(MANY_PAIRS) + 1)) + 1)
    guess = np.floor(pairs / 2 + ndtri(alpha / 2) * np.sqrt(pairs) / 2)
    limit: NDArray[np.int64] = np.maximum(guess, -1).astype(np.int64)
    while (beyond := 2 * _at_most(limit, pairs, 0.5) > alpha).any():
        limit = limit - beyond
    while (within := 2 * _at_most(limit + 1, pairs, 0.5) <= alpha).any():
        limit = limit + within
    return limit


def _approximate_power(n: int, share: float, difference: float, alpha: float) -> float:
    limit = 1 - ndtri(alpha / 2) * sqrt(n * share)
    spread = sqrt(n * (share - difference**2)) or 1e-9  # no spread where every pair is gained
    return float(ndtr((n * difference - limit) / spread) + ndtr((-n * difference - limit) / spread))


def detectable_difference(n: int, discordance: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true difference for which `mcnemar_power` is `power`; NaN where it is not even for 1."""
    return _crossing(lambda difference: mcnemar_power(n, discordance, difference, alpha), power, n, 1.0)


def needed_n(difference: float, discordance: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The number of pairs for which `mcnemar_power` reaches `power`; inf for no difference.

    One pair fewer does not reach it. Where nearly all pairs are discordant the exact power dips now and then
    as n grows, so that some smaller or larger numbers may tell otherwise.
    """
    return _fewest(lambda n: mcnemar_power(n, discordance, difference, alpha), power, difference + 0 * discordance)


def mean_power(n: int, deviation: float, difference: float, alpha: float = 0.05) -> float:
    """Chance that a t test of n paired differences rejects, given their standard deviation; 0 below two.

    From the noncentral t distribution, squared, which holds both tails. The sign-flip test has nearly the same.
    """
    if n < 2 or difference == 0 == deviation:
        return 0.0
    limit = stdtrit(n - 1, 1 - alpha / 2)
    effect = difference / deviation if deviation else inf
    return float(1 - ncfdtr(1, n - 1, n * effect**2, limit**2)) if n * effect**2 < 1e4 * limit**2 else 1.0


def detectable_mean(n: int, deviation: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true mean difference for which `mean_power` is `power`; NaN below two problems."""
    return deviation * _crossing(lambda effect: mean_power(n, 1.0, effect, alpha), power, n, inf)


def needed_n_mean(difference: float, deviation: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest number of problems for which `mean_power` reaches `power`; inf for no difference."""
    return _fewest(lambda n: mean_power(n, deviation, difference, alpha), power, difference + 0 * deviation)


def _crossing(rising: Callable[[float], float], goal: float, n: int, highest: float) -> float:
    """The difference at which a rising function reaches its goal, sought from 1 / sqrt(n) on; NaN for none."""
    if n < 2 or isnan(rising(0.0)):
        return nan
    low, high = 0.0, min(1 / sqrt(n), highest)
    while rising(high) < goal:
        if high >= highest:
            return nan
        low, high = high, min(2 * high, highest)
    # By hand: scipy's root finders end on either side of the root, and what is returned must have the power.
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= goal else (middle, high)
    return high


def _fewest(rising: Callable[[int], float], goal: float, difference: float) -> float:
    """The n at which a rising function reaches its goal; inf beyond the number searched."""
    if isnan(difference) or difference == 0:
        return nan if isnan(difference) else inf
    low, high = 0, 1
    while rising(high) < goal:
        low, high = high, 2 * high
        if high > MANY_PROBLEMS:
            return inf
    return float(low + 1 + bisect_left(range(low + 1, high), goal, key=rising))
