"""Progress: what long work reports, and who listens: nobody, or a person at a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self

EARLY = 0.05  # of the work: before that the time left cannot be told


class Progress(Protocol):
    """Told by long work how far it is. Every method may be called any number of times."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        """How far a stage is: done of total, which is None where it is not known; bytes, where there are any."""

    def say(self, text: str) -> None:
        """A line that stays."""


class Silent:
    """The progress of somebody who does not want to know."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        pass

    def say(self, text: str) -> None:
        pass


SILENT = Silent()


class TerminalProgress:
    """A bar with the time left on a terminal, a line now and then elsewhere. Use it as a context manager.

    Writes to stderr, so that tables and JSON on stdout stay clean."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._stage = quiet, ""
        self._bar: Any = None
        self._task: Any = None
        self._started = self._spoke = 0.0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def stage(self, text: str, done: float, total: int | None) -> None:
        """How far a stage is. Calls with the same text move the same bar."""
        if self._bar is not None:
            self._move(text, done, total)
        elif not self._quiet:
            self._mention(text, done, total)

    def _move(self, text: str, done: float, total: int | None) -> None:
        assert self._bar is not None
        if text != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._stage = self._bar.add_task(text, total=total), text
        self._bar.update(self._task, completed=done, total=total)

    def _mention(self, text: str, done: float, total: int | None) -> None:
        """Without a terminal: when a stage begins, and every fifteen seconds while it lasts."""
        now = time.monotonic()
        if text != self._stage:
            self._stage, self._started, self._spoke = text, now, now
            self.say(f"{text} ...")
        elif total and now - self._spoke > 15 and 0 < done < total:
            left = (now - self._started) / done * (total - done)
            known = f", about {left:.0f} s left" if done / total >= EARLY else ""
            self.say(f"{text}: {done / total:.0%}{known}")
            self._spoke = now


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
