"""`fillers`: repeated tokens against a random sentence over the whole prompt, a panel a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fillerscope.analysis.run import Region, Run
from fillerscope.errors import FigureError
from fillerscope.figures.captions import band_note, caption, clip_note, first_note, reach_note, region_note
from fillerscope.figures.figure import Figure
from fillerscope.figures.lines import is_of_twins, line_of, prompt_panels, source_in, table_of, with_twins
from fillerscope.figures.looks import looks_in
from fillerscope.figures.references import ALL_HEADS, twin_note
from fillerscope.figures.request import Layer, Request, choose_heads, first_layers
from fillerscope.figures.style import (
    BLUE,
    GREEN,
    HEADROOM,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Y_LABEL,
    Drawn,
    Line,
    draw_lines,
    fit_titles,
    grid,
    legend,
    mark,
    shade,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

END = 120
PUBLISHED = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)


def draw(run: Run, request: Request) -> Drawn:
    conditions = _conditions(run, request)
    queries = request.queries or "all"
    number = first_layers(request.model_run(run), request)[0]
    models = [run.model(name) for name in request.models] or run.models
    panels, notes = _panels(run, request, [Layer(model, number, queries) for model in models], conditions[0])
    lines: list[Line] = []
    regions = []
    with styled():
        figure, axes = grid(1, len(panels), 2.3)
        for column, (layer, head) in enumerate(panels):
            panel = _lines(run, request, layer, head, conditions)
            draw_lines(axes[0, column], panel, END, request.limit(column), HEADROOM)
            regions.append(_mark(run, axes[0, column], panel))
            axes[0, column].set_title(f"{run.label(layer.model)} Layer {number} Head {head}")
            axes[0, column].set_xlabel("Token position")
            lines += panel
        axes[0, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes.flat)
    models = list(dict.fromkeys(models))
    skipped = [request.skips_first(run, run.models.index(model)) for model in models]
    notes = [*notes, first_note(skipped), band_note(request), clip_note(axes.flat)]
    notes += [reach_note(request), region_note(regions)]
    notes += [next(filter(None, (twin_note(run[model], conditions[0], ALL_HEADS) for model in models)), "")]
    text = caption([run[model] for model in models], conditions, queries, *notes)
    return Drawn("fillers", figure, table_of(run, lines), text, tuple(lines))


def _lines(run: Run, request: Request, layer: Layer, head: int, conditions: Sequence[str]) -> list[Line]:
    looks = looks_in(run, request, conditions, PUBLISHED)
    lines = [line_of(run, request, source_in(layer, name, "whole", head), look, END) for name, look in looks.items()]
    return with_twins(run, lines, lines[0])


def _conditions(run: Run, request: Request) -> list[str]:
    """Those asked for; else the first repeated token and the first sentence."""
    if request.conditions:
        return request.fillers(run)
    plain = [name for name in run.fillers if not run.condition(name).intervention]
    kinds = {run.condition(name).kind: name for name in reversed(plain)}
    chosen = [kinds[kind] for kind in ("repeat", "sentence") if kind in kinds]
    if len(chosen) < 2:
        there = ", ".join(run.fillers) or "no filler"
        raise FigureError(
            f"`fillers` compares a repeated token with a sentence, and this run has {there}; "
            "name what to draw with --condition, or add one to the study"
        )
    return chosen


def _mark(run: Run, axes: Axes, panel: Sequence[Line]) -> list[Region]:
    """Shade the region that all fillers share; where they stand in different places, a bar for each at the top."""
    lines = [line for line in panel if not is_of_twins(line)]
    places = [run[line.source.model].region(line.source.condition) for line in lines]
    regions = [region for region in places if region is not None]
    if len(set(regions)) == 1:
        shade(axes, regions[0].start, regions[0].stop, "filler")
        return regions
    for index, (line, region) in enumerate(zip(lines, places, strict=True)):
        if region is not None:
            mark(axes, region.start, region.stop, line.look.colour, 0.98 - 0.03 * index)
    return regions


def _panels(
    run: Run, request: Request, layers: Sequence[Layer], condition: str
) -> tuple[list[tuple[Layer, int]], list[str]]:
    """One head a model; with a single model, three of its heads."""
    if len(layers) == 1:
        choice = choose_heads(run, request, layers[0], condition, 3)
        return [(layers[0], head) for head in choice.heads], [choice.note]
    panels, notes = [], []
    for index, layer in enumerate(layers):
        asked = request.heads[index : index + 1] if len(request.heads) > 1 else request.heads
        choice = choose_heads(run, replace(request, heads=asked), layer, condition, 1)
        panels.append((layer, choice.heads[0]))
        notes.append(f"{run.label(layer.model)}: {choice.note}" if choice.note else "")
    return panels, notes


FIGURE = Figure("fillers", "Repeated tokens against a sentence", draw, prompt_panels, shows_all_models=True)
