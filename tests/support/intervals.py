"""The interval of a mean as it is defined, for one list of samples, with the equation solved by search."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq


def interval_of_mean(samples: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The farther ends of Student's interval and of Hall's, whose skewness is that of scipy, times 1 + 5 / n; at most
    2.5 times as far from the mean as Student's."""
    values = np.asarray(samples, dtype=np.float64)
    n, error = len(values), float(stats.sem(values))
    t = float(stats.t.ppf(0.5 + level / 2, n - 1))
    skew = (1 + 5 / n) * float(stats.skew(values, bias=False)) / (3 * np.sqrt(n)) if n > 2 and error > 0 else 0.0

    def past(x: float, goal: float) -> float:
        return float(x + skew * x**2 + skew**2 * x**3 / 3 + skew / 2 - goal)

    low, high = (float(brentq(past, -1e4, 1e4, args=(goal,), xtol=1e-13, rtol=1e-14)) for goal in (t, -t))
    down, up = (min(max(t, reach), 2.5 * t) for reach in (low, -high))
    return float(values.mean()) - down * error, float(values.mean()) + up * error
