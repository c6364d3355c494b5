r"""Recognise what the columns of a data set hold: question, answer and id, and how its answers are written.

Looks at all rows that are taken, so that nothing is decided by the first of them. What is recognised is recorded, for
people to see; `problems.fields` and `problems.answer_form` of a study go before it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fillerscope.errors import ProblemError
from fillerscope.files import Json
from fillerscope.problems.boxed import boxed
from fillerscope.problems.rows import BadRow, Row, number_text, one_line
from fillerscope.study.data_sets import Role
from fillerscope.study.study import ProblemsSpec

Form = Literal["whole", "hashes", "box"]
ROLES: tuple[Role, ...] = get_args(Role)
# Names are tried in this order, whatever their case.
RECOGNISED: dict[Role, tuple[str, ...]] = {
    "id": ("unique_id", "id", "problem_id"),
    "question": ("problem", "question", "prompt", "instruction", "input", "query"),
    "answer": (
        "answer", "target", "expected_answer", "final_answer", "gold", "gold_answer", "ground_truth", "label",
    ),
}  # fmt: skip
# What stands beside a question or an answer and is neither: a prompt around it, a topic.
BESIDE: dict[Role, tuple[str, ...]] = {"question": ("prompt",), "answer": ("label",)}
# Columns that often hold the working as well: taken for answers only where they show which part is the answer, or where
# all of them are short.
WORKED = ("solution", "output", "response", "completion")
MOST_FIELDS = 10_000  # of all rows together: their names are stored with a run
SHORT = 40  # characters of a text that can be an answer as a whole
FORMS: dict[Form, str] = {
    "whole": "the whole text",
    "hashes": "what follows #### at its end",
    "box": "what stands in its last \\boxed{}",
}
MARKED: tuple[Form, ...] = ("hashes", "box")  # forms that show which part of a text is the answer
_CHOICES = re.compile(r"(?:answer_)?(?:choices?|options?)|(?P<letter>(?:(?:option|choice)[ _]?)?[a-e])", re.IGNORECASE)
_HASHES = re.compile(r"(?<!#)####(?!#)")


@dataclass(frozen=True)
class Recognised:
    """Which columns are taken for what, and how answers are written in theirs."""

    rows: int
    columns: Mapping[Role, tuple[str, ...]]  # most often several only where rows differ
    named: Mapping[Role, str]  # by the study
    others: tuple[str, ...]
    worked: str | None  # the column of worked solutions that answers come from
    form: Form
    matching: int  # answers that are written in this form
    written: int  # answers that are not empty
    choices: tuple[str, ...] = ()  # columns of a multiple-choice question, which are not asked
    are_places: bool = False  # whether all answers may be places among the choices

    def column(self, row: Row, role: Role) -> str | None:
        """The column of a row that has this role."""
        own = column_of(row, role, self.named)
        return own if own or role != "answer" or self.worked not in row.fields else self.worked

    def extract(self, text: str) -> str | None:
        """The answer in a text, or None where the text is not written in this form."""
        return _extract(text, self.form)

    @property
    def answers(self) -> str:
        """How answers are written, as text: empty where there are none."""
        if not self.columns["answer"] or not self.written:
            return ""
        some = "" if self.matching == self.written else f" ({self.matching} of {self.written} have it)"
        boxes = f"; {self.matching} of {self.written} are in a \\boxed{{}}, which grading takes off"
        return FORMS[self.form] + (some if self.form != "whole" else boxes if self.matching else "")

    def aside(self, role: Role) -> tuple[str, ...]:
        """Columns that have a usual name of a role and are not taken for it."""
        names = () if role in self.named or role not in BESIDE else RECOGNISED[role]
        return tuple(name for name in self.others if name.lower() in names)

    @property
    def not_asked(self) -> str:
        """One line that says which choices are no part of the question: empty where there are none."""
        if not self.choices:
            return ""
        asked, choices = ", ".join(self.columns["question"]), one_line(", ".join(self.choices))
        advice = f"write the choices into {asked} if it does not hold them"
        if self.are_places:
            advice += ", and the right letter or text as the answer: all answers may be places among them, from 0"
        return f"of a multiple-choice question only {asked} is asked, not {choices}; {advice}"

    def record(self) -> Json:
        """The same for programs and for the run folder."""
        return {
            "rows": self.rows,
            "columns": {role: list(columns) for role, columns in self.columns.items()},
            "named": dict(self.named),
            "others": list(self.others),
            "answer_form": self.form if self.answers else None,
            "answers": self.answers,
        }


def recognise(rows: Sequence[Row], spec: ProblemsSpec) -> Recognised:
    """What the columns of some rows hold; an error where that leaves a doubt."""
    named = spec.fields
    answered = any(column_of(row, "answer", named) for row in rows)
    worked = None if answered else _worked(rows, spec)
    columns = {role: _taken(rows, role, named) for role in ROLES}
    if worked is not None:
        columns["answer"] = (worked,)
    used = {column for names in columns.values() for column in names}
    others = tuple(dict.fromkeys(name for row in rows for name in row.fields if name not in used))
    if len(others) > MOST_FIELDS:
        raise ProblemError(f"the rows have more than {MOST_FIELDS:,} different fields; leave out those of no problem")
    texts = list(_texts(rows, columns["answer"]))
    form = _form([text for _, text in texts], spec) if worked is None else _worked_form(texts)
    if worked is None and spec.answer_form == "auto":
        _refuse_some_hashes(texts, columns["answer"])
    sign: Form = "box" if form == "whole" else form
    matching = sum(_extract(text, sign) is not None for _, text in texts)
    choices = _choices(rows, others)
    places = _are_places(rows, choices, [text for _, text in texts])
    return Recognised(len(rows), columns, named, others, worked, form, matching, len(texts), choices, places)


def recognised_alike(rows: Sequence[Row], others: Sequence[Row], spec: ProblemsSpec) -> Recognised | None:
    """What is recognised in all rows, where any of the others beside the first ones would have rows judged the same.

    None where that is not sure. Two passes tell: what all texts of a column are, or none is, holds for some of them."""
    try:
        first, both = recognise(rows, spec), recognise([*rows, *others], spec)
    except ProblemError:
        return None
    names = len(both.others) + sum(map(len, both.columns.values()))
    if first.worked is not None or not first.columns["answer"] or names > MOST_FIELDS:
        return None
    is_one = len(both.columns["answer"]) == 1
    is_alike = is_one and first.form == both.form and bool(first.written or not both.written)
    return both if is_alike or spec.answer_form != "auto" else None


def column_of(row: Row, role: Role, named: Mapping[Role, str]) -> str | None:
    """The column of a row that has a role by its name, or None; one that the study names must be there."""
    if role in named and named[role] not in row.fields:
        missing = f"no field {named[role]!r}, which problems.fields.{role} names"
        raise BadRow(row.place, f"{missing}; the row has {names_of(row)}")
    if role in named:
        return named[role]
    by_lower = {name.lower(): name for name in reversed(row.fields)}
    return next((by_lower[name] for name in RECOGNISED[role] if name in by_lower), None)


def refuse_rivals(row: Row, named: Mapping[Role, str]) -> None:
    """Refuse a row in which two columns may be the question, or the answer, and differ.

    An instruction with an input of its own is a question in two parts, which nobody can put together but its author."""
    for role in BESIDE:
        column = None if role in named else column_of(row, role, named)
        rival = _rival(row, role, column) if column else None
        if rival is not None:
            advice = f"name one as `problems.fields.{role}` (`--field {role}=COLUMN`)"
            advice += ", or join them in a column of its own" if role == "question" else ""
            raise BadRow(row.place, f"both {column} and {rival} hold text, and either may be the {role}; {advice}")


def _rival(row: Row, role: Role, column: str) -> str | None:
    """Another column that has a usual name of a role and says something else."""
    is_beside = column.lower() in BESIDE[role]
    names = [name for name in RECOGNISED[role] if is_beside or name not in BESIDE[role]]
    others = [name for name in row.fields if name != column and name.lower() in names]
    text = _text_as(row.fields[column], role) if others else ""
    return next((name for name in others if text and _text_as(row.fields[name], role) not in ("", text)), None)


def _text_as(value: object, role: Role) -> str:
    """What a value says as a question or an answer, less the working before it; empty where it says nothing."""
    if role == "question":
        return value.strip() if isinstance(value, str) else ""
    if not _is_filled(value):
        return ""
    whole = number_text(value) if isinstance(value, float) and math.isfinite(value) else str(value)
    return next((text for form in MARKED if (text := _extract(whole, form))), whole).strip()


def _is_filled(value: object) -> bool:
    return value == value and value not in (None, [], {}) and bool(str(value).strip())


def _choices(rows: Sequence[Row], others: Sequence[str]) -> tuple[str, ...]:
    """Columns that hold the choices of a multiple-choice question: a list of them, or one column for each."""
    matches = [match for name in others if (match := _CHOICES.fullmatch(name))]
    filled = [match for match in matches if any(_is_filled(row.fields.get(match[0])) for row in rows)]
    lettered = sum(match["letter"] is not None for match in filled)
    return tuple(match[0] for match in filled if match["letter"] is None or lettered > 2)


def _are_places(rows: Sequence[Row], choices: Sequence[str], answers: Sequence[str]) -> bool:
    """Whether all answers are single digits beside a list of choices."""
    is_list = len(choices) == 1 and any(isinstance(row.fields.get(choices[0]), list) for row in rows)
    return is_list and bool(answers) and all(re.fullmatch(r"\d", text) for text in answers)


def _taken(rows: Iterable[Row], role: Role, named: Mapping[Role, str]) -> tuple[str, ...]:
    """The columns that have a role, the most frequent first."""
    counts = Counter(column for row in rows if (column := column_of(row, role, named)))
    return tuple(column for column, _ in counts.most_common())


def _texts(rows: Iterable[Row], columns: Sequence[str]) -> Iterable[tuple[Row, str]]:
    """The answers that are not empty; numbers are texts as well, and NaN is none."""
    for row in rows:
        value = next((row.fields[column] for column in columns if column in row.fields), None)
        if isinstance(value, str | int | float) and value == value and str(value).strip():
            yield row, str(value)


def _worked(rows: Sequence[Row], spec: ProblemsSpec) -> str | None:
    """The column of worked solutions that answers can be taken from."""
    by_lower = {name.lower(): name for row in rows for name in row.fields}
    columns = [by_lower[name] for name in WORKED if name in by_lower and by_lower[name] != spec.fields.get("question")]
    for column in columns:
        if any(isinstance(row.fields.get(column), list | dict) for row in rows):
            continue
        texts = [text for _, text in _texts(rows, [column])]
        marked = any(_extract(text, form) is not None for text in texts for form in MARKED)
        if marked or (texts and all(len(text.strip()) <= SHORT and "\n" not in text.strip() for text in texts)):
            return column
    return None


def _worked_form(texts: Sequence[tuple[Row, str]]) -> Form:
    """The form that most of them have; the others give no answer."""
    counts = {form: sum(_extract(text, form) is not None for _, text in texts) for form in MARKED}
    best: Form = "hashes" if counts["hashes"] >= counts["box"] else "box"
    return best if counts[best] else "whole"


def _form(texts: Sequence[str], spec: ProblemsSpec) -> Form:
    if spec.answer_form != "auto":
        return spec.answer_form
    return next((form for form in MARKED if texts and all(_extract(text, form) is not None for text in texts)), "whole")


def _refuse_some_hashes(texts: Sequence[tuple[Row, str]], columns: Sequence[str]) -> None:
    without = [row for row, text in texts if _extract(text, "hashes") is None]
    if without and len(without) < len(texts):
        some = f"{len(texts) - len(without)} of {len(texts)} answers end with #### and a text, and this one does not"
        advice = "mend it, or set `problems.answer_form` to hashes or whole"
        raise ProblemError(f"{without[0].place}: {columns[0]}: {some}; {advice}")


def _extract(text: str, form: Form) -> str | None:
    if form == "hashes":
        last_line = text.rstrip().rpartition("\n")[2]
        match = _HASHES.search(last_line)
        return last_line[match.end() :].strip() if match else None
    return boxed(text) if form == "box" else text


def names_of(row: Row) -> str:
    """The fields of a row, for a message."""
    return one_line(", ".join(row.fields) or "no fields")
