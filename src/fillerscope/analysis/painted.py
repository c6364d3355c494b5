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
ENDS = (5, 95)  # percentiles between which the scale lies
COLLAPSED = 4  # repetitions from which on a filler is shown once, with their number


@dataclass(frozen=True)
class Piece:
    """A token, or a run of repeated filler, as it is shown."""

    text: str  # made visible
    received: float  # of a token, in the mean over the run; NaN where no query row sees it
    step: int | None  # of RAMP
    span: str
    repeats: int = 1
    mass: float = math.nan  # of a run: the share of their attention that later tokens give to it
    breaks: bool = False  # whether a line ends behind it


def scale_of(*received: Floats) -> Scale:
    """One scale for several prompts, by factors, without the few largest and smallest values.

    First tokens, which often take most, and the last ones, which few rows see, would leave all others alike."""
    values = np.concatenate([one[1:] if len(one) > 2 else one for one in received])
    kept = values[np.isfinite(values) & (values > 0)]
    low, high = map(float, np.percentile(kept, ENDS)) if kept.size else (0.1, 1.0)
    return Scale(min(low, high / 2), high, tuple(ground for ground, _ in RAMP), True)


def pieces(
    tokens: Sequence[str], spans: Sequence[str], received: Floats, scale: Scale, mass: float = math.nan
) -> list[Piece]:
    """The tokens of a prompt in order. Repeated filler is one piece; other filler stands in brackets.

    `mass` is the share of their attention that later tokens give to the filler as a whole."""
    start = spans.index("filler") if "filler" in spans else len(tokens)
    stop = start + list(spans).count("filler")
    before, after = (
        _tokens(tokens[some], spans[some], received[some], scale) for some in (slice(start), slice(stop, None))
    )
    filler = _filler(tokens[start:stop], received[start:stop], scale, mass) if stop > start else []
    return [*before, *filler, *after]


def percent(share: float) -> str:
    """A share in per cent, with two digits that count."""
    return "-" if math.isnan(share) else f"{100 * share:.2g}%" if share < 0.1 else f"{share:.0%}"


def _tokens(tokens: Sequence[str], spans: Sequence[str], received: Floats, scale: Scale) -> list[Piece]:
    rows = zip(tokens, spans, received.tolist(), steps_of(received, scale), strict=True)
    return [Piece(visible(text), value, step, span, breaks=text.endswith("\n")) for text, span, value, step in rows]


def _filler(tokens: Sequence[str], received: Floats, scale: Scale, mass: float) -> list[Piece]:
    size, mean = _unit(tokens), float(received.mean())
    repeats = len(tokens) // size
    if repeats < COLLAPSED:
        inside = _tokens(tokens, ["filler"] * len(tokens), received, scale)
        return [Piece("[", math.nan, None, "filler"), *inside, Piece(f": {percent(mass)}]", math.nan, None, "filler")]
    step = steps_of(np.array([mean]), scale)[0]
    return [Piece(visible("".join(tokens[:size])), mean, step, "filler", repeats, mass)]


def steps_of(received: Floats, scale: Scale) -> list[int | None]:
    """The step of RAMP for each value, None where there is none."""
    places = np.where(received == 0, 0.0, scale.places(received))
    return [None if math.isnan(place) else min(int(place * len(RAMP)), len(RAMP) - 1) for place in places]


def _unit(tokens: Sequence[str]) -> int:
    """The number of tokens that give all of them when they are repeated."""
    block = list(tokens)
    sizes = (size for size in range(1, len(block)) if len(block) % size == 0)
    return next((size for size in sizes if block == block[:size] * (len(block) // size)), len(block))
