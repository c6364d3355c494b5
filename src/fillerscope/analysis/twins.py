"""What a model's untrained twins show, to be held against what the model shows.

Their heads are exchangeable: a head of the model is held against all heads of all twins in the same layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import ratio_interval

Floats = NDArray[np.float64]
UNTRAINED = "untrained twins"  # stands where a condition does, in tables of curves


def over_twins(run: Run, model: str | None, read: Callable[[str], Floats]) -> Floats:
    """[twin, ...]: what `read` gives for each; empty where none was measured."""
    return np.array([read(twin) for twin in run.twins(model)])


def head_drops(run: Run, condition: str, queries: str, model: str | None) -> Floats:
    """[twin, layer, head]: the drop of every head, over problems."""

    def drop(twin: str) -> Floats:
        pair = [run.summary("received_original", name, queries, twin) for name in (condition, "none")]
        return ratio_interval(pair[0], pair[1])[0]

    return over_twins(run, model, drop)


def head_masses(run: Run, condition: str, queries: str, model: str | None) -> Floats:
    """[twin, layer, head]: the filler mass of every head, over problems."""
    return over_twins(run, model, lambda twin: run.summary("filler_mass", condition, queries, twin).mean(axis=0))


def spread(values: Floats, axes: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """Mean, least and largest over some axes."""
    return values.mean(axis=axes), values.min(axis=axes), values.max(axis=axes)


def head_profiles(run: Run, condition: str, layer: int, queries: str, view: str, model: str | None) -> Floats:
    """[twin * head, position]: mean profiles of the heads of a layer, counted from 1."""
    found = over_twins(run, model, lambda twin: run.head_profile(condition, layer, None, queries, view, twin).mean[0])
    return found.reshape(-1, found.shape[-1]) if found.size else np.empty((0, 0))
