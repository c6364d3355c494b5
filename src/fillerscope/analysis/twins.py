"""What the untrained twins of a model show, which the model is compared with.

Their heads are exchangeable: a head of the model is compared with all heads of all twins in the same layer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import ANSWER
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]
UNTRAINED = "untrained twins"  # stands where a condition does, in tables of curves


def over_twins(run: ModelRun, read: Callable[[ModelRun], Floats], queries: str = "original") -> Floats:
    """[twin, ...]: the result of `read` for each twin; empty where none was measured. Twins write no answers, so
    there is none where the answer's tokens are the queries."""
    return np.array([read(twin) for twin in run.twins() if queries != ANSWER])


def head_drops(run: ModelRun, condition: str, queries: str) -> Floats:
    """[twin, layer, head]: the drop of every head, over problems."""

    def drop(twin: ModelRun) -> Floats:
        pair = [twin.summary("received_original", name, queries) for name in (condition, BASELINE)]
        return Estimates.ratios(pair[0], pair[1]).value

    return over_twins(run, drop, queries)


def head_masses(run: ModelRun, condition: str, queries: str) -> Floats:
    """[twin, layer, head]: the filler mass of every head, over problems."""
    return over_twins(run, lambda twin: twin.summary("filler_mass", condition, queries).mean(axis=0), queries)


def spread(values: Floats, axes: tuple[int, ...]) -> Estimates:
    """Mean, least and largest over some axes."""
    return Estimates(values.mean(axis=axes), values.min(axis=axes), values.max(axis=axes))


def head_profiles(run: ModelRun, condition: str, layer: int, queries: str, view: str) -> Floats:
    """[twin * head, position]: mean profiles of the heads of a layer, counted from 1."""

    def profiles_of(twin: ModelRun) -> Floats:
        return np.asarray(twin.head_profile(condition, layer, None, queries, view).mean[0])

    profiles = over_twins(run, profiles_of, queries)
    return profiles.reshape(-1, profiles.shape[-1]) if profiles.size else np.empty((0, 0))
