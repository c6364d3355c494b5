"""The effect by layer: each problem's mean over the layer's heads, with an interval over problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimate, Estimates
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.twins import head_masses, over_twins, spread
from fillerscope.study.conditions import BASELINE

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
    values: dict[str, Estimates]

    @property
    def layers(self) -> int:
        return len(self.values["drop"][0])

    def columns(self) -> dict[str, NDArray[np.generic]]:
        table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, self.layers + 1)}
        for measure, estimates in self.values.items():
            table |= estimates.columns(measure)
        return table

    def at(self, measure: str, layer: int) -> Estimate:
        """Of one layer, counted from 0; without a number where the measure is missing."""
        estimates = self.values.get(measure)
        return estimates.at(layer, n=self.problems) if estimates else Estimate(n=self.problems)


def _of_twins(run: ModelRun, condition: str, queries: str) -> dict[str, Estimates]:
    def drop(twin: ModelRun) -> Floats:
        pair = (twin.summary("received_original", name, queries).mean(axis=-1) for name in (condition, BASELINE))
        return Estimates.ratios(*pair).value

    layers = run.summary("entropy", BASELINE).shape[1]
    masses = head_masses(run, condition, queries)
    measures = {"twin": over_twins(run, drop, queries), "twin_mass": masses.mean(axis=-1) if len(masses) else masses}
    missing = np.full((1, layers), np.nan)
    return {name: spread(values if len(values) else missing, (0,)) for name, values in measures.items()}


def depth_table(run: ModelRun, condition: str, queries: str = "original") -> DepthTable:
    mass = run.summary("filler_mass", condition, queries).mean(axis=-1)
    received, baseline = (
        run.summary("received_original", name, queries).mean(axis=-1) for name in (condition, BASELINE)
    )
    values = {
        "mass": Estimates.of(mass),
        "lambda": Estimates.of(1.0 - mass),
        "drop": Estimates.ratios(received, baseline),
    }
    even, plain = (uniform(run, name, queries) for name in (condition, BASELINE))
    odds = same_odds(run, condition, queries).mean(axis=-1)
    values |= {
        "uniform": Estimates.ratios(even.received, plain.received),
        "odds": Estimates.ratios(odds, baseline),
        "beyond_uniform": Estimates.ratios(received / even.received, baseline / plain.received),
        "beyond": Estimates.ratios(received, odds),
        "mass_share": Estimates.of(even.mass),
        "beyond_mass": Estimates.ratios(mass, even.mass),
    }
    if run.study.references.twin:
        values |= _of_twins(run, condition, queries)
    return DepthTable(condition, queries, len(run.measured(queries)), values)
