"""Progress of long work: the protocol, one that shows nothing, and one for a terminal, with the time left.

Stages of one kind take equally long for a unit of work, which is learned as they go; before a kind was seen, what a
plan said of it stands for it, or else its cost beside the others. What an earlier process did counts as done and never
as speed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from fillerscope.display import single_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, TaskID

WIDE = 100  # columns of a terminal, from which there is room for a bar beside the words
EARLY = 0.05  # share of a stage, before which its speed is not trusted
SMOOTHING = 8.0  # seconds in which most of a change of the estimate is shown
MOST_AGED = 0.5  # of the estimate, that passes by while nothing is reported
PAUSE = 15.0  # seconds between two lines of a log, at least


@dataclass(frozen=True)
class PlannedStage:
    """A stage to come. `units` are all of them; `before` of them were done by an earlier process."""

    kind: str  # stages of one kind take equally long for a unit
    units: float
    before: float = 0.0
    cost: float = 1.0  # of a unit, beside units of other kinds
    seconds: float | None = None  # of a unit, where somebody has planned it


Plan = Mapping[str, PlannedStage]  # by the text of the stage


class Progress(Protocol):
    """What long work calls to report how far it is. Every method may be called any number of times."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        """Report how much of a stage is done, in any unit; `total` is None where it is not known."""

    def say(self, text: str) -> None:
        """Show a line that stays."""


@runtime_checkable
class Planning(Protocol):
    """A progress that weighs stages which it is told of beforehand."""

    def plan(self, stages: Plan) -> None:
        """Take the stages to come, by their texts."""


def announce(progress: Progress, stages: Plan) -> None:
    """Tell a progress which stages will come, where it wants to know."""
    if isinstance(progress, Planning):
        progress.plan(stages)


class Silent:
    """A progress that shows nothing."""

    def stage(self, text: str, done: float, total: int | None) -> None:
        pass

    def say(self, text: str) -> None:
        pass


SILENT = Silent()


@dataclass
class _Pace:
    """The time that units of one kind took, as far as both are known."""

    seconds: float = 0.0
    units: float = 0.0


@dataclass
class TimeLeft:
    """Follows stages, and says what share of the plan is done and how many seconds are left.

    Without a plan, each stage with a known total is a plan of its own."""

    clock: Callable[[], float] = time.monotonic
    _plan: dict[str, PlannedStage] = field(default_factory=dict)
    _is_planned: bool = False
    _done: dict[str, float] = field(default_factory=dict)  # units done in this process, by stage
    _paces: dict[str, _Pace] = field(default_factory=dict)
    _stage: str = ""
    _reported: float = 0.0  # when a stage was last reported
    _shown: float | None = None  # seconds left as last shown, and when that was
    _shown_at: float = 0.0

    def plan(self, stages: Plan) -> None:
        """Take a new plan. What is done already has to be in its `before`."""
        self._plan, self._is_planned, self._done, self._shown = dict(stages), True, {}, None

    def report(self, text: str, done: float, total: float | None) -> None:
        """Take note of how much of a stage is done, of `total` where that is known."""
        now = self.clock()
        if not self._is_planned and text not in self._plan:
            self._plan = {text: PlannedStage(text, total, before=done)} if total else {}
            self._done, self._shown = {}, None
        if text in self._plan:
            before = 0.0 if self._is_planned else self._plan[text].before
            self._add(text, done - before - self._done.get(text, 0.0), now)
        self._stage, self._reported = text, now

    @property
    def share(self) -> float | None:
        """The share of the plan that is done; None where nothing is planned."""
        weight = sum(stage.cost * stage.units for stage in self._plan.values())
        done = sum(stage.cost * (stage.before + self._done.get(text, 0.0)) for text, stage in self._plan.items())
        return min(1.0, done / weight) if weight else None

    def left(self) -> float | None:
        """Seconds until the plan is done; None where that cannot be told yet. Moves slowly when the estimate jumps."""
        now, target = self.clock(), self._estimate()
        if target is None or self.share == 1:
            return None if target is None else 0.0
        if self._stage in self._plan:
            target -= min(now - self._reported, MOST_AGED * target)
        if self._shown is not None:
            passed = now - self._shown_at
            aged = max(0.0, self._shown - (passed if self._stage in self._plan else 0.0))
            target = aged + (target - aged) * (1 - math.exp(-passed / SMOOTHING))
        self._shown, self._shown_at = target, now
        return target

    def _add(self, text: str, units: float, now: float) -> None:
        self._done[text] = self._done.get(text, 0.0) + units
        if self._stage == text and units > 0:  # else something else may have happened in between
            pace = self._paces.setdefault(self._plan[text].kind, _Pace())
            pace.seconds += now - self._reported
            pace.units += units
        elif self._stage == text:
            self._paces.setdefault(self._plan[text].kind, _Pace()).seconds += now - self._reported

    def _estimate(self) -> float | None:
        """Seconds left by what is known now."""
        scale = self._scale()
        if scale is None and any(stage.seconds is None for stage in self._plan.values()):
            return None
        return sum(self._remaining(text) * self._unit_seconds(text, scale or 0.0) for text in self._plan)

    def _remaining(self, text: str) -> float:
        stage = self._plan[text]
        return max(0.0, stage.units - stage.before - self._done.get(text, 0.0))

    def _unit_seconds(self, text: str, scale: float) -> float:
        stage = self._plan[text]
        pace = self._paces.get(stage.kind)
        if pace and self._is_known(stage.kind):
            return pace.seconds / pace.units
        return scale * stage.cost if stage.seconds is None else stage.seconds

    def _scale(self) -> float | None:
        """Seconds for a unit of cost 1, over all kinds whose speed is known."""
        costs = {stage.kind: stage.cost for stage in self._plan.values()}
        known = [(self._paces[kind], cost) for kind, cost in costs.items() if self._is_known(kind)]
        cost = sum(cost * pace.units for pace, cost in known)
        return sum(pace.seconds for pace, _ in known) / cost if cost else None

    def _is_known(self, kind: str) -> bool:
        """Whether enough of a kind was seen: a twentieth of the smallest stage of it."""
        pace = self._paces.get(kind)
        sizes = [stage.units - stage.before for stage in self._plan.values() if stage.kind == kind]
        return pace is not None and pace.units > 0 and pace.units >= EARLY * min(sizes, default=0.0)


def clock_text(seconds: float) -> str:
    """Seconds as hours, minutes and seconds: 0:02:01."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class TerminalProgress:
    """Shows one line with the time left on a terminal, and lines now and then elsewhere. Use it as a context manager.

    Writes to stderr, so that tables and JSON on stdout stay clean."""

    def __init__(self, quiet: bool = False, later: Plan | None = None) -> None:
        """`later` are stages that come after those of any plan."""
        self._quiet, self._later = quiet, dict(later or {})
        self._time = TimeLeft(lambda: time.monotonic())
        self._started = self._last_line = time.monotonic()
        self._announced: set[str] = set()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._bar = _bar(self)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def plan(self, stages: Plan) -> None:
        self._time.plan({**stages, **self._later})

    def say(self, text: str) -> None:
        if self._quiet:
            return
        text = single_line(text)
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def stage(self, text: str, done: float, total: int | None) -> None:
        """Move to a stage, or on in it."""
        self._time.report(text, done, total)
        if self._bar is not None:
            self._move_bar(text)
        elif not self._quiet:
            self._print_line(text)

    @property
    def summary(self) -> str:
        """How far the work is: `28%  0:01:03 elapsed, 0:02:01 left`, with what of it is known."""
        share, left = self._time.share, self._time.left()
        percent = "" if share is None else f"{share:4.0%}  "
        return f"{percent}{clock_text(time.monotonic() - self._started)} elapsed" + (
            "" if left is None else f", {clock_text(left)} left"
        )

    def _move_bar(self, text: str) -> None:
        assert self._bar is not None
        share, shown = self._time.share, single_line(text)
        if self._task is None:
            self._task = self._bar.add_task(shown, total=None)
        self._bar.update(self._task, description=shown, completed=share or 0.0, total=None if share is None else 1.0)

    def _print_line(self, text: str) -> None:
        """Print a line when a stage starts, and then seldom, the longer the work takes."""
        now = time.monotonic()
        if text not in self._announced:
            self._announced.add(text)
            self._last_line = now
            self.say(f"{text} ...")
        elif now - self._last_line > max(PAUSE, 0.1 * (now - self._started)) and (self._time.share or 1.0) < 1:
            self._last_line = now
            self.say(f"{text}: {self.summary.strip()}")


def _bar(progress: TerminalProgress) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    bar: list[ProgressColumn] = [BarColumn(bar_width=20)] if console.width >= WIDE else []
    return Progress(SpinnerColumn(), text, *bar, _summary_column(progress), console=console, transient=True)


def _summary_column(progress: TerminalProgress) -> ProgressColumn:
    from rich.progress import ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Summary(ProgressColumn):
        """The share that is done, the time that has passed, and the time that is left."""

        def render(self, task: Task) -> Text:  # noqa: ARG002
            return Text(progress.summary)

    return Summary(table_column=Column(no_wrap=True, min_width=len("100%  0:00:00 elapsed, 0:00:00 left")))
