"""The noise floor of answers: verdicts that change when nothing but rounding does, beside those that filler changes.

Prompts without filler are answered twice. A verdict that differs between the two is a flip by rounding; one that
differs between the first of them and a condition is a flip by filler. If filler did no more than rounding does, the
second answer and the condition's could be exchanged: the tests flip the signs of the problems' differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answers import Answers, Sheet, answers, answers_again
from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stats import accuracy_interval, holm, paired_interval, permutation_test, wilson_interval
from fillerscope.files import Json
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]
NAN = float("nan")
SEED = 0  # the same resamples every time
NEIGHBOURS, SERVER = "other neighbours in the batch", "the server asked again"  # ways to answer once more


@dataclass(frozen=True)
class Noise:
    """Verdicts that changed against the first answers without filler: by rounding (`none`), or under a condition."""

    model: str
    label: str
    temperature: float
    samples: int
    condition: str
    way: str  # how the second answers were computed
    n: int  # problems with an answer on both sides
    answers: int
    flips: int  # answers whose verdict changed
    share: float  # over problems, of each problem's samples
    low: float
    high: float
    texts: int  # answers whose text changed
    pairs: int = 0  # problems that the difference is over
    rounding: float = NAN  # share of flips by rounding, over these
    difference: float = NAN  # flips under the condition less flips by rounding
    difference_low: float = NAN
    difference_high: float = NAN
    p: float = NAN
    adjusted: float = NAN  # by Holm over the rows of the model

    @property
    def estimate(self) -> Estimate:
        """The share of flips."""
        return Estimate(self.share, self.low, self.high, self.n)

    @property
    def difference_estimate(self) -> Estimate:
        """Flips under the condition less flips by rounding."""
        return Estimate(self.difference, self.difference_low, self.difference_high, self.pairs)

    def record(self) -> Json:
        return asdict(self)


def noise_floor(run: ModelRun) -> list[Noise]:
    """Flips of one model by rounding, then those of each condition, for every way of drawing answers; empty where the
    study asks for no noise floor, or none of it is measured yet. p is adjusted over the model's rows."""
    if run.study.generation is None or run.noise is None:
        return []
    rows: list[Noise] = []
    for temperature, samples in run.study.generation.cells():
        again = answers_again(run, temperature)
        if again.problems:
            rows += _Cell(run, temperature, samples).rows(answers(run, temperature), again)
    return _adjusted(rows)


def way_of(run: ModelRun) -> str:
    """How the second answers were computed: a dtype, or one of the words above."""
    if next(spec for spec in run.study.models if spec.name == run.name).endpoint is not None:
        return SERVER
    if run.noise is not None and run.noise.dtype is not None:
        return run.noise.dtype
    return NEIGHBOURS


@dataclass(frozen=True)
class _Flips:
    """[problem, sample] of two sheets: where both have an answer, and where verdict and text differ."""

    both: NDArray[np.bool_]
    verdict: NDArray[np.bool_]
    text: NDArray[np.bool_]

    @property
    def means(self) -> Floats:
        """[problem]: share of its samples whose verdict changed; NaN where none can be compared."""
        count = self.both.sum(axis=1)
        return np.where(count > 0, self.verdict.sum(axis=1) / np.maximum(count, 1), np.nan)


def _flips(before: Sheet, after: Sheet) -> _Flips:
    both = before.given & after.given
    differs = np.asarray(before.fields["text"] != after.fields["text"])
    return _Flips(both, both & (before.right != after.right), both & differs)


@dataclass(frozen=True)
class _Cell:
    """One model and one way of drawing answers."""

    run: ModelRun
    temperature: float
    samples: int

    def rows(self, first: Answers, again: Sheet) -> Iterator[Noise]:
        """By rounding, then under each condition, over the problems that both hold."""
        problems = list(range(min(first.problems, again.problems)))
        sheets = {name: first.of(name, self.samples, problems) for name in self.run.conditions}
        rounding = _flips(sheets[BASELINE], again.first(self.samples, len(problems)))
        for name, sheet in sheets.items():
            flips = rounding if name == BASELINE else _flips(sheets[BASELINE], sheet)
            row = self._row(name, flips)
            yield row if name == BASELINE else _beyond(row, flips, rounding)

    def _row(self, condition: str, flips: _Flips) -> Noise:
        means = flips.means[np.isfinite(flips.means)]
        low, high = _interval(means, self.samples)
        return Noise(
            self.run.name, self.run.label, self.temperature, self.samples, condition,
            way_of(self.run), len(means), int(flips.both.sum()), int(flips.verdict.sum()),
            float(means.mean()) if len(means) else NAN, low, high, int(flips.text.sum()),
        )  # fmt: skip


def _interval(means: Floats, samples: int) -> tuple[float, float]:
    low, high = wilson_interval(means.sum(), len(means)) if samples == 1 else accuracy_interval(means, _generator())
    return float(low), float(high)


def _beyond(row: Noise, flips: _Flips, rounding: _Flips) -> Noise:
    """The same with its difference to rounding, over the problems that have both."""
    both = np.isfinite(flips.means) & np.isfinite(rounding.means)
    gaps = (flips.means - rounding.means)[both]
    if not len(gaps):
        return row
    low, high = (float(bound) for bound in paired_interval(gaps, _generator()))
    p = permutation_test(gaps, _generator())  # for one sample a problem, the exact McNemar test
    return replace(
        row, pairs=len(gaps), rounding=float(rounding.means[both].mean()), difference=float(gaps.mean()),
        difference_low=low, difference_high=high, p=p,
    )  # fmt: skip


def _adjusted(rows: list[Noise]) -> list[Noise]:
    adjusted = holm(np.array([row.p for row in rows]))
    return [replace(row, adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]


def _generator() -> np.random.Generator:
    return np.random.default_rng(SEED)
