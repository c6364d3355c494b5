"""Findings on controls, and on the attention that the answer gives to the filler.

A control changes one thing: filler that no token sees, positions without filler, activations without filler. Whether it
does what the filler does is decided by the difference of the two on the same problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.claim import FEWEST
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.mechanism_claims import NEAR, SMALL, SMALL_RATIO, SMALL_RATIO_TEXT, SMALL_TEXT
from fillerscope.analysis.mechanism import ActivationTable, AffineTable, activation_table, affine_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.study.interventions import Redistribution

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tables:
    """What was measured of one condition."""

    affine: AffineTable | None
    activity: ActivationTable | None

    @property
    def first(self) -> int:
        """The first layer with attention, counted from 1."""
        return 1 + (self.affine.attending[0] if self.affine else 0)

    @classmethod
    def of(cls, run: ModelRun, condition: str) -> Tables:
        probes = run.study.probes
        affine = affine_table(run, condition) if probes.affine else None
        return cls(affine, activation_table(run, condition) if probes.activations else None)


@dataclass(frozen=True)
class Change:
    """What a condition does in one layer against none: an estimate of each measure, and a number for each problem."""

    layer: int  # counted from 1
    estimates: dict[str, Estimate]
    samples: dict[str, Floats]  # of ratios, the logarithms
    n: int

    @classmethod
    def of(cls, tables: Tables, layer: int, attends: bool) -> Change:
        """`attends`: whether the control can reach the attention of this layer."""
        estimates, samples, n = {}, {}, 0
        if tables.affine and attends:
            n = tables.affine.problems
            estimates["lambda"] = tables.affine.values["lambda_fit"].at(layer - 1, n=n)
            samples["lambda"] = tables.affine.samples["lambda_fit"][:, layer - 1]
        if tables.activity:
            n = int(tables.activity.n[layer - 1])
            estimates["near_zero"] = tables.activity.difference["near_zero"].at(layer - 1, n=n)
            estimates["variance"] = tables.activity.ratio["variance"].at(layer - 1, n=n)
            samples["near_zero"] = tables.activity.samples["near_zero"][:, layer - 1]
            samples["variance"] = tables.activity.samples["log_variance"][:, layer - 1]
        return cls(layer, estimates, samples, n)

    @property
    def text(self) -> str:
        parts = (MEASURES[name].change.format(MEASURES[name].written(one)) for name, one in self.estimates.items())
        return ", ".join(parts)


@dataclass(frozen=True)
class Measure:
    """How one measure is written, and which difference of it is small."""

    name: str
    change: str  # with a place for the numbers
    none: float
    small: float  # on the scale of the samples
    size: str
    written: Callable[[Estimate], str]
    difference: Callable[[Estimate], str]  # between two conditions, on the scale of the samples


MEASURES = {
    "lambda": Measure(
        "The scaling", "lambda {}", 1.0, NEAR, f"{NEAR:g}", lambda one: one.ratio,
        lambda one: f"lambda differs by {one.ratio}",
    ),
    "near_zero": Measure(
        "The change near zero", "near-zero share {} percentage points", 0.0, SMALL, SMALL_TEXT,
        lambda one: one.points(2), lambda one: f"the share differs by {one.points(2)} percentage points",
    ),
    "variance": Measure(
        "The change of variance", "variance {} times that under none", 1.0, log(1 + SMALL_RATIO), SMALL_RATIO_TEXT,
        lambda one: one.ratio, lambda one: f"the variance is {one.exp().ratio} times that of the filler",
    ),
}  # fmt: skip


def control_findings(run: ModelRun, condition: str | None = None) -> list[Finding]:
    """Every condition with an intervention beside the main filler; the cells of sweeps are left to figures. Then the
    attention that the answer gives to the filler."""
    if not run.fillers:
        return []
    main, findings = condition or run.main, []
    if run.study.probes.affine or run.study.probes.activations:
        names = [name for name in run.fillers if name != main and run.condition(name).intervention]
        filler = Tables.of(run, main)
        findings += [_control(run, name, main, filler) for name in names if _is_shown(run, name)]
    if run.study.probes.answering and run.condition(main).has_filler:
        findings.append(_lookback(run, main))
    return findings


def _is_shown(run: StoredRun, name: str) -> bool:
    """Not the cells of sweeps, nor a change of activations where these were not measured."""
    one = run.condition(name)
    return not one.sweep and not (isinstance(one.intervention, Redistribution) and not run.study.probes.activations)


def _control(run: ModelRun, name: str, main: str, filler: Tables) -> Finding:
    own = run.condition(name).intervention
    layers = getattr(own, "layers", ())  # where it does something; all layers, or positions, where none are given
    layer = min(layers) if layers else filler.first
    attends = not isinstance(own, Redistribution)  # which comes after the layer's attention
    change, usual = (Change.of(tables, layer, attends) for tables in (Tables.of(run, name), filler))
    differences = {key: Estimate.of(change.samples[key] - usual.samples[key]) for key in change.estimates}
    compared = [_compared(key, change, usual, main, difference) for key, difference in differences.items()]
    label = run.condition(name).label
    text = (
        f"Control {name}{f' ({label})' if label else ''}, layer {layer}. {' '.join(compared)} Under {name}: "
        f"{change.text}; under {main}: {usual.text} (n = {change.n})."
    )
    return Finding(
        f"control_{name}", text, "activations" if "near_zero" in change.estimates else "affine", condition=name,
        facts={"layer": layer},
        estimates=change.estimates | dict(_reported(key, one) for key, one in differences.items()),
    )  # fmt: skip


def _reported(key: str, difference: Estimate) -> tuple[str, Estimate]:
    """A difference of logarithms is reported as a ratio to the filler."""
    return (f"{key}_ratio", difference.exp()) if key == "variance" else (f"{key}_difference", difference)


def _compared(key: str, change: Change, usual: Change, main: str, difference: Estimate) -> str:
    """Whether a control does what the filler does, by the difference of the two over problems."""
    measure, control, filler = MEASURES[key], change.estimates[key], usual.estimates[key]
    if not all(one.has_interval for one in (control, filler, difference)) or change.n < FEWEST:
        return f"{measure.name} cannot be compared: that needs {FEWEST} problems."
    return f"{measure.name} {_likeness(measure, control, filler, difference, main)}: {measure.difference(difference)}."


def _likeness(measure: Measure, control: Estimate, filler: Estimate, difference: Estimate, main: str) -> str:
    """`difference` is control less filler."""
    if difference.is_within(0.0, measure.small):
        return f"is that of {main} within {measure.size}"
    if not difference.side(0.0):
        return f"is not significantly different from that of {main}"
    if control.is_within(measure.none, measure.small) and not filler.is_within(measure.none, measure.small):
        return f"of {main} does not appear"
    side = filler.side(measure.none)
    if side == 0:
        return f"is not significant under {main}, and another here"
    if difference.value * side > 0:
        return f"goes farther than that of {main}"
    other = control.side(measure.none)
    return f"of {main} is {'turned round' if other == -side else 'smaller' if other else 'missing'} here"


def _lookback(run: ModelRun, condition: str) -> Finding:
    table = lookback_table(run, condition)
    if not table.problems:
        text = f"Looking back, {condition}: no problem has an answer under every condition, so nothing is known of it."
        return Finding("lookback", text, "lookback", condition=condition)
    answer, question, gap = (table.overall(name) for name in ("answer", "question", "difference"))
    factor, by_layer = table.overall_factor(), table.values["answer"].value
    most = int(np.nanargmax(by_layer)) if answer.is_known else 0
    text = (
        f"Looking back, {condition}: a filler token receives {factor.ratio} times what an original token receives from "
        f"the answer's tokens (n = {table.problems}). These give the filler {answer.ratio} of their attention over all "
        f"layers, and most in layer {most + 1} ({by_layer[most]:.3f}). The question's tokens give it {question.ratio}, "
        f"difference {gap.ratio}."
    )
    return Finding(
        "lookback", text, "lookback", condition=condition,
        estimates={"answer": answer, "question": question, "difference": gap, "factor": factor},
        facts={"most_in_layer": most + 1},
    )  # fmt: skip
