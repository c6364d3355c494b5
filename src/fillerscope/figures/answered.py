"""Accuracies for figures: those of one way of drawing answers, with what captions and tables say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.run import Run
from fillerscope.figures.table import Cell


@dataclass(frozen=True)
class Answered:
    """Accuracies for one way of drawing answers, the study's first."""

    rows: list[Accuracy]
    family: int  # comparisons that the p values are adjusted over
    drawn: str  # how the answers were drawn
    notes: tuple[str, ...]  # what a caption says of them

    @classmethod
    def of(cls, run: Run, models: Sequence[str]) -> Answered:
        table = compare(run, models)
        spec = run.study.generation
        assert spec is not None
        cells = spec.cells()
        temperature, samples = cells[0]
        drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}, {_count(samples, 'sample')}"
        several = f", the first of {len(cells)} ways in which answers were drawn" if len(cells) > 1 else ""
        accuracy = f"accuracy: share of right answers of at most {spec.max_tokens} tokens, {drawn}{several}"
        notes = accuracy, f"error bars: 95% interval, {'Wilson' if samples == 1 else 'problems resampled'}"
        rows = [row for row in table if (row.temperature, row.samples) == (temperature, samples)]
        family = sum(row.against is not None and np.isfinite(row.against.p) for row in table)
        return cls(rows, family, drawn, notes)

    def row(self, model: str, condition: str) -> Accuracy:
        return next(row for row in self.rows if (row.model, row.condition) == (model, condition))

    def count(self, *models: str) -> str:
        """How many problems the accuracies are over; failed answers may make it differ between conditions."""
        counts = sorted({row.n for row in self.rows if row.model in models})
        return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    @property
    def test(self) -> str:
        """The test behind the p values, in words."""
        test = "exact McNemar test" if self.rows[0].samples == 1 else "permutation test on the problems' means"
        return f"{test} against none on the same problems, adjusted by Holm over {_count(self.family, 'comparison')}"


def accuracy_record(row: Accuracy, **more: Cell) -> dict[str, Cell]:
    """The cells that a CSV has for an accuracy."""
    kept = {key: value for key, value in row.record().items() if key not in ("label", "group")}
    return kept | {"model": row.label} | more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
