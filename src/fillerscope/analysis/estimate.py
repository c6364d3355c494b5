"""A number with its interval, and the ways to write it. Knows neither runs nor conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.stats import ratio_interval, sample_interval

Floats = NDArray[np.float64]
MISSING = "-"  # stands where there is no number


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; NaN where there is none. `n` is the number of problems, where it is known."""

    value: float = nan
    low: float = nan
    high: float = nan
    n: int | None = None

    @classmethod
    def of(cls, samples: Floats, level: float = 0.95) -> Estimate:
        """The mean of one number for each problem; NaN samples are left out."""
        return cls.from_bounds(sample_interval(samples, level), int(np.isfinite(samples).sum()))

    @classmethod
    def ratio_of(cls, after: Floats, before: Floats) -> Estimate:
        """The geometric mean over problems of after / before."""
        with np.errstate(divide="ignore", invalid="ignore"):
            n = int(np.isfinite(np.log(after) - np.log(before)).sum())
        return cls.from_bounds(ratio_interval(after, before), n)

    @classmethod
    def from_bounds(cls, bounds: Iterable[float | Floats], n: int | None = None) -> Estimate:
        """From value, low and high."""
        value, low, high = (float(bound) for bound in bounds)
        return cls(value, low, high, n)

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.value, self.low, self.high

    @property
    def is_known(self) -> bool:
        return isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        return all(map(isfinite, self.bounds))

    def side(self, none: float) -> int:
        """1 where the whole interval lies above `none`, -1 where it lies below, 0 elsewhere."""
        return int(self.low > none) - int(self.high < none)

    def is_within(self, none: float, size: float) -> bool:
        """Whether the whole interval is nearer to `none` than `size`."""
        return all(abs(bound - none) < size for bound in self.bounds)

    def exp(self) -> Estimate:
        """The ratio whose logarithm this is."""
        return Estimate.from_bounds(np.exp(self.bounds), self.n)

    def plain(self, form: str = "z.3f", scale: float = 1.0) -> str:
        """`0.783 [0.775, 0.791]`; the value alone without an interval, `-` without a value."""
        if isnan(self.value):
            return MISSING
        value, low, high = (format(scale * bound, form) for bound in self.bounds)
        return f"{value} [{low}, {high}]" if self.has_interval else value

    @property
    def ratio(self) -> str:
        """With three decimals: `0.783 [0.775, 0.791]`."""
        return self.plain("z.3f")

    def points(self, digits: int = 1) -> str:
        """A difference of shares in percentage points: `+1.4 [-0.9, +3.7]`."""
        return self.plain(f"+z.{digits}f", 100.0)

    def percent(self, digits: int = 1) -> str:
        """A share in per cent: `50.2 [45.8, 54.6]`."""
        return self.plain(f"z.{digits}f", 100.0)

    def numbers(self, name: str) -> dict[str, float]:
        """Flat, for tables and programs: `name`, `name_low` and `name_high`."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


class Estimates(NamedTuple):
    """Arrays of values and of the ends of their intervals, all of the same shape."""

    value: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, samples: Floats) -> Estimates:
        """Means over the first axis; NaN samples are left out."""
        return cls(*sample_interval(samples))

    @classmethod
    def ratios(cls, after: Floats, before: Floats) -> Estimates:
        """Geometric means over the first axis of after / before."""
        return cls(*ratio_interval(after, before))

    @classmethod
    def missing(cls, *shape: int) -> Estimates:
        return cls(*(np.full(shape, np.nan) for _ in range(3)))

    def at(self, *index: int, n: int | None = None) -> Estimate:
        """The one at an index counted from 0."""
        return Estimate.from_bounds((bound[index] for bound in self), n)

    def columns(self, name: str) -> dict[str, Floats]:
        """Flat, for tables: `name`, `name_low` and `name_high`."""
        return {name: self.value.ravel(), f"{name}_low": self.low.ravel(), f"{name}_high": self.high.ravel()}
