"""The published claims about the mechanism, decided: each from its measure, its controls and its untrained twins.

The sizes below which a change counts as little are in docs/method.md. Writes no sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings.attention_claims import controls_of
from fillerscope.analysis.findings.claim import FEWEST, Claim, Evidence, Twins
from fillerscope.analysis.findings.decision import Decision, decide, weakest
from fillerscope.analysis.findings.finding import Verdict
from fillerscope.analysis.mechanism import AffineTable, consistency, layer_samples, mean_over
from fillerscope.analysis.model_run import ModelRun
from fillerscope.study.interventions import Shift

Floats = NDArray[np.float64]
NEAR = 0.05  # a lambda, a direction or an explained share that differs by less differs by little
HALF = 0.5  # directions and explained shares above this are called strong
SMALL = 0.005  # the same for a share of activations: half a percentage point
SMALL_RATIO = 0.05  # and for a ratio of variances
SMALL_TEXT, SMALL_RATIO_TEXT = f"{100 * SMALL:g} percentage points", f"{SMALL_RATIO:.0%}"

SCALING = Claim(none=1.0, side=-1, small=NEAR)
LATER = Claim(none=1.0, side=1, small=NEAR, within=True)
DEEPER = Claim(none=HALF, side=-1, small=NEAR)
DIRECTION = Claim(none=HALF, side=1, small=NEAR)
NEAR_ZERO = Claim(none=0.0, side=-1, small=SMALL, small_text=SMALL_TEXT)
VARIANCE = Claim(none=0.0, side=1, small=log(1 + SMALL_RATIO), small_text=SMALL_RATIO_TEXT)


@dataclass(frozen=True)
class Measured:
    """What a run has of one condition and model: samples of any measure, and what they are compared with."""

    run: ModelRun
    condition: str

    def samples(self, measure: str) -> Floats:
        """[problem, layer]."""
        return layer_samples(self.run, measure, self.condition)

    def controls(self, measure: str, layer: int) -> dict[str, Floats]:
        """Filler less control, problem by problem; without controls under which there is nothing to measure."""
        own = self.samples(measure)[:, layer]
        paired = {
            name: own - layer_samples(self.run, measure, name)[:, layer]
            for name in controls_of(self.run, self.condition)
        }
        return {name: values for name, values in paired.items() if np.isfinite(values).any()}

    def twins(self, measure: str, layers: int | Sequence[int]) -> Twins:
        means = self.twin_means(measure)
        return Twins.of(means, layers) if means.size else Twins()

    def twin_means(self, measure: str) -> Floats:
        """[twin, layer]: the mean of a measure over problems."""
        return np.array([mean_over(layer_samples(one, measure, self.condition), axis=0) for one in self.run.twins()])

    def decide(self, claim: Claim, measure: str, layer: int) -> tuple[Decision, Twins]:
        """On one layer, against all controls that were measured."""
        twins, controls = self.twins(measure, layer), self.controls(measure, layer)
        return decide(Evidence.of(claim, self.samples(measure)[:, layer], twins, controls)), twins

    def decide_deep(self, claim: Claim, measure: str, deep: Sequence[int]) -> tuple[Decision, Twins]:
        """On the mean over several layers, against untrained twins alone."""
        if not deep:
            return Decision(Verdict.UNKNOWN, "there is no deeper layer"), Twins()
        twins = self.twins(measure, deep)
        return decide(Evidence.of(claim, mean_over(self.samples(measure)[:, deep]), twins)), twins


def decide_scaling(measured: Measured, layer: int) -> tuple[Decision, Twins]:
    """Whether lambda is below 1 in the first layer."""
    return measured.decide(SCALING, "lambda_fit", layer)


def decide_direction(measured: Measured, table: AffineTable) -> tuple[Decision, Twins]:
    """Whether the shift has one direction in the first layer: for the tokens of a problem, and over problems."""
    layer = table.attending[0]
    within, twins = measured.decide(DIRECTION, "direction", layer)
    across = float(table.consistency[layer])
    if table.problems < FEWEST or not np.isfinite(across):
        return within, twins
    if across < HALF:
        return Decision(Verdict.FAILS, "it differs between problems"), twins
    shared = {name: consistency(measured.run, name)[layer] for name in moved_like(measured)}
    missed = [
        Decision(Verdict.FAILS, f"no more than under {name}") for name, value in shared.items() if across <= value
    ]
    return weakest(within, *missed), twins


def moved_like(measured: Measured) -> list[str]:
    """Conditions that move positions as the filler does, and nothing else."""
    names = controls_of(measured.run, measured.condition)
    return [name for name in names if isinstance(measured.run.condition(name).intervention, Shift)]


def decide_near_zero(measured: Measured) -> tuple[Decision, Twins]:
    """Whether fewer activations of layer 1 are near zero."""
    return measured.decide(NEAR_ZERO, "near_zero", 0)


def decide_variance(measured: Measured) -> tuple[Decision, Twins]:
    """Whether the variance of layer 1's activations rises."""
    return measured.decide(VARIANCE, "log_variance", 0)


def decide_later(measured: Measured, deep: Sequence[int]) -> tuple[Decision, Twins]:
    """Whether lambda is near 1 in the layers after the first, and nearer than in untrained models."""
    return measured.decide_deep(LATER, "lambda_fit", deep)


def decide_deeper(measured: Measured, deep: Sequence[int]) -> tuple[Decision, Twins]:
    """Whether layers after the first have no affine relation: less than half explained, and less than in untrained
    models."""
    return measured.decide_deep(DEEPER, "explained", deep)
