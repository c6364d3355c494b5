"""The effect by layer: each problem's mean over the layer's heads, with an interval over problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.references import uniform
from fillerscope.analysis.runs import Run
from fillerscope.stats import ratio_interval, sample_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DepthTable:
    """`values[measure]` is mean, low and high, each [layer]. `uniform` is the drop that length alone would give, and
    `beyond` is drop / uniform."""

    condition: str
    queries: str
    problems: int
    values: dict[str, tuple[Floats, Floats, Floats]]

    @property
    def layers(self) -> int:
        return len(self.values["drop"][0])

    def columns(self) -> dict[str, NDArray[np.generic]]:
        table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, self.layers + 1)}
        for measure, (mean, low, high) in self.values.items():
            table |= {measure: mean, f"{measure}_low": low, f"{measure}_high": high}
        return table


def depth_table(run: Run, condition: str, queries: str = "original", model: str | None = None) -> DepthTable:
    mass = run.summary("filler_mass", condition, queries, model).mean(axis=-1)
    received, baseline = (
        run.summary("received_original", name, queries, model).mean(axis=-1) for name in (condition, "none")
    )
    values = {
        "mass": sample_interval(mass),
        "lambda": sample_interval(1.0 - mass),
        "drop": ratio_interval(received, baseline),
    }
    after, before = (uniform(run, name, queries, model).received for name in (condition, "none"))
    if np.isfinite(after).any():
        values["uniform"] = ratio_interval(after, before)
        values["beyond"] = ratio_interval(received / after, baseline / before)
    return DepthTable(condition, queries, len(run.measured(model, queries)), values)
