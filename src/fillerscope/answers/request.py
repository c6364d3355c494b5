"""What is asked of a model and what comes back, whichever engine answers.

Knows nothing of problems, conditions or grades: token ids go in, text comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution

Finish = Literal["stop", "length", "failed"]


@dataclass(frozen=True)
class Request:
    """One answer to be written. Its random numbers come from its seed alone, whatever is answered beside it."""

    ids: tuple[int, ...]
    seed: int = 0
    shared: int = 0  # this many leading ids other requests may have too: an engine may compute them once
    change: Redistribution | Knockout | None = None  # what is done to it inside the model
    key: int = 0  # of the random numbers in that
    filler: tuple[int, int] = (0, 0)  # where it starts and stops
    gap: tuple[int, int] = (0, 0)  # before which token how many positions are left empty


@dataclass(frozen=True)
class Reply:
    """`length`: cut off by the token limit. `failed`: there is no answer, and `error` says why."""

    text: str
    tokens: int  # written by the model, the one that ends its turn not counted
    finish: Finish
    error: str = ""
    ids: tuple[int, ...] = ()  # what was written, where the engine knows it


class Generator(Protocol):
    """Replies in the order of the requests. `tick` is told how many more are done, or which part of one."""

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]: ...


def common_start(texts: Sequence[tuple[int, ...]]) -> int:
    """How many ids all texts begin with; the first and last in order differ where any two do."""
    if not texts:
        return 0
    low, high = min(texts), max(texts)
    differing = (place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b)
    return next(differing, min(len(low), len(high)))
