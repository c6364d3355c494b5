"""Verdicts on answers.

    right      the answer equals the reference
    wrong      it does not; or it is none by the rules of `extract.py`; or it cannot be read as mathematics, or not
               be evaluated in the time and memory that a comparison may take
    no answer  the text ended by itself and holds no answer
    cut off    the text was truncated at the token limit and holds no answer
    failed     nothing was judged: there was no text, there is no reference or none that can be evaluated, or
               the process that compares was stopped from outside

Every text gets exactly one. What is `failed` counts neither as right nor as wrong, and is to be shown as a
count. No answer can bring it about, or a model could take the problems that it cannot solve out of its rate. A
reference that cannot be read as mathematics (a name, a word) is compared as text, whatever the answer.

Judges one answer against one reference. Knows nothing of samples, problems or rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from fillerscope.answers.grading.extract import extract, extract_box
from fillerscope.answers.grading.normalise import LONGEST, is_integer, same_word, tidy, unfit
from fillerscope.answers.grading.process import WorkerProcess
from fillerscope.errors import ProblemError

Verdict = Literal["right", "wrong", "no answer", "cut off", "failed"]
Finish = Literal["stop", "length", "failed"]
FINISHES: tuple[Finish, ...] = ("stop", "length", "failed")
MEMORY = 2 * 1024**3
WALL_FACTOR, WALL_LEAST = 10, 30.0


@dataclass(frozen=True)
class Grade:
    """A verdict, with the answer as it is in the text and a note that explains the verdict."""

    verdict: Verdict
    extracted: str | None = None
    note: str = ""


JUDGED: dict[str, tuple[Verdict, str]] = {
    "equal": ("right", ""),
    "different": ("wrong", ""),
    "unreadable": ("wrong", "the answer cannot be read as mathematics"),
    "no reference": ("wrong", "compared as text: the reference cannot be read as mathematics"),
    "refused": ("wrong", "not read: reading it would run a program"),
    "time": ("wrong", "the answer cannot be evaluated in time"),
    "memory": ("wrong", "the answer cannot be evaluated in memory"),
    "broken": ("wrong", "the answer cannot be evaluated"),
    "bad reference": ("failed", "the reference cannot be evaluated"),
    "hung": ("failed", "the comparison hung and was ended"),
    "died": ("failed", "the worker that compares was killed twice"),
}
UNDECIDED = ("time", "memory", "broken")


class Grader:
    """Grades answers in a worker process.

    `limit` is the CPU time of one comparison in seconds, `memory` its address space in bytes, a quarter resident."""

    def __init__(self, limit: float = 5.0, memory: int = MEMORY) -> None:
        self.worker = WorkerProcess(limit, max(WALL_LEAST, WALL_FACTOR * limit), memory)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.worker.stop()

    def grade(self, text: str, reference: str, finish: Finish) -> Grade:
        """The grade of a text that ended by `finish`."""
        if finish not in FINISHES:
            raise ProblemError(f"expected a finish of {', '.join(FINISHES)}, found {finish!r}; say how the text ended")
        if finish == "failed":
            return Grade("failed", note="no text was generated")
        if not reference.strip():
            return Grade("failed", note="the problem has no reference answer")
        extracted = extract(text, truncated=finish == "length")
        if extracted is None:
            return Grade("cut off" if finish == "length" else "no answer")
        verdict, note = self._compared(extracted, extract_box(reference))
        return Grade(verdict, extracted, note)

    def _compared(self, extracted: str, reference: str) -> tuple[Verdict, str]:
        if len(reference) > 2 * LONGEST:
            return JUDGED["no reference"]
        answer, wanted = tidy(extracted[: 2 * LONGEST]), tidy(reference)
        if answer == wanted or same_word(answer, wanted):
            return "right", ""
        if is_integer(answer) and is_integer(wanted):
            return ("right" if int(answer.replace(",", "")) == int(wanted.replace(",", "")) else "wrong"), ""
        if reason := unfit(answer):
            return "wrong", f"not read as mathematics: {reason}"
        if unfit(wanted):
            return JUDGED["no reference"]
        return JUDGED[self._outcome(wanted, answer)]

    def _outcome(self, reference: str, answer: str) -> str:
        outcome = self.worker.ask(reference, answer)
        if outcome in UNDECIDED and self.worker.ask(reference, "0") in UNDECIDED:
            return "bad reference"
        return outcome
