"""What a model answered, as arrays of problems, conditions and samples. Judges nothing: grades come with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.model_run import ModelRun
from fillerscope.errors import FigureError, StoreError
from fillerscope.store.schema import Columns

Floats = NDArray[np.float64]
FIELDS = ("id", "verdict", "finish", "tokens", "extracted", "note", "text")
UNANSWERED = ("no answer", "cut off")


@dataclass(frozen=True)
class Answers:
    """One model at one temperature. Fields are arrays [problem, condition, sample]."""

    conditions: tuple[str, ...]
    fields: dict[str, NDArray[np.generic]]

    @property
    def problems(self) -> int:
        """Of a run in progress, those answered so far: the first ones."""
        return len(self.fields["id"])

    def of(self, condition: str, samples: int | None = None, problems: Sequence[int] | None = None) -> Sheet:
        """One condition: of all samples or the first so many, of all problems or some."""
        place = self.conditions.index(condition)
        chosen = slice(None) if problems is None else list(problems)
        return Sheet({name: array[chosen, place, :samples] for name, array in self.fields.items()})


@dataclass(frozen=True)
class Sheet:
    """The answers of one condition: arrays [problem, sample]."""

    fields: dict[str, NDArray[np.generic]]

    @property
    def problems(self) -> int:
        return len(self.fields["id"])

    def first(self, samples: int, problems: int | None = None) -> Sheet:
        """The first so many samples, of all problems or the first so many."""
        return Sheet({name: array[:problems, :samples] for name, array in self.fields.items()})

    @property
    def given(self) -> NDArray[np.bool_]:
        """Where there is an answer to judge. What failed is no evidence either way."""
        return np.asarray(self.fields["verdict"] != "failed")

    @property
    def right(self) -> NDArray[np.bool_]:
        return np.asarray(self.fields["verdict"] == "right")

    @property
    def means(self) -> Floats:
        """[problem]: share of its samples that are right; NaN where all failed."""
        count = self.given.sum(axis=1)
        return np.where(count > 0, (self.right & self.given).sum(axis=1) / np.maximum(count, 1), np.nan)

    def share(self, field: str, *values: str) -> float:
        """Of the answers that did not fail, how many have one of these values."""
        found = np.isin(self.fields[field], values)[self.given]
        return float(found.mean()) if found.size else float("nan")

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Where the token limit ended the answer."""
        return np.asarray(self.fields["finish"] == "length") & self.given

    @property
    def truncated_tokens(self) -> tuple[float, float]:
        """The length of the shortest and of the longest truncated answer; NaN where there is none."""
        lengths = self.fields["tokens"][self.truncated]
        return (float(lengths.min()), float(lengths.max())) if lengths.size else (float("nan"), float("nan"))

    @property
    def unanswered(self) -> float:
        """Of the answers that did not fail, how many ended by themselves and hold no answer."""
        silent = np.isin(self.fields["verdict"], UNANSWERED) & ~self.truncated
        return float(silent[self.given].mean()) if self.given.any() else float("nan")

    @property
    def finished_means(self) -> Floats:
        """As `means`; NaN where any answer to the problem was truncated."""
        return np.where(self.truncated.any(axis=1), np.nan, self.means)

    @property
    def truncated_means(self) -> Floats:
        """[problem]: share of its answers that were truncated; NaN where all failed."""
        count = self.given.sum(axis=1)
        return np.where(count > 0, self.truncated.sum(axis=1) / np.maximum(count, 1), np.nan)

    @property
    def tokens(self) -> float:
        found = self.fields["tokens"][self.given]
        return float(found.mean()) if found.size else float("nan")

    @property
    def diversity(self) -> float:
        """Distinct pairs of neighbouring words over all of them, among the samples of a problem; their mean."""
        shares = [_distinct(texts[kept]) for texts, kept in zip(self.fields["text"], self.given, strict=True)]
        found = [share for share in shares if np.isfinite(share)]
        return float(np.mean(found)) if found else float("nan")


def answers(run: ModelRun, temperature: float | None = None) -> Answers:
    """What a model answered at a temperature, the study's first unless one is named. A StoreError where it has
    answered nothing, or where the run is not finished and was not opened as one in progress."""
    wanted, samples = _drawn(run, temperature)
    columns = run.answer_columns()
    kept = np.array(columns["temperature"]) == wanted
    shape = (-1, len(run.conditions), samples)
    wanted_rows = run.answered() * shape[1] * shape[2]
    if kept.sum() != wanted_rows:
        raise StoreError(f"{run.path} holds {kept.sum()} answers, not {wanted_rows}; run the study again")
    return Answers(tuple(run.conditions), _fields(columns, kept, shape))


def answers_again(run: ModelRun, temperature: float | None = None) -> Sheet:
    """What the model answered the second time to prompts without filler: the noise floor. Of a run in progress, as
    many problems as are there."""
    wanted, samples = _drawn(run, temperature)
    columns = run.again_columns() or {name: [] for name in (*FIELDS, "temperature")}
    kept = np.array(columns["temperature"]) == wanted
    return Sheet(_fields(columns, kept, (-1, samples)))


def _drawn(run: ModelRun, temperature: float | None) -> tuple[float, int]:
    """The temperature that is meant, and how many samples were drawn at it."""
    spec = run.study.generation
    if spec is None:
        raise FigureError("this run has no answers; give `generation` in its study and run it again")
    wanted = spec.temperature[0] if temperature is None else temperature
    if wanted not in spec.temperature:
        raise FigureError(
            f"this run has no temperature {wanted:g}; it has {', '.join(f'{t:g}' for t in spec.temperature)}"
        )
    return wanted, spec.drawn(wanted)


def _fields(columns: Columns, kept: NDArray[np.bool_], shape: tuple[int, ...]) -> dict[str, NDArray[np.generic]]:
    return {name: np.array(columns[name], dtype=_kind(name))[kept].reshape(shape) for name in FIELDS}


def _kind(name: str) -> Any:
    return np.int64 if name == "tokens" else object


def _distinct(texts: Sequence[str]) -> float:
    pairs = Counter(pair for text in texts for pair in pairwise(text.split()))
    return len(pairs) / pairs.total() if pairs else float("nan")
