"""`Run`: a finished run, or one in progress, opened for reading. `run[model]` is the run of one of its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.model_run import ModelRun, Region
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.stored_run import ANSWER, StoredRun
from fillerscope.errors import FigureError
from fillerscope.store.live import LiveStore
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import Columns, ModelFacts, ProblemRecord
from fillerscope.study.token_classes import ALL

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
            self._model_runs[name] = ModelRun(self, name)
        return self._model_runs[name]

    def model(self, name: str | None = None) -> str:
        """The name of a model or of an untrained twin; the first model where none is given."""
        if name is None:
            return self.models[0]
        if name not in self.models and not any(name in self.study.twins(model) for model in self.models):
            raise FigureError(f"this run has no model {name!r}; it has {', '.join(self.models)}")
        return name

    def twins(self, model: str | None = None) -> list[str]:
        return [twin.name for twin in self[model].twins()]

    def facts(self, model: str | None = None) -> ModelFacts:
        return self[model].facts

    def label(self, model: str | None = None) -> str:
        return self[model].label

    def has_measured(self, model: str | None = None, queries: str = "original") -> bool:
        return self[model].has_measured(queries)

    def has_begun(self, model: str | None = None) -> bool:
        return self[model].has_begun()

    def records(self, model: str | None = None, queries: str = "original") -> list[ProblemRecord]:
        return self[model].records(queries)

    def measured(self, model: str | None = None, queries: str = "original") -> list[ProblemRecord]:
        return self[model].measured(queries)

    def answer_columns(self, model: str) -> Columns:
        return self[model].answer_columns()

    def again_columns(self, model: str) -> Columns:
        return self[model].again_columns()

    def answered(self, model: str | None = None) -> int:
        return self[model].answered()

    def profile(
        self, condition: str, queries: str = "original", view: str = "aligned", model: str | None = None
    ) -> Profile:
        return self[model].profile(condition, queries, view)

    def head_profile(
        self, condition: str, layer: int, head: int | None, queries: str = "original", view: str = "aligned",
        model: str | None = None,
    ) -> Profile:  # fmt: skip
        return self[model].head_profile(condition, layer, head, queries, view)

    def summary(self, metric: str, condition: str, queries: str = "original", model: str | None = None) -> Floats:
        return self[model].summary(metric, condition, queries)

    def same_odds(self, model: str | None = None) -> Floats | None:
        return self[model].same_odds()

    def odds_profile(self, layer: int, head: int | None, model: str | None = None) -> Profile | None:
        return self[model].odds_profile(layer, head)

    def attention_layers(self, model: str | None = None) -> list[int]:
        return self[model].attention_layers()

    def windows(self, model: str | None = None) -> list[int | None]:
        return self[model].windows()

    def has_sinks(self, model: str | None = None) -> bool:
        return self[model].has_sinks()

    def peak_at(self, condition: str, queries: str = "original", model: str | None = None) -> NDArray[np.int32]:
        return self[model].peak_at(condition, queries)

    def affine(self, metric: str, condition: str, model: str | None = None) -> Floats:
        return self[model].affine(metric, condition)

    def bias(self, condition: str, model: str | None = None) -> Moments:
        return self[model].bias(condition)

    def activations(self, metric: str, condition: str, cls: str = ALL, model: str | None = None) -> Floats:
        return self[model].activations(metric, condition, cls)

    def histogram(self, condition: str, cls: str = ALL, model: str | None = None) -> NDArray[np.int64]:
        return self[model].histogram(condition, cls)

    def calibration(self, model: str | None = None) -> dict[str, Any]:
        return self[model].calibration()

    def region(self, condition: str, model: str | None = None) -> Region | None:
        return self[model].region(condition)

    def tokens(self, condition: str, model: str | None = None) -> tuple[str, ...]:
        return self[model].tokens(condition)


def open_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(RunStore.open(Path(path)))


def open_live_run(path: str | Path) -> Run:
    """Open a run folder that may still be written to, as it is now. To follow it, keep a `LiveStore`."""
    return Run(LiveStore.open(Path(path)).snapshot(), partial=True)
