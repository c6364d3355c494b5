"""`arm`: how sensitive ARM, or a control of it, is to its settings: a map for every sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.analysis.mechanism import activation_table
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.bars import STARS_NOTE, stars, table_of_rows
from fillerscope.figures.condition_text import recipe
from fillerscope.figures.request import Answered, Request, accuracy_record, opening, sentences
from fillerscope.figures.style import WIDTH, Drawn, styled
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Redistribution
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEYS = ("c", "fraction", "p1", "p_min", "p_max", "layers")
NAMES = {"layers": "layer", "fraction": "fraction", "c": "c", "p1": "p1"}
SIDE = 2  # maps in a row
MEASURES = {"accuracy": "accuracy, points", "near_zero": "near zero, points", "variance": "variance, ratio"}


@dataclass(frozen=True)
class Cell:
    """A number of one condition; `bounds` decide whether it lies surely on one side of no change."""

    condition: Condition
    value: float
    text: str
    record: dict[str, Any]


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
    found: dict[str, list[Condition]] = {}
    for cell in study.conditions:
        wanted = not names or cell.name in names or cell.sweep in names
        if cell.sweep and wanted and isinstance(cell.intervention, Redistribution):
            found.setdefault(cell.sweep, []).append(cell)
    return {name: cells for name, cells in found.items() if len(cells) > 1 and _varied(cells)}


def _setting(cell: Condition, key: str) -> Any:
    return getattr(cell.intervention, key)


def _varied(cells: Sequence[Condition]) -> list[str]:
    return [key for key in KEYS if len({_setting(cell, key) for cell in cells}) > 1]


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    names = request.fillers(run)
    sweeps = _sweeps(run.study, names if request.conditions else ())
    if not sweeps or lacks(run.study):
        raise FigureError(f"`arm` {lacks(run.study) or 'needs two settings or more of one sweep'}")
    answered = Answered.of(run, [model]) if run.has_answers else None
    maps = [one for name, cells in sweeps.items() for one in _maps(run, model, name, cells, answered)]
    with styled():
        figure, axes = _grid(maps)
        for panel, one in zip(axes.flat, maps, strict=False):
            _panel(panel, one)
        for panel in axes.flat[len(maps) :]:
            panel.remove()
        figure.suptitle(run.label(model), fontsize=8.5)
    table = table_of_rows([_row(one, cell) for one in maps for cell in one.cells])
    return Drawn("arm", figure, table, _caption(run, model, sweeps, answered))


def _maps(run: Run, model: str, name: str, cells: list[Condition], answered: Answered | None) -> list[Map]:
    """A map for each measure, and for each combination of what varies beyond two settings."""
    rows, *more = _varied(cells)
    columns, others = (more[0], more[1:]) if more else ("c" if rows == "p1" else "p1", [])
    groups: dict[tuple[Any, ...], list[Condition]] = {}
    for cell in cells:
        groups.setdefault(tuple(_setting(cell, key) for key in others), []).append(cell)
    maps = []
    for values, group in groups.items():
        own = "".join(f", {_word(key)} {_value(value)}" for key, value in zip(others, values, strict=True))
        for measure in ("accuracy",) if answered else ("near_zero", "variance"):
            found = [_cell(run, model, cell, measure, answered) for cell in group]
            maps.append(Map(measure, f"{cells[0].label or name}{own}: {MEASURES[measure]}", rows, columns, found))
    return maps


def _cell(run: Run, model: str, cell: Condition, measure: str, answered: Answered | None) -> Cell:
    if answered:
        row = answered.row(model, cell.name)
        assert row.against is not None
        change = row.against
        bounds = f"\n[{100 * change.difference_low:+.1f}, {100 * change.difference_high:+.1f}]"
        told = f"{100 * change.difference:+z.1f}{stars(change.adjusted)}"
        told += bounds if np.isfinite(change.difference_low) else ""
        return Cell(cell, 100 * change.difference, told, accuracy_record(row))
    table = activation_table(run, cell.name, model=model)
    layer = _setting(cell, "layers")[0] - 1
    found = table.difference[measure] if measure == "near_zero" else table.ratio[measure]
    scale = 100.0 if measure == "near_zero" else 1.0
    value, low, high = (scale * float(bound[layer]) for bound in found)
    p = float(table.p[measure][layer])
    form = "+z.1f" if measure == "near_zero" else ".2f"
    told = f"{value:{form}}{stars(p)}"
    told += f"\n[{low:{form}}, {high:{form}}]" if np.isfinite(low) else ""
    shown = {"value": value / scale, "low": low / scale, "high": high / scale, "p": p, "n": int(table.n[layer])}
    return Cell(cell, value if measure == "near_zero" else float(np.log2(value)), told, shown | {"layer": layer + 1})


def _grid(maps: Sequence[Map]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    widest = max(len(_values(one, one.columns)) for one in maps)
    side = 1 if widest > 5 or len(maps) == 1 else SIDE
    rows = ceil(len(maps) / side)
    tallest = max(len(_values(one, one.rows)) for one in maps)
    width = min(WIDTH, max(2.8, 1.0 + 0.72 * widest) * side)
    figure = Figure(figsize=(width, 0.35 + rows * (0.85 + 0.36 * tallest)), layout="constrained")
    return figure, figure.subplots(rows, side, squeeze=False)


def _values(one: Map, key: str) -> list[Any]:
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


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "by c" if value is None else f"{value:g}"


def _row(one: Map, cell: Cell) -> dict[str, Any]:
    settings = {key: _setting(cell.condition, key) for key in KEYS}
    settings["layers"] = " ".join(map(str, settings["layers"]))
    return {"measure": one.measure, "condition": cell.condition.name} | settings | cell.record


def _caption(run: Run, model: str, sweeps: dict[str, list[Condition]], answered: Answered | None) -> str:
    recipes = [recipe(name, cells) for name, cells in sweeps.items()]
    if answered:
        notes = [
            answered.notes[0], "numbers: points more or less than under none, with the 95% interval from resampled "
            "problems", f"{STARS_NOTE}, {answered.test}",
        ]  # fmt: skip
        return " ".join([opening(run, [model], [answered.count(model)]), *recipes, *sentences(notes)])
    notes = [
        "numbers: change against none of the output of the MLP's nonlinearity in the first layer that is changed, with "
        "the 95% interval over problems", f"{STARS_NOTE}, signs flipped at random, not adjusted",
    ]  # fmt: skip
    return " ".join([opening(run, [model], [str(len(run.measured(model)))]), *recipes, *sentences(notes)])
