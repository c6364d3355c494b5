"""How much of the answer's attention is on the filler, beside the question's share, by layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimate, Estimates
from fillerscope.analysis.mechanism import Columns, mean_over
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import ANSWER

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LookbackTable:
    """`values[measure]` is mean, low and high, each [layer], over the problems that were answered; each problem's
    mean over heads. `answer` and `question`: mass on the filler of the answer's rows and of the question's;
    `difference` between them, pair by pair; `per_filler` and `per_original`: what one token receives from the answer;
    `factor`: the first over the second."""

    condition: str
    problems: int
    values: dict[str, Estimates]
    samples: dict[str, Floats]  # [problem, layer]

    @property
    def layers(self) -> int:
        return len(self.values["answer"][0])

    def columns(self) -> Columns:
        table: dict[str, NDArray[np.generic]] = {"layer": np.arange(1, self.layers + 1)}
        table["n"] = np.full(self.layers, self.problems)
        for name, estimates in self.values.items():
            table |= estimates.columns(name)
        return table

    def overall(self, measure: str) -> Estimate:
        """Of each problem's mean over layers."""
        return Estimate.of(mean_over(self.samples[measure]))

    def overall_factor(self) -> Estimate:
        """`factor` of each problem's means over layers."""
        return Estimate.ratio_of(*(mean_over(self.samples[name]) for name in ("per_filler", "per_original")))


def lookback_table(run: ModelRun, condition: str) -> LookbackTable:
    """Over the problems that were measured with and without their answer."""
    answered, asked = (_numbers(run, queries) for queries in (ANSWER, "original"))
    both = set(answered) & set(asked)
    rows = [place for place, number in enumerate(answered) if number in both]
    kept = [place for place, number in enumerate(asked) if number in both]

    def of_answer(metric: str) -> Floats:
        return mean_over(run.summary(metric, condition, ANSWER)[rows])

    samples = {
        "answer": of_answer("filler_mass"),
        "question": mean_over(run.summary("filler_mass", condition, "original")[kept]),
        "per_filler": of_answer("received_filler"),
        "per_original": of_answer("received_original"),
    }
    samples["difference"] = samples["answer"] - samples["question"]
    values = {name: Estimates.of(array) for name, array in samples.items()}
    values["factor"] = Estimates.ratios(samples["per_filler"], samples["per_original"])
    return LookbackTable(condition, len(both), values, samples)


def _numbers(run: ModelRun, queries: str) -> list[int]:
    return [record["number"] for record in run.measured(queries)]
