"""A synthetic run with untrained twins that are synthetic runs themselves: what they show is known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fillerscope.analysis.run import Run
from fillerscope.store.moments import Moments
from support.synthetic import Mechanism, Synthetic

APART = (-0.002, 0.0, 0.002)  # of the twins' numbers


class Twinned(Run):
    """Reads what belongs to a twin from the run of that twin."""

    def __init__(self, run: Run, twins: Sequence[Run]) -> None:
        super().__init__(run.store)
        self._own = {f"twin-{number}": twin for number, twin in enumerate(twins)}

    def twins(self, model: str | None = None) -> list[str]:
        assert self.model(model)
        return list(self._own)

    def affine(self, metric: str, condition: str, model: str | None = None) -> Any:
        own = self._own.get(model or "")
        return own.affine(metric, condition) if own else super().affine(metric, condition, model)

    def bias(self, condition: str, model: str | None = None) -> Moments:
        own = self._own.get(model or "")
        return own.bias(condition) if own else super().bias(condition, model)

    def activations(self, metric: str, condition: str, cls: str = "all", model: str | None = None) -> Any:
        own = self._own.get(model or "")
        return own.activations(metric, condition, cls) if own else super().activations(metric, condition, cls, model)

    def summary(self, metric: str, condition: str, queries: str = "original", model: str | None = None) -> Any:
        own = self._own.get(model or "")
        return own.summary(metric, condition, queries) if own else super().summary(metric, condition, queries, model)


def twinned(recipe: Synthetic, twin: Mechanism, folder: Path, apart: Sequence[float] = APART) -> Run:
    """The run of a recipe with twins that do what `twin` says under every condition, a little apart from each other."""
    models = []
    for number, step in enumerate(apart):
        mechanisms = {condition.name: shifted(twin, step) for condition in recipe.conditions}
        others = Synthetic(
            conditions=recipe.conditions, layers=recipe.layers, problems=recipe.problems, noise=recipe.noise,
            affine=recipe.affine, activations=recipe.activations, mechanisms=mechanisms, system=2, shortest=2,
        )  # fmt: skip
        models.append(others.build(folder / f"twin-{number}"))
    return Twinned(recipe.build(folder / "run"), models)


def shifted(twin: Mechanism, step: float) -> Mechanism:
    def moved(pair: tuple[float, float], size: float) -> tuple[float, float]:
        return (pair[0] + size, pair[1] + size)

    return Mechanism(
        lam=moved(twin.lam, step), explained=moved(twin.explained, step), direction=moved(twin.direction, step),
        bias=twin.bias, together=twin.together, near_zero=moved(twin.near_zero, step / 10),
        variance=(twin.variance[0] * np.exp(step), twin.variance[1] * np.exp(step)),
    )  # fmt: skip
