"""What length alone would do: references that a drop and a filler mass are compared with.

A row sums to 1, so more keys take weight from the others whatever they mean, in an untrained model too. A drop says
something of a model by its distance from these. Uniform attention is a closed form of prompts and windows; the same
odds were collected with the prompts without filler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.model_run import ModelRun
from fillerscope.store.schema import FILLER_MASS_ROWS
from fillerscope.study.interventions import Knockout
from fillerscope.study.study import QUERIES

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]
FILLER = 1  # the number of its span


@dataclass(frozen=True)
class Uniform:
    """[problem, layer]; missing in layers without attention, or with a mask that is neither causal nor a window."""

    received: Floats  # by original tokens, as `received_original`
    mass: Floats  # as `filler_mass`; missing without filler


def uniform(run: ModelRun, condition: str, queries: str = "original") -> Uniform:
    """What uniform attention would give, of every problem that was measured."""
    windows = run.windows() if queries in QUERIES else [0] * len(run.windows())
    layouts, change, attending = run.layouts(queries), run.condition(condition).intervention, run.attention_layers()
    kinds, of = layouts.used(condition)
    received, mass = np.full((2, len(kinds), len(windows)), np.nan)
    for row, kind in enumerate(kinds):
        original = layouts.spans(kind) != FILLER
        known: dict[tuple[int | None, bool], tuple[float, float]] = {}
        for layer in attending:
            rule = windows[layer], isinstance(change, Knockout) and change.applies(layer)
            if rule[0] == 0:
                continue
            if rule not in known:
                known[rule] = uniform_summary(
                    original, *rule, queries, run.attention.diagonal, run.attention.skip_first
                )
            received[row, layer], mass[row, layer] = known[rule]
    return Uniform(received[of], mass[of])


def same_odds(run: ModelRun, condition: str, queries: str = "original") -> Floats:
    """[problem, layer, head]: what original tokens would receive if rows kept the odds that they have among original
    tokens, and each filler token took the share of an average one. Missing where that was not collected: for filler of
    another length or place than the study's first, under interventions, for other rows than the original ones, with
    learned sinks, and in layers whose window is shorter than any of the prompts."""
    reference, odds = run.study.reference, run.same_odds()
    missing = np.full_like(run.summary("entropy", condition, queries), np.nan)
    if odds is None or reference is None or queries != "original" or run.condition(condition).intervention:
        return missing
    if run.has_sinks():  # what a learned sink takes is not known row by row
        return missing
    layouts = run.layouts()
    if not np.array_equal(layouts.of[condition], layouts.of[reference.name]):
        return missing
    longest = max(len(layouts.spans(kind)) for kind in layouts.used(condition)[0])
    for layer, window in enumerate(run.windows()):
        if window is not None and longest > window:
            odds[:, layer] = np.nan
    return odds


def uniform_summary(
    original: Marks, window: int | None, hides: bool, queries: str, diagonal: bool, skip_first: bool
) -> tuple[float, float]:
    """What uniform attention gives in one prompt: received by original tokens, and the share of the filler."""
    group = tuple(map(str, QUERIES)).index(queries)
    values = received_uniform(original, query_rows(original, group), window, hides, diagonal)
    wanted = original & np.isfinite(values)
    if skip_first:
        wanted[np.flatnonzero(original)[:1]] = False
    by_rows = received_uniform(original, query_rows(original, FILLER_MASS_ROWS[group]), window, hides, diagonal)[
        ~original
    ]
    mass = len(by_rows) * float(by_rows.mean()) if len(by_rows) and np.isfinite(by_rows).all() else np.nan
    return float(values[wanted].mean()) if wanted.any() else np.nan, mass


def query_rows(original: Marks, group: int) -> Marks:
    """All rows, the original ones, or the last alone."""
    last = np.zeros(len(original), np.bool_)
    last[-1] = True
    return (np.ones(len(original), np.bool_), original, last)[group]


def received_uniform(
    original: Marks, rows: Marks, window: int | None = None, hides: bool = False, diagonal: bool = False
) -> Floats:
    """[position]: the mean over rows behind it of 1 / how many keys the row sees; missing where there is no such row.

    Rows see themselves and what is before them, `window` tokens in all; where filler is hidden, original rows do not
    see it."""
    count = len(original)
    places = np.arange(count)
    first = np.zeros(count, int) if window is None else np.maximum(0, places - window + 1)
    behind = np.concatenate([[0], np.cumsum(~original)])
    hidden = np.where(original & hides, behind[places + 1] - behind[first], 0)
    shares = 1.0 / (places - first + 1 - hidden)
    start = places + (not diagonal)
    stop = np.full(count, count) if window is None else np.minimum(count, places + window)
    queries = _between(rows.astype(float), start, np.full(count, count))
    seen = _between(np.where(rows, shares, 0.0), start, stop)
    if hides:
        seen = np.where(original, seen, _between(np.where(rows & ~original, shares, 0.0), start, stop))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(queries > 0, seen / queries, np.nan)


def _between(values: Floats, start: Sequence[int] | NDArray[np.generic], stop: NDArray[np.generic]) -> Floats:
    """Sums of values[start:stop], which may be empty."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[np.maximum(start, stop)] - sums[start])
