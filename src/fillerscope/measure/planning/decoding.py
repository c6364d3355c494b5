"""The batches of answers as a run forms them, without a model: prefill passes and decode steps, for answers of given
lengths.

Follows `answers/local/batch.py`: slots are filled in the same order and groups; a step computes all active rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fillerscope.answers.local.rows import PassSize, Prefix, prefix_of, start_order, taken
from fillerscope.answers.request import Request
from fillerscope.measure.planning.model_size import Work
from fillerscope.study.interventions import Redistribution


@dataclass(frozen=True)
class Steps:
    """Some decode steps in a row, over the same answers."""

    count: int
    rows: int
    width: float  # keys of the longest row, on average


@dataclass
class BatchWork:
    """What answering some requests takes."""

    answers: int = 0
    tokens: int = 0  # generated
    prefill: Work = field(default_factory=Work)
    passes: int = 0  # of prefill
    largest: int = 0  # tokens of a prefill pass
    steps: list[Steps] = field(default_factory=list)
    cells: int = 0  # slots times their capacity, at most

    def add(self, other: BatchWork) -> None:
        self.answers, self.tokens = self.answers + other.answers, self.tokens + other.tokens
        self.prefill, self.passes = self.prefill + other.prefill, self.passes + other.passes
        self.steps += other.steps
        self.largest, self.cells = max(self.largest, other.largest), max(self.cells, other.cells)


@dataclass(frozen=True)
class Lengths:
    """Lengths of sampled answers, in tokens: of those that ended, and up to which the others were watched."""

    ended: tuple[int, ...]
    watched: tuple[int, ...]  # of those that had not ended
    limit: int

    @property
    def sampled(self) -> int:
        return len(self.ended) + len(self.watched)

    @property
    def is_known(self) -> bool:
        """Whether every sampled answer was watched to its end."""
        return bool(self.sampled) and all(one >= self.limit for one in self.watched)

    def draw(self, count: int, seed: int) -> NDArray[np.int64]:
        """Lengths for some answers, each like a sampled one. What had not ended goes on to end as often, token by
        token, as all have on the whole; where nothing is known all take the limit."""
        if not self.sampled:
            return np.full(count, self.limit)
        rng = np.random.default_rng(seed)
        whole = np.array([*self.ended, *self.watched])
        places = np.resize(rng.permutation(len(whole)), count)  # in turn, so that few are not drawn by chance
        lengths = whole[places]
        still = places >= len(self.ended)
        hazard = len(self.ended) / max(1, int(whole.sum()))
        more = rng.geometric(hazard, count) if hazard else np.full(count, self.limit)
        return np.minimum(np.where(still, lengths + more, lengths), self.limit)


@dataclass(frozen=True)
class Generation:
    """How a model answers: rows at once, the passes of prompts, and the tokens that it takes."""

    rows: int
    prefill: PassSize
    whole: PassSize  # the same where prompts are computed whole
    limit: int  # tokens of an answer
    context: int | None
    cells: int | None = None  # tokens that memory holds, of all rows; None: as many as are asked for

    def work(self, requests: Sequence[Request], lengths: Sequence[int]) -> BatchWork:
        """The work of some requests whose answers have these lengths, batched by intervention as the engine does."""
        whole = BatchWork()
        for change in dict.fromkeys(request.change for request in requests):
            numbers = [number for number, request in enumerate(requests) if request.change == change]
            some = [requests[number] for number in numbers]
            most = [max(1, min(self.limit, self._room(request))) for request in some]
            own = [min(int(lengths[number]), room) for number, room in zip(numbers, most, strict=True)]
            is_whole = isinstance(change, Redistribution)
            capacity = max(len(request.ids) + room for request, room in zip(some, most, strict=True))
            held = len(some) if self.cells is None else max(1, self.cells // capacity)
            count = min(self.rows, len(some), held)
            batch = _Batch(some, own, count, is_whole, self.whole if is_whole else self.prefill)
            batch.run()
            batch.work.answers, batch.work.tokens = len(some), sum(own)
            batch.work.cells = count * capacity
            whole.add(batch.work)
        return whole

    def _room(self, request: Request) -> int:
        room = self.limit if request.room is None else request.room
        return room if self.context is None else min(room, self.context - len(request.ids) - request.gap[1])


class _Batch:
    """Requests with the same intervention. Rows are pairs: steps left, and keys."""

    def __init__(
        self, requests: Sequence[Request], lengths: Sequence[int], count: int, whole: bool, size: PassSize
    ) -> None:
        self.requests, self.lengths, self.count, self.whole, self.size = requests, lengths, count, whole, size
        self.queue = deque(start_order(requests, None))
        self.rows: list[tuple[int, int]] = []
        self.prefix: Prefix | None = None
        self.work = BatchWork()

    def run(self) -> None:
        enough = max(1, self.count // 8)
        while self.queue or self.rows:
            if self.count - len(self.rows) >= enough or not self.rows:
                while self.queue and len(self.rows) < self.count:
                    self.rows += [row for row in self._admitted(self.count - len(self.rows)) if row[0] > 0]
            if self.rows:
                self._step()

    def _step(self) -> None:
        """All steps until the next answer ends."""
        count = min(left for left, _ in self.rows)
        longest = max(keys for _, keys in self.rows)
        self.work.steps.append(Steps(count, len(self.rows), longest + (1 + count) / 2))
        self.rows = [(left - count, keys + count) for left, keys in self.rows if left > count]

    def _admitted(self, free: int) -> Iterator[tuple[int, int]]:
        if self.whole:
            chosen = taken(self.queue, self.requests, free, self.size)
            self._prefill(len(chosen), max(len(self.requests[n].ids) for n in chosen), 0)
            return ((self.lengths[n] - 1, len(self.requests[n].ids)) for n in chosen)  # the first token is written
        prefix = prefix_of(self.requests[self.queue[0]])
        chosen = taken(self.queue, self.requests, free, self.size, prefix)
        if prefix != self.prefix and prefix.ids:
            self._prefill(1, len(prefix.ids), 0)
            self.prefix = prefix
        start = len(prefix.ids)
        if width := max(len(self.requests[n].ids) - 1 - start for n in chosen):
            self._prefill(len(chosen), width, start)
        return ((self.lengths[n], len(self.requests[n].ids) - 1) for n in chosen)

    def _prefill(self, rows: int, width: int, start: int) -> None:
        self.work.prefill += Work(rows * width, rows * width * (start + width))
        self.work.passes += 1
        self.work.largest = max(self.work.largest, rows * width)
