"""`composite`: accuracy under each condition and model; beside it one head, aligned and over the whole prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.run import Region, Run
from fillerscope.figures.bars import (
    FILLS,
    GAP,
    STARS_NOTE,
    Share,
    draw_bars,
    legend_above,
    refuse_many,
    rows_of,
    stars,
    table_of_rows,
    wrapped,
)
from fillerscope.figures.condition_text import recipe
from fillerscope.figures.references import ALL_HEADS, TWINS, behind, twin_note
from fillerscope.figures.request import (
    Answered,
    Choice,
    Request,
    accuracy_record,
    attention_words,
    band_note,
    choose_heads,
    data_name,
    first_layers,
    first_note,
    line_of,
    opening,
    reach_note,
    region_note,
    sentences,
)
from fillerscope.figures.style import (
    BLUE,
    DASHES,
    GREEN,
    HEADROOM,
    ORANGE,
    PURPLE,
    RED,
    WIDTH,
    Y_LABEL,
    Drawn,
    Line,
    draw_lines,
    mark,
    shade,
    styled,
)
from fillerscope.study import published
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAD = 14  # as published; another one where no model has so many
USUAL, MOST = ("mless", "mful"), 4
ALIGNED_END, WHOLE_END = 60, 120
COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, "#555555")
SIDE_BY_SIDE = 14  # bars with their gaps that fit beside the other panels


@dataclass(frozen=True)
class Head:
    """The head that is shown, with its curves."""

    model: str
    layer: int
    choice: Choice
    aligned: list[Line]
    whole: list[Line]
    regions: list[Region | None]
    skipped: bool


@dataclass(frozen=True)
class Panels:
    """The panels, and about how large they are in inches."""

    figure: Figure
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
        _draw_accuracy(run, panels, answered, models, conditions)
        if head is not None:
            _draw_head(run, panels, head, request, conditions[1:])
    lines = [] if head is None else [*head.aligned, *head.whole]
    table = table_of_rows([*(_record(run, row) for row in rows), *(row for line in lines for row in rows_of(line))])
    recipes = [recipe(name, [run.condition(name)]) for name in conditions[1:]]
    words = [opening(run, models, [answered.count(model) for model in models]), *recipes]
    words += [*sentences(_accuracy_notes(run, answered, rows))]
    if head is not None:
        words += [attention_words(run, queries), *sentences(_head_notes(run, request, head))]
    return Drawn("composite", panels.figure, table, " ".join(words))


def _conditions(run: Run, request: Request) -> list[str]:
    """Those asked for; else the published ones; else the first few."""
    fillers = request.fillers(run)
    if request.conditions:
        refuse_many("composite", len(fillers), len(FILLS) - 1)
        return [BASELINE, *fillers]
    usual = [name for name in USUAL if name in fillers]
    return [BASELINE, *(usual or fillers[: MOST - 1])]


def _panels(units: float, attention: bool) -> Panels:
    from matplotlib.figure import Figure

    wanted = 0.7 + 0.32 * units
    if not attention:
        width = min(WIDTH, max(WIDTH / 2, wanted))
        figure = Figure(figsize=(width, 2.8), layout="constrained")
        return Panels(figure, figure.add_subplot(), width - 0.6, 2.0)
    if units > SIDE_BY_SIDE:
        figure = Figure(figsize=(WIDTH, 5.2), layout="constrained")
        spec = figure.add_gridspec(2, 2)
        head = figure.add_subplot(spec[1, 0]), figure.add_subplot(spec[1, 1])
        return Panels(figure, figure.add_subplot(spec[0, :]), WIDTH - 0.6, 1.7, head, WIDTH / 2 - 0.7)
    left = min(4.0, max(2.5, wanted))
    figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
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
    run: Run, panels: Panels, answered: Answered, models: Sequence[str], conditions: Sequence[str]
) -> None:
    names = {name: "w/o" if name == BASELINE else f"w/ {name.capitalize()}" for name in conditions}
    shares = {text: [_share(run, answered.row(model, name)) for model in models] for name, text in names.items()}
    draw_bars(panels.bars, shares, [run.label(model) for model in models], (panels.width, panels.height))
    how = wrapped(f"{answered.drawn}, n = {answered.count(*models)}", panels.width, 7)
    legend_above([panels.bars], panels.width, f"Results on {data_name(run.study)}", how)


def _head(run: Run, request: Request, models: Sequence[str], fillers: Sequence[str], queries: str) -> Head:
    layer = first_layers(run, request, models[0])[0]
    model, choice = _choose(run, request, models, layer, fillers[0], queries)
    skipped = request.skips_first(run, run.models.index(model))

    def line(name: str, view: str, index: int, end: int) -> Line:
        keys = {"model": run.label(model), "condition": name, "view": view, "queries": queries}
        profile = run.profile(name, queries, view, model)
        colour, dash = COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)]
        return line_of(profile, layer, choice.heads[0], name.capitalize(), colour, dash, request, skipped, end, keys)

    aligned = [line(name, "aligned", i, ALIGNED_END) for i, name in enumerate([BASELINE, *fillers])]
    whole = [line(name, "whole", i, WHOLE_END) for i, name in enumerate(fillers)]
    aligned = behind(run, model, aligned[1], "aligned") + aligned
    whole = behind(run, model, whole[0], "whole") + whole
    return Head(model, layer, choice, aligned, whole, [run.region(name, model) for name in fillers], skipped)


def _choose(
    run: Run, request: Request, models: Sequence[str], layer: int, filler: str, queries: str
) -> tuple[str, Choice]:
    """The first model that has the head; where none has, a head of the first."""
    wanted = request if request.heads else replace(request, heads=(HEAD,), strict=False)
    for model in models:
        layers, heads = run.summary("entropy", BASELINE, queries, model).shape[1:]
        if layer <= layers and wanted.heads[0] <= heads:
            return model, choose_heads(run, replace(wanted, heads=wanted.heads[:1]), layer, 1, filler, queries, model)
    return models[0], choose_heads(run, wanted, layer, 1, filler, queries, models[0])


def _draw_head(run: Run, panels: Panels, head: Head, request: Request, fillers: Sequence[str]) -> None:
    aligned, whole = panels.head
    draw_lines(aligned, head.aligned, ALIGNED_END, request.limit(0))
    for line in (line for line in head.aligned if line.label != TWINS):
        aligned.fill_between(line.x, 0, line.y, color=line.colour, alpha=0.1, linewidth=0)
    draw_lines(whole, head.whole, WHOLE_END, request.limit(1), HEADROOM)
    _mark(whole, head, run.condition(fillers[0]).label if len(fillers) == 1 else "")
    aligned.set_xlabel("Token position, filler left out")
    whole.set_xlabel("Token position")
    for axes in panels.head:
        axes.set_ylabel(Y_LABEL)
    where = wrapped(f"{run.label(head.model)}, layer {head.layer}", panels.head_width, 7)
    legend_above(panels.head, panels.head_width, f"Average attention on Head {head.choice.heads[0]}", where)


def _mark(axes: Axes, head: Head, text: str) -> None:
    """Shade the region that all fillers share; where they stand in different places, a bar for each at the top."""
    found = {region for region in head.regions if region is not None}
    if len(found) == 1:
        (region,) = found
        shade(axes, region.start, region.stop, text or "filler")
        return
    lines = [line for line in head.whole if line.label != TWINS]
    for index, (line, place) in enumerate(zip(lines, head.regions, strict=True)):
        if place is not None:
            mark(axes, place.start, place.stop, line.colour, 0.98 - 0.03 * index)


def _accuracy_notes(run: Run, answered: Answered, rows: Sequence[Accuracy]) -> list[str]:
    shown = any(_published(run, row) is not None for row in rows)
    marks = f"hollow marks: {published.SOURCE}, {published.TERMS}" if shown else ""
    return [*answered.notes, f"{STARS_NOTE}, {answered.test}; no mark: p of 0.05 or more", marks]


def _first_filler(head: Head) -> str:
    return next(str(line.keys["condition"]) for line in head.whole if line.label != TWINS)


def _head_notes(run: Run, request: Request, head: Head) -> list[str]:
    where = f"attention: {run.label(head.model)}, layer {head.layer}, head {head.choice.heads[0]}"
    regions = [region for region in head.regions if region is not None]
    return [
        f"{where}, n = {len(run.measured(head.model))} problems",
        head.choice.note,
        first_note([head.skipped]),
        band_note(request),
        reach_note(request),
        region_note([regions]),
        twin_note(run, head.model, _first_filler(head), ALL_HEADS),
    ]


def _record(run: Run, row: Accuracy) -> dict[str, Any]:
    mark = stars(row.against.adjusted) if row.against else ""
    return {"view": "accuracy"} | accuracy_record(row, mark=mark, published=_published(run, row))
