"""Small pictures for notebooks: arrays in, SVG text out.

Nothing is fetched, run or referred to: no script, no style sheet, no id that could clash with another output of the
same page. Text and axes take the colour of the page, so that they can be read in light and dark notebooks alike.
Knows nothing of runs, and needs no matplotlib; every text that comes in is escaped here.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fillerscope.display import shown

Floats = NDArray[np.float64]

BLUE, ORANGE = "#0072B2", "#E69F00"  # as figures/style.py has them: without filler, and with the first one
FALL_TO_RISE = (
    "#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b",
    "#67001f",
)  # fmt: skip
LITTLE_TO_MUCH = ("#f7fcf5", "#e5f5e0", "#c7e9c0", "#a1d99b", "#74c476", "#41ab5d", "#238b45", "#006d2c", "#00441b")
SHADES = 128  # steps of a palette
ROUND = (1.0, 2.0, 5.0)
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
SMALLEST = 0.1  # log2 at the ends of a scale of ratios at least: changes of a few per cent stay pale
WIDTH, LEFT, TOP, BOTTOM = 560, 64, 10, 38  # of the panel and around it, in pixels
STRIPS = 256  # places to point at along a picture
FINEST = WIDTH  # columns that a picture is drawn with: a finer one would lose some of them on the screen


@dataclass(frozen=True)
class Scale:
    """Numbers as colours, evenly from `low` to `high` or evenly in their logarithms."""

    low: float
    high: float
    palette: tuple[str, ...]
    log: bool
    ticks: tuple[float, ...]

    @classmethod
    def ratios(cls, values: Floats) -> Scale:
        """Around 1: blue is a fall, red a rise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = np.abs(np.log2(values))
        reach = max(SMALLEST, _largest(changes))
        inside = [ratio for ratio in RATIOS if abs(math.log2(ratio)) <= reach]
        first = sorted(inside, key=lambda ratio: (ratio != 1.0, -abs(math.log2(ratio))))
        return cls(2.0**-reach, 2.0**reach, FALL_TO_RISE, True, _apart(first, 2 * reach * math.log(2)))

    @classmethod
    def differences(cls, values: Floats) -> Scale:
        """Around 0. The few largest may lie beyond the ends: one of them would leave all others pale."""
        sizes = np.abs(values[np.isfinite(values)])
        reach = float(np.percentile(sizes, 99)) if sizes.size and sizes.any() else 1.0
        reach = reach or float(sizes.max())
        return cls(-reach, reach, FALL_TO_RISE, False, tuple(round_ticks(-reach, reach)))

    @classmethod
    def amounts(cls, values: Floats) -> Scale:
        """From little to much, by factors: attention on the first token is hundreds of times that on others."""
        kept = values[np.isfinite(values) & (values > 0)]
        low, high = (float(np.percentile(kept, 2)), float(kept.max())) if kept.size else (0.1, 1.0)
        low = min(low, high / 2)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        inside = [step * 10.0**decade for step in ROUND for decade in decades if low <= step * 10.0**decade <= high]
        return cls(low, high, LITTLE_TO_MUCH, True, _apart(inside, math.log(high / low)))

    def places(self, values: Floats) -> Floats:
        """From 0 to 1; NaN stays NaN."""
        ends = np.array([self.low, self.high])
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                values, ends = np.log(values), np.log(ends)
        return np.asarray(np.clip((values - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0), dtype=np.float64)

    def shades(self, values: Floats) -> NDArray[np.int64]:
        """The step of the palette that a number falls on; `SHADES` where it is none."""
        places = self.places(values)
        steps = np.floor(np.nan_to_num(places) * SHADES)
        return np.where(np.isnan(places), SHADES, np.minimum(steps, SHADES - 1)).astype(np.int64)

    def colours(self) -> list[str]:
        stops = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in self.palette])
        places = np.linspace(0, len(stops) - 1, SHADES)
        parts = np.stack([np.interp(places, range(len(stops)), stop) for stop in stops.T], axis=1).round().astype(int)
        return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in parts.tolist()]


@dataclass(frozen=True)
class Curve:
    """One line with its band; where a bound is NaN there is no band."""

    label: str
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


def lines(
    curves: Sequence[Curve], x_label: str, y_label: str, shaded: Shaded | None = None, tips: Sequence[str] = (),
    top: float | None = None,
) -> str:  # fmt: skip
    """Curves with their bands. `tips` are shown at the points of the first curve; what rises above `top` is cut."""
    height, legend = 200, 18 * (len(curves) > 1)
    x = np.concatenate([curve.x for curve in curves])
    y = np.concatenate([part for curve in curves for part in (curve.y, curve.low, curve.high)])
    y = y[np.isfinite(y)]
    left, right = (float(x.min()) - 0.5, float(x.max()) + 0.5) if x.size else (0.0, 1.0)
    low, high = min(0.0, float(y.min(initial=0.0))), float(y.max(initial=0.0)) if top is None else top
    high = high + 0.05 * (high - low) if high > low else low + 1.0

    def across(value: float) -> float:
        return (value - left) / (right - left) * WIDTH

    def up(value: float) -> float:
        return (high - value) / (high - low) * height

    inside = [_region(shaded, across, height)] if shaded else []
    inside += [_band(curve, across, up) + _stroke(curve, across, up) for curve in curves]
    if tips:
        inside.append(_strips(curves[0].x, tips, across, height))
    ticks = [value for value in round_ticks(low, high) if low <= value <= high]
    frame = "".join(_y_tick(up(value), f"{value:g}", grid=True) for value in ticks)
    frame += "".join(_x_tick(across(value), height, f"{value:g}") for value in _whole_ticks(left, right))
    frame += _axes(height) + _labels(WIDTH, height, x_label, y_label)
    # A drawing inside the drawing cuts what leaves the panel, and needs no name for that.
    clipped = f'<svg width="{WIDTH}" height="{height}" overflow="hidden">{"".join(inside)}</svg>'
    names = "".join(
        f'<path d="M{at} -10h18" stroke="{curve.colour}" stroke-width="2"/>{_text(at + 23, -6, curve.label, "start")}'
        for at, curve in zip(range(0, 180 * len(curves), 180), curves, strict=True)
        if legend
    )
    return _svg(WIDTH + LEFT + 14, height, f"{y_label} by {x_label}", names + frame + clipped, TOP + legend)


def cells(
    values: Floats, scale: Scale, tips: Callable[[int, int], str], y_label: str, x_label: str, bar_label: str,
    dots: NDArray[np.bool_] | None = None,
) -> str:  # fmt: skip
    """A map [row, column], both counted from 1, with a tip for each cell and a dot where one is asked for."""
    rows, columns = values.shape
    wide, high = min(24, WIDTH // columns or 1), min(18, max(6, 420 // rows))
    colours = [*scale.colours(), "none"]
    shades = scale.shades(values)
    body = []
    for row in range(rows):
        squares = "".join(
            f'<path d="M{wide * column} 0h{wide}v{high}h-{wide}z" fill="{colours[shades[row, column]]}">'
            f"<title>{shown(tips(row + 1, column + 1))}</title></path>"
            for column in range(columns)
        )
        body.append(f'<g transform="translate(0,{high * row})">{squares}</g>')
    for row, column in np.argwhere(dots) if dots is not None else ():
        spot = f'cx="{wide * (column + 0.5):g}" cy="{high * (row + 0.5):g}" r="{min(2.0, wide / 5, high / 5):g}"'
        body.append(f'<circle {spot} fill="#333" pointer-events="none"/>')  # the tip is that of the cell
    ticks = "".join(_x_tick(wide * (at - 0.5), high * rows, str(at)) for at in _count_ticks(columns))
    return _map("".join(body) + ticks, rows, wide * columns, high * rows, scale, (y_label, x_label, bar_label))


def raster(
    values: Floats, scale: Scale, step: int, tips: Sequence[str], y_label: str, x_label: str, bar_label: str,
) -> str:  # fmt: skip
    """A map with too many cells to be drawn one by one: rows are counted from 1, a column stands for `step` positions
    from 0 on and has one tip."""
    rows, columns = values.shape
    height = rows * min(18, max(6, 420 // rows))
    body = _image(WIDTH, height, scale.shades(values), scale)
    left, right = -0.5, float(step * columns) - 0.5

    def across(value: float) -> float:
        return (value - left) / (right - left) * WIDTH

    body += _strips(step * np.arange(columns), tips, across, height, step)
    body += "".join(_x_tick(across(value), height, f"{value:g}") for value in _whole_ticks(left, right))
    return _map(body, rows, WIDTH, height, scale, (y_label, x_label, bar_label))


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
    step = next((factor * power for factor in ROUND if factor * power >= rough), 10 * power)
    return [round(index * step, 12) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _whole_ticks(left: float, right: float) -> list[float]:
    return [value for value in round_ticks(left, right, 8) if value == int(value)]


def _count_ticks(count: int) -> list[int]:
    step = 1 if count <= 10 else 2 if count <= 20 else 5 if count <= 40 else 10
    return sorted({1, *range(step, count + 1, step)})


def _apart(values: Sequence[float], length: float) -> tuple[float, ...]:
    """Those that leave room for the ones before them, on a logarithmic scale of this length."""
    kept: list[float] = []
    for value in values:
        if all(abs(math.log(value / other)) > length / 6 for other in kept):
            kept.append(value)
    return tuple(sorted(kept))


def _largest(values: Floats) -> float:
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _image(width: float, height: float, shades: NDArray[np.int64], scale: Scale) -> str:
    data = base64.b64encode(_png(shades, scale.colours())).decode()
    style = 'preserveAspectRatio="none" style="image-rendering:pixelated"'
    return f'<image width="{width:g}" height="{height:g}" {style} href="data:image/png;base64,{data}"/>'


def _png(shades: NDArray[np.int64], colours: Sequence[str]) -> bytes:
    """One byte a cell and a palette; the shade after the last is transparent."""
    rows, columns = shades.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    scanlines = np.insert(shades.astype(np.uint8), 0, 0, axis=1).tobytes()
    palette = bytes.fromhex("".join(colour[1:] for colour in colours) + "808080")
    return b"\x89PNG\r\n\x1a\n" + b"".join([
        chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", palette),
        chunk(b"tRNS", b"\xff" * len(colours) + b"\x00"),
        chunk(b"IDAT", zlib.compress(scanlines, 9)),
        chunk(b"IEND", b""),
    ])  # fmt: skip


def _svg(width: float, height: float, title: str, body: str, top: int = TOP) -> str:
    whole = height + top + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{shown(title)}" width="{width:g}" '
        f'height="{whole:g}" viewBox="0 0 {width:g} {whole:g}" style="max-width:100%;height:auto" fill="none" '
        f'font-family="sans-serif" font-size="11"><g transform="translate({LEFT},{top})">{body}</g></svg>'
    )


def _map(body: str, rows: int, width: float, height: float, scale: Scale, labels: tuple[str, str, str]) -> str:
    y_label, x_label, bar_label = labels
    ticks = "".join(_y_tick((at - 0.5) * height / rows, str(at)) for at in _count_ticks(rows))
    tall, least = max(height, 90), 64  # a map of one row still has a scale that can be read
    bar = f'<g transform="translate({width + 18:g},0)">{_bar(scale, tall, bar_label)}</g>'
    body = body + ticks + _labels(width, height, x_label, y_label) + bar
    title = f"{bar_label} by {y_label} and {x_label}"
    return _svg(LEFT + width + 18 + least, max(height, tall - BOTTOM + 8), title, body)


def _bar(scale: Scale, height: float, label: str) -> str:
    shades = np.arange(SHADES)[::-1, None]
    steps = _image(10, height, shades, scale)
    places = zip(scale.ticks, scale.places(np.array(scale.ticks)), strict=True)
    ticks = "".join(_text(14, height * (1 - place) + 4, f"{value:g}", "start") for value, place in places)
    middle = f"translate(56,{_short(height / 2)}) rotate(90)"
    return f'{steps}{ticks}<g transform="{middle}">{_text(0, 0, label, "middle")}</g>'


def _axes(height: float) -> str:
    return f'<path d="M0 0V{height}H{WIDTH}" stroke="currentColor" stroke-opacity="0.6"/>'


def _labels(width: float, height: float, x_label: str, y_label: str) -> str:
    turned = f"translate(-52,{_short(height / 2)}) rotate(-90)"
    across = _text(width / 2, height + 31, x_label, "middle")
    return f'{across}<g transform="{turned}">{_text(0, 0, y_label, "middle")}</g>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}" fill="currentColor">{shown(text)}</text>'


def _x_tick(x: float, height: float, text: str) -> str:
    return f'<path d="M{_short(x)} {height}v3" stroke="currentColor" stroke-opacity="0.6"/>' + _text(
        x, height + 15, text, "middle"
    )


def _y_tick(y: float, text: str, grid: bool = False) -> str:
    line = f'<path d="M0 {_short(y)}h{WIDTH}" stroke="currentColor" stroke-opacity="0.12"/>' if grid else ""
    return line + _text(-6, y + 4, text, "end")


def _region(shaded: Shaded, across: Callable[[float], float], height: float) -> str:
    start, stop = across(shaded.start - 0.5), across(shaded.stop - 0.5)
    box = f"M{_short(start)} 0H{_short(stop)}V{height}H{_short(start)}z"
    name = _text((start + stop) / 2, 12, shaded.name, "middle")
    return f'<path d="{box}" fill="#9A9A9A" fill-opacity="0.22"/>{name}'


def _strips(
    x: NDArray[np.int64], tips: Sequence[str], across: Callable[[float], float], height: float, step: int = 1
) -> str:
    """Invisible columns that tell what they stand over, a few points each where there are many."""
    width = max(1, math.ceil(len(x) / STRIPS))
    edges = [*(float(x[at]) - 0.5 for at in range(0, len(x), width)), float(x[-1]) + step - 0.5]
    found = []
    for index, (left, right) in enumerate(pairwise(edges)):
        tip = shown("\n".join(tips[index * width : (index + 1) * width]))
        box = f"M{_short(across(left))} 0H{_short(across(right))}V{height}H{_short(across(left))}z"
        found.append(f'<path d="{box}"><title>{tip}</title></path>')
    return f'<g fill="#000" fill-opacity="0">{"".join(found)}</g>'


def _stroke(curve: Curve, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    parts = []
    for part in _unbroken(curve.y):
        points = [f"{_short(across(x))} {_short(up(y))}" for x, y in zip(curve.x[part], curve.y[part], strict=True)]
        parts.append(f"M{'L'.join(points)}" + "h0" * (len(points) == 1))
    style = 'stroke-width="1.4" stroke-linejoin="round" stroke-linecap="round"'
    return f'<path d="{"".join(parts)}" stroke="{curve.colour}" {style}/>'


def _band(curve: Curve, across: Callable[[float], float], up: Callable[[float], float]) -> str:
    parts = []
    for part in _unbroken(curve.low + curve.high):
        there = [f"{_short(across(x))} {_short(up(y))}" for x, y in zip(curve.x[part], curve.low[part], strict=True)]
        back = [f"{_short(across(x))} {_short(up(y))}" for x, y in zip(curve.x[part], curve.high[part], strict=True)]
        parts.append(f"M{'L'.join([*there, *reversed(back)])}z")
    return f'<path d="{"".join(parts)}" fill="{curve.colour}" fill-opacity="0.25"/>' if parts else ""


def _unbroken(values: Floats) -> list[slice]:
    """Runs of finite values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], np.isfinite(values), [False]]).astype(np.int8)))
    return [slice(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _short(value: float) -> str:
    return f"{value:z.1f}".removesuffix(".0")
