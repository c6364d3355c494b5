"""What the untrained twins of a model show, which the model is compared with.

Their heads are exchangeable: a head of the model is compared with all heads of all twins in the same layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.run import Run
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]
UNTRAINED = "untrained twins"  # stands where a condition does, in tables of curves


def over_twins(run: Run, model: str | None, read: Callable[[str], Floats]) -> Floats:
    """[twin, ...]: the result of `read` for each twin; empty where none was measured."""
    return np.array([read(twin) for twin in run.twins(model)])


def head_drops(run: Run, condition: str, queries: str, model: str | None) -> Floats:
    """[twin, layer, head]: the drop of every head, over problems."""

    def drop(twin: str) -> Floats:
        pair = [run.summary("received_original", name, queries, twin) for name in (condition, BASELINE)]
        return Estimates.ratios(pair[0], pair[1]).value

    return over_twins(run, model, drop)


def head_masses(run: Run, condition: str, queries: str, model: str | None) -> Floats:
    """[twin, layer, head]: the filler mass of every head, over problems."""
    return over_twins(run, model, lambda twin: run.summary("filler_mass", condition, queries, twin).mean(axis=0))


def spread(values: Floats, axes: tuple[int, ...]) -> Estimates:
    """Mean, least and largest over some axes."""
    return Estimates(values.mean(axis=axes), values.min(axis=axes), values.max(axis=axes))


def head_profiles(run: Run, condition: str, layer: int, queries: str, view: str, model: str | None) -> Floats:
    """[twin * head, position]: mean profiles of the heads of a layer, counted from 1."""
    profiles = over_twins(
        run, model, lambda twin: run.head_profile(condition, layer, None, queries, view, twin).mean[0]
    )
    return profiles.reshape(-1, profiles.shape[-1]) if profiles.size else np.empty((0, 0))
