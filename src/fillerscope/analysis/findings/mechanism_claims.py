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
from fillerscope.analysis.findings.verdict import FEWEST, Claim, Decision, Degree, Twins, decide, weakest
from fillerscope.analysis.mechanism import AffineTable, consistency, layer_samples, mean_over
from fillerscope.analysis.run import Run
from fillerscope.study.interventions import Shift

Floats = NDArray[np.float64]
NEAR = 0.05  # a lambda, a direction or an explained share that differs by less differs by little
HALF = 0.5  # directions and explained shares above this are called strong
SMALL = 0.005  # the same for a share of activations: half a percentage point
SMALL_RATIO = 0.05  # and for a ratio of variances


@dataclass(frozen=True)
class Measured:
    """What a run has of one condition and model: samples of any measure, and what they are held against."""

    run: Run
    condition: str
    model: str | None

    def samples(self, measure: str) -> Floats:
        """[problem, layer]."""
        return layer_samples(self.run, measure, self.condition, self.model)

    def controls(self, measure: str, layer: int) -> dict[str, Floats]:
        """Filler less control, problem by problem; without controls under which there is nothing to measure."""
        own = self.samples(measure)[:, layer]
        found = {
            name: own - layer_samples(self.run, measure, name, self.model)[:, layer]
            for name in controls_of(self.run, self.condition)
        }
        return {name: paired for name, paired in found.items() if np.isfinite(paired).any()}

    def twins(self, measure: str, layers: int | Sequence[int]) -> Twins:
        names = self.run.twins(self.model)
        means = [mean_over(layer_samples(self.run, measure, self.condition, name), axis=0) for name in names]
        return Twins.of(np.array(means), layers) if means else Twins()

    def claim(
        self, measure: str, layer: int, none: float, side: int, small: float, words: str = ""
    ) -> tuple[Decision, Twins]:
        """On one layer, against all controls that were measured."""
        twins, controls = self.twins(measure, layer), self.controls(measure, layer)
        samples = self.samples(measure)[:, layer]
        return decide(Claim.of(samples, none, side, small, twins=twins, controls=controls, words=words)), twins


def scaling(measured: Measured, layer: int) -> tuple[Decision, Twins]:
    """Lambda is below 1 in the first layer."""
    return measured.claim("lambda_fit", layer, 1.0, -1, NEAR)


def direction(measured: Measured, table: AffineTable) -> tuple[Decision, Twins]:
    """The shift has one direction in the first layer: for the tokens of a problem, and over problems."""
    layer = table.attending[0]
    within, twins = measured.claim("direction", layer, HALF, 1, NEAR)
    across = float(table.consistency[layer])
    if table.problems < FEWEST or not np.isfinite(across):
        return within, twins
    if across < HALF:
        return Decision(Degree.FAILS, "it differs between problems"), twins
    shared = {name: consistency(measured.run, name, measured.model)[layer] for name in moved_like(measured)}
    missed = [Decision(Degree.FAILS, f"no more than under {name}") for name, value in shared.items() if across <= value]
    return weakest(within, *missed), twins


def moved_like(measured: Measured) -> list[str]:
    """Conditions that move positions as the filler does, and nothing else."""
    names = controls_of(measured.run, measured.condition)
    return [name for name in names if isinstance(measured.run.condition(name).intervention, Shift)]


def near_zero(measured: Measured) -> tuple[Decision, Twins]:
    """Fewer activations of layer 1 are near zero."""
    return measured.claim("near_zero", 0, 0.0, -1, SMALL, f"{100 * SMALL:g} points")


def variance(measured: Measured) -> tuple[Decision, Twins]:
    """The variance of layer 1's activations rises."""
    return measured.claim("log_variance", 0, 0.0, 1, log(1 + SMALL_RATIO), f"{SMALL_RATIO:.0%}")


def later(measured: Measured, deep: Sequence[int]) -> tuple[Decision, Twins]:
    """Lambda is near 1 in the layers after the first, and nearer than in untrained models."""
    return _deep(measured, "lambda_fit", deep, 1.0, 1, within=True)


def deeper(measured: Measured, deep: Sequence[int]) -> tuple[Decision, Twins]:
    """No affine relation in the layers after the first: less than half explained, and less than in untrained models."""
    return _deep(measured, "explained", deep, HALF, -1)


def _deep(
    measured: Measured, measure: str, deep: Sequence[int], none: float, side: int, within: bool = False
) -> tuple[Decision, Twins]:
    if not deep:
        return Decision(Degree.UNKNOWN, "there is no deeper layer"), Twins()
    twins = measured.twins(measure, deep)
    samples = mean_over(measured.samples(measure)[:, deep])
    return decide(Claim.of(samples, none, side, NEAR, twins=twins, within=within)), twins
