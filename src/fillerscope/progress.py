"""Progress of long work: the protocol, one that shows nothing, and one for a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

EARLY = 0.05  # of the work: before that the time left is not shown


class Progress(Protocol):
    """What long work calls to report how far it is. Every method may be called any number of times."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        """Report how much of a stage is done, in any unit; `total` is None where it is not known."""

    def say(self, text: str) -> None:
        """Show a line that stays."""


class Silent:
    """A progress that shows nothing."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        pass

    def say(self, text: str) -> None:
        pass


SILENT = Silent()


class TerminalProgress:
    """Shows a bar with the time left on a terminal, and a line now and then elsewhere. Use it as a context manager.

    Writes to stderr, so that tables and JSON on stdout stay clean."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet, self._stage = quiet, ""
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._started = self._last_line = 0.0

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
        """Move the bar of a stage; a new text starts a new bar."""
        if self._bar is not None:
            self._move_bar(text, done, total)
        elif not self._quiet:
            self._print_line(text, done, total)

    def _move_bar(self, text: str, done: float, total: int | None) -> None:
        assert self._bar is not None
        if self._task is None or text != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._stage = self._bar.add_task(text, total=total), text
        self._bar.update(self._task, completed=done, total=total)

    def _print_line(self, text: str, done: float, total: int | None) -> None:
        """Print a line when a stage starts, and every fifteen seconds after that."""
        now = time.monotonic()
        if text != self._stage:
            self._stage, self._started, self._last_line = text, now, now
            self.say(f"{text} ...")
        elif total and now - self._last_line > 15 and 0 < done < total:
            left = (now - self._started) / done * (total - done)
            time_left = f", about {left:.0f} s left" if done / total >= EARLY else ""
            self.say(f"{text}: {done / total:.0%}{time_left}")
            self._last_line = now


def _bar() -> Bar:
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
