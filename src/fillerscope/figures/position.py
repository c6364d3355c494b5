"""`position`: accuracy and paired drop with the same filler in different places of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import FigureError
from fillerscope.figures import condition_text
from fillerscope.figures.answered import Answered, accuracy_record
from fillerscope.figures.bars import (
    ACCURACY_LABEL,
    STARS_NOTE,
    Share,
    even,
    hollow_marks,
    refuse_many,
    scale,
    stars,
    whiskers,
    write_above,
)
from fillerscope.figures.captions import attention_words, opening, sentences
from fillerscope.figures.condition_text import recipe
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import CONDITIONS, condition_look, line_look
from fillerscope.figures.panels import Bar, BarPanel, Columns, accuracy_bar
from fillerscope.figures.request import Request, first_layers, swept
from fillerscope.figures.style import WIDTH, Drawn, fit_titles, grid, legend, styled, text_width
from fillerscope.figures.table import Cell, groups, rows_of, table_of_rows, where
from fillerscope.study import published
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page

PLACES = {"start": "start", "before_question": "before\nquestion", "end": "end", "random": "random"}
SPREAD = 0.75  # of the way to the next place, taken by the points of one place


@dataclass(frozen=True)
class Point:
    """What stands at one place: a condition's accuracy, or its paired drop with the interval."""

    line: int  # which of the fillers
    position: str  # "" without filler
    condition: str
    row: Accuracy | None = None
    drop: tuple[float, float, float] = (np.nan, np.nan, np.nan)


def lacks(study: Study) -> str:
    if swept(study, "position"):
        return ""
    return "compares places for a filler and needs a condition whose `position` is a list, such as [start, end]"


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    lines = swept(run.study, "position", request.fillers(run))
    if not lines:
        raise FigureError(f"`position` {lacks(run.study) or 'needs two places or more of one filler'}")
    refuse_many("position", len(lines), len(CONDITIONS))
    queries = request.queries or "original"
    layer = first_layers(run, request)[0] if run.has_attention else 1
    answered = Answered.of(whole, [run.name]) if run.has_answers else None
    points = _answer_points(answered, run.name, lines) if answered else []
    drops = _drop_points(run, lines, layer, queries) if run.has_attention else []
    with styled():
        figure, axes, width = _panels(run.has_answers, run.has_attention, len(lines))
        brief = _draw_accuracy(run, axes[0], points, list(lines), width) if answered else False
        if drops:
            _draw_drops(axes[-1], drops, list(lines), layer)
        fit_titles(axes)
        legend(figure, axes, run.label)
    table = table_of_rows([*(_record(run, point) for point in points), *(_drop_record(run, layer, p) for p in drops)])
    count = answered.count(run.name) if answered else str(len(run.measured()))
    words = [opening([run], [count]), *(recipe(cells[0].sweep, cells) for cells in lines.values())]
    words += sentences(_accuracy_notes(run, answered, points, brief)) if answered else []
    words += [attention_words(run, queries), *sentences([_drop_note(layer)])] if drops else []
    return Drawn("position", figure, table, " ".join(words))


def _answer_points(answered: Answered, model: str, lines: dict[str, list[Condition]]) -> list[Point]:
    first = Point(0, "", BASELINE, answered.row(model, BASELINE))
    cells = [(index, cell) for index, cells in enumerate(lines.values()) for cell in cells]
    return [first, *(Point(index, c.position, c.name, answered.row(model, c.name)) for index, c in cells)]


def _drop_points(run: ModelRun, lines: dict[str, list[Condition]], layer: int, queries: str) -> list[Point]:
    points = []
    for index, cell in [(index, cell) for index, cells in enumerate(lines.values()) for cell in cells]:
        table = depth_table(run, cell.name, queries)
        if layer > table.layers:
            raise FigureError(f"there is no layer {layer}: {run.label} has layers 1 to {table.layers}")
        mean, low, high = (float(bound[layer - 1]) for bound in table.values["drop"])
        points.append(Point(index, cell.position, cell.name, drop=(mean, low, high)))
    return points


def _panels(answers: bool, attention: bool, lines: int) -> tuple[Page, list[Axes], float]:
    """Side by side, or one above the other where there is much to write. With the width of a panel in inches."""
    both, wide = answers and attention, answers and lines > 1
    figure, axes = grid(2, 1, 4.6) if both and wide else grid(1, 1 + both, 2.9)
    if wide:
        figure.set_figwidth(WIDTH)
    return figure, list(axes.flat), (WIDTH if wide else WIDTH / 2) - 0.5


def _draw_accuracy(run: StoredRun, axes: Axes, points: list[Point], names: list[str], inches: float) -> bool:
    """Whether the texts are brief: marks of significance in place of p where p does not fit."""
    places = ["", *_places(points)]
    pitch = 0.95 * inches / len(places) * (SPREAD / len(names) if len(names) > 1 else 1)
    brief = max(text_width(_text(point, False), 6) for point in points) > pitch
    turned = brief and max(text_width(_text(point, True), 6) for point in points) > pitch
    shares = [_share(run, point, brief) for point in points]
    xs = _xs(points, places, len(names))
    base, inch = shares[0], scale(axes, shares, 1.6, turned)
    axes.axhspan(100 * base.low, 100 * base.high, color="#9A9A9A", alpha=0.2, linewidth=0, zorder=0)
    axes.axhline(100 * base.value, color="#777777", linewidth=0.7, linestyle=(0, (3, 2)), zorder=1)
    none = condition_look(run, BASELINE)
    style: dict[str, Any] = {"fmt": none.marker, "color": none.colour, "label": f"{none.label}, with its interval"}
    whiskers(axes, xs[:1], shares[:1], markersize=3.5, **style)
    for index, name in enumerate(names):
        own = [i for i, point in enumerate(points) if point.position and point.line == index]
        whiskers(axes, [xs[i] for i in own], [shares[i] for i in own], label=name, **_look(index))
    for x, share in zip(xs, shares, strict=True):
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}
        write_above(axes, x, share, inch, turned, bbox=box)
    hollow_marks(axes, [(x + 0.16 / len(names), share) for x, share in zip(xs, shares, strict=True)])
    axes.set_title("Accuracy")
    axes.set_ylabel(ACCURACY_LABEL)
    _name_places(axes, places)
    return brief


def _draw_drops(axes: Axes, points: list[Point], names: list[str], layer: int) -> None:
    places = _places(points)
    xs = _xs(points, places, len(names))
    for index, name in enumerate(names):
        own = [i for i, point in enumerate(points) if point.line == index]
        mean, low, high = np.array([points[i].drop for i in own]).T
        reach = np.nan_to_num([mean - low, high - mean])
        look = _look(index) | {"elinewidth": 0.8, "capsize": 1.8}
        axes.errorbar([xs[i] for i in own], mean, yerr=reach, label=name, **look)
    axes.axhline(1.0, color="#555555", linewidth=0.7)
    axes.set_title(f"Paired drop, layer {layer}")
    axes.set_ylabel("With / without filler")
    axes.margins(y=0.15)
    _name_places(axes, places)


def _look(index: int) -> dict[str, Any]:
    look = line_look(index)
    return {"fmt": look.marker, "color": look.colour, "ecolor": look.colour, "markersize": 4, "clip_on": False}


def _places(points: Sequence[Point]) -> list[str]:
    return [place for place in PLACES if any(point.position == place for point in points)]


def _xs(points: Sequence[Point], places: list[str], lines: int) -> list[float]:
    """The place of each point, a little aside where several fillers have a point there."""
    shifts = [SPREAD * ((point.line + 0.5) / lines - 0.5) if point.position else 0.0 for point in points]
    return [places.index(point.position) + shift for point, shift in zip(points, shifts, strict=True)]


def _name_places(axes: Axes, places: list[str]) -> None:
    axes.set_xticks(range(len(places)), even([PLACES.get(place, BASELINE) for place in places]))
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("Place of the filler")


def _share(run: StoredRun, point: Point, brief: bool) -> Share:
    row = point.row
    assert row is not None
    return Share(row.accuracy, row.low, row.high, _text(point, brief), _published(run, point))


def _text(point: Point, brief: bool) -> str:
    """The paired difference in points, and whether it may be chance; without filler the accuracy."""
    assert point.row is not None
    against = point.row.against
    if against is None:
        return f"{100 * point.row.accuracy:.1f}"
    difference = f"{100 * against.difference:+.1f}".replace("-", "\u2212")
    if brief:
        return f"{stars(against.adjusted)}\n{difference}".lstrip()
    return f"{difference}\n{_chance(against.adjusted)}"


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2g}"


def _published(run: StoredRun, point: Point) -> float | None:
    model = point.row.model if point.row else ""
    return published.accuracy_at(model, run.study.problems.source, run.condition(point.condition))


def _record(run: StoredRun, point: Point) -> dict[str, Cell]:
    assert point.row is not None
    record = accuracy_record(point.row, published=_published(run, point))
    return {"measure": "accuracy", "position": point.position} | record


def _drop_record(run: ModelRun, layer: int, point: Point) -> dict[str, Cell]:
    drop, low, high = point.drop
    return {
        "measure": "drop", "position": point.position, "model": run.label, "condition": point.condition,
        "layer": layer, "drop": drop, "low": low, "high": high,
    }  # fmt: skip


def _accuracy_notes(run: StoredRun, answered: Answered, points: Sequence[Point], brief: bool) -> list[str]:
    shown = any(_published(run, point) is not None for point in points)
    marks = f"hollow marks: {published.SOURCE}, {published.TERMS}" if shown else ""
    difference = "numbers: paired difference to none in percentage points"
    if not brief:
        return [*answered.notes, f"{difference}, and p of the {answered.test}", marks]
    return [*answered.notes, difference, f"{STARS_NOTE}, {answered.test}; no mark: p of 0.05 or more", marks]


def _drop_note(layer: int) -> str:
    drop = "paired drop: attention received by original tokens with / without filler"
    return f"{drop}, each problem's mean over the heads of layer {layer}, with 95% interval over problems"


def _panels_of_page(_: Run, drawn: Drawn) -> list[BarPanel]:
    panels = []
    rows = rows_of(drawn.table)
    accuracy, drops = where(rows, "measure", "accuracy"), where(rows, "measure", "drop")
    if accuracy:
        bars = [(_place(place), [accuracy_bar(row) for row in own]) for (place,), own in groups(accuracy, "position")]
        panels.append(BarPanel("Accuracy", "Accuracy, %", bars, mark="point"))
    if drops:
        points = [
            (_place(place), [Bar.of(row, Columns("drop")) for row in own])
            for (place,), own in groups(drops, "position")
        ]
        title = f"Paired drop, layer {drops[0]['layer']}"
        panels.append(BarPanel(title, "With / without filler", points, no_change=1.0, mark="point"))
    return panels


def _place(position: Cell) -> str:
    """Where the filler goes, in words; the baseline has none."""
    return condition_text.PLACES.get(str(position), BASELINE)


FIGURE = Figure("position", "Place of the filler", draw, _panels_of_page, lacks)
