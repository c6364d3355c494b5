"""Shares with intervals: grouped bars and points, numbers above them, published values as hollow marks.

Knows neither runs nor conditions: texts and numbers in, marks on a panel out. Shares are drawn in per cent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.errors import FigureError
from fillerscope.figures.style import Look, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#222222"
GAP = 0.8  # between two groups, in bars
WIDEST = 0.5  # of a bar, in inches
ACCURACY_LABEL = "Accuracy (%)"
PUBLISHED = "Published"
LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
STARS_NOTE = "*, **, ***: p below 0.05, 0.01, 0.001"


@dataclass(frozen=True)
class Share:
    """A share with its interval; what is written above it, and what was published, where something was."""

    value: float
    low: float
    high: float
    text: str = ""
    published: float | None = None

    @property
    def reach(self) -> float:
        """The upper end of the error bar in per cent."""
        return 100 * float(np.nanmax([self.value, self.high, 0.0]))


def refuse_many(figure: str, fillers: int, most: int) -> None:
    """There are so many colours that a reader tells apart."""
    if fillers > most:
        raise FigureError(f"`{figure}` shows at most {most} fillers, not {fillers}; name some with --condition")


def stars(p: float) -> str:
    """Marks of significance; none for a p that is missing."""
    return next((mark for level, mark in LEVELS if p < level), "")


def draw_bars(
    axes: Axes, shares: Sequence[tuple[Look, Sequence[Share]]], groups: Sequence[str], size: tuple[float, float]
) -> None:
    """One bar a series in each group. `size`: about how wide and high the panel is, in inches."""
    step = len(shares) + GAP
    starts = np.arange(len(groups)) * step
    span = max(len(groups) * step, size[0] / WIDEST)
    pitch, middle = size[0] / span, (starts[-1] + len(shares) - 1) / 2
    every = [share for _, series in shares for share in series]
    upright = is_upright(every, pitch)
    inch = scale(axes, every, size[1], upright)
    for index, (look, series) in enumerate(shares):
        places = starts + index
        values = [100 * share.value for share in series]
        fill: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "edgecolor": darker(look.colour)}
        axes.bar(places, values, 0.92, label=look.label, linewidth=0.6, **fill)
        whiskers(axes, places, series, fmt="none")
        for x, share in zip(places, series, strict=True):
            write_above(axes, x, share, inch, upright)
    marks = [(x + i + 0.27, s) for i, (_, series) in enumerate(shares) for x, s in zip(starts, series, strict=True)]
    hollow_marks(axes, marks)
    axes.set_xlim(middle - span / 2, middle + span / 2)
    labels = even([wrapped(group, 0.94 * pitch * step, 7) for group in groups])
    axes.set_xticks(starts + (len(shares) - 1) / 2, labels)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(ACCURACY_LABEL)


def is_upright(shares: Sequence[Share], pitch: float) -> bool:
    """Whether texts are turned, because they are wider than the way from one bar to the next."""
    return max(text_width(share.text, 6) for share in shares) > 0.95 * pitch


def darker(colour: str) -> tuple[float, float, float]:
    """The colour of edges and hatches on a fill."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.5 * red, 0.5 * green, 0.5 * blue


def whiskers(axes: Axes, places: Iterable[float], shares: Sequence[Share], **style: Any) -> None:
    """Points and error bars, or error bars alone; what has no value is left out."""
    from matplotlib.patheffects import withStroke

    values, low, high = 100 * np.array([(s.value, s.low, s.high) for s in shares]).T
    reach = np.nan_to_num([values - low, high - values]).clip(min=0)
    look: dict[str, Any] = {"ecolor": INK, "elinewidth": 0.8, "capsize": 1.8, "capthick": 0.8} | style
    _, caps, bars = axes.errorbar(list(places), values, yerr=reach, **look)
    for bar in (*caps, *bars):
        bar.set_path_effects([withStroke(linewidth=2, foreground="white")])  # seen on dark fills too


def hollow_marks(axes: Axes, marks: Iterable[tuple[float, Share]]) -> None:
    """What was published, beside what was measured."""
    published = [(x, 100 * share.published) for x, share in marks if share.published is not None]
    if published:
        x, y = np.transpose(published)
        axes.errorbar(
            x, y, fmt="D", markersize=3.6, color=INK, markerfacecolor="white", markeredgewidth=0.8, zorder=5,
            label=PUBLISHED, clip_on=False,
        )  # fmt: skip


def write_above(axes: Axes, x: float, share: Share, inch: float, upright: bool = False, **style: Any) -> None:
    """The text of a share above its error bar, and above its hollow mark where that would be under the text.
    `inch`: what an inch of the panel's height is worth, as `scale` tells."""
    text = share.text if np.isfinite(share.value) else "no\nanswer"
    bottom, above, mark = share.reach, 2.5, 100 * (share.published if share.published is not None else -1)
    if -0.05 <= (mark - bottom) / inch <= _height(text, upright) + 0.08:
        bottom, above = max(bottom, mark), 5.0
    look: dict[str, Any] = {"fontsize": 6, "linespacing": 0.95, "color": INK} | style
    axes.annotate(
        text.replace("\n", " ") if upright else text, (x, bottom), (0, above), textcoords="offset points",
        ha="center", va="bottom", rotation=90 if upright else 0, **look,
    )  # fmt: skip


def scale(axes: Axes, shares: Sequence[Share], inches: float, upright: bool = False) -> float:
    """From 0 to above all texts, in a panel about `inches` high; ticks at round numbers, none above 100.
    Returns what an inch of its height is worth."""
    top = max(1.0, *(max(share.reach, 100 * (share.published or 0.0)) for share in shares))
    tallest = max(_height(share.text, upright) for share in shares)
    end = top / (1 - (tallest + 0.1) / inches)
    axes.set_ylim(0, end)
    step = next(step for step in (20, 10, 5, 2, 1, 0.5, 0.2) if top / step >= 3 or step == 0.2)
    axes.set_yticks(np.arange(0, min(top + step / 2, 100) + 1e-9, step))
    return end / inches


def _height(text: str, upright: bool) -> float:
    """Of a text above a share, in inches."""
    return text_width(text.replace("\n", " "), 6) if upright else 0.1 * _lines(text)


def legend_above(panels: Sequence[Axes], inches: float, title: str, subtitle: str | None = None) -> None:
    """The title of each panel, and between it and the panel the legend, where it can cover nothing."""
    rows = 1
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        columns = _columns(labels, inches)
        rows = max(rows, ceil(len(labels) / columns))
        axes.legend(
            handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, fontsize=7,
            handlelength=2.0, columnspacing=1.0, handletextpad=0.5, borderaxespad=0.1, borderpad=0.2,
            labelspacing=0.3, title=subtitle, title_fontsize=7,
        )  # fmt: skip
    figure = panels[0].figure
    figure.set_figheight(figure.get_figheight() + 0.14 * (rows - 1) * len(panels))  # type: ignore[union-attr]
    for axes in panels:
        axes.set_title(wrapped(title, inches, 8), pad=5 + 9.5 * rows + 11 * _lines(subtitle or ""))


def _columns(labels: Sequence[str], inches: float) -> int:
    """All in one row where they fit."""
    widths = [text_width(label, 7) + 0.4 for label in labels]
    return len(labels) if sum(widths) <= inches else max(1, int(inches / max(widths)))


def _lines(text: str) -> int:
    return len(text.splitlines())


def even(texts: Sequence[str]) -> list[str]:
    """The same number of lines in each, so that all begin at the same height."""
    most = max(text.count("\n") for text in texts)
    return [text + "\n" * (most - text.count("\n")) for text in texts]


def wrapped(text: str, inches: float, size: float) -> str:
    """On as many lines as it takes, broken behind a sign where there is one."""
    lines, line = [], ""
    for letter in text:
        if line and text_width(line + letter, size) > inches:
            at = max(line.rfind(sign) for sign in "-_/ .") + 1 or len(line)
            lines.append(line[:at].rstrip())
            line = line[at:]
        line += letter
    return "\n".join([*lines, line])
