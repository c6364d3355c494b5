"""Load the problems of a study: built in, from a file, or from a data set on the hub.

Makes problems of rows and refuses ambiguous ones with their place; `recognise.py` says which column is what. Knows
nothing of prompts, of tokens, or of how an answer is judged.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from fillerscope.errors import ProblemError
from fillerscope.files import Json, digest_of_list
from fillerscope.problems.arithmetic import generate
from fillerscope.problems.hub import fetch
from fillerscope.problems.problem import Meta, Problem, repeated_questions
from fillerscope.problems.readers import read_rows
from fillerscope.problems.recognise import (
    RECOGNISED,
    Recognised,
    column_of,
    names_of,
    recognise,
    recognised_alike,
    refuse_rivals,
)
from fillerscope.problems.rows import BadRow, Row, kind_of, number_text, one_line
from fillerscope.progress import SILENT, Progress
from fillerscope.study.arguments import is_text
from fillerscope.study.data_sets import BUILTIN, DEFAULT_SPLIT, HUB, DataSet, data_set
from fillerscope.study.study import ProblemsSpec

__all__ = ["Problem", "ProblemSet", "load_problems", "problems_digest", "read_problems", "skipped_rows"]

BUILTIN_COUNT = 64
META_LENGTH = 200
LONGEST_SHOWN, LONGEST_ID = 60, 250  # characters of an id: those of all problems are in one header
MOST_AGAIN = 5_000_000  # rows that are judged again after others were skipped, and 20 times as many as were read
MOST_RECORDED = 1000  # skipped rows whose place and reason a run keeps; all are counted
# Short in some rows and long in others: out of meta in all of them.
LONG_TEXT = {"solution", "rationale", "explanation", "reasoning", "response", "generated_solution"}


@dataclass(frozen=True)
class ProblemSet:
    """Problems, and what was recognised in the data that they come from; None where they are built in.

    `rows` counts the rows that were read: there are as many problems and skipped rows together."""

    problems: list[Problem]
    recognised: Recognised | None = None
    rows: int = 0
    skipped: tuple[BadRow, ...] = ()

    @property
    def repeated(self) -> int:
        """How many problems have the question of an earlier one."""
        return repeated_questions(problem.question for problem in self.problems)

    def record(self) -> Json:
        """What was recognised, repeated questions and skipped rows, for programs and for the run folder."""
        recognised = self.recognised.record() if self.recognised else {}
        first = [bad.record() for bad in self.skipped[:MOST_RECORDED]]
        counts = {"rows": self.rows, "repeated": self.repeated, "skipped": len(self.skipped)}
        return recognised | counts | {"skipped_rows": first}


def skipped_rows(read: int, skipped: int, first: str) -> str:
    """One line that says how many rows were skipped, and why the first of them was."""
    return f"{skipped:,} of {read:,} rows of data {'was' if skipped == 1 else 'were'} skipped; the first, {first}"


def load_problems(spec: ProblemsSpec, progress: Progress = SILENT) -> list[Problem]:
    """The first `limit` problems of the source in its own order, or all where there are fewer."""
    return read_problems(spec, progress).problems


def read_problems(spec: ProblemsSpec, progress: Progress = SILENT, graded: bool = False) -> ProblemSet:
    """The same, with what was recognised in the data. Where answers are `graded`, a row without one can be skipped."""
    if spec.source == BUILTIN:
        problems = generate(spec.limit or BUILTIN_COUNT, spec.seed, spec.difficulty, spec.kind)
        return ProblemSet(problems, rows=len(problems))
    known = data_set(spec.source)
    fields = {**known.fields, **spec.fields} if known else spec.fields
    mapped = spec.model_copy(update={"fields": fields})
    return _Reading(mapped, _rows(spec, known, progress), graded).problem_set()


def problems_digest(problems: Iterable[Problem]) -> str:
    """The digest of ids, questions and answers; meta only groups problems, so it is left out."""
    return digest_of_list([problem.id, problem.question, problem.answer] for problem in problems)


def _rows(spec: ProblemsSpec, known: DataSet | None, progress: Progress) -> Iterator[Row | BadRow]:
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


@dataclass
class _Reading:
    """Rows taken from a source, until there are as many problems as were asked for."""

    spec: ProblemsSpec
    rows: Iterator[Row | BadRow]
    graded: bool
    read: int = 0
    skipped: dict[int, BadRow] = field(default_factory=dict)  # by the number of the row
    places: dict[str, str] = field(default_factory=dict)  # of ids
    ahead: deque[tuple[int, Row | BadRow]] = field(default_factory=deque)  # rows that are looked at and not yet taken
    looked_at: int = 0
    rounds: int = 2  # how many rounds of replacements are tried at once
    again: int = 0  # rows that were judged again

    def problem_set(self) -> ProblemSet:
        """The problems. What is recognised can tell that more rows are bad: others are then taken in their place."""
        rows = self._taken(0)
        while rows:
            columns = recognise(list(rows.values()), self.spec)
            problems = self._problems(rows, columns)
            if len(problems) == len(rows):
                skipped = tuple(bad for _, bad in sorted(self.skipped.items()))
                return ProblemSet(list(problems.values()), columns, self.read, skipped)
            rows = {number: rows[number] for number in problems}
            self._refuse_endless(len(rows))
            self._replace(rows)
            rows |= self._taken(len(rows))
        if not self.skipped:
            raise ProblemError(f"{self.spec.source} holds no problems; give a source with at least one row")
        first = self.skipped[min(self.skipped)]
        raise ProblemError(f"{self.spec.source}: none of its {self.read} rows is a problem; the first, {first}")

    def _taken(self, before: int) -> dict[int, Row]:
        """The next rows that seem to be problems, by their numbers, as many as are wanted beside those before."""
        rows: dict[int, Row] = {}
        while self.spec.limit is None or before + len(rows) < self.spec.limit:
            following = self.ahead.popleft() if self.ahead else self._look()
            if following is None:
                break
            self.read, row = following
            if isinstance(row, Row):
                rows[self.read] = row
            else:
                self._skip(self.read, row)
        return rows

    def _look(self) -> tuple[int, Row | BadRow] | None:
        """The next row with its number, or what is wrong with it; None after the last."""
        row = next(self.rows, None)
        if row is None:
            return None
        self.looked_at += 1
        return self.looked_at, self._fault(row) or row

    def _look_ahead(self, count: int) -> list[Row]:
        """The next rows that seem to be problems, so many or all there are. They are not taken yet."""
        rows = list(islice((row for _, row in self.ahead if isinstance(row, Row)), count))
        try:
            while len(rows) < count and (following := self._look()):
                self.ahead.append(following)
                rows += [following[1]] if isinstance(following[1], Row) else []
        except ProblemError as error:
            self.rows = _failing(error)  # where the row is taken, if it is
        return rows

    def _replace(self, rows: dict[int, Row]) -> None:
        """Add rows as some rounds of `problem_set` would that judge them all alike, without a pass over all for each.

        With one row to replace by the first that is a problem, there is a round for each row of the source."""
        if self.spec.limit is None:
            return
        following = self._look_ahead(self.rounds * (self.spec.limit - len(rows)))
        columns = recognised_alike(list(rows.values()), following, self.spec)
        self.rounds = self.rounds * 2 if columns else max(self.rounds // 2, 2)
        left = len(following)
        while columns and 0 < (missing := self.spec.limit - len(rows)) <= left:
            left -= missing
            taken = self._taken(len(rows))
            rows |= {number: taken[number] for number in self._problems(taken, columns)}

    def _refuse_endless(self, count: int) -> None:
        """Refuse a source that has its rows judged again and again, because each that follows changes the others."""
        self.again += count
        if self.again > MOST_AGAIN + 20 * self.read:
            advice = "name the answer's column in `problems.fields` and its form in `problems.answer_form`"
            raise ProblemError(f"{self.spec.source}: too many of its rows are skipped because of others; {advice}")

    def _problems(self, rows: dict[int, Row], columns: Recognised) -> dict[int, Problem]:
        problems: dict[int, Problem] = {}
        for number, row in rows.items():
            try:
                problems[number] = self._problem(row, number, columns)
            except BadRow as bad:
                self._skip(number, bad)
        return problems

    def _problem(self, row: Row, number: int, columns: Recognised) -> Problem:
        problem = _problem(row, number, columns)
        if self.graded and self.spec.on_error == "skip" and not problem.answer:
            raise BadRow(row.place, "no answer to grade by; give one")
        return problem

    def _fault(self, row: Row | BadRow) -> BadRow | None:
        """What is wrong with a row, as far as other rows do not decide it."""
        if isinstance(row, BadRow):
            return row
        try:
            _check(row, self.spec)
            self._check_id(row)
        except BadRow as bad:
            return bad
        return None

    def _check_id(self, row: Row) -> None:
        name = _short(row, column_of(row, "id", self.spec.fields), required="id" in self.spec.fields)
        name = name or f"row-{self.looked_at:06d}"
        if len(name) > LONGEST_ID:
            advice = "name another column in `problems.fields`"
            raise BadRow(row.place, f"an id of {len(name):,} characters, {LONGEST_ID} at most; {advice}")
        if name in self.places:
            advice = "give each row its own, or name another column in `problems.fields`"
            raise BadRow(row.place, f"id {name[:LONGEST_SHOWN]!r} is also at {self.places[name]}; {advice}")
        self.places[name] = row.place

    def _skip(self, number: int, bad: BadRow) -> None:
        if self.spec.on_error == "stop":
            raise bad
        # Without the traceback, which holds on to the row, and without more of its texts than is shown.
        self.skipped[number] = BadRow(bad.place, one_line(bad.reason))


def _failing(error: ProblemError) -> Iterator[Row]:
    """Raise an error where the first row is asked for."""
    raise error
    yield


def _check(row: Row, spec: ProblemsSpec) -> None:
    """Refuse a row that is no problem whatever the others are."""
    refuse_rivals(row, spec.fields)
    _question(row, column_of(row, "question", spec.fields))
    _short(row, column_of(row, "answer", spec.fields), required="answer" in spec.fields)


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
        raise BadRow(row.place, f"no field {names}; the row has {names_of(row)}; {advice}")
    value = row.fields[column]
    if not isinstance(value, str):
        raise BadRow(row.place, f"{column}: a question is text, found {kind_of(value)}")
    if not value.strip():
        raise BadRow(row.place, f"{column}: the question is empty; give its text or remove the row")
    return _sound(value, row, column)


def _answer(row: Row, column: str | None, columns: Recognised) -> str:
    """The answer, less the working that some data sets put before it."""
    required = "answer" in columns.named
    text = _short(row, column, required)
    answer = columns.extract(text) if text else ""
    if answer is None and columns.worked is None:
        raise BadRow(
            row.place,
            f"{column}: `problems.answer_form` is {columns.form}, and this text is not written so; "
            "mend it, or choose another form",
        )
    if required and not answer:
        raise BadRow(row.place, f"{column}: nothing follows ####; give the answer there")
    return answer or ""


def _short(row: Row, column: str | None, required: bool) -> str:
    """An id or answer as text: numbers as they are written, nothing as an empty text."""
    value = None if column is None else row.fields[column]
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise BadRow(row.place, f"{column}: expected text or a number, found {kind_of(value)}; write it as text")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadRow(row.place, f"{column}: expected text or a number, found {value}; write null where there is none")
    if isinstance(value, float):
        value = number_text(value)  # 18 for 18.0: columns with gaps are often stored as floats
    text = "" if value is None else str(value).strip()
    if required and not text:
        raise BadRow(row.place, f"{column}: is empty, and `problems.fields` names it; fill it in")
    return _sound(text, row, column)


def _meta(row: Row, used: set[str | None]) -> Meta:
    others = {name: value for name, value in row.fields.items() if name not in used}
    return {name: value for name, value in others.items() if _is_small(value) and name.lower() not in LONG_TEXT}


def _is_small(value: object) -> bool:
    """What a table of results can hold in one cell."""
    if isinstance(value, str):
        return len(value) <= META_LENGTH and is_text(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 2**63


def _sound(text: str, row: Row, column: str | None) -> str:
    if not is_text(text):  # JSON can spell half of a surrogate pair, which no tokenizer and no file takes
        raise BadRow(row.place, f"{column}: holds half a character (a lone surrogate); write it again")
    return text
