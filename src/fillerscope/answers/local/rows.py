"""Answers in progress, and in which order and groups requests are started. Knows nothing of tensors or models."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fillerscope.answers.request import Request

NO_TOKEN = -1  # in place of a token whose logits are not finite: what is largest among them is no choice


@dataclass
class Row:
    """One answer in progress: `length` tokens are in its slot or on their way there."""

    index: int
    length: int
    limit: int  # of tokens that may be generated
    seed: int
    generated: list[int] = field(default_factory=list)  # tokens that were read from the device
    issued: int = 0  # tokens whose computation was started
    ended: bool = False
    broken: bool = False  # logits were not finite

    @classmethod
    def of(cls, index: int, request: Request, limit: int) -> Row:
        """A row that generates `limit` tokens at most."""
        return cls(index, len(request.ids) - 1, max(0, limit), request.seed)

    def draws(self) -> NDArray[np.float64]:
        """A random number for each token that may be generated; made when they are needed, as they take memory."""
        return np.random.default_rng(self.seed).random(self.limit)

    @property
    def fraction(self) -> float:
        """The share of its tokens, up to the limit, that are generated."""
        return len(self.generated) / self.limit if self.limit else 0.0

    def issue(self) -> None:
        """Note that one more token is being computed."""
        self.length, self.issued = self.length + 1, self.issued + 1

    def take(self, token: int, stops: frozenset[int]) -> None:
        """Add a token that was read; the last one ends the row, and so does NO_TOKEN."""
        if token == NO_TOKEN:
            self.ended = self.broken = True
            return
        self.generated.append(token)
        self.ended = token in stops or len(self.generated) == self.limit


class Prefix(NamedTuple):
    """A prefix that requests share, with what else its keys and values depend on."""

    ids: tuple[int, ...]
    filler: tuple[int, int]
    gap: tuple[int, int]


def prefix_of(request: Request) -> Prefix:
    """The shared prefix of a request, without the last token: the first decode step needs one."""
    return Prefix(request.ids[: min(request.shared, len(request.ids) - 1)], request.filler, request.gap)


def start_order(requests: Sequence[Request], seed: int | None) -> list[int]:
    """Indices of requests, those with the same prefix together: by length, or in an order drawn from a seed."""
    if seed is None:
        return sorted(range(len(requests)), key=lambda i: (prefix_of(requests[i]), len(requests[i].ids), i))
    drawn = np.random.default_rng(seed).permutation(len(requests)).tolist()
    first: dict[Prefix, int] = {}
    for place, request in zip(drawn, requests, strict=True):
        first.setdefault(prefix_of(request), place)
    return sorted(range(len(requests)), key=lambda i: (first[prefix_of(requests[i])], drawn[i]))


@dataclass(frozen=True)
class PassSize:
    """How much one prefill pass computes at most."""

    tokens: int  # with padding
    pairs: int  # of a token and a key that it may see

    def holds(self, rows: int, own: int, whole: int) -> bool:
        """Whether rows fit that compute so many tokens each, at the end of so many."""
        return rows * own <= self.tokens and rows * own * whole <= self.pairs


def taken(
    queue: deque[int], requests: Sequence[Request], free: int, size: PassSize, prefix: Prefix | None = None
) -> list[int]:
    """Take requests from a queue, with the same prefix where one is given: as many as slots are free and as one pass
    holds, and at least one."""
    chosen: list[int] = []
    while queue and len(chosen) < free:
        request = requests[queue[0]]
        own = len(request.ids) - (len(prefix.ids) if prefix else 0)
        fits = size.holds(len(chosen) + 1, own, len(request.ids)) or not chosen
        if not fits or (prefix and prefix_of(request) != prefix):
            break
        chosen.append(queue.popleft())
    return chosen
