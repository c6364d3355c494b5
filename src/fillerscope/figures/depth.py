"""`depth`: in which layers the effect lives: filler mass, lambda and drop by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fillerscope.analysis.depth import DepthTable, depth_table
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.captions import caption, clip_note
from fillerscope.figures.condition_text import quotient
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import condition_look
from fillerscope.figures.panels import LayerMeasure, Panel, layer_panels
from fillerscope.figures.references import DOTTED, GREY, LENGTH, TWINS, twin_note
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, fit_to_means, grid, legend, styled
from fillerscope.figures.table import rows_of, stacked

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Shown:
    """A panel in print: a measure, and which columns say what length alone and untrained twins give for it."""

    measure: str
    title: str
    label: str  # "" for the name of the ratio
    length: str
    twins: str
    one_less: bool = False  # 1 less the references is shown


SHOWN = (
    Shown("mass", "Filler mass", "Share of attention", "mass_share", "twin_mass"),
    Shown("lambda", "Lambda, as 1 - filler mass", "1 - filler mass", "mass_share", "twin_mass", one_less=True),
    Shown("drop", "Paired drop", "", "odds", "twin"),
)


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions, queries = request.fillers(run), request.queries or "original"
    tables = [depth_table(run, name, queries) for name in conditions]
    ratio = quotient([run.condition(name) for name in conditions])
    filled = any(run.condition(name).has_filler for name in conditions)
    panels = SHOWN if filled else SHOWN[-1:]  # mass is of filler
    with styled():
        figure, axes = grid(1, len(panels), 2.5)
        for panel_axes, panel in zip(axes.flat, panels, strict=True):
            _draw_references(panel_axes, tables[0], panel)
            _draw_measure(run, panel_axes, tables, panel.measure)
            panel_axes.set_title(panel.title)
            panel_axes.set_ylabel(panel.label or ratio.capitalize())
        legend(figure, [axes[0, 0]], run.label)
    notes = (
        "filler mass: share of attention that original tokens after the filler give to it",
        f"paired drop: attention received by original tokens, {ratio}",
        "each problem's mean over the heads of a layer",
        "bands: 95% interval over problems",
        clip_note(axes.flat),
        _length_note(tables[0]),
        twin_note(run, conditions[0]),
    )
    text = caption([run], conditions, queries, *notes)
    return Drawn("depth", figure, stacked([(table.condition, table.columns()) for table in tables]), text)


def _draw_references(axes: Axes, table: DepthTable, panel: Shown) -> None:
    """Length alone and untrained twins under the first condition, where they are known."""
    nothing = [np.full(table.layers, np.nan)] * 3
    references = (table.values[panel.length][0], *table.values.get(panel.twins, nothing))
    alone, mean, low, high = (1 - values if panel.one_less else values for values in references)
    layers = np.arange(1, table.layers + 1)
    if np.isfinite(alone).any():
        axes.plot(layers, alone, color=GREY, linestyle=(0, (4, 2)), linewidth=0.9, label=LENGTH, zorder=1)
    if np.isfinite(low).any():
        axes.plot(layers, mean, color=GREY, linestyle=DOTTED, label=TWINS, zorder=1)
        axes.fill_between(layers, low, high, color=GREY, alpha=0.3, linewidth=0, zorder=0.5)


def _draw_measure(run: StoredRun, axes: Axes, tables: Sequence[DepthTable], measure: str) -> None:
    """A line for each condition, over the axis of layers."""
    from matplotlib.ticker import MaxNLocator

    for table in tables:
        measured = np.flatnonzero(np.isfinite(table.values[measure][0]))  # hybrids have layers without attention
        mean, low, high = (bound[measured] for bound in table.values[measure])
        look = condition_look(run, table.condition)
        style = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 2}
        axes.plot(measured + 1, mean, label=look.label, **style)  # type: ignore[arg-type]
        axes.fill_between(measured + 1, low, high, color=look.colour, alpha=0.22, linewidth=0)
    if measure == "drop":
        axes.axhline(1.0, color="#555555", linewidth=0.7)
        fit_to_means(axes)
    else:
        fit_to_means(axes, least=0)
        axes.set_ylim(0, 1.02 if measure == "lambda" else None)
    axes.set_xlabel("Layer")
    axes.set_xlim(0.5, tables[0].layers + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))


def _length_note(table: DepthTable) -> str:
    """What a caption says of the dashed lines, as far as there are any."""
    known = [name for name in ("mass_share", "odds") if np.isfinite(table.values[name][0]).any()]
    words = {
        "mass_share": "the share that as many average tokens have",
        "odds": "the drop of rows that keep their odds while filler draws as average tokens do",
    }
    text = "; ".join(words[name] for name in known)
    return f"dashed grey: length alone under {table.condition}: {text}" if text else ""


def _panels(_: Run, drawn: Drawn) -> list[Panel]:
    return layer_panels(MEASURES, rows_of(drawn.table))


MEASURES = (
    LayerMeasure("mass", "Filler mass, share of attention", zero=True),
    LayerMeasure("lambda", "Lambda, 1 - filler mass", no_change=1.0),
    LayerMeasure("drop", "Paired drop, ratio to none", no_change=1.0),
    LayerMeasure("odds", "Drop that length alone gives", no_change=1.0),
    LayerMeasure("beyond", "Beyond length, drop / that", no_change=1.0),
    LayerMeasure("twin", "Paired drop, untrained twins (mean and range)", no_change=1.0),
)
FIGURE = Figure("depth", "The effect by layer", draw, _panels, measures=MEASURES)
