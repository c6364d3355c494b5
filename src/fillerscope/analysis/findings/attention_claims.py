"""Claims about attention in the first layer, decided: against what length alone does, controls and untrained twins.

The sizes below which a change counts as little are in docs/method.md. Writes no sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings.verdict import Claim, Decision, Twins, decide
from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.run import Run
from fillerscope.analysis.twins import over_twins
from fillerscope.study.interventions import Knockout, Shift

Floats = NDArray[np.float64]
NEAR = 0.05  # a ratio that differs by less differs by little
COLLAPSE = 0.5  # attention on filler below this share of what stands before it has collapsed


def beyond_length(run: Run, condition: str, queries: str = "original", model: str | None = None) -> Floats:
    """[problem, layer]: the logarithm of drop / the drop that length alone would give, by the same odds, or by uniform
    attention where those were not collected. Missing where neither is known."""
    received, plain = (run.summary("received_original", one, queries, model).mean(-1) for one in (condition, "none"))
    if not run.condition(condition).has_filler:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.log(received) - np.log(plain))
    if run.has_sinks(model):  # they take a share that no reference knows
        return np.full_like(received, np.nan)
    odds = same_odds(run, condition, queries, model).mean(-1)
    even, before = (uniform(run, one, queries, model).received for one in (condition, "none"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(received) - np.log(np.where(np.isfinite(odds), odds, plain * even / before)))


def on_filler(run: Run, condition: str, model: str | None = None) -> Floats:
    """[problem, layer]: the logarithm of what a filler token receives over what one before it receives, all queries."""
    filler, before = (
        run.summary(f"received_{where}", condition, "all", model).mean(-1) for where in ("filler", "before")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log(filler) - np.log(before))


def first_layer(run: Run, condition: str, layer: int, queries: str, model: str | None) -> Decision:
    """Original tokens lose more or less to filler than length alone takes. A sentence of the same length may do the
    same, which does not make it less true: `findings` sets it beside."""
    return _decided(
        run, condition, layer, model, lambda name, one: beyond_length(run, name, queries, one), 0.0, 0, unseen_like
    )


def collapse(run: Run, condition: str, layer: int, model: str | None) -> Decision:
    """A filler token receives less than half of what one before it receives."""
    return _decided(
        run, condition, layer, model, lambda name, one: on_filler(run, name, one), log(COLLAPSE), -1, sentences_like
    )


def _decided(
    run: Run, condition: str, layer: int, model: str | None, read: Callable[[str, str | None], Floats],
    none: float, side: int, controls: Callable[[Run, str], list[str]],
) -> Decision:  # fmt: skip
    own = read(condition, model)[:, layer]
    others = {name: own - read(name, model)[:, layer] for name in controls(run, condition)}
    means = over_twins(run, model, lambda twin: _means(read(condition, twin)))
    claim = Claim.of(
        own, none, side, log(1 + NEAR), twins=Twins.of(means, layer) if len(means) else None,
        controls={name: paired for name, paired in others.items() if np.isfinite(paired).any()}, words=f"{NEAR:.0%}",
    )  # fmt: skip
    return decide(claim)


def _means(samples: Floats) -> Floats:
    """[layer] over problems; missing where no problem has a number."""
    known = np.isfinite(samples)
    total = np.where(known, samples, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def controls_of(run: Run, main: str) -> list[str]:
    """Conditions that share something with a filler: its positions, its tokens unseen in layer 1, or its length."""
    return unseen_like(run, main) + sentences_like(run, main)


def unseen_like(run: Run, main: str) -> list[str]:
    """Conditions that share a filler's positions, or its tokens unseen in layer 1."""
    wanted = run.condition(main)
    if not wanted.has_filler:
        return []
    found = [one for one in run.study.conditions if not one.sweep and one.name != main]
    moved = [one.name for one in found if isinstance(one.intervention, Shift) and one.intervention.by == wanted.count]
    hidden = [
        one.name for one in found
        if isinstance(one.intervention, Knockout) and one.intervention.applies(0)
        and (one.kind, one.text, one.count, one.position) == (wanted.kind, wanted.text, wanted.count, wanted.position)
    ]  # fmt: skip
    return moved + hidden


def sentences_like(run: Run, main: str) -> list[str]:
    """Sentences of the same length at the same place, and nothing done inside the model."""
    wanted = run.condition(main)
    found = [run.condition(name) for name in run.fillers if name != main]
    return [
        one.name for one in found
        if one.kind == "sentence" and not one.intervention and wanted.has_filler
        and (one.count, one.position) == (wanted.count, wanted.position)
    ]  # fmt: skip
