"""Generation with a local model: continuous batching, with a slot of the KV cache for each answer in progress.

The prefill of a prefix that prompts share is computed once. Greedy answers are those of transformers' own `generate`
up to rounding, which depends on the batch. `exact` removes that dependence: every prompt has a prefill of its own,
every decode step has the same number of rows, and attention is computed row by row.
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

PREFILL_TOKENS = 4096  # padded tokens of one prefill pass
# Not cuDNN's, which makes a new plan for every number of keys, and so at every decode step.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ROWS = {"cpu": 64, "mps": 64, "cuda": 256}  # answers in progress at once


@dataclass
class Row:
    """One answer in progress: `length` tokens are in its slot, `pending` is the next one."""

    index: int
    length: int
    pending: int
    draws: NDArray[np.float64]  # a random number for each token that may be generated
    generated: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, index: int, request: Request, limit: int) -> Row:
        """A row that generates `limit` tokens at most."""
        draws = np.random.default_rng(request.seed).random(max(0, limit))
        return cls(index, len(request.ids) - 1, request.ids[-1], draws)

    @property
    def fraction(self) -> float:
        """The share of its tokens, up to the limit, that are generated."""
        return len(self.generated) / len(self.draws) if len(self.draws) else 0.0


class LocalGenerator:
    """Generates answers with a loaded model.

    `exact` makes an answer the same to the bit whatever else is in the batch. `order` is a seed: requests are started
    in an order drawn from it, not in that of their prefixes and lengths."""

    def __init__(
        self, loaded: LoadedModel, rows: int | None = None, exact: bool = False, order: int | None = None
    ) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device = device_of(self.model)
        # An expert computes all tokens that are routed to it together, whichever row they are from.
        self.rows = 1 if exact and has_experts(self.model) else rows or ROWS[self.device.type]
        self.exact, self.order = exact, order
        self.stops = stop_ids(self.model, self.tokenizer)
        self.limit = length_limit(self.model)
        self.on_logits: Callable[[int, Tensor], None] | None = None  # with the number of a request and its logits

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        if self.exact:  # only equal prompts share a prefix
            requests = [replace(request, shared=len(request.ids)) for request in requests]
        replies = dict(self._answered(requests, decoding, tick))
        return [replies[index] for index in range(len(requests))]

    def _answered(
        self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
    ) -> Iterator[tuple[int, Reply]]:
        """Replies by number. An intervention acts on all rows of a pass, so requests are batched by intervention."""
        register()
        with torch.inference_mode(), using_attention(self.model, NAME), sdpa_kernel(KERNELS):
            for change in dict.fromkeys(request.change for request in requests):
                numbers = [number for number, request in enumerate(requests) if request.change == change]
                reset_positions(self.model)
                for row in _Batch(self, [requests[number] for number in numbers], decoding, tick, numbers).finished():
                    number = numbers[row.index]
                    yield number, self._reply(row, requests[number], decoding)
                    tick(1 - row.fraction)

    def max_new_tokens(self, request: Request, decoding: Decoding) -> int:
        """How many tokens may be generated: up to the model's context, and to the length at which it would change the
        positions of cached tokens."""
        limits = [limit for limit in (context_length(self.model), self.limit) if limit is not None]
        taken = len(request.ids) + request.gap[1]
        return min([decoding.max_tokens, *(limit - taken for limit in limits)])

    def _report_logits(self, numbers: Sequence[int], logits: Tensor) -> None:
        if self.on_logits is not None:
            for number, one in zip(numbers, logits, strict=True):
                self.on_logits(number, one)

    def _reply(self, row: Row, request: Request, decoding: Decoding) -> Reply:
        stopped = bool(row.generated) and row.generated[-1] in self.stops
        if self.limit is not None and not stopped and len(row.draws) < decoding.max_tokens:
            taken = len(request.ids) + request.gap[1] + len(row.draws)
            if taken >= self.limit or not row.generated:
                reason = f"prompt and answer go beyond {self.limit} tokens, where this model changes all its positions"
                return Reply("", 0, "failed", reason)
        if not row.generated:
            return Reply("", 0, "failed", "the prompt fills the model's context: there is no room for an answer")
        ids = row.generated[:-1] if stopped else row.generated
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(text, len(ids), "stop" if stopped else "length", ids=tuple(row.generated))


class _Batch:
    """Requests with the same intervention, and the slots in which they are answered."""

    def __init__(
        self, engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None],
        numbers: Sequence[int],
    ) -> None:  # fmt: skip
        self.engine, self.requests, self.decoding, self.tick = engine, requests, decoding, tick
        self.numbers = numbers  # of the requests in the whole call
        self.rows = [self._row(index) for index in range(len(requests))]
        self.queue = deque(index for index in _order(requests, engine.order) if len(self.rows[index].draws))
        self.active: list[Row] = []
        capacity = max((len(requests[row.index].ids) + len(row.draws) for row in self.rows), default=0)
        self.slots = self._make_slots(engine.rows if engine.exact else min(engine.rows, len(requests)), capacity)
        self.prefix: tuple[Prefix, Slots] | None = None  # the last one that was computed
        self.change = requests[0].change if requests else None
        self.stretches: list[TokenRange] = []  # the rows of the current pass

    def finished(self) -> Iterator[Row]:
        """Rows, as soon as their answers are complete."""
        if not isinstance(self.change, Redistribution):
            yield from self._run(self._admit)
            return
        with redistributing(self.engine.model, self.change, lambda: self.stretches):
            yield from self._run(self._admit_whole)

    def _run(self, admit: Callable[[int], Iterator[Row]]) -> Iterator[Row]:
        yield from (row for row in self.rows if not len(row.draws))
        enough = max(1, self.slots.count // 8)  # a prefill of several prompts is faster than several prefills
        while self.queue or self.active:
            while self.queue and (self.slots.count - len(self.active) >= enough or not self.active):
                yield from admit(self.slots.count - len(self.active))
            yield from self._step()

    def _row(self, index: int) -> Row:
        request = self.requests[index]
        return Row.of(index, request, self.engine.max_new_tokens(request, self.decoding))

    def _make_slots(self, count: int, capacity: int) -> Slots:
        return Slots(self.engine.model, layer_count(self.engine.model), count, capacity)

    def _admit_whole(self, free: int) -> Iterator[Row]:  # noqa: ARG002 - one at a time
        """Prefill the next prompt alone and as a whole, as the intervention acts on all of it."""
        row = self.rows[self.queue.popleft()]
        self.active.append(row)
        place, ids = len(self.active) - 1, list(self.requests[row.index].ids)
        yield from self._advance([place], self._forward(self.slots, [ids], place, [0], [row]))

    def _admit(self, free: int) -> Iterator[Row]:
        """Prefill the next prompts with the same prefix, without their last token: the first decode step takes it."""
        prefix = _prefix(self.requests[self.queue[0]])
        chosen: list[int] = []
        while self.queue and len(chosen) < free and _prefix(self.requests[self.queue[0]]) == prefix:
            longest = len(self.requests[self.queue[0]].ids) - len(prefix.ids)
            if chosen and (len(chosen) + 1) * longest > PREFILL_TOKENS:
                break
            chosen.append(self.queue.popleft())
        first, start = len(self.active), len(prefix.ids)
        rows = [self.rows[index] for index in chosen]
        if start:
            computed = self._prefill_prefix(prefix, rows[0])
            self.slots.copy(computed, [0] * len(chosen), range(first, first + len(chosen)), start)
        self._prefill(rows, first, start)
        self.active += rows
        yield from ()

    def _prefill_prefix(self, prefix: Prefix, row: Row) -> Slots:
        """Slots that hold the keys and values of a prefix; the last prefix is kept."""
        if self.prefix is None or self.prefix[0] != prefix:
            slots = self._make_slots(1, len(prefix.ids))
            self._forward(slots, [list(prefix.ids)], 0, [0], [row])
            self.prefix = prefix, slots
        return self.prefix[1]

    def _prefill(self, rows: list[Row], first: int, start: int) -> None:
        """Prefill prompts after their prefix. Padding is at their ends, where it is overwritten before it is seen."""
        texts = [self.requests[row.index].ids[start:-1] for row in rows]
        width = max(len(text) for text in texts)
        if width:
            padded = [[*text, *[0] * (width - len(text))] for text in texts]
            self._forward(self.slots, padded, first, [start] * len(texts), rows)

    def _step(self) -> Iterator[Row]:
        """One decode step for all active rows; those that are done leave their slots."""
        rows = self.active
        if rows:
            # A free slot takes a token that is never used, and is overwritten when it is filled.
            free = self.slots.count - len(rows) if self.engine.exact else 0
            tokens = [*([row.pending] for row in rows), *([0] for _ in range(free))]
            logits = self._forward(self.slots, tokens, 0, [*(row.length for row in rows), *[0] * free], rows)
            yield from self._advance(range(len(rows)), logits[: len(rows)])

    def _advance(self, places: Sequence[int], logits: Tensor) -> Iterator[Row]:
        """Sample the next token of some active rows, and yield the rows that are done."""
        rows = [self.active[place] for place in places]
        self.engine._report_logits([self.numbers[row.index] for row in rows], logits)
        draws = torch.tensor([row.draws[len(row.generated)] for row in rows], dtype=torch.float64, device=logits.device)
        done = []
        for place, row, token in zip(places, rows, choose(logits, self.decoding, draws).tolist(), strict=True):
            row.generated.append(token)
            row.length, row.pending = row.length + 1, token
            if token in self.engine.stops or len(row.generated) == len(row.draws):
                done.append(place)
        self.tick(sum(1 / len(row.draws) for row in rows))
        left = [self.active[place] for place in done]
        self._compact(done)
        yield from left

    def _compact(self, done: list[int]) -> None:
        """Move the last active rows into the slots of those that are done."""
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
        """Logits of a pass. `rows` are those of the tokens; further tokens fill slots that are free."""
        device = self.engine.device
        ids = torch.tensor(tokens, device=device)
        positions = torch.tensor(starts, device=device)[:, None] + torch.arange(ids.shape[1], device=device)
        requests = [self.requests[row.index] for row in rows]
        self.stretches = [
            TokenRange(number, 0, ids.shape[1], request.key, start)
            for number, (request, start) in enumerate(zip(requests, starts, strict=False))
        ]
        requests += requests[:1] * (len(tokens) - len(rows))
        width = max(starts) + ids.shape[1]
        lengths = tuple(start + ids.shape[1] for start in starts) if self.engine.exact else ()
        now = Pass(first, positions, width, self._hidden(requests, positions, width), lengths)
        return slots.forward(ids, now, _skipped(requests, positions))

    def _hidden(self, requests: list[Request], positions: Tensor, width: int) -> tuple[Knockout, Tensor] | None:
        if not isinstance(self.change, Knockout):
            return None
        start, stop = torch.tensor([request.filler for request in requests], device=positions.device).T[..., None, None]
        key = torch.arange(width, device=positions.device)
        hidden = (positions[..., None] >= stop) & (key >= start) & (key < stop)
        return self.change, hidden[:, None]


def _skipped(requests: list[Request], positions: Tensor) -> Tensor | int:
    """How many positions are skipped before each token, [row, query]."""
    if not any(request.gap[1] for request in requests):
        return 0
    gaps = torch.tensor([request.gap for request in requests], device=positions.device)
    return gaps[:, 1:] * (positions >= gaps[:, :1])


def _order(requests: Sequence[Request], seed: int | None) -> list[int]:
    """Indices of requests, those with the same prefix together: by length, or in an order drawn from a seed."""
    if seed is None:
        return sorted(range(len(requests)), key=lambda i: (_prefix(requests[i]), len(requests[i].ids), i))
    drawn = np.random.default_rng(seed).permutation(len(requests)).tolist()
    first: dict[Prefix, int] = {}
    for place, request in zip(drawn, requests, strict=True):
        first.setdefault(_prefix(request), place)
    return sorted(range(len(requests)), key=lambda i: (first[_prefix(requests[i])], drawn[i]))


class Prefix(NamedTuple):
    """A prefix that requests share, with what else its keys and values depend on."""

    ids: tuple[int, ...]
    filler: tuple[int, int]
    gap: tuple[int, int]


def _prefix(request: Request) -> Prefix:
    """The shared prefix of a request, without the last token: the first decode step needs one."""
    return Prefix(request.ids[: min(request.shared, len(request.ids) - 1)], request.filler, request.gap)
