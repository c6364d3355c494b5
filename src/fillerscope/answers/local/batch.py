"""Requests with the same intervention, answered together: prompts enter slots, decode steps write a token each, and
answers leave when they are complete.

A step may be started before the tokens of the last one were read: then what ended is found one step late, and what it
wrote beyond its end is dropped. Knows nothing of texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fillerscope.answers.local.decode_table import Column, DecodeTable
from fillerscope.answers.local.graphs import (
    Graphs,
    NotCapturedError,
    Outputs,
    padded_rows,
    padded_width,
    slower_because,
)
from fillerscope.answers.local.padding import Padded, padded_behind, padded_in_front
from fillerscope.answers.local.rows import PassSize, Prefix, Row, prefix_of, taken
from fillerscope.answers.local.sampling import choose
from fillerscope.answers.local.slots import Pass, Slots
from fillerscope.answers.local.workspace import Workspace
from fillerscope.answers.request import Request
from fillerscope.arm.hooks import OneTokenRows, TokenRange, TokenRanges, redistributing
from fillerscope.arm.rng import sent
from fillerscope.capture.memory import PendingCopy
from fillerscope.models.structure import device_of, layer_count
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution


@dataclass(frozen=True)
class Setting:
    """With what and how requests are answered."""

    model: nn.Module
    decoding: Decoding
    stops: frozenset[int]
    exact: bool
    prefill: PassSize
    whole: PassSize  # the same where prompts are computed whole
    graphs: Graphs | None  # captured decode steps; None: each is computed as it is
    say: Callable[[str], None]  # called where a step cannot be captured, with the reason
    tick: Callable[[float], None]
    report: Callable[[Sequence[int], Tensor], None] | None  # called with the numbers of requests and their logits


class Batch:
    """Answers to some requests in progress."""

    def __init__(
        self, setting: Setting, workspace: Workspace, requests: Sequence[Request], rows: Sequence[Row],
        order: Sequence[int],
    ) -> None:  # fmt: skip
        self.setting, self.requests, self.rows = setting, requests, rows
        self.slots, self.table, self.small = workspace.slots, workspace.table, workspace.small
        self.table.cells.zero_()
        self.device = device_of(setting.model)
        self.queue = deque(index for index in order if rows[index].limit)
        self.active: list[Row] = []  # by slot; some have ended where steps are captured
        self.unread: deque[tuple[list[Row], PendingCopy]] = deque()  # tokens on their way to the host
        self.prefix: tuple[Prefix, Slots] | None = None  # the last one that was computed
        self.change = requests[0].change if requests else None
        self.ranges: TokenRanges = ()  # the tokens of the current pass
        self.graphs = setting.graphs
        self.enough = max(1, self.slots.count // 8)  # a prefill of several prompts is faster than several prefills

    def finished(self) -> Iterator[Row]:
        """Rows, as soon as their answers are complete."""
        if not isinstance(self.change, Redistribution):
            yield from self._run(self._admit)
            return
        with redistributing(self.setting.model, self.change, lambda: self.ranges):
            yield from self._run(self._admit_whole)

    def _run(self, admit: Callable[[int], None]) -> Iterator[Row]:
        yield from (row for row in self.rows if not row.limit)
        while self.queue or self.active:
            if self._free() >= self._wanted() or not self.active:
                while self.queue and self._free():  # in as many passes as it takes: no slot stays empty
                    admit(self._free())
                    yield from self._read(int(self._is_late()))
            stepped = self._step()
            yield from self._read(int(stepped and self._is_late()))

    def _free(self) -> int:
        return self.slots.count - len(self.active)

    def _wanted(self) -> int:
        """How many slots must be free for prompts to enter. With captured steps a pass over a few rows costs as much
        as one over many, so the last prompts enter together as soon as they can."""
        return self.enough if self.graphs is None else min(self.enough, len(self.queue))

    def _is_late(self) -> bool:
        """Whether tokens are read after the next step was started. Not where logits are reported: those of rows that
        have just ended would be among them."""
        return self.graphs is not None and self.setting.report is None

    # Prefill ---------------------------------------------------------------------------------------------

    def _admit_whole(self, free: int) -> None:
        """Prefill the next prompts as wholes, since the intervention acts on all of each; choose their first tokens."""
        rows = [self.rows[index] for index in self._next(free, self.setting.whole)]
        requests = [self.requests[row.index] for row in rows]
        padded = padded_in_front([request.ids for request in requests])
        self.ranges = [
            TokenRange(number, padded.width - len(request.ids), padded.width, request.key, 0)
            for number, request in enumerate(requests)
        ]
        first = self._enter(rows)
        logits = self._prefilled(self.slots, padded, first, rows)
        self._issue(rows, self._chosen(self.table.part(first, first + len(rows)), logits), logits)

    def _admit(self, free: int) -> None:
        """Prefill the next prompts with the same prefix, without their last token: the first decode step takes it."""
        prefix = prefix_of(self.requests[self.queue[0]])
        start = len(prefix.ids)
        rows = [self.rows[index] for index in self._next(free, self.setting.prefill, prefix)]
        first = self._enter(rows)
        if start:
            targets = torch.arange(first, first + len(rows), device=self.device)
            self.slots.copy(self._prefix_slots(prefix, rows[0]), torch.zeros_like(targets), targets, start)
        padded = padded_behind([self.requests[row.index].ids[start:-1] for row in rows], start)
        if padded.width:
            self._prefilled(self.slots, padded, first, rows)

    def _next(self, free: int, size: PassSize, prefix: Prefix | None = None) -> list[int]:
        return taken(self.queue, self.requests, free, size, prefix)

    def _enter(self, rows: Sequence[Row]) -> int:
        """Give slots to rows; the number of the first."""
        first = len(self.active)
        self.table.enter(first, rows, [self.requests[row.index] for row in rows])
        self.active += rows
        return first

    def _prefix_slots(self, prefix: Prefix, row: Row) -> Slots:
        """Slots that hold the keys and values of a prefix; the last prefix is kept."""
        if self.prefix is None or self.prefix[0] != prefix:
            slots = Slots(self.setting.model, layer_count(self.setting.model), 1, len(prefix.ids))
            self._prefilled(slots, padded_behind([prefix.ids], 0), 0, [row])
            self.prefix = prefix, slots
        return self.prefix[1]

    def _prefilled(self, slots: Slots, padded: Padded, first: int, rows: Sequence[Row]) -> Tensor:
        """Logits after the last tokens of a pass, whose keys and values go to slots from `first` on."""
        tokens, positions = sent(torch.from_numpy(np.stack([padded.ids, padded.places])), self.device)
        requests = [self.requests[row.index] for row in rows]
        width = 1 + int(padded.places.max())
        lengths = tuple((1 + padded.places[:, -1]).tolist()) if self.setting.exact else ()
        now = Pass(first, positions, width, self._hidden(requests, positions, width), lengths)
        with self.small.used() if self.graphs is not None and self.graphs.kernels else nullcontext():
            return slots.forward(tokens, now, self._skipped(requests, positions))

    def _hidden(self, requests: list[Request], positions: Tensor, width: int) -> tuple[Knockout, Tensor] | None:
        if not isinstance(self.change, Knockout):
            return None
        start, stop = sent(torch.tensor([request.filler for request in requests]), self.device).T[..., None, None]
        key = torch.arange(width, device=self.device)
        hidden = (positions[..., None] >= stop) & (key >= start) & (key < stop)
        return self.change, hidden[:, None]

    def _skipped(self, requests: list[Request], positions: Tensor) -> Tensor | int:
        """How many positions are skipped before each token, [row, query]."""
        if not any(request.gap[1] for request in requests):
            return 0
        gaps = sent(torch.tensor([request.gap for request in requests]), self.device)
        return gaps[:, 1:] * (positions >= gaps[:, :1])

    # Decode steps ----------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """Start one decode step for all active rows; whether one was needed."""
        if all(row.ended or row.issued == row.limit for row in self.active):
            return False
        self._issue(self.active, *self._stepped())
        return True

    def _stepped(self) -> Outputs:
        longest = 1 + max(row.length for row in self.active)
        while self.graphs is not None and self.slots.filled:
            try:
                return self._replayed(self.graphs, longest)
            except NotCapturedError as error:
                self._do_without(self.graphs, str(error))
        free = self._free() if self.setting.exact else 0
        lengths = (*(row.length + 1 for row in self.active), *[1] * free) if self.setting.exact else ()
        return self._decoded(len(self.active) + free, longest, lengths)

    def _replayed(self, graphs: Graphs, longest: int) -> Outputs:
        rows = padded_rows(len(self.active), self.slots.count)
        kernels = graphs.kernels and self.slots.suit_kernels()  # these read no further than a row's own keys
        width = self.slots.capacity if kernels else padded_width(longest, self.slots.capacity)
        decoding, with_logits = self.setting.decoding, self.setting.report is not None
        kind = (width, kernels, self.change, decoding.temperature, decoding.top_p, with_logits)
        return graphs.run(rows, kind, lambda: self._decoded(rows, width, kernels=kernels), self.table.cells)

    def _do_without(self, graphs: Graphs, reason: str) -> None:
        """Continue without our kernels, or, where these were not used, without captured steps."""
        if graphs.kernels and self.slots.suit_kernels():
            graphs.kernels = False
            return
        self.graphs, graphs.usable = None, False
        graphs.clear()
        self.setting.say(slower_because(reason))

    def _decoded(self, rows: int, width: int, lengths: tuple[int, ...] = (), kernels: bool = False) -> Outputs:
        """Compute a step: the next token of the first rows of the table, and their logits where `report` wants them."""
        table = self.table.part(0, rows)
        lengths_now = table.column(Column.LENGTH)
        self.ranges = OneTokenRows(table.column(Column.KEY), lengths_now)
        hidden = (self.change, table.hidden(width)) if isinstance(self.change, Knockout) else None
        now = Pass(0, lengths_now[:, None], width, hidden, lengths, kernels)
        with self.small.used() if kernels else nullcontext():
            logits = self.slots.forward(table.column(Column.PENDING)[:, None], now, table.skipped())
        return self._chosen(table, logits), logits if self.setting.report is not None else None

    def _chosen(self, table: DecodeTable, logits: Tensor) -> Tensor:
        """The next token of each row of the table, which takes it as its next input."""
        tokens = choose(logits, self.setting.decoding, table.drawn())
        table.advance(tokens)
        return tokens

    # Tokens and rows -------------------------------------------------------------------------------------

    def _issue(self, rows: Sequence[Row], tokens: Tensor, logits: Tensor | None) -> None:
        """Start to copy the tokens of a step to the host, and count them."""
        rows = list(rows)
        if self.setting.report is not None and logits is not None:
            live = [place for place, row in enumerate(rows) if not row.ended]
            self.setting.report([rows[place].index for place in live], logits[live])
        self.unread.append((rows, PendingCopy.of({"tokens": tokens[: len(rows)]})))
        for row in rows:
            if not row.ended:
                row.issue()

    def _read(self, left: int) -> Iterator[Row]:
        """Take the tokens of all steps but the last `left` ones, and yield the rows that they complete."""
        while len(self.unread) > left:
            rows, copy = self.unread.popleft()
            tokens = copy.arrays()["tokens"].tolist()
            live = [(row, token) for row, token in zip(rows, tokens, strict=True) if not row.ended]
            for row, token in live:
                row.take(token, self.setting.stops)
            self.setting.tick(sum(1 / row.limit for row, _ in live if not row.broken))
            done = [row for row, _ in live if row.ended]
            if done:
                self._free_ended()
            yield from done

    def _free_ended(self) -> None:
        """Free the slots of rows that have ended."""
        ended = [place for place, row in enumerate(self.active) if row.ended]
        self.table.free(self._numbers(ended))
        staying = len(self.active) - len(ended)
        if self._frees_enough(staying):
            self._compact(ended, staying)

    def _frees_enough(self, staying: int) -> bool:
        """Whether rows are moved together now. A captured step computes free slots among them as well, so this waits
        until a smaller step or the next prompts can use the room."""
        if self.graphs is None:
            return True
        smaller = padded_rows(staying, self.slots.count) < padded_rows(len(self.active), self.slots.count)
        return smaller or not staying or bool(self.queue and self.slots.count - staying >= self._wanted())

    def _compact(self, ended: list[int], staying: int) -> None:
        """Move the last active rows into the slots of those that have ended."""
        holes = [place for place in ended if place < staying]
        gone = set(ended)
        movers = [place for place in range(staying, len(self.active)) if place not in gone]
        if holes:
            sources, targets = self._numbers(movers), self._numbers(holes)
            self.slots.copy(self.slots, sources, targets, max(self.active[place].length for place in movers))
            self.table.move(sources, targets)
        for hole, mover in zip(holes, movers, strict=True):
            self.active[hole] = self.active[mover]
        self.table.cells[staying : len(self.active)] = 0
        del self.active[staying:]

    def _numbers(self, places: Sequence[int]) -> Tensor:
        return sent(torch.tensor(places, dtype=torch.int64), self.device)
