"""`composite`: accuracy under each condition and model; beside it one head, aligned and over the whole prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.run import Region, Run
from fillerscope.figures.answered import Answered, accuracy_record
from fillerscope.figures.bars import (
    GAP,
    STARS_NOTE,
    Share,
    draw_bars,
    legend_above,
    refuse_many,
    stars,
    wrapped,
)
from fillerscope.figures.captions import (
    attention_words,
    band_note,
    clip_note,
    data_name,
    first_note,
    opening,
    reach_note,
    recipes,
    region_note,
    sentences,
)
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.figure import Figure
from fillerscope.figures.lines import is_of_twins, line_of, prompt_panels, source_in, table_of, with_twins
from fillerscope.figures.looks import CONDITIONS, looks_in
from fillerscope.figures.panels import BarPanel, Panel, accuracy_bar
from fillerscope.figures.references import ALL_HEADS, twin_note
from fillerscope.figures.request import Choice, Layer, Request, choose_heads, first_layers
from fillerscope.figures.style import (
    BLUE,
    GREEN,
    HEADROOM,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    WIDTH,
    Y_LABEL,
    Drawn,
    Line,
    Look,
    draw_lines,
    mark,
    page,
    shade,
    styled,
)
from fillerscope.figures.table import Cell, groups, rows_of, table_of_rows, where
from fillerscope.study import published
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page

HEAD = 14  # as published; another one where no model has so many
USUAL, MOST = ("mless", "mful"), 4
ALIGNED_END, WHOLE_END = 60, 120
COLUMNS = ("model", "condition", "view", "queries", "layer", "head")
PUBLISHED = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)  # lines
PUBLISHED_BARS = ("#7B5EA7", "#45B8A9", "#BFE3F7", "#F0B64C", "#4D6A88", "#F4E3C1")
SIDE_BY_SIDE = 14  # bars with their gaps that fit beside the other panels


@dataclass(frozen=True)
class Head:
    """The head that is shown, with its curves."""

    layer: Layer
    choice: Choice
    aligned: list[Line]
    whole: list[Line]
    regions: list[Region | None]
    skipped: bool


@dataclass(frozen=True)
class Panels:
    """The panels, and about how large they are in inches."""

    figure: Page
    bars: Axes
    width: float
    height: float
    head: tuple[Axes, ...] = ()  # aligned, whole
    head_width: float = 0.0


def lacks(study: Study) -> str:
    return "" if study.generation else "shows accuracy and needs answers: give `generation` in the study"


def draw(run: Run, request: Request) -> Drawn:
    models, conditions = [run.model(name) for name in request.models or run.models], _conditions(run, request)
    queries = request.queries or "all"
    answered = Answered.of(run, models)
    rows = [answered.row(model, name) for model in models for name in conditions]
    head = _head(run, request, models, conditions[1:], queries) if run.has_attention else None
    with styled():
        panels = _panels(len(models) * (len(conditions) + GAP), head is not None)
        _draw_accuracy(run, panels, answered, models, looks_in(run, request, conditions, PUBLISHED_BARS))
        if head is not None:
            _draw_head(run, panels, head, request, conditions[1:])
    lines = [] if head is None else [*head.aligned, *head.whole]
    points = rows_of(table_of(run, lines, COLUMNS)) if lines else []
    table = table_of_rows([*(_record(run, row) for row in rows), *points])
    words = [opening([run[model] for model in models], [answered.count(model) for model in models])]
    words += recipes(run, conditions)
    words += [*sentences(_accuracy_notes(run, answered, rows))]
    if head is not None:
        words += [attention_words(run, queries), *sentences([*_head_notes(run, request, head), clip_note(panels.head)])]
    return Drawn("composite", panels.figure, table, " ".join(words), tuple(lines))


def _conditions(run: Run, request: Request) -> list[str]:
    """Those asked for; else the published ones; else the first few."""
    fillers = request.fillers(run)
    if request.conditions:
        refuse_many("composite", len(fillers), len(CONDITIONS) - 1)
        return [BASELINE, *fillers]
    usual = [name for name in USUAL if name in fillers]
    return [BASELINE, *(usual or fillers[: MOST - 1])]


def _panels(units: float, attention: bool) -> Panels:
    """Accuracy beside the two panels of the head, or above them where there are many bars."""
    wanted = 0.7 + 0.32 * units
    if not attention:
        width = min(WIDTH, max(WIDTH / 2, wanted))
        figure = page(width, 2.8)
        return Panels(figure, figure.add_subplot(), width - 0.6, 2.0)
    if units > SIDE_BY_SIDE:
        figure = page(WIDTH, 5.2)
        spec = figure.add_gridspec(2, 2)
        head = figure.add_subplot(spec[1, 0]), figure.add_subplot(spec[1, 1])
        return Panels(figure, figure.add_subplot(spec[0, :]), WIDTH - 0.6, 1.7, head, WIDTH / 2 - 0.7)
    left = min(4.0, max(2.5, wanted))
    figure = page(WIDTH, 4.7)
    spec = figure.add_gridspec(2, 2, width_ratios=(left, WIDTH - left))
    head = figure.add_subplot(spec[0, 1]), figure.add_subplot(spec[1, 1])
    return Panels(figure, figure.add_subplot(spec[:, 0]), left - 0.5, 3.8, head, WIDTH - left - 0.7)


def _share(run: Run, row: Accuracy) -> Share:
    mark = stars(row.against.adjusted) if row.against else ""
    text = f"{mark}\n{100 * row.accuracy:.1f}" if mark else f"{100 * row.accuracy:.1f}"
    return Share(row.accuracy, row.low, row.high, text, _published(run, row))


def _published(run: Run, row: Accuracy) -> float | None:
    return published.accuracy(row.model, run.study.problems.source, run.condition(row.condition))


def _draw_accuracy(
    run: Run, panels: Panels, answered: Answered, models: Sequence[str], looks: Mapping[str, Look]
) -> None:
    shares = [(look, [_share(run, answered.row(model, name)) for model in models]) for name, look in looks.items()]
    draw_bars(panels.bars, shares, [run.label(model) for model in models], (panels.width, panels.height))
    how = wrapped(f"{answered.drawn}, n = {answered.count(*models)}", panels.width, 7)
    legend_above([panels.bars], panels.width, f"Results on {data_name(run.study)}", how)


def _head(run: Run, request: Request, models: Sequence[str], fillers: Sequence[str], queries: str) -> Head:
    layer, choice = _choose(run, request, models, fillers[0], queries)
    looks = looks_in(run, request, [BASELINE, *fillers], PUBLISHED)

    def line(name: str, view: str, end: int) -> Line:
        return line_of(run, request, source_in(layer, name, view, choice.heads[0]), looks[name], end)

    aligned = [line(name, "aligned", ALIGNED_END) for name in [BASELINE, *fillers]]
    whole = [line(name, "whole", WHOLE_END) for name in fillers]
    aligned, whole = with_twins(run, aligned, aligned[1]), with_twins(run, whole, whole[0])
    skipped = request.skips_first(run, run.models.index(layer.model))
    return Head(layer, choice, aligned, whole, [run[layer.model].region(name) for name in fillers], skipped)


def _choose(run: Run, request: Request, models: Sequence[str], filler: str, queries: str) -> tuple[Layer, Choice]:
    """The head in the first model that has it; where none has, a head of the first."""
    number = first_layers(run[models[0]], request)[0]
    wanted = request if request.heads else replace(request, heads=(HEAD,), strict=False, usual=True)
    for model in models:
        layers, heads = run.summary("entropy", BASELINE, queries, model).shape[1:]
        if number <= layers and wanted.heads[0] <= heads:
            layer = Layer(model, number, queries)
            return layer, choose_heads(run, replace(wanted, heads=wanted.heads[:1]), layer, filler, 1)
    layer = Layer(models[0], number, queries)
    return layer, choose_heads(run, wanted, layer, filler, 1)


def _draw_head(run: Run, panels: Panels, head: Head, request: Request, fillers: Sequence[str]) -> None:
    aligned, whole = panels.head
    draw_lines(aligned, head.aligned, ALIGNED_END, request.limit(0))
    for line in (line for line in head.aligned if not is_of_twins(line)):
        aligned.fill_between(line.x, 0, line.y, color=line.look.colour, alpha=0.1, linewidth=0)
    draw_lines(whole, head.whole, WHOLE_END, request.limit(1), HEADROOM)
    _mark(whole, head, name_of(run, fillers[0]) if len(fillers) == 1 else "")
    aligned.set_xlabel("Token position, filler left out")
    whole.set_xlabel("Token position")
    for axes in panels.head:
        axes.set_ylabel(Y_LABEL)
    where = wrapped(f"{run.label(head.layer.model)}, layer {head.layer.number}", panels.head_width, 7)
    legend_above(panels.head, panels.head_width, f"Average attention on Head {head.choice.heads[0]}", where)


def _mark(axes: Axes, head: Head, text: str) -> None:
    """Shade the region that all fillers share; where they stand in different places, a bar for each at the top."""
    places = {region for region in head.regions if region is not None}
    if len(places) == 1:
        (region,) = places
        shade(axes, region.start, region.stop, text or "filler")
        return
    lines = [line for line in head.whole if not is_of_twins(line)]
    for index, (line, place) in enumerate(zip(lines, head.regions, strict=True)):
        if place is not None:
            mark(axes, place.start, place.stop, line.look.colour, 0.98 - 0.03 * index)


def _accuracy_notes(run: Run, answered: Answered, rows: Sequence[Accuracy]) -> list[str]:
    shown = any(_published(run, row) is not None for row in rows)
    marks = f"hollow marks: {published.SOURCE}, {published.TERMS}" if shown else ""
    return [*answered.notes, f"{STARS_NOTE}, {answered.test}; no mark: p of 0.05 or more", marks]


def _head_notes(run: Run, request: Request, head: Head) -> list[str]:
    model = head.layer.model
    place = f"attention: {run.label(model)}, layer {head.layer.number}, head {head.choice.heads[0]}"
    first = next(line.source.condition for line in head.whole if not is_of_twins(line))
    regions = [region for region in head.regions if region is not None]
    return [
        f"{place}, n = {len(run[model].measured())} problems",
        head.choice.note,
        first_note([head.skipped]),
        band_note(request),
        reach_note(request),
        region_note([regions]),
        twin_note(run[model], first, ALL_HEADS),
    ]


def _record(run: Run, row: Accuracy) -> dict[str, Cell]:
    mark = stars(row.against.adjusted) if row.against else ""
    return {"view": "accuracy"} | accuracy_record(row, mark=mark, published=_published(run, row))


def _panels_of_page(run: Run, drawn: Drawn) -> list[Panel]:
    rows = groups(where(rows_of(drawn.table), "view", "accuracy"), "model")
    bars = [(str(label), [accuracy_bar(row) for row in own]) for (label,), own in rows]
    return [BarPanel("Accuracy", "Accuracy, %", bars), *prompt_panels(run, drawn)]


FIGURE = Figure("composite", "Accuracy, and one head", draw, _panels_of_page, lacks, shows_all_models=True)
