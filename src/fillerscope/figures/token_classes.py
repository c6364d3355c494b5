"""`tokenclasses`: what happens to activations of digits, operators and other kinds of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.analysis.mechanism import ActivationTable, activation_table
from fillerscope.analysis.run import Run
from fillerscope.figures.activations import lacks as lacks
from fillerscope.figures.bars import table_of_rows
from fillerscope.figures.by_layer import GREY, checked_layer, label, look, shown, words
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, grid, legend, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = 0.7  # of the way to the next class, taken by the points of one class
PANELS = {"near_zero": ("Near zero, change in points", 0.0, 100.0), "variance": ("Variance, with / without", 1.0, 1.0)}
Tables = dict[tuple[str, str], ActivationTable]  # by condition and class


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    conditions = shown(run, request, "tokenclasses")
    layers = [checked_layer(run, layer, model) for layer in request.layers or (1,)]
    classes = run.classes
    tables = {(name, cls): activation_table(run, name, cls, model) for name in conditions for cls in classes}
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
        legend(figure, [axes[0, 0]], run.label(model))
    text = words(
        run, model, conditions, str(len(run.measured(model))),
        "paired change of the output of the MLP's nonlinearity, by class of token; a problem without such a token is "
        "left out", "lines: 95% interval over problems",
    )  # fmt: skip
    return Drawn("tokenclasses", figure, table_of_rows(_rows(tables, layers)), text)


def _panel(axes: Axes, run: Run, tables: Tables, conditions: Sequence[str], layer: int, metric: str) -> None:
    _, none, scale = PANELS[metric]
    step = SPREAD / len(conditions)
    for index, name in enumerate(conditions):
        found = [tables[name, cls] for cls in run.classes]
        value, low, high = (scale * bound for bound in np.array([_cell(table, metric, layer) for table in found]).T)
        places = np.arange(len(found)) + step * (index - (len(conditions) - 1) / 2)
        reach = np.nan_to_num([value - low, high - value]).clip(min=0)
        style = look(index) | {"markersize": 3.4}
        axes.errorbar(value, places, xerr=reach, label=label(run, name), linestyle="none", elinewidth=0.9, **style)
    axes.axvline(none, color=GREY, linewidth=0.7, zorder=1)
    axes.set_ylim(len(run.classes) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"Layer {layer}")
    axes.locator_params(axis="x", nbins=6)


def _cell(table: ActivationTable, metric: str, layer: int) -> list[float]:
    found = table.ratio[metric] if metric in table.ratio else table.difference[metric]
    return [float(bound[layer - 1]) for bound in found]


def _count(tables: Tables, conditions: Sequence[str], cls: str, layer: int) -> str:
    """The same under all conditions as a rule."""
    found = sorted({int(tables[name, cls].n[layer - 1]) for name in conditions})
    return str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _rows(tables: Tables, layers: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for (name, cls), table in tables.items():
        columns = table.columns()
        for layer in layers:
            own = {key: column[layer - 1].item() for key, column in columns.items()}
            rows.append({"condition": name, "token_class": cls} | own)
    return rows
