"""What the page asks of a run's answers, as JSON (`payload_types`): accuracies, the noise floor, flips, transcripts.

The explorer sends them, the report holds some of them. Knows no server and no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.answers import Answers, answers
from fillerscope.analysis.findings.all import available_comparison, available_noise
from fillerscope.analysis.findings.noise import beyond_rounding, rounding
from fillerscope.analysis.findings.significance import drawing, significance
from fillerscope.analysis.flips import Flip as Changed
from fillerscope.analysis.flips import flips
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.noise import Noise
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import FigureError
from fillerscope.figures.condition_text import name_of
from fillerscope.report.answer_types import (
    Answer,
    Comparison,
    ComparisonRow,
    Flip,
    Flips,
    NoiseRow,
    Side,
    Transcripts,
)
from fillerscope.report.packed_arrays import clean
from fillerscope.store.schema import AnsweredProblem

PAGE = 50  # answers sent at once


def comparison(run: Run, by: str | None = None) -> Comparison:
    """The comparison table, and the fields that it can be split by."""
    fields = sorted({key for problem in run.problems() for key in problem["meta"]})
    rows = rows_told(run, available_comparison(run) if not by else compare(run, by=by))
    return {"rows": rows, "fields": fields, "noise": [] if by else noise_told(run)}


def rows_told(run: StoredRun, rows: Sequence[Accuracy]) -> list[ComparisonRow]:
    """The rows of a comparison with the words to each."""
    records = [row.record() | _words(run, row, significance(row.against) if row.against else "") for row in rows]
    return cast("list[ComparisonRow]", clean(records))


def _words(run: StoredRun, row: Accuracy | Noise, verdict: str) -> dict[str, str]:
    return {"name": name_of(run, row.condition), "drawing": drawing(row), "verdict": verdict}


def noise_told(run: Run) -> list[NoiseRow]:
    """The noise floor of every model that has one, with the words to each row."""
    rows = [row for model in run.models for row in available_noise(run[model])]
    records = [row.record() | _words(run, row, _judged(row)) for row in rows]
    return cast("list[NoiseRow]", clean(records))


def _judged(row: Noise) -> str:
    return rounding(row) if row.condition == "none" else beyond_rounding(row)


def flipped(run: ModelRun, condition: str, against: str, temperature: float | None) -> Flips:
    """The problems whose verdict changed, at one temperature or the study's first."""
    changed = [_flip(one) for one in flips(run, condition, against, temperature)]
    answer: Flips = {"condition": condition, "against": against, "flips": changed}
    return clean(answer)


def _flip(flip: Changed) -> Flip:
    before, after = (cast("Side", side) for side in (flip.before, flip.after))
    return {
        "id": flip.id, "sample": flip.sample, "direction": "gained" if flip.direction == "gained" else "lost",
        "question": flip.question, "reference": flip.reference, "before": before, "after": after,
    }  # fmt: skip


def transcripts(run: ModelRun, wanted: Mapping[str, str], start: int = 0) -> Transcripts:
    """Some answers at a time: of a condition, of a verdict, with a text in question, answer, reference or id."""
    if start < 0:
        raise FigureError(f"answers are counted from 0, not from {start}")
    temperature = float(wanted["temperature"]) if wanted.get("temperature") else None
    every = _transcripts(answers(run, temperature), run.problems())
    rows = [row for row in every if _matches(row, wanted)]
    answer: Transcripts = {"total": len(rows), "start": start, "answers": rows[start : start + PAGE]}
    return clean(answer)


def _transcripts(every: Answers, problems: Sequence[AnsweredProblem]) -> Iterator[Answer]:
    """Every answer, condition by condition. Problems are taken by number, because ids need not differ."""
    for place, name in enumerate(every.conditions):
        columns = {key: array[:, place] for key, array in every.fields.items()}
        for problem, sample in np.ndindex(columns["id"].shape):
            side = cast("Side", {key: array[problem, sample] for key, array in columns.items()})
            question, reference = problems[problem]["question"], problems[problem]["answer"]
            yield {**side, "condition": name, "sample": sample + 1, "question": question, "reference": reference}


def _matches(row: Answer, wanted: Mapping[str, str]) -> bool:
    if wanted.get("condition") not in (None, "", row["condition"]):
        return False
    if wanted.get("verdict") not in (None, "", row["verdict"]):
        return False
    needle = wanted.get("text", "").casefold()
    return any(needle in text.casefold() for text in (row["text"], row["question"], row["reference"], row["id"]))
