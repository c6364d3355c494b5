"""The work of a run on Ray, in order: which shard a free worker takes next, and which results can be written.

Knows neither Ray nor files. Shards of one stage of one model are handed out in order, and leave it in order.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MOST_FAILURES = 3  # of a shard, before it is stored as failed
AHEAD = 4  # results for each worker that may wait in memory for an earlier shard

Result = TypeVar("Result")


@dataclass
class Unit:
    """A shard of one stage of one model, or the preparation of the stage, where there is no shard."""

    shard: int | None
    failures: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return len(self.failures) >= MOST_FAILURES


@dataclass
class Group(Generic[Result]):
    """The shards of one stage of one model that are missing. One worker prepares the stage before all others start."""

    model: int
    missing: Sequence[int]  # shards, in order
    is_ready: Callable[[int], bool] = lambda _: True  # whether what a shard needs is there
    is_preparing: bool = False
    is_prepared: bool = False
    is_closed: bool = False  # written and merged

    def __post_init__(self) -> None:
        self.preparation = Unit(None)
        self.waiting = deque(Unit(shard) for shard in self.missing)
        self.unwritten = deque(self.missing)
        self.arrived: dict[int, Result] = {}

    def next_unit(self, workers: int) -> Unit | None:
        """The next shard to compute; none while too many wait for an earlier one, or what it needs is missing."""
        if not self.is_prepared or not self.waiting:
            return None
        shard = self.waiting[0].shard
        has_room = len(self.arrived) < AHEAD * workers or shard == self.unwritten[0]  # this one makes room
        return self.waiting.popleft() if has_room and shard is not None and self.is_ready(shard) else None

    def put_back(self, unit: Unit) -> None:
        """Let a unit that failed be taken again, before all later ones."""
        if unit.shard is None:
            self.is_preparing = False
        else:
            place = bisect(self.waiting, unit.shard, key=lambda one: -1 if one.shard is None else one.shard)
            self.waiting.insert(place, unit)

    def in_order(self) -> Iterator[tuple[int, Result]]:
        """The results that all earlier ones were taken before."""
        while self.unwritten and self.unwritten[0] in self.arrived:
            shard = self.unwritten.popleft()
            yield shard, self.arrived.pop(shard)


class Queue(Generic[Result]):
    """The groups of a run, in the order of the work."""

    def __init__(self, groups: Sequence[Group[Result]]) -> None:
        self.groups = groups

    def take(self, loaded: int | None, workers: int) -> tuple[Group[Result], Unit] | None:
        """What a worker does next that has this model loaded: a shard of that model, or of another, or a preparation.

        Stages are prepared in order: an untrained twin takes over what its model decided."""
        for group in sorted(self.groups, key=lambda one: one.model != loaded):  # a stable sort
            if unit := group.next_unit(workers):
                return group, unit
        first = next((one for one in self.groups if one.missing and not one.is_prepared), None)
        if first is None or first.is_preparing:
            return None
        first.is_preparing = True
        return first, first.preparation
