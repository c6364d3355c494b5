"""Tokens with a colour each: how much attention a token receives, on one scale for all prompts that are shown together.

Gives steps of a ramp, not colours of a terminal or a page; whoever shows them chooses how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.colour_scale import Scale
from fillerscope.display import visible

Floats = NDArray[np.float64]
# Viridis, from little to much: its lightness rises evenly, and it reads without red and green. Each with its letters.
RAMP = (
    ("#440154", "#ffffff"), ("#472d7b", "#ffffff"), ("#3b528b", "#ffffff"), ("#2c728e", "#ffffff"),
    ("#21918c", "#000000"), ("#28ae80", "#000000"), ("#5ec962", "#000000"), ("#addc30", "#000000"),
    ("#fde725", "#000000"),
)  # fmt: skip
BLOCKS = "\u00b7\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # a bar for each step of the ramp, for want of colour
COLLAPSED = 4  # repetitions from which on a filler is shown once, with their number


@dataclass(frozen=True)
class Piece:
    """A token, or a run of repeated filler, as it is shown."""

    text: str  # made visible
    received: float  # of a token, in the mean over the run; NaN where no query row sees it
    step: int | None  # of RAMP
    span: str
    repeats: int = 1
    total: float = math.nan  # what a run receives together
    breaks: bool = False  # whether a line ends behind it


def scale_of(*received: Floats) -> Scale:
    """One scale for several prompts, by factors. Their first tokens, which often take most, do not stretch it."""
    values = np.concatenate([one[1:] if len(one) > 2 else one for one in received])
    return Scale.amounts(values)


def pieces(tokens: Sequence[str], spans: Sequence[str], received: Floats, scale: Scale) -> list[Piece]:
    """The tokens of a prompt in order, with repeated filler as one piece."""
    steps = steps_of(received, scale)
    result, place = [], 0
    while place < len(tokens):
        size, repeats = _run(tokens, spans, place)
        stop = place + size * repeats
        some = received[place:stop]
        if repeats > 1:
            step = steps_of(np.array([some.mean()]), scale)[0]
            text = visible("".join(tokens[place : place + size]))
            result.append(Piece(text, float(some.mean()), step, spans[place], repeats, float(some.sum())))
        else:
            ends = tokens[place].endswith("\n")
            result.append(Piece(visible(tokens[place]), float(some[0]), steps[place], spans[place], breaks=ends))
        place = stop
    return result


def steps_of(received: Floats, scale: Scale) -> list[int | None]:
    """The step of RAMP for each value, None where there is none."""
    places = np.where(received == 0, 0.0, scale.places(received))
    return [None if math.isnan(place) else min(int(place * len(RAMP)), len(RAMP) - 1) for place in places]


def _run(tokens: Sequence[str], spans: Sequence[str], start: int) -> tuple[int, int]:
    """How many tokens the unit of a repeated filler has, and how often it comes; (1, 1) for any other token."""
    if spans[start] != "filler" or (start and spans[start - 1] == "filler"):
        return 1, 1
    stop = next((place for place in range(start, len(spans)) if spans[place] != "filler"), len(spans))
    block = list(tokens[start:stop])
    for size in range(1, len(block) // COLLAPSED + 1):
        if len(block) % size == 0 and block == block[:size] * (len(block) // size):
            return size, len(block) // size
    return 1, 1
