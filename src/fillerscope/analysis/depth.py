"""The effect by layer: each problem's mean over the layer's heads, with an interval over problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import ratio_interval, sample_interval
from fillerscope.analysis.twins import head_masses, over_twins, spread

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DepthTable:
    """`values[measure]` is mean, low and high, each [layer]. `uniform` and `odds` are the drops that length alone would
    give, by uniform attention and by rows that keep their odds; `beyond_uniform` and `beyond` are drop / those.
    `mass_share` is the mass of average tokens, and `beyond_mass` is mass / that. `twin` and `twin_mass` are drop and
    mass of untrained twins: their mean, the least and the largest."""

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


def _of_twins(run: Run, condition: str, queries: str, model: str | None) -> dict[str, tuple[Floats, Floats, Floats]]:
    def drop(twin: str) -> Floats:
        pair = (run.summary("received_original", name, queries, twin).mean(axis=-1) for name in (condition, "none"))
        return ratio_interval(*pair)[0]

    layers = run.summary("entropy", "none", model=model).shape[1]
    masses = head_masses(run, condition, queries, model)
    found = {"twin": over_twins(run, model, drop), "twin_mass": masses.mean(axis=-1) if len(masses) else masses}
    nothing = np.full((1, layers), np.nan)
    return {name: spread(values if len(values) else nothing, (0,)) for name, values in found.items()}


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
    even, plain = (uniform(run, name, queries, model) for name in (condition, "none"))
    odds = same_odds(run, condition, queries, model).mean(axis=-1)
    values |= {
        "uniform": ratio_interval(even.received, plain.received),
        "odds": ratio_interval(odds, baseline),
        "beyond_uniform": ratio_interval(received / even.received, baseline / plain.received),
        "beyond": ratio_interval(received, odds),
        "mass_share": sample_interval(even.mass),
        "beyond_mass": ratio_interval(mass, even.mass),
    }
    if run.study.references.twin:
        values |= _of_twins(run, condition, queries, model)
    return DepthTable(condition, queries, len(run.measured(model, queries)), values)
