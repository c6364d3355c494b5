"""One problem: a question, its answer, and what is known about it.

Where problems come from is in `sources.py`; how an answer is judged is in `answers/grading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fillerscope.errors import ProblemError

Meta = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Problem:
    """`answer` is empty where the source has none: attention can be measured without it."""

    id: str
    question: str
    answer: str
    meta: Meta = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ProblemError("a problem needs a non-empty id; give every problem its own")
        if not self.question.strip():
            raise ProblemError(f"problem {self.id!r} has an empty question; give its text, or leave it out")


def repeated_questions(questions: Iterable[str]) -> int:
    """How many questions equal an earlier one, but for blanks."""
    texts = [" ".join(question.split()) for question in questions]
    return len(texts) - len(set(texts))


def repeated_problems(repeated: int, problems: int) -> str:
    """One line that says how many problems repeat a question, and what that does to statistics."""
    return (
        f"{repeated:,} of {problems:,} problems {'repeats' if repeated == 1 else 'repeat'} the question of an earlier "
        "one: intervals and p values take them for independent, which makes both too small"
    )
