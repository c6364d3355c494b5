"""`arm`: how sensitive ARM, or a control of it, is to its settings: a map for every sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.mechanism import activation_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.answered import Answered, accuracy_record
from fillerscope.figures.bars import STARS_NOTE, stars
from fillerscope.figures.captions import opening, sentences
from fillerscope.figures.condition_text import name_of, recipe
from fillerscope.figures.figure import Figure
from fillerscope.figures.panels import Bar, BarPanel, Columns
from fillerscope.figures.request import Request, setting_word
from fillerscope.figures.style import WIDTH, Drawn, page, styled
from fillerscope.figures.table import Cell as Value
from fillerscope.figures.table import groups, rows_of, table_of_rows
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Redistribution
from fillerscope.study.study import Study
from fillerscope.study.sweeps import SWEPT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page

KEYS = ("c", "fraction", "p1", "p_min", "p_max", "layers")
NAMES = {"layers": "layer", "fraction": "fraction", "c": "c", "p1": "p1"}
SIDE = 2  # maps in a row
Setting = float | tuple[int, ...] | None


@dataclass(frozen=True)
class Measure:
    """What a map shows: its name in print, its name on the page, and how it goes to an axis there."""

    print: str
    title: str
    columns: Columns
    no_change: float
    scale: float


MEASURES = {
    "accuracy": Measure("accuracy, points", "accuracy, change in points", Columns.of("difference"), 0.0, 100.0),
    "near_zero": Measure("near zero, points", "near zero, change in points", Columns("value"), 0.0, 100.0),
    "variance": Measure("variance, ratio", "variance, ratio to none", Columns("value"), 1.0, 1.0),
}


@dataclass(frozen=True)
class Cell:
    """A number of one condition, what is written on it, and the cells of its row in the table."""

    condition: Condition
    value: float
    text: str
    record: dict[str, Value]


@dataclass(frozen=True)
class Map:
    """One measure over two settings of a sweep; the others are the same all over it."""

    measure: str
    title: str
    rows: str
    columns: str
    cells: list[Cell]


def lacks(study: Study) -> str:
    if not _sweeps(study):
        return "goes along settings of ARM and needs a condition whose intervention has a list, such as c: [0.05, 0.13]"
    if study.generation or study.probes.activations:
        return ""
    return "needs answers or activations: give `generation` or `probes: {activations: true}` in the study"


def _sweeps(study: Study, names: Sequence[str] = ()) -> dict[str, list[Condition]]:
    """Cells of each sweep that moves activations, where there are two or more."""
    sweeps: dict[str, list[Condition]] = {}
    for cell in study.conditions:
        wanted = not names or cell.name in names or cell.sweep in names
        if cell.sweep and wanted and isinstance(cell.intervention, Redistribution):
            sweeps.setdefault(cell.sweep, []).append(cell)
    return {name: cells for name, cells in sweeps.items() if len(cells) > 1 and _varied(cells)}


def _setting(cell: Condition, key: str) -> Setting:
    value: Setting = getattr(cell.intervention, key)
    return value


def _varied(cells: Sequence[Condition]) -> list[str]:
    return [key for key in KEYS if len({_setting(cell, key) for cell in cells}) > 1]


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    names = request.fillers(run)
    sweeps = _sweeps(run.study, names if request.conditions else ())
    if not sweeps or lacks(run.study):
        raise FigureError(f"`arm` {lacks(run.study) or 'needs two settings or more of one sweep'}")
    answered = Answered.of(whole, [run.name]) if run.has_answers else None
    maps = [one for name, cells in sweeps.items() for one in _maps(run, name, cells, answered)]
    with styled():
        figure, axes = _grid(maps)
        for panel, one in zip(axes.flat, maps, strict=False):
            _panel(panel, one)
        for panel in axes.flat[len(maps) :]:
            panel.remove()
        figure.suptitle(run.label, fontsize=8.5)
    table = table_of_rows([_row(one, cell) for one in maps for cell in one.cells])
    return Drawn("arm", figure, table, _caption(run, sweeps, answered))


def _maps(run: ModelRun, name: str, cells: list[Condition], answered: Answered | None) -> list[Map]:
    """A map for each measure, and for each combination of what varies beyond two settings."""
    rows, *more = _varied(cells)
    columns, others = (more[0], more[1:]) if more else ("c" if rows == "p1" else "p1", [])
    combined: dict[str, list[Condition]] = {}
    for cell in cells:
        fillers = [f", {setting_word(key, getattr(cell, key))}" for key in SWEPT if _differs(cells, key)]
        own = "".join([*(f", {_word(key)} {_value(_setting(cell, key))}" for key in others), *fillers])
        combined.setdefault(own, []).append(cell)
    maps = []
    for own, group in combined.items():
        for measure in ("accuracy",) if answered else ("near_zero", "variance"):
            numbers = [_cell(run, cell, measure, answered) for cell in group]
            title = f"{cells[0].label or name}{own}: {MEASURES[measure].print}"
            maps.append(Map(measure, title, rows, columns, numbers))
    return maps


def _differs(cells: Sequence[Condition], key: str) -> bool:
    return len({getattr(cell, key) for cell in cells}) > 1


def _cell(run: ModelRun, cell: Condition, measure: str, answered: Answered | None) -> Cell:
    return _accuracy(cell, answered.row(run.name, cell.name)) if answered else _activations(run, cell, measure)


def _accuracy(cell: Condition, row: Accuracy) -> Cell:
    assert row.against is not None
    change = row.against
    bounds = f"\n[{100 * change.difference_low:+.1f}, {100 * change.difference_high:+.1f}]"
    text = f"{100 * change.difference:+z.1f}{stars(change.adjusted)}"
    text += bounds if np.isfinite(change.difference_low) else ""
    return Cell(cell, 100 * change.difference, text, accuracy_record(row))


def _activations(run: ModelRun, cell: Condition, measure: str) -> Cell:
    """The change in the first layer that the condition redistributes."""
    assert isinstance(cell.intervention, Redistribution)
    table = activation_table(run, cell.name)
    layer = cell.intervention.layers[0] - 1
    estimate = table.difference[measure] if measure == "near_zero" else table.ratio[measure]
    scale = MEASURES[measure].scale
    value, low, high = (scale * float(bound[layer]) for bound in estimate)
    p = float(table.p[measure][layer])
    form = "+z.1f" if measure == "near_zero" else ".2f"
    text = f"{value:{form}}{stars(p)}"
    text += f"\n[{low:{form}}, {high:{form}}]" if np.isfinite(low) else ""
    record: dict[str, Value] = {"value": value / scale, "low": low / scale, "high": high / scale, "p": p}
    record |= {"n": int(table.n[layer]), "layer": layer + 1}
    return Cell(cell, value if measure == "near_zero" else float(np.log2(value)), text, record)


def _grid(maps: Sequence[Map]) -> tuple[Page, NDArray[Any]]:
    widest = max(len(_values(one, one.columns)) for one in maps)
    side = 1 if widest > 5 or len(maps) == 1 else SIDE
    rows = ceil(len(maps) / side)
    tallest = max(len(_values(one, one.rows)) for one in maps)
    width = min(WIDTH, max(2.8, 1.0 + 0.72 * widest) * side)
    figure = page(width, 0.35 + rows * (0.85 + 0.36 * tallest))
    return figure, figure.subplots(rows, side, squeeze=False)


def _values(one: Map, key: str) -> list[Setting]:
    return sorted({_setting(cell.condition, key) for cell in one.cells}, key=lambda value: (value is not None, value))


def _panel(axes: Axes, one: Map) -> None:
    rows, columns = _values(one, one.rows), _values(one, one.columns)
    values = np.full((len(rows), len(columns)), np.nan)
    for cell in one.cells:
        place = rows.index(_setting(cell.condition, one.rows)), columns.index(_setting(cell.condition, one.columns))
        values[place] = cell.value
    reach = max(1e-9, float(np.nanmax(np.abs(values), initial=0.0))) if np.isfinite(values).any() else 1.0
    axes.imshow(values, cmap="RdBu_r", vmin=-1.6 * reach, vmax=1.6 * reach, aspect="auto")  # pale enough to read on
    for cell in one.cells:
        x, y = columns.index(_setting(cell.condition, one.columns)), rows.index(_setting(cell.condition, one.rows))
        axes.text(x, y, cell.text, ha="center", va="center", fontsize=6, color="#111111", linespacing=1.05)
    axes.set_xticks(range(len(columns)), [_value(value) for value in columns])
    axes.set_yticks(range(len(rows)), [_value(value) for value in rows])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_xlabel(_word(one.columns))
    axes.set_ylabel(_word(one.rows))
    axes.set_title(one.title, fontsize=7.5)


def _word(key: str) -> str:
    return NAMES.get(key, key)


def _value(value: Setting) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "by c" if value is None else f"{value:g}"


def _row(one: Map, cell: Cell) -> dict[str, Value]:
    row: dict[str, Value] = {"measure": one.measure, "condition": cell.condition.name}
    for key in KEYS:
        value = _setting(cell.condition, key)
        row[key] = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return row | cell.record


def _caption(run: ModelRun, sweeps: dict[str, list[Condition]], answered: Answered | None) -> str:
    recipes = [recipe(name, cells) for name, cells in sweeps.items()]
    if answered:
        notes = [
            answered.notes[0], "numbers: points more or less than under none, with the 95% interval from resampled "
            "problems", f"{STARS_NOTE}, {answered.test}",
        ]  # fmt: skip
        return " ".join([opening([run], [answered.count(run.name)]), *recipes, *sentences(notes)])
    notes = [
        "numbers: change against none of the output of the MLP's nonlinearity in the first layer that is changed, with "
        "the 95% interval over problems", f"{STARS_NOTE}, signs flipped at random, not adjusted",
    ]  # fmt: skip
    return " ".join([opening([run], [str(len(run.measured()))]), *recipes, *sentences(notes)])


def _panels(run: Run, drawn: Drawn) -> list[BarPanel]:
    """A point for each cell of the sweeps, under the name that says its settings."""
    panels = []
    for (name,), rows in groups(rows_of(drawn.table), "measure"):
        measure = MEASURES[str(name)]
        points = [(name_of(run, str(row["condition"])), [Bar.of(row, measure.columns, measure.scale)]) for row in rows]
        title = f"ARM: {measure.title}"
        panels.append(BarPanel(title, measure.title, points, no_change=measure.no_change, mark="point"))
    return panels


FIGURE = Figure("arm", "Sensitivity of ARM", draw, _panels, lacks)
