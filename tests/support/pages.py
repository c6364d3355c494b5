"""What a reader sees on a page: every text with its place, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fillerscope.figures.style import styled
from fillerscope.study.conditions import Condition
from support.synthetic import MLESS, NONE, RANDOM

SIX = (
    NONE,
    MLESS,
    RANDOM,
    Condition(name="mful", kind="repeat", text=" he", count=30, label="Meaningful tokens"),
    Condition(name="short", kind="repeat", text=" ?", count=10, label="A short row of question marks"),
    Condition(name="noise", kind="characters", count=30, position="end", label="Random characters"),
    Condition(name="wander", kind="sentence", count=30, position="random", label="A sentence at random places"),
)


def texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that a reader sees, with its place on the page: some tick labels and a title at least."""
    with styled():
        figure.draw_without_rendering()
    shown = [text for text in _texts(figure) if text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


def _texts(figure: Figure) -> Iterator[Text]:
    if figure._suptitle is not None:
        yield figure._suptitle
    for one in figure.legends:
        yield from (*one.get_texts(), one.get_title())
    for axes in (*figure.axes, *(inset for one in figure.axes for inset in one.child_axes)):
        if (own := axes.get_legend()) is not None:
            yield from (*own.get_texts(), own.get_title())
        yield from (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
        yield from (*_tick_labels(axes.xaxis), *_tick_labels(axes.yaxis))


def _tick_labels(axis: Axis) -> Iterator[Text]:
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        if low - 1e-9 <= tick.get_loc() <= high + 1e-9:
            yield tick.label1 if tick.label1.get_visible() else tick.label2


def complaints(figure: Figure) -> list[str]:
    seen = texts(figure)
    assert len(seen) > 6
    page = figure.bbox
    cut = [
        f"{name!r} is cut off" for name, box in seen
        if box.x0 < page.x0 or box.x1 > page.x1 or box.y0 < page.y0 or box.y1 > page.y1
    ]  # fmt: skip
    return cut + [f"{a!r} on {b!r}" for (a, one), (b, other) in combinations(seen, 2) if one.overlaps(other)]
