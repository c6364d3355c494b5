"""`heads`: three heads of a layer. Above, with and without filler, aligned; below, the whole prompt."""

from __future__ import annotations

from fillerscope.analysis.run import Run
from fillerscope.figures.captions import band_note, caption, clip_note, first_note, reach_note, region_note
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.figure import Figure
from fillerscope.figures.lines import line_of, prompt_panels, source_in, table_of, with_twins
from fillerscope.figures.looks import looks_in
from fillerscope.figures.references import ALL_HEADS, twin_note
from fillerscope.figures.request import Layer, Request, choose_heads, first_layers
from fillerscope.figures.style import (
    BLUE,
    HEADROOM,
    RED,
    Y_LABEL,
    Drawn,
    Line,
    draw_lines,
    fit_titles,
    grid,
    legend,
    shade,
    styled,
)
from fillerscope.study.conditions import BASELINE

ALIGNED_END, WHOLE_END = 60, 120
PUBLISHED = (BLUE, RED)
COLUMNS = ("model", "queries", "view", "condition", "layer", "head")


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    filler, queries = request.filler(run), request.queries or "all"
    layer = Layer(model, first_layers(run[model], request)[0], queries)
    choice = choose_heads(run, request, layer, filler, 3)
    label, region = name_of(run, filler), run[model].region(filler)
    lines: list[Line] = []
    with styled():
        figure, axes = grid(2, len(choice.heads), 4.1)
        for column, head in enumerate(choice.heads):
            top, bottom = _lines(run, request, layer, filler, head)
            draw_lines(axes[0, column], top, ALIGNED_END, request.limit(column))
            draw_lines(axes[1, column], bottom, WHOLE_END, request.limit(column + len(choice.heads)), HEADROOM)
            if region is not None:
                shade(axes[1, column], region.start, region.stop, label)
            for row in (0, 1):
                axes[row, column].set_title(f"{run.label(model)} Layer {layer.number} Head {head}")
            axes[0, column].set_xlabel("Token position, filler left out")
            axes[1, column].set_xlabel("Token position")
            lines += top + bottom
        for row in (0, 1):
            axes[row, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes[0])
    notes = (
        choice.note,
        first_note([request.skips_first(run, run.models.index(model))]),
        band_note(request),
        clip_note(axes.flat),
        reach_note(request),
        region_note([[region] if region else []]),
        twin_note(run[model], filler, ALL_HEADS),
    )
    text = caption([run[model]], [filler], queries, *notes)
    return Drawn("heads", figure, table_of(run, lines, COLUMNS), text, tuple(lines))


def _lines(run: Run, request: Request, layer: Layer, filler: str, head: int) -> tuple[list[Line], list[Line]]:
    """The lines of one head: aligned, and over the whole prompt."""
    looks = looks_in(run, request, [BASELINE, filler], PUBLISHED)
    top = [
        line_of(run, request, source_in(layer, name, "aligned", head), look, ALIGNED_END)
        for name, look in looks.items()
    ]
    whole = line_of(run, request, source_in(layer, filler, "whole", head), looks[filler], WHOLE_END)
    return with_twins(run, top, top[-1]), with_twins(run, [whole], whole)


FIGURE = Figure("heads", "Three heads, aligned and whole", draw, prompt_panels)
