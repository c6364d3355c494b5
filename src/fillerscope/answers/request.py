"""Requests for answers and the replies to them, the same for every engine.

Knows nothing of problems, conditions or grades: token ids go in, text comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution

Finish = Literal["stop", "length", "failed"]
NO_ROOM = "the prompt fills the model's context: there is no room for an answer"


@dataclass(frozen=True)
class Request:
    """One answer to generate. Its random numbers come from its seed alone, whatever else is in the batch."""

    ids: tuple[int, ...]
    seed: int = 0
    shared: int = 0  # length of the prefix that other requests may share: an engine may compute it once
    change: Redistribution | Knockout | None = None  # an intervention inside the model
    key: int = 0  # of the random numbers of the intervention
    filler: tuple[int, int] = (0, 0)  # where it starts and stops
    gap: tuple[int, int] = (0, 0)  # before which token how many positions are skipped
    room: int | None = None  # the most tokens that its answer may have, where a context is small
    heading: str = ""  # of a question; a line that begins with it is no longer of the answer

    def most_tokens(self, decoding: Decoding) -> int:
        """How many tokens its answer may have."""
        return decoding.max_tokens if self.room is None else min(decoding.max_tokens, self.room)


@dataclass(frozen=True)
class Reply:
    """An answer. Its finish is `stop`; `length`, where it was truncated; or `failed`, where `error` says why."""

    text: str
    tokens: int  # generated, without the stop token
    finish: Finish
    error: str = ""
    ids: tuple[int, ...] = ()  # of the generated tokens, where the engine knows them
    uncut: tuple[int, ...] = ()  # all of them, where the next question followed


class Generator(Protocol):
    """Gives replies in the order of the requests. `tick` is called with how many more are done, or parts of one."""

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]: ...


def common_start(texts: Sequence[tuple[int, ...]]) -> int:
    """The length of the longest common prefix."""
    if not texts:
        return 0
    low, high = min(texts), max(texts)  # these two differ where any two do
    differing = (place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b)
    return next(differing, min(len(low), len(high)))
