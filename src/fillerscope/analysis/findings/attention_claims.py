"""Claims about attention in the first layer, decided: against what length alone does, controls and untrained twins.

The sizes below which a change counts as little are in docs/method.md. Writes no sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings.claim import Claim, Evidence, Twins
from fillerscope.analysis.findings.decision import Decision, decide
from fillerscope.analysis.findings.view import View
from fillerscope.analysis.mechanism import mean_over
from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.interventions import Knockout, Shift

Floats = NDArray[np.float64]
NEAR = 0.05  # a ratio that differs by less differs by little
COLLAPSE = 0.5  # attention on filler below this share of what stands before it has collapsed
BEYOND_LENGTH = Claim(none=0.0, side=0, small=log(1 + NEAR), small_text=f"{NEAR:.0%}")
COLLAPSED = Claim(none=log(COLLAPSE), side=-1, small=log(1 + NEAR), small_text=f"{NEAR:.0%}")


def decide_first_layer(view: View) -> Decision:
    """Whether original tokens lose more or less to filler than length alone takes. A sentence of the same length may do
    the same, which does not make it less true: another finding compares the two."""
    return _decided(view, BEYOND_LENGTH, beyond_length, unseen_like(view.run, view.condition))


def decide_collapse(view: View) -> Decision:
    """Whether a filler token receives less than half of what one before it receives."""
    return _decided(view, COLLAPSED, on_filler, sentences_like(view.run, view.condition))


def _decided(view: View, claim: Claim, read: Callable[[View], Floats], controls: Sequence[str]) -> Decision:
    layer, own = view.first, read(view)
    paired = {name: (own - read(view.under(name)))[:, layer] for name in controls}
    means = view.of_twins(lambda twin: mean_over(read(twin), axis=0))
    twins = Twins.of(means, layer) if len(means) else Twins()
    known = {name: values for name, values in paired.items() if np.isfinite(values).any()}
    return decide(Evidence.of(claim, own[:, layer], twins, known))


def beyond_length(view: View) -> Floats:
    """[problem, layer]: the logarithm of drop / the drop that length alone would give, by the same odds, or by uniform
    attention where those were not collected. Missing where neither is known."""
    run, queries = view.run, view.queries
    received, plain = (values.mean(-1) for values in view.pair("received_original"))
    if not run.condition(view.condition).has_filler:
        return _log_ratio(received, plain)
    if run.has_sinks():  # they take a share that no reference knows
        return np.full_like(received, np.nan)
    odds = same_odds(run, view.condition, queries).mean(-1)
    even, before = (uniform(run, one, queries).received for one in (view.condition, BASELINE))
    return _log_ratio(received, np.where(np.isfinite(odds), odds, plain * even / before))


def on_filler(view: View) -> Floats:
    """[problem, layer]: the logarithm of what a filler token receives over what one before it receives."""
    return _log_ratio(*(view.summary(f"received_{where}").mean(-1) for where in ("filler", "before")))


def _log_ratio(after: Floats, before: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(after) - np.log(before))


def controls_of(run: StoredRun, main: str) -> list[str]:
    """Conditions that share something with a filler: its positions, its tokens unseen in layer 1, or its length."""
    return unseen_like(run, main) + sentences_like(run, main)


def unseen_like(run: StoredRun, main: str) -> list[str]:
    """Conditions that share a filler's positions, or its tokens unseen in layer 1."""
    return unseen_among(run.study.conditions, run.condition(main))


def unseen_among(conditions: Sequence[Condition], wanted: Condition) -> list[str]:
    """The same, of the conditions of a study."""
    if not wanted.has_filler:
        return []
    others = [one for one in conditions if not one.sweep and one.name != wanted.name]
    moved = [one.name for one in others if isinstance(one.intervention, Shift) and one.intervention.by == wanted.count]
    hidden = [
        one.name for one in others
        if isinstance(one.intervention, Knockout) and one.intervention.applies(0)
        and (one.kind, one.text, one.count, one.position) == (wanted.kind, wanted.text, wanted.count, wanted.position)
    ]  # fmt: skip
    return moved + hidden


def sentences_like(run: StoredRun, main: str) -> list[str]:
    """Sentences of the same length at the same place, and nothing done inside the model."""
    return sentences_among([run.condition(name) for name in run.fillers], run.condition(main))


def sentences_among(conditions: Sequence[Condition], wanted: Condition) -> list[str]:
    """The same, of the conditions of a study."""
    return [
        one.name for one in conditions
        if one.name != wanted.name and one.kind == "sentence" and not one.intervention and wanted.has_filler
        and (one.count, one.position) == (wanted.count, wanted.position)
    ]  # fmt: skip
