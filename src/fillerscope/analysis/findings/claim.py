"""A claim about filler, and the evidence on it: estimates over problems, of controls and of untrained twins.

Knows numbers only, no run. docs/method.md states the claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, expm1, log2, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimate

Floats = NDArray[np.float64]

# The claims that are decided of one model, by the names of their findings: at most 5% of models like their twins may
# get any `holds`, so that each claim has an equal part of it.
CLAIMS = ("first_layer", "collapse", "scaling", "direction", "near_zero", "variance", "later", "deeper")
ALPHA = 0.05
LEVEL = ALPHA / len(CLAIMS)  # chance of a wrong `holds` of one claim
FEWEST = ceil(log2(1 / LEVEL))  # problems: fewer lie all on one side by chance more often than LEVEL


@dataclass(frozen=True)
class Claim:
    """That a mean over problems lies to one side of `none` (-1 below, +1 above, 0 either), on a scale of differences:
    ratios come as logarithms. `within` turns the claim round: that the mean lies within `small` of `none`, and nearer
    than in untrained twins."""

    none: float
    side: int
    small: float  # a change below this is little
    within: bool = False
    needs: int = FEWEST  # problems
    small_text: str = ""  # `small` as people write it, where that is not the plain number

    @property
    def size(self) -> str:
        return self.small_text or f"{self.small:g}"

    def words(self, difference: float) -> str:
        """A difference on the claim's scale as people write it: that of logarithms is a ratio."""
        if self.small_text.endswith("points"):
            return f"{100 * difference:.2g} percentage points"
        return f"{expm1(difference):.0%}" if self.small_text.endswith("%") else f"{difference:.2g}"

    @property
    def confidence(self) -> float:
        """Of an interval one of whose ends, or both for claims that go either way, may err with chance `LEVEL`."""
        return 1 - (2 if self.side else 1) * LEVEL


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

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """Their standard deviation, at least `spread`."""
        return max(float(np.std(self.values, ddof=1)), self.spread)


def _pooled(table: Floats) -> float:
    """The standard deviation over twins, from all layers that have numbers."""
    variances = table[:, np.isfinite(table).all(axis=0)].var(axis=0, ddof=1)
    return sqrt(float(variances.mean()))


@dataclass(frozen=True)
class Evidence:
    """What was measured of a claim. Intervals are at `claim.confidence`, as `Evidence.of` makes them from samples.

    `controls` are the paired differences of filler and control, by the control's name."""

    claim: Claim
    estimate: Estimate
    deviation: float = nan  # over problems
    twins: Twins = field(default_factory=Twins)
    controls: Mapping[str, Estimate] = field(default_factory=dict)

    @classmethod
    def of(
        cls, claim: Claim, samples: Floats, twins: Twins | None = None, controls: Mapping[str, Floats] | None = None
    ) -> Evidence:
        """From a number for each problem, NaN where it is missing."""
        kept = samples[np.isfinite(samples)]
        deviation = float(kept.std(ddof=1)) if len(kept) > 1 else nan
        paired = {name: Estimate.of(values, claim.confidence) for name, values in (controls or {}).items()}
        return cls(claim, Estimate.of(samples, claim.confidence), deviation, twins or Twins(), paired)

    @property
    def n(self) -> int:
        return self.estimate.n or 0

    @property
    def change(self) -> Estimate:
        """The estimate less `none`."""
        return Estimate.from_bounds((bound - self.claim.none for bound in self.estimate.bounds), self.n)

    @property
    def direction(self) -> int:
        """The side on which the claim lies: where it goes either way that of the estimate, and for a claim of no
        change the one that leads from the twins to `none`."""
        if self.claim.within:
            return 1 if self.twins.mean < self.claim.none else -1
        return self.claim.side or (1 if self.estimate.value > self.claim.none else -1)
