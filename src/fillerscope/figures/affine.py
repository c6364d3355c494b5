"""`affine`: attention outputs under a condition as lambda times those without, plus a bias, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.mechanism import AffineTable, affine_table
from fillerscope.analysis.run import Run
from fillerscope.figures.by_layer import BANDS, DASHED, GREY, by_layer, curve, every, marked, shown, words
from fillerscope.figures.captions import clip_note
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import condition_look
from fillerscope.figures.panels import LayerMeasure, Panel, layer_panels
from fillerscope.figures.references import twin_curve, twin_note
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, Look, fit_titles, grid, legend, styled
from fillerscope.figures.table import rows_of, stacked
from fillerscope.study.study import Study

NOTES = (
    "outputs o' of a head under a condition, before the output projection, are fitted by lambda * o + b of those "
    "without, over the original tokens after the filler of one problem; each problem's mean over the heads of a layer",
    "explained: share of the variation of o' that the fit has",
    "direction: |b| over the mean of |o' - lambda * o|, 1 where the shift points one way for every token",
    "across problems: |mean of b| over mean of |b|, without interval",
    "relative bias: |b| over the mean of |o|",
    BANDS,
)


CHANCE = "Unrelated biases, across problems"
LEAST_EXPLAINED = -0.25  # untrained twins may lie far below, and would leave the model's own curve flat
PLACES = {(0, 0): "lambda_fit", (0, 1): "explained", (1, 0): "direction", (1, 1): "relative_bias"}


def lacks(study: Study) -> str:
    return "" if study.probes.affine else "shows the affine picture: give `probes: {affine: true}` in the study"


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions = shown(run, request, "affine")
    tables = [affine_table(run, name) for name in conditions]
    with styled():
        figure, axes = grid(2, 2, 4.2)
        untrained = [affine_table(twin, conditions[0]) for twin in run.twins()]
        for place, measure in PLACES.items():
            twin_curve(axes[place], [table.values[measure][0] for table in untrained])
        for table in tables:
            _draw(axes, table, condition_look(run, table.condition))
        layers, chance = tables[0].layers, tables[0].chance
        by_layer(axes[0, 0], layers, "Lambda: fitted (solid), 1 - filler mass (dashed)", 1.0)
        by_layer(axes[0, 1], layers, "Variation explained by lambda and bias", 1.0)
        if axes[0, 1].get_ylim()[0] < LEAST_EXPLAINED:
            axes[0, 1].set_ylim(LEAST_EXPLAINED, None)
            axes[0, 1].text(
                0.98, 0.03, "what is not seen lies below", transform=axes[0, 1].transAxes, ha="right", fontsize=6.5
            )
        axes[1, 0].axhline(chance, color=GREY, linewidth=0.7, linestyle="-.", zorder=1, label=CHANCE)
        by_layer(axes[1, 0], layers, "One direction: within (solid), across problems (dashed)")
        axes[1, 0].set_ylim(0, None)
        by_layer(axes[1, 1], layers, "Relative bias")
        axes[1, 1].set_ylim(0, None)
        for panel in axes[1]:
            panel.set_xlabel("Layer")
        fit_titles(axes.flat)
        legend(figure, [axes[0, 0], axes[1, 0]], run.label)
    chances = f"dash-dotted line: {chance:.2f}, what biases without a common direction would have across problems"
    below = "; of what they explain, below the frame where not seen" if untrained else ""
    twins = f"{twin_note(run, conditions[0])}{below}"
    text = words(run, conditions, str(len(run.measured())), *NOTES, clip_note(axes.flat), chances, twins)
    return Drawn("affine", figure, stacked([(table.condition, table.columns()) for table in tables]), text)


def _draw(panels: NDArray[Any], table: AffineTable, look: Look) -> None:
    curve(panels[0, 0], table.values["lambda_fit"], look, look.label)
    curve(panels[0, 0], table.values["lambda_mass"], look, dash=DASHED)
    curve(panels[0, 1], table.values["explained"], look)
    curve(panels[1, 0], table.values["direction"], look)
    measured = np.flatnonzero(np.isfinite(table.consistency))
    marks = every(len(measured), look)
    panels[1, 0].plot(measured + 1, table.consistency[measured], linestyle=DASHED, markevery=marks, **marked(look))
    curve(panels[1, 1], table.values["relative_bias"], look)


def _panels(_: Run, drawn: Drawn) -> list[Panel]:
    return layer_panels(MEASURES, rows_of(drawn.table))


MEASURES = (
    LayerMeasure("lambda_fit", "Lambda, fitted", no_change=1.0),
    LayerMeasure("lambda_mass", "1 - filler mass", no_change=1.0),
    LayerMeasure("explained", "Variation explained", no_change=1.0),
    LayerMeasure("direction", "One direction, within a problem", zero=True),
    LayerMeasure("consistency", "One direction, across problems", zero=True),
    LayerMeasure("relative_bias", "Relative bias", zero=True),
)
FIGURE = Figure("affine", "The affine picture by layer", draw, _panels, lacks, MEASURES)
