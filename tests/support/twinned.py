"""A synthetic run with untrained twins that are synthetic runs themselves: what they show is known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from support.synthetic import Mechanism, Synthetic

APART = (-0.002, 0.0, 0.002)  # of the twins' numbers


class Twinned(ModelRun):
    """A model whose untrained twins are the models of other runs."""

    def __init__(self, run: Run, twins: Sequence[Run]) -> None:
        super().__init__(run, run.models[0])
        self._others = [twin[None] for twin in twins]

    def twins(self) -> list[ModelRun]:
        return self._others


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
    run = recipe.build(folder / "run")
    run._model_runs[run.models[0]] = Twinned(run, models)
    return run


def shifted(twin: Mechanism, step: float) -> Mechanism:
    def moved(pair: tuple[float, float], size: float) -> tuple[float, float]:
        return (pair[0] + size, pair[1] + size)

    return Mechanism(
        lam=moved(twin.lam, step), explained=moved(twin.explained, step), direction=moved(twin.direction, step),
        bias=twin.bias, together=twin.together, near_zero=moved(twin.near_zero, step / 10),
        variance=(twin.variance[0] * np.exp(step), twin.variance[1] * np.exp(step)),
    )  # fmt: skip
