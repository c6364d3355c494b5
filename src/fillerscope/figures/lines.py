"""Curves along a prompt: read from a run, written to a table, and as panels of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.run import Run
from fillerscope.analysis.twins import UNTRAINED, head_profiles
from fillerscope.figures.panels import LinePanel, Numbers, PromptAxis, Series
from fillerscope.figures.references import DOTTED, GREY, TWINS
from fillerscope.figures.request import Layer, Request
from fillerscope.figures.style import Y_LABEL, Drawn, Line, Look, Source
from fillerscope.figures.table import Table

COLUMNS = ("model", "condition", "queries", "layer", "head")  # of a source, where all lines have the same view
TWIN_LOOK = Look(TWINS, GREY, DOTTED)


def source_in(layer: Layer, condition: str, view: str, head: int) -> Source:
    """The curve of one head of a layer."""
    return Source(layer.model, condition, layer.queries, view, layer.number, head)


def line_of(run: Run, request: Request, source: Source, look: Look, end: int) -> Line:
    """The curve of a source, from the first position shown to the last that enough problems have."""
    profile = run.profile(source.condition, source.queries, source.view, source.model)
    one = profile.head(source.layer, source.head)
    first = 1 if request.skips_first(run, run.models.index(source.model)) else 0
    shown = slice(first, min(end + 1, one.reach(request.share)))
    mean, sd = one.mean[0, 0], one.sd[0, 0]
    low, high = (bound[0, 0] for bound in one.interval()) if request.band == "interval" else (mean - sd, mean + sd)
    x, count = np.arange(one.positions), one.count[0, 0]
    return Line(source, look, x[shown], mean[shown], low[shown], high[shown], count[shown])


def with_twins(run: Run, lines: Sequence[Line], behind: Line) -> list[Line]:
    """Lines, and below them the untrained twins of one of these: mean and range over all their heads of its layer."""
    source = behind.source
    values = head_profiles(run[source.model], source.condition, source.layer, source.queries, source.view)
    if not values.size:
        return list(lines)
    shown = values[:, behind.x]
    twins = replace(source, condition=UNTRAINED)
    return [
        Line(twins, TWIN_LOOK, behind.x, shown.mean(0), shown.min(0), shown.max(0), behind.n),
        *lines,
    ]


def is_of_twins(line: Line) -> bool:
    return line.source.condition == UNTRAINED


def table_of(run: Run, lines: Sequence[Line], columns: Sequence[str] = COLUMNS) -> Table:
    """The points of lines: some fields of their sources, then the numbers. A model has its label."""
    parts = [_columns(run, line, columns) for line in lines]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _columns(run: Run, line: Line, columns: Sequence[str]) -> Table:
    cells = asdict(line.source) | {"model": run.label(line.source.model)}
    repeated = {key: np.full(len(line.x), cells[key]) for key in columns}
    return repeated | {"position": line.x, "mean": line.y, "low": line.low, "high": line.high, "n": line.n}


def prompt_panels(run: Run, drawn: Drawn) -> list[LinePanel]:
    """A panel for each view, layer and head of a model, in the order of the table."""
    panels: dict[tuple[PromptAxis, int, int], dict[Source, Line]] = {}
    for line in drawn.lines:
        source = line.source
        place = PromptAxis(source.model, source.view), source.layer, source.head
        panels.setdefault(place, {})[source] = line
    return [_panel(run, *place, list(lines.values())) for place, lines in panels.items()]


def _panel(run: Run, prompt: PromptAxis, layer: int, head: int, lines: Sequence[Line]) -> LinePanel:
    whole = ", whole prompt" if prompt.view == "whole" else ""
    title = f"{run.label(prompt.model)} Layer {layer} Head {head}{whole}"
    return LinePanel(title, "Token position", Y_LABEL, [_series(line) for line in lines], zero=True, prompt=prompt)


def _series(line: Line) -> Series:
    interval = _numbers(line.low), _numbers(line.high)
    return Series(line.source.condition, line.x.tolist(), _numbers(line.y), line.n.tolist(), interval)


def _numbers(values: NDArray[np.float64]) -> Numbers:
    return [value if np.isfinite(value) else None for value in values.tolist()]
