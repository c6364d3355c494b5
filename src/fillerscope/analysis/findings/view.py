"""What is measured of attention: one model under one condition, by some query rows, and its untrained twins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings.wording import span
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.twins import over_twins
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """One model under one condition, by the attention of some query rows."""

    run: ModelRun
    condition: str
    queries: str = "original"

    @property
    def layers(self) -> list[int]:
        """Those that have attention, counted from 0."""
        return self.run.attention_layers()

    @property
    def first(self) -> int:
        return self.layers[0]

    def under(self, condition: str) -> View:
        return replace(self, condition=condition)

    def summary(self, metric: str) -> Floats:
        """[problem, layer, head]."""
        return self.run.summary(metric, self.condition, self.queries)

    def pair(self, metric: str, other: str = BASELINE) -> tuple[Floats, Floats]:
        """Under this condition and under another, [problem, layer, head] each."""
        return self.summary(metric), self.under(other).summary(metric)

    def of_twins(self, read: Callable[[View], Floats | float]) -> Floats:
        """[twin, ...]: the result of `read` for each untrained twin; empty where none was measured."""
        return over_twins(self.run, lambda twin: np.asarray(read(replace(self, run=twin))), self.queries)

    def twins_text(self, read: Callable[[View], float]) -> str:
        """The range of a number over untrained twins, in brackets; or that none were measured."""
        values = self.of_twins(read)
        return (
            f" (untrained twins: {span(values.tolist())})" if values.size else " (untrained models were not measured)"
        )
