"""Load the problems of a study: built in, from a file, or from a data set on the hub.

Decides which column is the question, the answer and the id, and refuses ambiguous rows with their place.
Knows nothing of prompts, of tokens, or of how an answer is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

from fillerscope.errors import ProblemError
from fillerscope.problems.arithmetic import generate
from fillerscope.problems.hub import fetch
from fillerscope.problems.problem import Meta, Problem
from fillerscope.problems.readers import Row, kind_of, one_line, read_rows
from fillerscope.study.study import ProblemsSpec, digest_of

__all__ = ["Problem", "load_problems", "problems_digest"]

Role = Literal["id", "question", "answer"]
# Names are tried in this order, whatever their case.
RECOGNISED: dict[Role, tuple[str, ...]] = {
    "id": ("unique_id", "id", "problem_id"),
    "question": ("problem", "question", "prompt", "input"),
    "answer": ("answer", "target", "expected_answer", "final_answer"),
}
BUILTIN_COUNT = 64
META_LENGTH = 200
# Short in some rows and long in others: out of meta in all of them.
LONG_TEXT = {"solution", "rationale", "explanation", "reasoning", "response", "generated_solution"}


def load_problems(spec: ProblemsSpec) -> list[Problem]:
    """The first `limit` problems of the source in its own order, or all where there are fewer."""
    if spec.source == "builtin":
        return generate(spec.limit or BUILTIN_COUNT, spec.seed, spec.difficulty, spec.kind)
    problems = list(_problems(islice(_rows(spec), spec.limit), spec.fields))
    if not problems:
        raise ProblemError(f"{spec.source} holds no problems; give a source with at least one row")
    return problems


def problems_digest(problems: Iterable[Problem]) -> str:
    """The digest of ids, questions and answers; meta only groups problems, so it is left out."""
    return digest_of([[problem.id, problem.question, problem.answer] for problem in problems])


def _rows(spec: ProblemsSpec) -> Iterator[Row]:
    if spec.source.startswith("hub:"):
        for path, name in fetch(spec.source.removeprefix("hub:"), spec.split):
            yield from read_rows(path, name)
    else:
        yield from read_rows(Path(spec.source), spec.source)


def _problems(rows: Iterable[Row], named: Mapping[Role, str]) -> Iterator[Problem]:
    places: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        problem = _problem(row, number, named)
        if problem.id in places:
            advice = "give each row its own, or name another column in `problems.fields`"
            raise ProblemError(f"{row.place}: id {problem.id!r} is also at {places[problem.id]}; {advice}")
        places[problem.id] = row.place
        yield problem


def _problem(row: Row, number: int, named: Mapping[Role, str]) -> Problem:
    columns = {role: _column(row, role, named) for role in RECOGNISED}
    return Problem(
        id=_short(row, columns["id"], required="id" in named) or f"row-{number:06d}",
        question=_question(row, columns["question"]),
        answer=_answer(row, columns["answer"], required="answer" in named),
        meta=_meta(row, set(columns.values())),
    )


def _column(row: Row, role: Role, named: Mapping[Role, str]) -> str | None:
    if role in named and named[role] not in row.fields:
        missing = f"no field {named[role]!r}, which problems.fields.{role} names"
        raise ProblemError(f"{row.place}: {missing}; the row has {_names(row)}")
    if role in named:
        return named[role]
    by_lower = {name.lower(): name for name in reversed(row.fields)}
    return next((by_lower[name] for name in RECOGNISED[role] if name in by_lower), None)


def _question(row: Row, column: str | None) -> str:
    if column is None:
        names = " or ".join(RECOGNISED["question"])
        advice = "name the question's column in `problems.fields`"
        raise ProblemError(f"{row.place}: no field {names}; the row has {_names(row)}; {advice}")
    value = row.fields[column]
    if not isinstance(value, str):
        raise ProblemError(f"{row.place}: {column}: a question is text, found {kind_of(value)}")
    if not value.strip():
        raise ProblemError(f"{row.place}: {column}: the question is empty; give its text or remove the row")
    return _sound(value, row, column)


def _answer(row: Row, column: str | None, required: bool) -> str:
    """The answer: the text after `####`, which some data sets put between working and answer, or all of it."""
    answer = _short(row, column, required).rpartition("####")[2].strip()
    if required and not answer:
        raise ProblemError(f"{row.place}: {column}: nothing follows ####; give the answer there")
    return answer


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


def _names(row: Row) -> str:
    return one_line(", ".join(row.fields) or "no fields")
