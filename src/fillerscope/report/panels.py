"""Panels of figures as the page reads them: JSON in which every condition has its label and its look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fillerscope.analysis.mechanism import Columns
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.analysis.twins import UNTRAINED
from fillerscope.errors import FillerscopeError
from fillerscope.figures import activations
from fillerscope.figures import panels as described
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.looks import COLOURS, look_numbers
from fillerscope.figures.looks import TWIN_NUMBER as TWIN_STYLE
from fillerscope.figures.panels import Bar, BarPanel, LinePanel, MapPanel, OwnLook, PromptAxis, Series
from fillerscope.figures.references import TWINS
from fillerscope.figures.registry import FIGURES
from fillerscope.figures.style import Drawn
from fillerscope.figures.table import Cell, groups, rows_of, stacked
from fillerscope.files import Json
from fillerscope.report.packed_arrays import clean
from fillerscope.study.conditions import BASELINE

Panel = Json  # see panel_types.py
TWIN_DASH = 7  # dotted on the page
TWIN_COLUMNS = ("twin", "twin_mass")  # of tables by layer: what untrained twins show
SHOWN_BY_DEPTH = ("lambda_mass",)  # of the affine table: `depth`, which stands beside it, has the same numbers


def panels(run: Run, drawn: Drawn) -> list[Panel]:
    """What the page shows of a figure; nothing where it is shown in print alone."""
    figure = FIGURES.get(drawn.name)
    if figure is None or figure.panels is None:
        return []
    return [panel_json(run, panel) for panel in figure.panels(run, drawn)]


def layer_panels(run: StoredRun, name: str, tables: Sequence[tuple[str, Columns]]) -> list[Panel]:
    """The panels by layer of a figure (`depth`, `affine` or `activations`), from the tables of some conditions.
    Where untrained twins have lines of their own, no panel shows them once more."""
    if not tables:
        return []
    shown_twice = {*SHOWN_BY_DEPTH, *(TWIN_COLUMNS if tables[0][0] == UNTRAINED else ())}
    measures = [one for one in FIGURES[name].measures if one.column not in shown_twice]
    made = described.layer_panels(measures, rows_of(stacked(tables)))
    return [clean(_lines(run, panel)) for panel in made if isinstance(panel, LinePanel)]


def twin_rows(tables: Sequence[Columns]) -> list[tuple[str, Columns]]:
    """The tables by layer of untrained twins as one: their mean, and the least and the largest of them."""
    if not tables:
        return []
    columns: Columns = {}
    for key in tables[0]:
        measure, _, end = key.rpartition("_")
        bound = end in ("low", "high") and measure in tables[0]
        values = np.array([table[measure if bound else key] for table in tables])
        columns[key] = (values.min(0) if end == "low" else values.max(0)) if bound else values.mean(0)
    return [(UNTRAINED, columns | {"layer": tables[0]["layer"]})]


def histogram(run: StoredRun, layer: int, edges: Sequence[float], counts: Mapping[str, Sequence[int]]) -> Panel:
    """Activations of a layer in bins, under each condition."""
    return clean(_lines(run, activations.histogram(layer, edges, counts)))


def panel_json(run: Run, panel: described.Panel) -> Panel:
    """A panel with the names and looks of its conditions; what is not a number is null."""
    if isinstance(panel, LinePanel):
        return clean(_lines(run, panel) | (_along(run, panel, panel.prompt) if panel.prompt else {}))
    return clean(_bars(run, panel) if isinstance(panel, BarPanel) else _map(panel))


def _lines(run: StoredRun, panel: LinePanel) -> Panel:
    made: Panel = {
        "kind": "lines", "title": panel.title, "x": panel.x, "y": panel.y, "zero": panel.zero,
        "none": panel.no_change, "series": [_series(run, line) for line in panel.series],
    }  # fmt: skip
    if panel.edges is not None:
        made |= {"steps": True, "edges": panel.edges}
    return made


def _series(run: StoredRun, line: Series) -> Json:
    own = line.name
    look = (
        {"label": own.label, "style": own.style, "dash": own.dash} if isinstance(own, OwnLook) else named_look(run, own)
    )
    made = look | {"x": line.x, "y": line.y, "n": line.n}
    return made | {"low": line.interval[0], "high": line.interval[1]} if line.interval else made


def _along(run: Run, panel: LinePanel, prompt: PromptAxis) -> Json:
    """What stands at the positions of a prompt: fillers in whole ones, and tokens."""
    names = [line.name for line in panel.series if isinstance(line.name, str) and line.name != UNTRAINED]
    fillers = regions(run[prompt.model], names) if prompt.view == "whole" else []
    return {"view": prompt.view, "regions": fillers, "tokens": _tokens(run, names, prompt)}


def regions(run: ModelRun, conditions: Sequence[str]) -> list[Json]:
    """Where fillers stand in whole prompts."""
    places = [(name, run.region(name)) for name in conditions]
    return [
        {**named_look(run, name), "start": region.start, "stop": region.stop, "fixed": region.fixed}
        for name, region in places
        if region is not None
    ]


def _tokens(run: Run, names: Sequence[str], prompt: PromptAxis) -> list[str]:
    """The text under each position where all conditions of a panel have the same."""
    try:
        rows = [run.tokens(name if prompt.view == "whole" else BASELINE, prompt.model) for name in names]
    except FillerscopeError:
        return []
    longest = max(rows, key=len)
    shared = [all(row[i] == text for row in rows if i < len(row)) for i, text in enumerate(longest)]
    return [text if same else "" for text, same in zip(longest, shared, strict=True)]


def _bars(run: Run, panel: BarPanel) -> Panel:
    made = [{"label": label, "bars": [_bar(run, bar) for bar in bars]} for label, bars in panel.groups]
    return {
        "kind": "bars", "title": panel.title, "y": panel.y, "groups": made, "none": panel.no_change,
        "mark": panel.mark,
    }  # fmt: skip


def _bar(run: Run, bar: Bar) -> Json:
    made = named_look(run, bar.condition) | {"value": bar.value, "low": bar.low, "high": bar.high, "n": bar.n}
    if bar.remark is None:
        return made
    return made | {"note": bar.remark.note, "text": bar.remark.mark, "published": bar.remark.published}


def _map(panel: MapPanel) -> Panel:
    """Cells [down][across]: what the colour shows, and the value with its interval where that is another."""
    shading = panel.shading
    lines, columns = ([key[0] for key, _ in groups(panel.rows, name)] for name in (panel.down, panel.across))
    cells = {(row[panel.down], row[panel.across]): row for row in panel.rows}

    def grid(key: str) -> list[list[Cell]]:
        return [[cells[line, column].get(key) for column in columns] for line in lines]

    made: Panel = {
        "kind": "map", "title": panel.title, "down": panel.down, "across": panel.across, "rows": lines,
        "columns": columns, "scale": shading.scale, "name": shading.name, "colour": grid(shading.column),
        "value": grid(shading.numbers.value), "low": grid(shading.numbers.low), "high": grid(shading.numbers.high),
    }  # fmt: skip
    return made if shading.reach is None else made | {"reach": shading.reach}


def named_look(run: StoredRun, condition: str) -> Json:
    """The name and look of a condition: the same in every panel, and as in print."""
    if condition == UNTRAINED:
        return {"condition": condition, "label": TWINS, "style": TWIN_STYLE, "dash": TWIN_DASH}
    number = look_numbers(run.study)[condition]
    dash = number + number // len(COLOURS)  # another one where colours come again
    return {"condition": condition, "label": name_of(run, condition), "style": number, "dash": dash}
