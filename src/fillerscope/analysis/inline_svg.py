"""Small pictures for notebooks: arrays in, SVG out, written by templates.

Nothing is fetched, run or referred to: no script, no style sheet, no id that could clash with another output of the
same page. Text and axes take the colour of the page, so that they can be read in light and dark notebooks alike.
Not drawn by matplotlib: its SVG needs ids and a style sheet for the whole page, has black text and no tips to point
at, and loading it takes longer than a notebook should wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fillerscope.analysis.colour_scale import Scale
from fillerscope.analysis.notebook_html import rendered

Floats = NDArray[np.float64]
Tick = tuple[float, str]  # its place in pixels, and its text

BLUE, ORANGE = "#0072B2", "#E69F00"  # as figures/style.py has them: without filler, and with the first one
WIDTH, HEIGHT = 560, 200  # of the panel of a curve, in pixels
FINEST = WIDTH  # columns that a picture is drawn with: a finer one would lose some of them on the screen


@dataclass(frozen=True)
class Curve:
    """A line with its band; where a bound is NaN there is no band."""

    colour: str
    x: NDArray[np.int64]
    y: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Shaded:
    """A range of positions with a name, such as the filler; `stop` is not in it."""

    start: int
    stop: int
    name: str


@dataclass(frozen=True)
class Frame:
    """A panel with its axes, in pixels."""

    width: float
    height: float
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]


def line(
    curve: Curve, y_label: str, tips: Sequence[str], shaded: Shaded | None = None, top: float | None = None
) -> Markup:
    """A curve over positions with a tip at each point. What rises above `top` is cut."""
    left, right = (curve.x[0] - 0.5, curve.x[-1] + 0.5) if curve.x.size else (0.0, 1.0)
    low, high = _limits(np.concatenate([curve.y, curve.low, curve.high]), top)

    def across(x: NDArray[Any] | float) -> Floats:
        return np.asarray((x - left) / (right - left) * WIDTH)

    def down(y: Floats | float) -> Floats:
        return np.asarray((high - y) / (high - low) * HEIGHT)

    x_ticks = [(float(across(tick)), f"{tick:g}") for tick in whole_ticks(left, right)]
    y_ticks = [(float(down(tick)), f"{tick:g}") for tick in round_ticks(low, high)]
    frame = Frame(WIDTH, HEIGHT, "Position", y_label, x_ticks, y_ticks)
    x, edges = across(curve.x), across(np.append(curve.x - 0.5, right))
    region = across(np.array([shaded.start, shaded.stop]) - 0.5).tolist() if shaded else None
    return rendered(
        "line.svg.j2", frame=frame, label=f"{y_label} by position", colour=curve.colour,
        stroke=_stroke(x, down(curve.y)), band=_band(x, down(curve.low), down(curve.high)),
        strips=list(zip(edges[:-1].tolist(), np.diff(edges).tolist(), tips, strict=True)),
        region=region, name=shaded.name if shaded else "",
    )  # fmt: skip


def heat_map(
    values: Floats, scale: Scale, labels: tuple[str, str, str], tips: Sequence[Sequence[str]], step: int = 0,
    dots: NDArray[np.bool_] | None = None,
) -> Markup:  # fmt: skip
    """A map of values [row, column], with labels for rows, columns and colours.

    Rows are counted from 1. Columns are, too; or each stands for `step` positions from 0 on. `tips` has a row for each
    row of values, or one for all of them. A dot is drawn wherever one is asked for."""
    rows, columns = values.shape
    wide = WIDTH / columns if step else min(24, WIDTH // columns or 1)
    high = min(18, max(6, 420 // rows))
    first, last = (-0.5, step * columns - 0.5) if step else (0.5, columns + 0.5)
    x_ticks = [((tick - first) / (last - first) * wide * columns, f"{tick:g}") for tick in whole_ticks(first, last)]
    y_ticks = [((tick - 0.5) * high, f"{tick:g}") for tick in whole_ticks(0.5, rows + 0.5)]
    frame = Frame(wide * columns, high * rows, labels[1], labels[0], x_ticks, y_ticks)
    spots = [((x + 0.5) * wide, (y + 0.5) * high) for y, x in np.argwhere(dots).tolist()] if dots is not None else []
    return rendered(
        "heat_map.svg.j2", frame=frame, label=f"{labels[2]} by {labels[0]} and {labels[1]}", rows=rows, columns=columns,
        image=scale.image(values), tips=tips, dots=spots, radius=min(2.0, wide / 5, high / 5),
        bar=scale.bar(), bar_label=labels[2], marks=scale.marks(),
    )  # fmt: skip


def strongest(values: Floats, most: int = FINEST) -> tuple[NDArray[np.int64], int]:
    """[row, column]: which of the values [row, position] stand for all of them where there are more than `most`, and
    how many a column stands for. The largest of each group: a mean would make a peak disappear."""
    rows, count = values.shape
    width = max(1, math.ceil(count / most))
    columns = math.ceil(count / width)
    sizes = np.full((rows, columns * width), -1.0)
    sizes[:, :count] = np.nan_to_num(np.abs(values), nan=-0.5)
    return sizes.reshape(rows, columns, width).argmax(axis=2) + width * np.arange(columns), width


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, evenly spaced."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough)
    return [round(index * step, 12) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def whole_ticks(low: float, high: float) -> list[float]:
    """Some whole numbers between two, the first of them included."""
    found = {tick for tick in round_ticks(low, high, 8) if tick == int(tick)}
    first = float(math.ceil(low))
    return sorted({first} | {tick for tick in found if tick - first > (high - low) / 20})


def _limits(values: Floats, top: float | None) -> tuple[float, float]:
    """The ends of an axis that holds 0 and all values, with some room above."""
    known = values[np.isfinite(values)]
    low, high = min(0.0, float(known.min(initial=0.0))), float(known.max(initial=0.0)) if top is None else top
    return low, high + 0.05 * (high - low) if high > low else low + 1.0


def _stroke(x: Floats, y: Floats) -> str:
    """The path of a line, broken where a value is missing; a point alone is one, too."""
    return "".join(f"M{_points(x[part], y[part])}" + "h0" * (y[part].size == 1) for part in _known(y))


def _band(x: Floats, low: Floats, high: Floats) -> str:
    """The path around a band, broken where a bound is missing."""
    return "".join(
        f"M{_points(x[part], low[part])}L{_points(x[part][::-1], high[part][::-1])}z" for part in _known(low + high)
    )


def _known(values: Floats) -> list[slice]:
    """Runs of finite values."""
    masked = np.ma.masked_invalid(values)
    return list(np.ma.clump_unmasked(masked)) if values.size else []  # type: ignore[no-untyped-call]


def _points(x: Floats, y: Floats) -> str:
    return "L".join(f"{a:z.1f} {b:z.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
