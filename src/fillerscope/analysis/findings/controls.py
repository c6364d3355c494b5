"""What the controls say of the mechanism, and whether the answer looks back at the filler.

A control changes one thing: filler that nobody sees, positions without filler, activations without filler. Whether it
does what the filler does is told from the difference of the two on the same problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.findings.attention import Finding, with_interval
from fillerscope.analysis.findings.mechanism import at, interval, signed, three
from fillerscope.analysis.findings.mechanism_claims import NEAR, SMALL, SMALL_RATIO
from fillerscope.analysis.findings.verdict import FEWEST
from fillerscope.analysis.mechanism import ActivationTable, AffineTable, activation_table, affine_table, mean_over
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import ratio_interval
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
    def of(cls, run: Run, condition: str, model: str | None) -> Tables:
        probes = run.study.probes
        affine = affine_table(run, condition, model) if probes.affine else None
        return cls(affine, activation_table(run, condition, model=model) if probes.activations else None)


@dataclass(frozen=True)
class Change:
    """What a condition does in one layer against none: value, low and high, and a number for each problem."""

    layer: int  # counted from 1
    measures: dict[str, list[float]]
    samples: dict[str, Floats]  # of ratios, the logarithms
    n: int

    @classmethod
    def of(cls, tables: Tables, layer: int, attends: bool) -> Change:
        """`attends`: whether the control can reach the attention of this layer."""
        measures, samples, n = {}, {}, 0
        if tables.affine and attends:
            measures["lambda"], n = at(tables.affine.values["lambda_fit"], layer - 1), tables.affine.problems
            samples["lambda"] = tables.affine.samples["lambda_fit"][:, layer - 1]
        if tables.activity:
            measures["near_zero"] = at(tables.activity.difference["near_zero"], layer - 1)
            measures["variance"] = at(tables.activity.ratio["variance"], layer - 1)
            samples["near_zero"] = tables.activity.samples["near_zero"][:, layer - 1]
            samples["variance"] = tables.activity.samples["log_variance"][:, layer - 1]
            n = int(tables.activity.n[layer - 1])
        return cls(layer, measures, samples, n)

    def told(self) -> str:
        return ", ".join(KINDS[name].change.format(KINDS[name].shown(found)) for name, found in self.measures.items())


@dataclass(frozen=True)
class Kind:
    """How one measure is spoken of, and which difference of it is small."""

    what: str
    change: str  # with a place for the numbers
    none: float
    small: float  # on the scale of the samples
    size: str
    shown: Callable[[list[float]], str]
    difference: Callable[[list[float]], str]  # between two conditions, on the scale of the samples


KINDS = {
    "lambda": Kind(
        "The scaling", "lambda {}", 1.0, NEAR, f"{NEAR:g}", lambda found: with_interval(*found),
        lambda found: f"lambda differs by {with_interval(*found)}",
    ),
    "near_zero": Kind(
        "The change near zero", "near-zero share {} points", 0.0, SMALL, f"{100 * SMALL:g} points", signed,
        lambda found: f"the share differs by {signed(found)} points",
    ),
    "variance": Kind(
        "The change of variance", "variance {} times that under none", 1.0, log(1 + SMALL_RATIO), f"{SMALL_RATIO:.0%}",
        lambda found: with_interval(*found),
        lambda found: f"the variance is {with_interval(*np.exp(found))} times that of the filler",
    ),
}  # fmt: skip


def control_findings(run: Run, condition: str | None = None, model: str | None = None) -> list[Finding]:
    """Every condition with something done inside the model beside the main filler; the cells of sweeps are left to
    figures. Then where the answer looks."""
    if not run.fillers:
        return []
    main, found = condition or run.main, []
    if run.study.probes.affine or run.study.probes.activations:
        names = [name for name in run.fillers if name != main and run.condition(name).intervention]
        usual = Tables.of(run, main, model)
        found += [_control(run, name, main, usual, model) for name in names if _is_shown(run, name)]
    if run.study.probes.answering and run.condition(main).has_filler:
        found.append(_lookback(run, main, model))
    return found


def _is_shown(run: Run, name: str) -> bool:
    """Cells of sweeps are left to figures, and a layer's activations are needed where only they are moved."""
    found = run.condition(name)
    return not found.sweep and not (isinstance(found.intervention, Redistribution) and not run.study.probes.activations)


def _control(run: Run, name: str, main: str, filler: Tables, model: str | None) -> Finding:
    own = run.condition(name).intervention
    layers = getattr(own, "layers", ())  # where it does something; all layers, or positions, where none are given
    layer = min(layers) if layers else filler.first
    attends = not isinstance(own, Redistribution)  # which comes after the layer's attention
    change, usual = (Change.of(found, layer, attends) for found in (Tables.of(run, name, model), filler))
    same = [_beside(key, change, usual, main) for key in change.measures]
    label = run.condition(name).label
    text = (
        f"Control, {name}{f' ({label})' if label else ''}, layer {layer}: {change.told()}; under {main}: "
        f"{usual.told()} (n = {change.n}). {' '.join(same)}"
    )
    numbers = {
        f"{key}{part}": value for key, found in change.measures.items() for part, value in three("", found).items()
    }
    return Finding(f"control_{name}", text, numbers, "activations" if "near_zero" in change.measures else "affine")


def _beside(key: str, change: Change, usual: Change, main: str) -> str:
    """Whether a control does what the filler does, from the difference of the two over problems."""
    kind, found, filler = KINDS[key], change.measures[key], usual.measures[key]
    paired = interval(change.samples[key] - usual.samples[key])
    if not np.isfinite([*found, *filler, *paired]).all() or change.n < FEWEST:
        return f"{kind.what} cannot be compared: that needs {FEWEST} problems."
    return f"{kind.what} {_compared(kind, found, filler, paired, main)}: {kind.difference(paired)}."


def _compared(kind: Kind, found: list[float], filler: list[float], paired: list[float], main: str) -> str:
    """Intervals of the control, of the filler, and of control less filler."""
    if max(map(abs, paired)) < kind.small:
        return f"is that of {main} within {kind.size}"
    if paired[1] <= 0 <= paired[2]:
        return f"cannot be told from that of {main}"
    if max(abs(bound - kind.none) for bound in found) < kind.small <= max(abs(bound - kind.none) for bound in filler):
        return f"of {main} is not seen here"
    side = _side(filler, kind.none)
    if side == 0:
        return f"is none beyond noise under {main}, and another here"
    if paired[0] * side > 0:
        return f"goes farther than that of {main}"
    other = _side(found, kind.none)
    return f"of {main} is {'turned round' if other == -side else 'smaller' if other else 'not seen'} here"


def _side(found: list[float], none: float) -> int:
    """On which side of no change the whole interval lies; 0 where it holds it."""
    return int(found[1] > none) - int(found[2] < none)


def _lookback(run: Run, condition: str, model: str | None) -> Finding:
    table = lookback_table(run, condition, model)
    samples = {name: mean_over(values) for name, values in table.samples.items()}
    answer, question, gap = (interval(samples[name]) for name in ("answer", "question", "difference"))
    factor = [float(bound) for bound in ratio_interval(samples["per_filler"], samples["per_original"])]
    most = int(np.nanargmax(table.values["answer"][0])) if np.isfinite(answer[0]) else 0
    text = (
        f"Looking back, {condition}: a filler token receives {with_interval(*factor)} "
        f"times what an original token receives from the answer's tokens; these give the filler "
        f"{with_interval(*answer)} of their attention over all layers and most in layer {most + 1} "
        f"({table.values['answer'][0][most]:.3f}), the question's tokens {with_interval(*question)}, difference "
        f"{with_interval(*gap)} (n = {table.problems})."
    )
    numbers = three("answer", answer) | three("question", question) | three("difference", gap)
    return Finding("lookback", text, numbers | three("factor", factor) | {"most_in_layer": most + 1}, "lookback")
