"""What the controls say of the mechanism, and whether the answer looks back at the filler.

A control changes one thing: filler that nobody sees, positions without filler, activations without filler. Each
sentence sets the size of its change beside that of the filler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fillerscope.analysis.lookback import lookback_table
from fillerscope.analysis.mechanism import ActivationTable, AffineTable, activation_table, affine_table, mean_over
from fillerscope.analysis.runs import Run
from fillerscope.findings import Finding, with_interval
from fillerscope.interventions import Redistribution
from fillerscope.mechanismfindings import at, interval, signed, three
from fillerscope.stats import ratio_interval


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
    """What a condition does in one layer against none: value, low and high."""

    layer: int  # counted from 1
    measures: dict[str, list[float]]
    n: int

    @classmethod
    def of(cls, tables: Tables, layer: int, attends: bool) -> Change:
        """`attends`: whether the control can reach the attention of this layer."""
        measures, n = {}, 0
        if tables.affine and attends:
            measures["lambda"], n = at(tables.affine.values["lambda_fit"], layer - 1), tables.affine.problems
        if tables.activity:
            measures["near_zero"] = at(tables.activity.difference["near_zero"], layer - 1)
            measures["variance"] = at(tables.activity.ratio["variance"], layer - 1)
            n = int(tables.activity.n[layer - 1])
        return cls(layer, measures, n)

    def told(self) -> str:
        forms = {
            "lambda": lambda found: f"lambda {with_interval(*found)}",
            "near_zero": lambda found: f"near-zero share {signed(found)} points",
            "variance": lambda found: f"variance {with_interval(*found)} times that under none",
        }
        return ", ".join(forms[name](found) for name, found in self.measures.items())


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
    same = [_beside(key, change.measures[key], usual.measures[key], main) for key in change.measures]
    label = run.condition(name).label
    text = (
        f"Control, {name}{f' ({label})' if label else ''}, layer {layer}: {change.told()}; under {main}: "
        f"{usual.told()} (n = {change.n}). {' '.join(same)}"
    )
    numbers = {
        f"{key}{part}": value for key, found in change.measures.items() for part, value in three("", found).items()
    }
    return Finding(f"control_{name}", text, numbers, "activations" if "near_zero" in change.measures else "affine")


WORDS = {
    "lambda": ("The scaling", 1.0),
    "near_zero": ("The change near zero", 0.0),
    "variance": ("The change of variance", 1.0),
}


def _beside(key: str, found: list[float], main: list[float], name: str) -> str:
    """Whether a control does what the filler does: by the sides of no change that both intervals lie on."""
    what, none = WORDS[key]
    ours, theirs = (_side(values, none) for values in (found, main))
    if ours is None or theirs is None:
        return f"{what} cannot be compared."
    if theirs == 0:
        return f"{what} does not move beyond noise under {name}{'' if ours == 0 else ', and does here'}."
    if ours == 0:
        return f"{what} of {name} is not there."
    size = (found[0] - none) / (main[0] - none)
    return f"{what} is {abs(size):.2f} times that of {name}" + (", the other way." if size < 0 else ".")


def _side(found: list[float], none: float) -> int | None:
    if not np.isfinite(found).all():
        return None
    return int(found[1] > none) - int(found[2] < none)


def _lookback(run: Run, condition: str, model: str | None) -> Finding:
    table = lookback_table(run, condition, model)
    samples = {name: mean_over(values) for name, values in table.samples.items()}
    answer, question, gap = (interval(samples[name]) for name in ("answer", "question", "difference"))
    factor = [float(bound) for bound in ratio_interval(samples["per_filler"], samples["per_original"])]
    most = int(np.nanargmax(table.values["answer"][0])) if np.isfinite(answer[0]) else 0
    text = (
        f"Looking back, {condition}: the answer {_looks(factor)}: a filler token receives {with_interval(*factor)} "
        f"times what an original token receives from the answer's tokens; these give the filler "
        f"{with_interval(*answer)} of their attention over all layers and most in layer {most + 1} "
        f"({table.values['answer'][0][most]:.3f}), the question's tokens {with_interval(*question)}, difference "
        f"{with_interval(*gap)} (n = {table.problems})."
    )
    numbers = three("answer", answer) | three("question", question) | three("difference", gap)
    return Finding("lookback", text, numbers | three("factor", factor) | {"most_in_layer": most + 1}, "lookback")


def _looks(factor: list[float]) -> str:
    if not np.isfinite(factor).all() or factor[1] <= 1 <= factor[2]:
        return "cannot be told to look at the filler more or less than at original tokens"
    return f"looks at a filler token {'less' if factor[2] < 1 else 'more'} than at an original one"
