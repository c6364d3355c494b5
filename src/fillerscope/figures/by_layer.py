"""What figures of the mechanism share: the conditions they show, their colours, and curves by layer with bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import FigureError
from fillerscope.figures.bars import refuse_many
from fillerscope.figures.captions import opening, recipes, sentences
from fillerscope.figures.looks import CONDITIONS, MARKERS
from fillerscope.figures.request import Request
from fillerscope.figures.style import Dash, Look, fit_to_means
from fillerscope.study.conditions import BASELINE
from fillerscope.study.interventions import Redistribution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = len(CONDITIONS)
GREY = "#555555"
DASHED: Dash = (0, (3, 1.2))
BANDS = "bands: 95% interval over problems"


def shown(run: StoredRun, request: Request, figure: str, filler: bool = False, moved: bool = False) -> list[str]:
    """The conditions asked for; else the first few that are no cells of a sweep, where there are such. Those that
    redistribute activations, whose changes make all others look like nothing, are shown where `moved` says so."""
    names = [name for name in request.fillers(run) if not filler or run.condition(name).has_filler]
    if not names:
        raise FigureError(
            f"`{figure}` looks at filler, and none of these conditions has any; name one with --condition"
        )
    if request.conditions:
        refuse_many(figure, len(names), MOST)
        return names
    alone = [name for name in names if not run.condition(name).sweep] or names
    still = [name for name in alone if moved or not isinstance(run.condition(name).intervention, Redistribution)]
    return (still or alone)[:MOST]


def marked(look: Look) -> dict[str, Any]:
    """One colour and one marker a condition; dashes are free to tell measures apart."""
    return {"color": look.colour, "marker": look.marker, "markersize": 2.6}


def curve(
    axes: Axes, estimate: Estimates, look: Look, text: str | None = None, dash: Dash = "solid", scale: float = 1
) -> None:
    """A measure by layer with its band."""
    measured = np.flatnonzero(np.isfinite(estimate[0]))  # layers without attention are passed over
    value, low, high = (scale * bound[measured] for bound in estimate)
    axes.plot(measured + 1, value, linestyle=dash, label=text, markevery=every(len(value), look), **marked(look))
    axes.fill_between(measured + 1, low, high, color=look.colour, alpha=0.2, linewidth=0)


def every(layers: int, look: Look) -> list[int]:
    """Which layers have a marker: all of a few; of many the first and some, others for the next curve."""
    step = max(1, layers // 9)
    return sorted({0, *range(MARKERS.index(look.marker) % step, layers, step)})


def by_layer(axes: Axes, layers: int, title: str, none: float | None = None) -> None:
    """Title, axes, and a line where nothing has changed; called when the curves are drawn."""
    from matplotlib.ticker import MaxNLocator

    if none is not None:
        axes.axhline(none, color=GREY, linewidth=0.7, zorder=1)
    fit_to_means(axes)
    axes.set_title(title)
    axes.set_xlim(0.5, layers + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))


def words(run: ModelRun, conditions: Sequence[str], count: str, *notes: str) -> str:
    """A caption."""
    return " ".join([opening([run], [count]), *recipes(run, conditions), *sentences(notes)])


def one_layer(run: ModelRun, request: Request) -> int:
    """The layer asked for, the first by default."""
    layer = request.layers[0] if request.layers else 1
    return checked_layer(run, layer)


def checked_layer(run: ModelRun, layer: int) -> int:
    count = run.summary("entropy", BASELINE).shape[1]
    if layer > count:
        raise FigureError(f"there is no layer {layer}: {run.label} has layers 1 to {count}")
    return layer
