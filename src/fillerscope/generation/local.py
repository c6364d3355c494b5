"""Answers written by a model that is loaded here: many at once, each in a slot that is filled again when free.

What prompts have in common at their beginning is read once. Greedy answers are those of transformers' own
`generate` up to rounding, which depends on how many rows are computed together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fillerscope.asking import Decoding
from fillerscope.generation.reply import Reply, Request
from fillerscope.generation.sampling import choose
from fillerscope.generation.slots import NAME, Slots, register
from fillerscope.generation.stops import stop_ids
from fillerscope.models.attending import attending
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length, device_of, layer_count

PREFILL_TOKENS = 4096  # padded tokens of new prompts read in one pass
# Not cuDNN's, which makes a plan for every new length: with one more key at every step it would do nothing else.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ROWS = {"cpu": 64, "mps": 64, "cuda": 256}  # answers in progress at once


@dataclass
class Row:
    """One answer in progress: `length` tokens are in its slot, `pending` is the next to go in."""

    index: int
    length: int
    pending: int
    draws: NDArray[np.float64]  # a random number for each token that may be written
    written: list[int] = field(default_factory=list)

    @property
    def part(self) -> float:
        """How much of what it may write is written."""
        return len(self.written) / len(self.draws) if len(self.draws) else 0.0


class LocalGenerator:
    def __init__(self, loaded: LoadedModel, rows: int | None = None) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device = device_of(self.model)
        self.rows = rows or ROWS[self.device.type]
        self.stops = stop_ids(self.model, self.tokenizer)

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        register()
        replies: dict[int, Reply] = {}
        with torch.inference_mode(), attending(self.model, NAME), sdpa_kernel(KERNELS):
            for row in _Work(self, requests, decoding, tick).finished():
                replies[row.index] = self._reply(row)
                tick(1 - row.part)
        return [replies[index] for index in range(len(requests))]

    def room(self, request: Request, decoding: Decoding) -> int:
        """How many tokens may be written: no model is asked to go on beyond its context."""
        context = context_length(self.model)
        return decoding.max_tokens if context is None else min(decoding.max_tokens, context - len(request.ids))

    def _reply(self, row: Row) -> Reply:
        if not row.written:
            return Reply("", 0, "failed", "the prompt fills the model's context: there is no room for an answer")
        stopped = row.written[-1] in self.stops
        ids = row.written[:-1] if stopped else row.written
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(text, len(ids), "stop" if stopped else "length", ids=tuple(row.written))


class _Work:
    """The requests of one call on their way through the slots."""

    def __init__(
        self, engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
    ) -> None:
        self.engine, self.requests, self.decoding, self.tick = engine, requests, decoding, tick
        # Neighbours in the queue begin alike and are about as long.
        order = sorted(range(len(requests)), key=lambda i: (_beginning(requests[i]), len(requests[i].ids), i))
        self.rows = [self._row(index) for index in range(len(requests))]
        self.queue = deque(index for index in order if len(self.rows[index].draws))
        self.active: list[Row] = []
        capacity = max((len(requests[row.index].ids) + len(row.draws) for row in self.rows), default=0)
        self.slots = self._make_slots(min(engine.rows, len(requests)), capacity)
        self.beginning: tuple[tuple[int, ...], Slots] | None = None

    def finished(self) -> Iterator[Row]:
        yield from (row for row in self.rows if not len(row.draws))
        enough = max(1, self.slots.count // 8)  # a few prompts together are read faster than one by one
        while self.queue or self.active:
            while self.queue and (self.slots.count - len(self.active) >= enough or not self.active):
                self._admit(self.slots.count - len(self.active))
            yield from self._step()

    def _row(self, index: int) -> Row:
        request = self.requests[index]
        room = max(0, self.engine.room(request, self.decoding))
        return Row(index, len(request.ids) - 1, request.ids[-1], np.random.default_rng(request.seed).random(room))

    def _make_slots(self, count: int, capacity: int) -> Slots:
        return Slots(self.engine.model, layer_count(self.engine.model), count, capacity)

    def _admit(self, free: int) -> None:
        """Read the next prompts that begin alike, all but their last token: that one is the first step's."""
        beginning = _beginning(self.requests[self.queue[0]])
        chosen: list[int] = []
        while self.queue and len(chosen) < free and _beginning(self.requests[self.queue[0]]) == beginning:
            longest = len(self.requests[self.queue[0]].ids) - len(beginning)
            if chosen and (len(chosen) + 1) * longest > PREFILL_TOKENS:
                break
            chosen.append(self.queue.popleft())
        first = len(self.active)
        if beginning:
            shared = self._shared(beginning)
            self.slots.copy(shared, [0] * len(chosen), range(first, first + len(chosen)), len(beginning))
        self._read([self.requests[i].ids[len(beginning) : -1] for i in chosen], first, len(beginning))
        self.active += [self.rows[index] for index in chosen]

    def _shared(self, beginning: tuple[int, ...]) -> Slots:
        if self.beginning is None or self.beginning[0] != beginning:
            slots = self._make_slots(1, len(beginning))
            self._forward(slots, [list(beginning)], 0, [0])
            self.beginning = beginning, slots
        return self.beginning[1]

    def _read(self, texts: Sequence[Sequence[int]], first: int, start: int) -> None:
        """Texts of unequal length are filled up behind their end, where nothing looks before it is replaced."""
        width = max(len(text) for text in texts)
        if width:
            padded = [[*text, *[0] * (width - len(text))] for text in texts]
            self._forward(self.slots, padded, first, [start] * len(texts))

    def _step(self) -> Iterator[Row]:
        """One more token for every active row; those that are done leave their slots."""
        rows = self.active
        logits = self._forward(self.slots, [[row.pending] for row in rows], 0, [row.length for row in rows])
        draws = torch.tensor([row.draws[len(row.written)] for row in rows], dtype=torch.float64, device=logits.device)
        done = []
        for place, token in enumerate(choose(logits, self.decoding, draws).tolist()):
            row = rows[place]
            row.written.append(token)
            row.length, row.pending = row.length + 1, token
            if token in self.engine.stops or len(row.written) == len(row.draws):
                done.append(place)
        self.tick(sum(1 / len(row.draws) for row in rows))
        left = [rows[place] for place in done]
        self._close(done)
        yield from left

    def _close(self, done: list[int]) -> None:
        """The last active rows move into the slots of those that are done."""
        staying = len(self.active) - len(done)
        holes = [place for place in done if place < staying]
        movers = [place for place in range(staying, len(self.active)) if place not in done]
        if holes:
            longest = max(self.active[place].length for place in movers)
            self.slots.copy(self.slots, movers, holes, longest)
        for hole, mover in zip(holes, movers, strict=True):
            self.active[hole] = self.active[mover]
        del self.active[staying:]

    def _forward(self, slots: Slots, tokens: list[list[int]], first: int, starts: list[int]) -> Tensor:
        device = self.engine.device
        ids = torch.tensor(tokens, device=device)
        steps = torch.arange(ids.shape[1], device=device)
        positions = torch.tensor(starts, device=device)[:, None] + steps
        return slots.forward(ids, first, positions, max(starts) + ids.shape[1])


def _beginning(request: Request) -> tuple[int, ...]:
    """The last token is always left: somebody must be asked for what comes next."""
    return request.ids[: min(request.shared, len(request.ids) - 1)]
