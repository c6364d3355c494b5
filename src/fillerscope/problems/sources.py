"""Load the problems of a study: built in, from a file, or from a data set on the hub.

Makes problems of rows and refuses ambiguous ones with their place; `recognise.py` says which column is what. Knows
nothing of prompts, of tokens, or of how an answer is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fillerscope.errors import ProblemError
from fillerscope.files import digest_of
from fillerscope.problems.arithmetic import generate
from fillerscope.problems.hub import fetch
from fillerscope.problems.problem import Meta, Problem
from fillerscope.problems.readers import Row, kind_of, read_rows
from fillerscope.problems.recognise import RECOGNISED, Recognised, names_of, recognise
from fillerscope.progress import SILENT, Progress
from fillerscope.study.data_sets import BUILTIN, DEFAULT_SPLIT, HUB, DataSet, data_set
from fillerscope.study.study import ProblemsSpec

__all__ = ["Problem", "ProblemSet", "load_problems", "problems_digest", "read_problems"]

BUILTIN_COUNT = 64
META_LENGTH = 200
# Short in some rows and long in others: out of meta in all of them.
LONG_TEXT = {"solution", "rationale", "explanation", "reasoning", "response", "generated_solution"}


@dataclass(frozen=True)
class ProblemSet:
    """Problems, and what was recognised in the data that they come from; None where they are built in."""

    problems: list[Problem]
    recognised: Recognised | None = None


def load_problems(spec: ProblemsSpec, progress: Progress = SILENT) -> list[Problem]:
    """The first `limit` problems of the source in its own order, or all where there are fewer."""
    return read_problems(spec, progress).problems


def read_problems(spec: ProblemsSpec, progress: Progress = SILENT) -> ProblemSet:
    """The same, with what was recognised in the data."""
    if spec.source == BUILTIN:
        return ProblemSet(generate(spec.limit or BUILTIN_COUNT, spec.seed, spec.difficulty, spec.kind))
    known = data_set(spec.source)
    rows = list(islice(_rows(spec, known, progress), spec.limit))
    if not rows:
        raise ProblemError(f"{spec.source} holds no problems; give a source with at least one row")
    fields = {**known.fields, **spec.fields} if known else spec.fields
    columns = recognise(rows, spec.model_copy(update={"fields": fields}))
    return ProblemSet(list(_problems(rows, columns)), columns)


def problems_digest(problems: Iterable[Problem]) -> str:
    """The digest of ids, questions and answers; meta only groups problems, so it is left out."""
    return digest_of([[problem.id, problem.question, problem.answer] for problem in problems])


def _rows(spec: ProblemsSpec, known: DataSet | None, progress: Progress) -> Iterator[Row]:
    if known is None and not spec.source.startswith(HUB):
        yield from read_rows(Path(spec.source), spec.source)
        return
    for path, name in _files(spec, known, progress):
        yield from read_rows(path, name)


def _files(spec: ProblemsSpec, known: DataSet | None, progress: Progress) -> Iterator[tuple[Path, str]]:
    """The files of a data set on the hub. Where one that goes by a word cannot be had, the error says what to do."""
    if known is None:
        yield from fetch(spec.source.removeprefix(HUB), spec.split, progress)
        return
    split = known.split if spec.split == DEFAULT_SPLIT else spec.split
    try:
        yield from fetch(known.repo, split, progress)
    except ProblemError as error:
        fields = " and ".join(known.fields[role] for role in ("question", "answer"))
        file = f"{known.name}.jsonl"
        advice = f"without the hub, save its problems as {file} beside the study, an object with {fields} a line"
        raise ProblemError(f"{spec.source}: {error}; {advice}, and write `source: {file}`") from None


def _problems(rows: Sequence[Row], columns: Recognised) -> Iterator[Problem]:
    places: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        problem = _problem(row, number, columns)
        if problem.id in places:
            advice = "give each row its own, or name another column in `problems.fields`"
            raise ProblemError(f"{row.place}: id {problem.id!r} is also at {places[problem.id]}; {advice}")
        places[problem.id] = row.place
        yield problem


def _problem(row: Row, number: int, columns: Recognised) -> Problem:
    named, own = columns.named, {role: columns.column(row, role) for role in RECOGNISED}
    return Problem(
        id=_short(row, own["id"], required="id" in named) or f"row-{number:06d}",
        question=_question(row, own["question"]),
        answer=_answer(row, own["answer"], columns),
        meta=_meta(row, set(own.values())),
    )


def _question(row: Row, column: str | None) -> str:
    if column is None:
        names = " or ".join(RECOGNISED["question"])
        advice = "name the question's column in `problems.fields`"
        raise ProblemError(f"{row.place}: no field {names}; the row has {names_of(row)}; {advice}")
    value = row.fields[column]
    if not isinstance(value, str):
        raise ProblemError(f"{row.place}: {column}: a question is text, found {kind_of(value)}")
    if not value.strip():
        raise ProblemError(f"{row.place}: {column}: the question is empty; give its text or remove the row")
    return _sound(value, row, column)


def _answer(row: Row, column: str | None, columns: Recognised) -> str:
    """The answer, less the working that some data sets put before it."""
    required = "answer" in columns.named
    text = _short(row, column, required)
    answer = columns.extract(text) if text else ""
    if answer is None and columns.worked is None:
        raise ProblemError(
            f"{row.place}: {column}: `problems.answer_form` is {columns.form}, and this text is not written so; "
            "mend it, or choose another form"
        )
    if required and not answer:
        raise ProblemError(f"{row.place}: {column}: nothing follows ####; give the answer there")
    return answer or ""


def _short(row: Row, column: str | None, required: bool) -> str:
    """An id or answer as text: numbers as they are written, nothing as an empty text."""
    value = None if column is None else row.fields[column]
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # columns with gaps are often stored as floats
    if value is not None and not isinstance(value, str | int | float):
        raise ProblemError(f"{row.place}: {column}: expected text or a number, found {kind_of(value)}")
    text = "" if value is None or value != value else str(value).strip()
    if required and not text:
        raise ProblemError(f"{row.place}: {column}: is empty, and `problems.fields` names it; fill it in")
    return _sound(text, row, column)


def _meta(row: Row, used: set[str | None]) -> Meta:
    others = {name: value for name, value in row.fields.items() if name not in used}
    return {name: value for name, value in others.items() if _is_small(value) and name.lower() not in LONG_TEXT}


def _is_small(value: object) -> bool:
    """What a table of results can hold in one cell."""
    if isinstance(value, str):
        return len(value) <= META_LENGTH and _is_unicode(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 2**63


def _sound(text: str, row: Row, column: str | None) -> str:
    if not _is_unicode(text):
        raise ProblemError(f"{row.place}: {column}: holds half a character (a lone surrogate); write it again")
    return text


def _is_unicode(text: str) -> bool:
    """JSON can spell half of a surrogate pair, which no tokenizer and no file takes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
