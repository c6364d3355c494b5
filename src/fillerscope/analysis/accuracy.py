"""Accuracy under each condition, and each filler against none on the same problems.

One sample a problem is compared by the exact McNemar test, several by a permutation test on the problems' means.
p values are adjusted by Holm over every comparison in the table at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answers import Sheet, answers
from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.power import detectable_difference, detectable_mean, needed_n, needed_n_mean
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import (
    TOLERANCE,
    accuracy_interval,
    holm,
    mcnemar_exact,
    paired_interval,
    pass_at_k,
    permutation_test,
    wilson_interval,
)
from fillerscope.errors import FigureError
from fillerscope.files import Json
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NAN = float("nan")
USUAL_K = (1, 4, 8, 16)


@dataclass(frozen=True)
class Accuracy:
    """One row of the comparison: a model, a way of drawing, a condition, and a group of problems, "" for all."""

    model: str
    label: str
    temperature: float
    samples: int
    condition: str
    group: str
    n: int  # problems with an answer that could be judged
    failed: int  # problems without one
    failed_answers: int  # of all problems
    accuracy: float
    low: float
    high: float
    tokens: float  # mean length of an answer
    cut_off: float  # share that the token limit truncated
    shortest_truncated: float  # tokens of the shortest truncated answer
    longest_truncated: float
    unanswered: float  # share that ended by itself and holds no answer
    diversity: float
    passes: dict[int, float]  # pass@k, over problems of which k samples were judged under every condition
    passes_n: dict[int, int]  # how many problems these are
    against: Difference | None = None  # None for the baseline itself

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.accuracy, self.low, self.high, self.n)

    def record(self) -> Json:
        """Flat, for tables and programs."""
        row = {key: value for key, value in asdict(self).items() if key not in ("passes", "passes_n", "against")}
        row |= asdict(self.against or Difference())
        row |= {f"pass@{k}": value for k, value in self.passes.items()}
        return row | {f"pass@{k}_n": n for k, n in self.passes_n.items()}


@dataclass(frozen=True)
class Difference:
    """A condition against none, over the problems that both answered."""

    pairs: int = 0
    difference: float = NAN
    difference_low: float = NAN
    difference_high: float = NAN
    gained: int = 0  # problems with more right than without filler
    lost: int = 0
    p: float = NAN
    adjusted: float = NAN  # by Holm over the table
    detectable: float = NAN  # the smallest difference that so many pairs show with 80% power
    needed: float = NAN  # pairs that would show the difference that was seen
    paired_accuracy: float = NAN  # over the pairs alone, whose difference it is
    paired_baseline: float = NAN
    paired_truncated: float = NAN  # share of the answers to these problems
    paired_truncated_baseline: float = NAN
    truncated_p: float = NAN  # of a difference in how many answers were truncated
    finished: int = 0  # problems whose answers all ended by themselves under both
    finished_difference: float = NAN  # over these
    finished_low: float = NAN
    finished_high: float = NAN
    finished_p: float = NAN

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.difference, self.difference_low, self.difference_high, self.pairs)

    @property
    def finished_estimate(self) -> Estimate:
        """The difference over problems whose answers all ended by themselves."""
        return Estimate(self.finished_difference, self.finished_low, self.finished_high, self.finished)


def compare(run: Run, models: Sequence[str] = (), by: str | None = None) -> list[Accuracy]:
    """The accuracy in every cell of the study, the baseline first; `by` splits problems by a field of their data.

    A run in progress is compared over the problems that each model has answered so far. A model that has answered
    none is left out, so that the table may be empty; naming it is a StoreError."""
    if run.study.generation is None:
        raise FigureError("this run has no answers; give `generation` in its study and run it again")
    chosen = models or [model for model in run.models if not run.partial or run[model].answered()]
    if not chosen:
        return []
    groups = {"": list(range(len(run.problems())))} if by is None else groups_of(run, by)
    rows: list[Accuracy] = []
    for model in dict.fromkeys(chosen):
        for temperature, samples in run.study.generation.cells():
            given, cell = answers(run[model], temperature), _Cell(run[model], temperature, samples)
            for name, problems in groups.items():
                if answered := [number for number in problems if number < given.problems]:
                    sheets = {condition: given.of(condition, samples, answered) for condition in run.conditions}
                    rows += cell.rows(name, sheets)
    return _adjusted(rows)


def groups_of(run: Run, by: str) -> dict[str, list[int]]:
    """Problem numbers by the value of a field, in the order of the values."""
    values = [problem["meta"].get(by) for problem in run.problems()]
    if all(value is None for value in values):
        fields = sorted({key for problem in run.problems() for key in problem["meta"]})
        raise FigureError(f"the problems have no field {by!r}; they have {', '.join(fields) or 'none'}")
    known = sorted({value for value in values if value is not None}, key=lambda v: (isinstance(v, str), v))
    groups: dict[str, list[int]] = {f"{by} {value}": [] for value in known}
    for number, value in enumerate(values):
        groups.setdefault(f"{by} {'not given' if value is None else value}", []).append(number)
    return {name: numbers for name, numbers in groups.items() if numbers}


@dataclass(frozen=True)
class _Cell:
    """One model and one way of drawing answers."""

    run: ModelRun
    temperature: float
    samples: int

    def rows(self, group: str, sheets: dict[str, Sheet]) -> list[Accuracy]:
        """A row for each condition of a group of problems."""
        judged = {k: _judged_alike(sheets.values(), k) for k in self._wanted_k()}
        rows = [self._row(group, condition, sheet, judged) for condition, sheet in sheets.items()]
        return [row if row.condition == BASELINE else self._compared(row, sheets) for row in rows]

    def _wanted_k(self) -> list[int]:
        assert self.run.study.generation is not None
        return [k for k in self.run.study.generation.k or USUAL_K if k <= self.samples]

    def _row(self, group: str, condition: str, sheet: Sheet, judged: dict[int, Mask]) -> Accuracy:
        """`judged`: by k, the problems that pass@k is over."""
        means = sheet.means
        kept = means[np.isfinite(means)]
        low, high = _interval(kept, self.samples)
        passes = {k: _pass(sheet, problems, k) for k, problems in judged.items()}
        return Accuracy(
            self.run.name, self.run.label, self.temperature, self.samples, condition, group,
            len(kept), len(means) - len(kept), int((~sheet.given).sum()), float(kept.mean()) if len(kept) else NAN,
            low, high, sheet.tokens, sheet.share("finish", "length"), *sheet.truncated_tokens, sheet.unanswered,
            sheet.diversity, {k: value for k, (value, _) in passes.items()}, {k: n for k, (_, n) in passes.items()},
        )  # fmt: skip

    def _compared(self, row: Accuracy, sheets: dict[str, Sheet]) -> Accuracy:
        return replace(row, against=_against(sheets[row.condition], sheets[BASELINE], self.samples))


def _interval(means: Floats, samples: int) -> tuple[float, float]:
    if samples == 1:
        low, high = wilson_interval(means.sum(), len(means))
    else:
        low, high = accuracy_interval(means, _generator())
    return float(low), float(high)


def _judged_alike(sheets: Collection[Sheet], k: int) -> Mask:
    """[problem]: whether at least k samples were judged under every condition. A condition that has no such problem
    at all is left aside: it would take those of all others."""
    enough = [sheet.given.sum(axis=1) >= k for sheet in sheets]
    return np.asarray(np.all([one for one in enough if one.any()] or enough, axis=0))


def _pass(sheet: Sheet, problems: Mask, k: int) -> tuple[float, int]:
    """pass@k over some problems, and how many they are; NaN and 0 under a condition with too few samples of them."""
    given, right = sheet.given[problems], sheet.right[problems]
    chances = pass_at_k(given.sum(axis=1), (right & given).sum(axis=1), k)
    n = int(np.isfinite(chances).sum())
    return (float(chances.mean()) if n else NAN), n


def _against(sheet: Sheet, baseline: Sheet, samples: int) -> Difference:
    whole = _difference(sheet.means, baseline.means, samples)
    cut = _difference(sheet.truncated_means, baseline.truncated_means, samples)
    ended = _difference(sheet.finished_means, baseline.finished_means, samples)
    return replace(
        whole,
        paired_truncated=cut.paired_accuracy,
        paired_truncated_baseline=cut.paired_baseline,
        truncated_p=cut.p,
        finished=ended.pairs,
        finished_difference=ended.difference,
        finished_low=ended.difference_low,
        finished_high=ended.difference_high,
        finished_p=ended.p,
    )


def _difference(means: Floats, baseline: Floats, samples: int) -> Difference:
    both = np.isfinite(means) & np.isfinite(baseline)
    gaps = (means - baseline)[both]
    if not len(gaps):
        return Difference()
    gained, lost, mean = int((gaps > 0).sum()), int((gaps < 0).sum()), float(gaps.mean())
    low, high = (float(bound) for bound in paired_interval(gaps, _generator()))
    p = float(mcnemar_exact(gained, lost)) if samples == 1 else permutation_test(gaps, _generator())
    power = _power_of_one(gaps) if samples == 1 else _power_of_several(gaps)
    rates = float(means[both].mean()), float(baseline[both].mean())
    return Difference(len(gaps), mean, low, high, gained, lost, p, p, *power, *rates)


def _power_of_one(gaps: Floats) -> tuple[float, float]:
    discordance = float(np.abs(gaps).mean())
    return float(detectable_difference(len(gaps), discordance)), float(needed_n(float(gaps.mean()), discordance))


def _power_of_several(gaps: Floats) -> tuple[float, float]:
    """Problems that all change alike say nothing about how much others would vary."""
    deviation = float(gaps.std(ddof=1)) if np.ptp(gaps) > TOLERANCE else NAN
    return float(detectable_mean(len(gaps), deviation)), float(needed_n_mean(float(gaps.mean()), deviation))


def _adjusted(rows: list[Accuracy]) -> list[Accuracy]:
    adjusted = iter(holm(np.array([row.against.p for row in rows if row.against])))
    return [
        replace(row, against=replace(row.against, adjusted=float(next(adjusted)))) if row.against else row
        for row in rows
    ]


def _generator() -> np.random.Generator:
    """The same resamples every time: a table that is printed twice reads the same."""
    return np.random.default_rng(0)
