"""`Run`: a finished run, or one in progress, opened for reading. `run[model]` is the run of one of its models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.model_run import ModelRun, Region
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.stored_run import ANSWER, StoredRun
from fillerscope.errors import FigureError
from fillerscope.store.live import LiveStore
from fillerscope.store.run_folder import RunStore

__all__ = ["ANSWER", "ModelRun", "Region", "Run", "open_live_run", "open_run"]
Floats = NDArray[np.float64]


class Run(StoredRun):
    """All models of a run. What asks for one of them takes its name; the first is meant where none is given."""

    def __init__(self, store: RunStore, partial: bool = False) -> None:
        super().__init__(store, partial)
        self._model_runs: dict[str, ModelRun] = {}

    def __getitem__(self, model: str | None) -> ModelRun:
        name = self.model(model)
        if name not in self._model_runs:
            self._model_runs[name] = self._model_run(name)
        return self._model_runs[name]

    def _model_run(self, name: str) -> ModelRun:
        return ModelRun(self, name)

    @property
    def model_runs(self) -> list[ModelRun]:
        """The runs of all models, in the order of the study."""
        return [self[name] for name in self.models]

    def model(self, name: str | None = None) -> str:
        """The name of a model or of an untrained twin; the first model where none is given."""
        if name is None:
            return self.models[0]
        if name not in self.models and not any(name in self.study.twins(model) for model in self.models):
            raise FigureError(f"this run has no model {name!r}; it has {', '.join(self.models)}")
        return name

    def label(self, model: str | None = None) -> str:
        """What a model is called in tables and figures."""
        return self[model].label

    def profile(
        self, condition: str, queries: str = "original", view: str = "aligned", model: str | None = None
    ) -> Profile:
        """`ModelRun.profile` of a model."""
        return self[model].profile(condition, queries, view)

    def summary(self, metric: str, condition: str, queries: str = "original", model: str | None = None) -> Floats:
        """`ModelRun.summary` of a model."""
        return self[model].summary(metric, condition, queries)

    def tokens(self, condition: str, model: str | None = None) -> tuple[str, ...]:
        """`ModelRun.tokens` of a model."""
        return self[model].tokens(condition)


def open_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(RunStore.open(Path(path)))


def open_live_run(path: str | Path) -> Run:
    """Open a run folder that may still be written to, as it is now. To follow it, keep a `LiveStore`."""
    return Run(LiveStore.open(Path(path)).snapshot(), partial=True)
