"""`length`: accuracy and filler mass against the number of filler tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import sample_interval
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import FigureError
from fillerscope.figures.answered import Answered, accuracy_record
from fillerscope.figures.bars import ACCURACY_LABEL, Share, refuse_many, whiskers
from fillerscope.figures.captions import attention_words, clip_note, opening, sentences
from fillerscope.figures.condition_text import recipe
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import CONDITIONS, condition_look, line_look
from fillerscope.figures.panels import Columns, LinePanel, OwnLook, Series
from fillerscope.figures.request import Request, first_layers, swept
from fillerscope.figures.style import Drawn, Look, fit_titles, fit_to_means, grid, legend, styled
from fillerscope.figures.table import Cell, Row, groups, number, rows_of, table_of_rows, where
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SURE = 0.05
AXIS = "Filler length (tokens)"
ALL_LAYERS = "all"  # stands where the number of a layer does
DODGE = 0.012  # of the axis, between the error bars of two lines


@dataclass(frozen=True)
class Mass:
    """Filler mass of one condition in one layer, or in all of them."""

    condition: str
    length: int
    layer: str
    mean: float
    low: float
    high: float


def lacks(study: Study) -> str:
    if swept(study, "count"):
        return ""
    return "goes along the length of a filler and needs a condition whose `count` is a list, such as [10, 25, 55]"


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    lines = {name: sorted(cells, key=_length) for name, cells in _lines(run, request).items()}
    conditions = [BASELINE, *(cell.name for cells in lines.values() for cell in cells)]
    answered = Answered.of(whole, [run.name]) if run.has_answers else None
    queries = request.queries or "original"
    layer = first_layers(run, request)[0] if run.has_attention else 1
    masses = _masses(run, lines, layer, queries) if run.has_attention else {}
    with styled():
        figure, axes = grid(1, run.has_answers + run.has_attention, 2.7)
        if answered:
            _draw_accuracy(axes[0, 0], answered, run, lines)
        if masses:
            _draw_mass(axes[0, -1], masses, layer)
        _name_lines(axes[0, 0], list(lines))
        for panel in axes.flat:
            panel.set_xlabel(AXIS)
            end = max(_length(cell) for cells in lines.values() for cell in cells)
            panel.set_xlim(-0.04 * end, 1.04 * end)
        fit_titles(axes.flat)
        legend(figure, axes.flat, run.label)
    rows = [answered.row(run.name, name) for name in conditions] if answered else []
    notes = _mass_notes(run, queries, layer, clip_note([axes[0, -1]])) if masses else []
    table = table_of_rows([*(_record(run, row) for row in rows), *(_mass_record(run, m) for m in _flat(masses))])
    return Drawn("length", figure, table, _caption(run, lines, answered, notes))


def _lines(run: StoredRun, request: Request) -> dict[str, list[Condition]]:
    lines = swept(run.study, "count", request.fillers(run))
    if not lines:
        raise FigureError(f"`length` {lacks(run.study) or 'needs two lengths or more of one filler'}")
    refuse_many("length", len(lines), len(CONDITIONS))
    return lines


def _length(condition: Condition) -> int:
    return condition.count or 0


def _draw_accuracy(axes: Axes, answered: Answered, run: ModelRun, lines: dict[str, list[Condition]]) -> None:
    baseline, none = answered.row(run.name, BASELINE), condition_look(run, BASELINE)
    end = max(_length(cell) for cells in lines.values() for cell in cells)
    for index, cells in enumerate(lines.values()):
        rows = [answered.row(run.name, cell.name) for cell in cells]
        shift = DODGE * end * (index - (len(lines) - 1) / 2)
        look = line_look(index)
        places = [_length(cell) + shift for cell in cells]
        values = [100 * row.accuracy for row in (baseline, *rows)]
        axes.plot([0, *places], values, color=look.colour, linestyle=look.dash)
        _points(axes, places, rows, look)
    axes.axhline(100 * baseline.accuracy, color="#777777", linewidth=0.7, linestyle=(0, (3, 2)), zorder=1)
    style = {"fmt": none.marker, "color": none.colour, "markersize": 3.5, "label": none.label}
    whiskers(axes, [0], [_share(baseline)], clip_on=False, zorder=4, **style)
    axes.set_title("Accuracy")
    axes.set_ylabel(ACCURACY_LABEL)


def _name_lines(axes: Axes, names: Sequence[str]) -> None:
    """An empty line for each filler, for the legend: its colour and marker mean the same in both panels."""
    for index, name in enumerate(names):
        look = line_look(index, name)
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "marker": look.marker}
        axes.plot([], [], markersize=4, label=look.label, **style)


def _points(axes: Axes, places: Sequence[float], rows: Sequence[Accuracy], look: Look) -> None:
    """Filled where the accuracy differs from that without filler, open where it may not."""
    for sure in (True, False):
        chosen = [i for i, row in enumerate(rows) if _sure(row) is sure]
        if chosen:
            whiskers(
                axes, [places[i] for i in chosen], [_share(rows[i]) for i in chosen], fmt=look.marker,
                markersize=4, color=look.colour, ecolor=look.colour,
                markerfacecolor=look.colour if sure else "white",
            )  # fmt: skip


def _sure(row: Accuracy) -> bool:
    return row.against is not None and row.against.adjusted < SURE


def _share(row: Accuracy) -> Share:
    return Share(row.accuracy, row.low, row.high)


def _masses(
    run: ModelRun, lines: dict[str, list[Condition]], layer: int, queries: str
) -> dict[str, dict[str, list[Mass]]]:
    """By line, then by layer: one, and the mean of all."""
    return {name: _of_line(run, cells, layer, queries) for name, cells in lines.items()}


def _of_line(run: ModelRun, cells: list[Condition], layer: int, queries: str) -> dict[str, list[Mass]]:
    masses: dict[str, list[Mass]] = {str(layer): [], ALL_LAYERS: []}
    for cell in cells:
        by_layer = run.summary("filler_mass", cell.name, queries).mean(axis=-1)
        if layer > by_layer.shape[1]:
            raise FigureError(f"there is no layer {layer}: {run.label} has layers 1 to {by_layer.shape[1]}")
        for which, samples in ((str(layer), by_layer[:, layer - 1]), (ALL_LAYERS, by_layer.mean(axis=1))):
            mean, low, high = (float(value) for value in sample_interval(samples))
            masses[which].append(Mass(cell.name, _length(cell), which, mean, low, high))
    return masses


def _draw_mass(axes: Axes, masses: dict[str, dict[str, list[Mass]]], layer: int) -> None:
    for index, by_layer in enumerate(masses.values()):
        look = line_look(index)
        for which, own in by_layer.items():
            x, y, low, high = np.array([(m.length, m.mean, m.low, m.high) for m in own]).T
            dash, size = ("solid", 3.5) if which != ALL_LAYERS else ((0, (1, 0.8)), 2.5)
            axes.plot(x, y, color=look.colour, linestyle=dash, marker=look.marker, markersize=size)
            axes.fill_between(x, low, high, color=look.colour, alpha=0.2, linewidth=0)
    fit_to_means(axes, least=0)
    for text, dash in ((f"Layer {layer}", "solid"), ("Mean of all layers", (0, (1, 0.8)))):
        axes.plot([], [], color="#555555", linestyle=dash, label=text)
    axes.set_title("Filler mass")
    axes.set_ylabel("Share of attention")


def _flat(masses: dict[str, dict[str, list[Mass]]]) -> list[Mass]:
    return [mass for by_layer in masses.values() for own in by_layer.values() for mass in own]


def _record(run: StoredRun, row: Accuracy) -> dict[str, Cell]:
    first: dict[str, Cell] = {"measure": "accuracy", "length": _length(run.condition(row.condition))}
    return first | accuracy_record(row)


def _mass_record(run: ModelRun, mass: Mass) -> dict[str, Cell]:
    return {
        "measure": "filler mass", "length": mass.length, "model": run.label, "condition": mass.condition,
        "layer": mass.layer, "mass": mass.mean, "low": mass.low, "high": mass.high,
    }  # fmt: skip


def _mass_notes(run: ModelRun, queries: str, layer: int, clipped: str) -> list[str]:
    mass = "filler mass: share of attention that original tokens after the filler give to it, each problem's mean "
    notes = [f"{mass}over the heads of layer {layer}, and of all layers", "bands: 95% interval over problems", clipped]
    return [attention_words(run, queries), *sentences(notes)]


def _caption(
    run: ModelRun, lines: dict[str, list[Condition]], answered: Answered | None, mass_notes: Sequence[str]
) -> str:
    count = answered.count(run.name) if answered else str(len(run.measured()))
    words = [opening([run], [count]), *(recipe(cells[0].sweep, cells) for cells in lines.values())]
    if answered:
        points = f"filled points: p below {SURE}, {answered.test}; open points: p of {SURE} or more"
        words += sentences([*answered.notes, points, "the axis of accuracy does not begin at 0"])
    return " ".join([*words, *mass_notes])


def _panels(run: Run, drawn: Drawn) -> list[LinePanel]:
    rows = rows_of(drawn.table)
    lines = swept(run.study, "count", [str(row["condition"]) for row in rows])
    accuracy, masses = where(rows, "measure", "accuracy"), where(rows, "measure", "filler mass")
    percent = _series(lines, accuracy, "accuracy", 100.0)
    baseline = [number(row, "accuracy", 100.0) for row in where(accuracy, "condition", BASELINE)]
    panels = [
        LinePanel("Accuracy", AXIS, "Accuracy, %", percent, no_change=baseline[0] if baseline else None),
        LinePanel("Filler mass", AXIS, "Share of attention", _series(lines, masses, "mass")),
    ]
    return [panel for panel in panels if panel.series]


def _series(lines: dict[str, list[Condition]], rows: Sequence[Row], column: str, scale: float = 1.0) -> list[Series]:
    """The lines of one measure along the lengths of each filler."""
    series = []
    for place, (name, cells) in enumerate(lines.items()):
        for (layer,), own in groups(where(rows, "condition", *(cell.name for cell in cells)), "layer"):
            which = "" if layer is None else ", mean of all layers" if layer == ALL_LAYERS else f", layer {layer}"
            look = OwnLook(f"{name}{which}", place + 1, place + (3 if layer == ALL_LAYERS else 0))
            series.append(Series.of(look, own, "length", Columns(column), scale))
    return series


FIGURE = Figure("length", "Filler length", draw, _panels, lacks)
