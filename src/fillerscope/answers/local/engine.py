"""Answers written by a model that is loaded here: many at once, each in a slot that is filled again when free.

What prompts have in common at their beginning is read once. Greedy answers are those of transformers' own
`generate` up to rounding, which depends on how many rows are computed together. `exact` takes that away: every
prompt is read by itself, every step has the same number of rows, and every row attends by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fillerscope.answers.local.sampling import choose
from fillerscope.answers.local.slots import NAME, Pass, Slots, register
from fillerscope.answers.local.stops import stop_ids
from fillerscope.answers.request import Reply, Request
from fillerscope.arm.hooks import TokenRange, redistributing
from fillerscope.models.attention import using_attention
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.structure import context_length, device_of, has_experts, layer_count
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution

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

    @classmethod
    def of(cls, index: int, request: Request, room: int) -> Row:
        draws = np.random.default_rng(request.seed).random(max(0, room))
        return cls(index, len(request.ids) - 1, request.ids[-1], draws)

    @property
    def part(self) -> float:
        """How much of what it may write is written."""
        return len(self.written) / len(self.draws) if len(self.draws) else 0.0


class LocalGenerator:
    """`exact`: an answer is the same to the bit whatever is answered beside it. `order`: a seed; requests are taken
    up in an order drawn from it, not in that of their beginnings and lengths."""

    def __init__(
        self, loaded: LoadedModel, rows: int | None = None, exact: bool = False, order: int | None = None
    ) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device = device_of(self.model)
        # An expert computes together as many tokens as come to it, whoever's they are.
        self.rows = 1 if exact and has_experts(self.model) else rows or ROWS[self.device.type]
        self.exact, self.order = exact, order
        self.stops = stop_ids(self.model, self.tokenizer)
        self.limit = length_limit(self.model)
        self.notice: Callable[[int, Tensor], None] | None = None  # told a request's number and the logits of a step

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        if self.exact:  # no more in common than two samples of one prompt have
            requests = [replace(request, shared=len(request.ids)) for request in requests]
        replies = dict(self._answered(requests, decoding, tick))
        return [replies[index] for index in range(len(requests))]

    def _answered(
        self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
    ) -> Iterator[tuple[int, Reply]]:
        """What is done inside the model is done to all rows of a pass, so those alike are answered together."""
        register()
        with torch.inference_mode(), using_attention(self.model, NAME), sdpa_kernel(KERNELS):
            for change in dict.fromkeys(request.change for request in requests):
                numbers = [number for number, request in enumerate(requests) if request.change == change]
                reset_positions(self.model)
                for row in _Work(self, [requests[number] for number in numbers], decoding, tick, numbers).finished():
                    number = numbers[row.index]
                    yield number, self._reply(row, requests[number], decoding)
                    tick(1 - row.part)

    def room(self, request: Request, decoding: Decoding) -> int:
        """How many tokens may be written: no model is asked to go on beyond its context, nor beyond a length at which
        the positions of what is cached would change."""
        limits = [limit for limit in (context_length(self.model), self.limit) if limit is not None]
        taken = len(request.ids) + request.gap[1]
        return min([decoding.max_tokens, *(limit - taken for limit in limits)])

    def _notice(self, numbers: Sequence[int], logits: Tensor) -> None:
        if self.notice is not None:
            for number, one in zip(numbers, logits, strict=True):
                self.notice(number, one)

    def _reply(self, row: Row, request: Request, decoding: Decoding) -> Reply:
        stopped = bool(row.written) and row.written[-1] in self.stops
        if self.limit is not None and not stopped and len(row.draws) < decoding.max_tokens:
            taken = len(request.ids) + request.gap[1] + len(row.draws)
            if taken >= self.limit or not row.written:
                reason = f"prompt and answer go beyond {self.limit} tokens, where this model changes all its positions"
                return Reply("", 0, "failed", reason)
        if not row.written:
            return Reply("", 0, "failed", "the prompt fills the model's context: there is no room for an answer")
        ids = row.written[:-1] if stopped else row.written
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(text, len(ids), "stop" if stopped else "length", ids=tuple(row.written))


class _Work:
    """Requests that want the same change, on their way through the slots."""

    def __init__(
        self, engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None],
        numbers: Sequence[int],
    ) -> None:  # fmt: skip
        self.engine, self.requests, self.decoding, self.tick = engine, requests, decoding, tick
        self.numbers = numbers  # of the requests, where they are some of many
        self.rows = [self._row(index) for index in range(len(requests))]
        self.queue = deque(index for index in _order(requests, engine.order) if len(self.rows[index].draws))
        self.active: list[Row] = []
        capacity = max((len(requests[row.index].ids) + len(row.draws) for row in self.rows), default=0)
        self.slots = self._make_slots(engine.rows if engine.exact else min(engine.rows, len(requests)), capacity)
        self.beginning: tuple[Beginning, Slots] | None = None
        self.change = requests[0].change if requests else None
        self.stretches: list[TokenRange] = []  # what the pass at hand is made of

    def finished(self) -> Iterator[Row]:
        if not isinstance(self.change, Redistribution):
            yield from self._finished(self._admit)
            return
        with redistributing(self.engine.model, self.change, lambda: self.stretches):
            yield from self._finished(self._admit_whole)

    def _finished(self, admit: Callable[[int], Iterator[Row]]) -> Iterator[Row]:
        yield from (row for row in self.rows if not len(row.draws))
        enough = max(1, self.slots.count // 8)  # a few prompts together are read faster than one by one
        while self.queue or self.active:
            while self.queue and (self.slots.count - len(self.active) >= enough or not self.active):
                yield from admit(self.slots.count - len(self.active))
            yield from self._step()

    def _row(self, index: int) -> Row:
        request = self.requests[index]
        return Row.of(index, request, self.engine.room(request, self.decoding))

    def _make_slots(self, count: int, capacity: int) -> Slots:
        return Slots(self.engine.model, layer_count(self.engine.model), count, capacity)

    def _admit_whole(self, free: int) -> Iterator[Row]:  # noqa: ARG002 - one at a time
        """Read the next prompt by itself and to its end: its activations are changed as a whole."""
        row = self.rows[self.queue.popleft()]
        self.active.append(row)
        place, ids = len(self.active) - 1, list(self.requests[row.index].ids)
        yield from self._advance([place], self._forward(self.slots, [ids], place, [0], [row]))

    def _admit(self, free: int) -> Iterator[Row]:
        """Read the next prompts that begin alike, all but their last token: that one is the first step's."""
        beginning = _beginning(self.requests[self.queue[0]])
        chosen: list[int] = []
        while self.queue and len(chosen) < free and _beginning(self.requests[self.queue[0]]) == beginning:
            longest = len(self.requests[self.queue[0]].ids) - len(beginning.ids)
            if chosen and (len(chosen) + 1) * longest > PREFILL_TOKENS:
                break
            chosen.append(self.queue.popleft())
        first, start = len(self.active), len(beginning.ids)
        rows = [self.rows[index] for index in chosen]
        if start:
            shared = self._shared(beginning, rows[0])
            self.slots.copy(shared, [0] * len(chosen), range(first, first + len(chosen)), start)
        self._read(rows, first, start)
        self.active += rows
        yield from ()

    def _shared(self, beginning: Beginning, row: Row) -> Slots:
        if self.beginning is None or self.beginning[0] != beginning:
            slots = self._make_slots(1, len(beginning.ids))
            self._forward(slots, [list(beginning.ids)], 0, [0], [row])
            self.beginning = beginning, slots
        return self.beginning[1]

    def _read(self, rows: list[Row], first: int, start: int) -> None:
        """Texts of unequal length are filled up behind their end, where nothing looks before it is replaced."""
        texts = [self.requests[row.index].ids[start:-1] for row in rows]
        width = max(len(text) for text in texts)
        if width:
            padded = [[*text, *[0] * (width - len(text))] for text in texts]
            self._forward(self.slots, padded, first, [start] * len(texts), rows)

    def _step(self) -> Iterator[Row]:
        """One more token for every active row; those that are done leave their slots."""
        rows = self.active
        if rows:
            # A slot that is free takes a token that nobody reads, and is written over when it is filled.
            free = self.slots.count - len(rows) if self.engine.exact else 0
            tokens = [*([row.pending] for row in rows), *([0] for _ in range(free))]
            logits = self._forward(self.slots, tokens, 0, [*(row.length for row in rows), *[0] * free], rows)
            yield from self._advance(range(len(rows)), logits[: len(rows)])

    def _advance(self, places: Sequence[int], logits: Tensor) -> Iterator[Row]:
        """The next token of some active rows."""
        rows = [self.active[place] for place in places]
        self.engine._notice([self.numbers[row.index] for row in rows], logits)
        draws = torch.tensor([row.draws[len(row.written)] for row in rows], dtype=torch.float64, device=logits.device)
        done = []
        for place, row, token in zip(places, rows, choose(logits, self.decoding, draws).tolist(), strict=True):
            row.written.append(token)
            row.length, row.pending = row.length + 1, token
            if token in self.engine.stops or len(row.written) == len(row.draws):
                done.append(place)
        self.tick(sum(1 / len(row.draws) for row in rows))
        left = [self.active[place] for place in done]
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

    def _forward(self, slots: Slots, tokens: list[list[int]], first: int, starts: list[int], rows: list[Row]) -> Tensor:
        """`rows` are those that the tokens belong to, the first ones where there are more tokens."""
        device = self.engine.device
        ids = torch.tensor(tokens, device=device)
        places = torch.tensor(starts, device=device)[:, None] + torch.arange(ids.shape[1], device=device)
        requests = [self.requests[row.index] for row in rows]
        self.stretches = [
            TokenRange(number, 0, ids.shape[1], request.key, start)
            for number, (request, start) in enumerate(zip(requests, starts, strict=False))
        ]
        requests += requests[:1] * (len(tokens) - len(rows))
        width = max(starts) + ids.shape[1]
        lengths = tuple(start + ids.shape[1] for start in starts) if self.engine.exact else ()
        now = Pass(first, places, width, self._unseen(requests, places, width), lengths)
        return slots.forward(ids, now, _moved(requests, places))

    def _unseen(self, requests: list[Request], places: Tensor, width: int) -> tuple[Knockout, Tensor] | None:
        if not isinstance(self.change, Knockout):
            return None
        start, stop = torch.tensor([request.filler for request in requests], device=places.device).T[..., None, None]
        key = torch.arange(width, device=places.device)
        hidden = (places[..., None] >= stop) & (key >= start) & (key < stop)
        return self.change, hidden[:, None]


def _moved(requests: list[Request], places: Tensor) -> Tensor | int:
    """[row, query]: how much further on tokens stand behind a gap."""
    if not any(request.gap[1] for request in requests):
        return 0
    gaps = torch.tensor([request.gap for request in requests], device=places.device)
    return gaps[:, 1:] * (places >= gaps[:, :1])


def _order(requests: Sequence[Request], seed: int | None) -> list[int]:
    """Those that begin alike stand together: by length, or drawn from a seed."""
    if seed is None:
        return sorted(range(len(requests)), key=lambda i: (_beginning(requests[i]), len(requests[i].ids), i))
    drawn = np.random.default_rng(seed).permutation(len(requests)).tolist()
    first: dict[Beginning, int] = {}
    for place, request in zip(drawn, requests, strict=True):
        first.setdefault(_beginning(request), place)
    return sorted(range(len(requests)), key=lambda i: (first[_beginning(requests[i])], drawn[i]))


class Beginning(NamedTuple):
    """What requests share at their start; alike in ids alone is not enough."""

    ids: tuple[int, ...]
    filler: tuple[int, int]
    gap: tuple[int, int]


def _beginning(request: Request) -> Beginning:
    """The last token is always left: somebody must be asked for what comes next."""
    return Beginning(request.ids[: min(request.shared, len(request.ids) - 1)], request.filler, request.gap)
