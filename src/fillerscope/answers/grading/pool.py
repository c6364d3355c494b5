"""Several graders at work at once: a comparison takes a process of its own some 20 milliseconds.

Verdicts depend on the answer alone, so that of an answer is the same whichever grader gives it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import LifoQueue
from types import TracebackType
from typing import Self

from fillerscope.answers.grading.grade import Finish, Grade, Grader

MOST = 8  # processes; each takes some 150 MB


class GraderPool:
    """Grades many answers at once, on half of the cores. A process is started when the others are busy."""

    def __init__(self, size: int | None = None) -> None:
        size = size or min(MOST, max(1, _cores() // 2))
        self.graders = [Grader() for _ in range(size)]
        self._free: LifoQueue[Grader] = LifoQueue()  # the one that was used last, which runs already, is taken first
        for grader in self.graders:
            self._free.put(grader)
        self._threads = ThreadPoolExecutor(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._threads.shutdown(cancel_futures=True)
        for grader in self.graders:
            grader.worker.stop()

    def start(self) -> list[Future[None]]:
        """Start all processes now, beside other work, instead of when they are needed."""
        return [self._threads.submit(self._start_one) for _ in self.graders]

    def grade_all(self, answers: Sequence[tuple[str, str, Finish]]) -> list[Grade]:
        """The grades of answers, each with its reference and how it ended, in their order."""
        return list(self._threads.map(self._grade, answers))

    def _start_one(self) -> None:
        with self._grader() as grader:
            grader.worker.start()

    def _grade(self, answer: tuple[str, str, Finish]) -> Grade:
        with self._grader() as grader:
            return grader.grade(*answer)

    @contextmanager
    def _grader(self) -> Iterator[Grader]:
        """One that nobody else uses meanwhile."""
        grader = self._free.get()
        try:
            yield grader
        finally:
            self._free.put(grader)


def _cores() -> int:
    """The cores that this process may use: a scheduler gives a job some of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
