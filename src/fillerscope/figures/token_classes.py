"""`tokenclasses`: what happens to activations of digits, operators and other kinds of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fillerscope.analysis.mechanism import ActivationTable, activation_table
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.activations import NEAR_ZERO, VARIANCE, lacks
from fillerscope.figures.by_layer import GREY, checked_layer, marked, shown, words
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import condition_look
from fillerscope.figures.panels import Bar, BarPanel, Columns
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, grid, legend, styled
from fillerscope.figures.table import Row, groups, rows_of, table_of_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = 0.7  # of the way to the next class, taken by the points of one class
PANELS = {"near_zero": ("Near zero, change in points", 0.0, 100.0), "variance": ("Variance, with / without", 1.0, 1.0)}
Tables = dict[tuple[str, str], ActivationTable]  # by condition and class


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions = shown(run, request, "tokenclasses")
    layers = [checked_layer(run, layer) for layer in request.layers or (1,)]
    classes = run.classes
    tables = {(name, cls): activation_table(run, name, cls) for name in conditions for cls in classes}
    with styled():
        height = 0.75 + len(layers) * (0.55 + len(classes) * max(0.24, 0.09 * len(conditions)))
        figure, axes = grid(len(layers), len(PANELS), height)
        for row, layer in enumerate(layers):
            for column, metric in enumerate(PANELS):
                _panel(axes[row, column], run, tables, conditions, layer, metric)
            names = [f"{cls} (n = {_count(tables, conditions, cls, layer)})" for cls in classes]
            axes[row, 0].set_yticks(range(len(classes)), names)
            axes[row, 1].set_yticks(range(len(classes)), [""] * len(classes))
        for panel, (title, *_) in zip(axes[-1], PANELS.values(), strict=True):
            panel.set_xlabel(title)
        legend(figure, [axes[0, 0]], run.label)
    text = words(
        run, conditions, str(len(run.measured())),
        "paired change of the output of the MLP's nonlinearity, by class of token; a problem without such a token is "
        "left out", "lines: 95% interval over problems",
    )  # fmt: skip
    return Drawn("tokenclasses", figure, table_of_rows(_rows(tables, layers)), text)


def _panel(axes: Axes, run: StoredRun, tables: Tables, conditions: Sequence[str], layer: int, metric: str) -> None:
    _, none, scale = PANELS[metric]
    step = SPREAD / len(conditions)
    for index, name in enumerate(conditions):
        cells = [_cell(tables[name, cls], metric, layer) for cls in run.classes]
        value, low, high = (scale * bound for bound in np.array(cells).T)
        places = np.arange(len(cells)) + step * (index - (len(conditions) - 1) / 2)
        reach = np.nan_to_num([value - low, high - value]).clip(min=0)
        look = condition_look(run, name)
        style = marked(look) | {"markersize": 3.4}
        axes.errorbar(value, places, xerr=reach, label=look.label, linestyle="none", elinewidth=0.9, **style)
    axes.axvline(none, color=GREY, linewidth=0.7, zorder=1)
    axes.set_ylim(len(run.classes) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"Layer {layer}")
    axes.locator_params(axis="x", nbins=6)


def _cell(table: ActivationTable, metric: str, layer: int) -> list[float]:
    estimate = table.ratio[metric] if metric in table.ratio else table.difference[metric]
    return [float(bound[layer - 1]) for bound in estimate]


def _count(tables: Tables, conditions: Sequence[str], cls: str, layer: int) -> str:
    """How many problems have such a token: as a rule the same number under all conditions."""
    counts = sorted({int(tables[name, cls].n[layer - 1]) for name in conditions})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _rows(tables: Tables, layers: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for (name, cls), table in tables.items():
        columns = table.columns()
        for layer in layers:
            own = {key: column[layer - 1].item() for key, column in columns.items()}
            rows.append({"condition": name, "token_class": cls} | own)
    return rows


def _panels(_: Run, drawn: Drawn) -> list[BarPanel]:
    """For each layer two measures by class of token."""
    panels = []
    for (layer,), rows in groups(rows_of(drawn.table), "layer"):
        for measure in (NEAR_ZERO, VARIANCE):
            columns = Columns.of(measure.column)
            by_class = [
                (f"{cls} (n = {own[0]['n']})", [Bar.of(row, columns, measure.scale) for row in own])
                for (cls,), own in groups(rows, "token_class")
            ]
            title = f"{measure.title}, layer {layer}"
            panels.append(BarPanel(title, measure.title, by_class, measure.no_change, mark="point"))
    return panels


FIGURE = Figure("tokenclasses", "Activations by class of token", draw, _panels, lacks)
