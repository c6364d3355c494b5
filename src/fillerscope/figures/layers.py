"""`layers`: one head in three layers, with and without filler, aligned to the prompt without."""

from __future__ import annotations

from fillerscope.analysis.run import Run
from fillerscope.figures.captions import band_note, caption, clip_note, first_note, reach_note
from fillerscope.figures.figure import Figure
from fillerscope.figures.lines import line_of, prompt_panels, source_in, table_of, with_twins
from fillerscope.figures.looks import looks_in
from fillerscope.figures.references import ALL_HEADS, twin_note
from fillerscope.figures.request import Layer, Request, choose_heads, first_layers
from fillerscope.figures.style import (
    BLUE,
    ORANGE,
    Y_LABEL,
    Drawn,
    Line,
    draw_lines,
    fit_titles,
    grid,
    legend,
    styled,
)
from fillerscope.study.conditions import BASELINE

END = 60
PUBLISHED = (BLUE, ORANGE)


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    filler, queries = request.filler(run), request.queries or "all"
    looks = looks_in(run, request, [BASELINE, filler], PUBLISHED)
    layers = [Layer(model, number, queries) for number in first_layers(run[model], request, 3)]
    choice = choose_heads(run, request, layers[0], filler, 1)
    head = choice.heads[0]
    lines: list[Line] = []
    with styled():
        figure, axes = grid(1, len(layers), 2.2)
        for column, layer in enumerate(layers):
            sources = {name: source_in(layer, name, "aligned", head) for name in looks}
            panel = [line_of(run, request, sources[name], look, END) for name, look in looks.items()]
            panel = with_twins(run, panel, panel[-1])
            draw_lines(axes[0, column], panel, END, request.limit(column))
            axes[0, column].set_title(f"{run.label(model)} Layer {layer.number} Head {head}")
            axes[0, column].set_xlabel("Token position, filler left out")
            lines += panel
        axes[0, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes.flat)
    twins = twin_note(run[model], filler, ALL_HEADS)
    skipped = request.skips_first(run, run.models.index(model))
    notes = (choice.note, first_note([skipped]), band_note(request), clip_note(axes.flat), reach_note(request), twins)
    text = caption([run[model]], [filler], queries, *notes)
    return Drawn("layers", figure, table_of(run, lines), text, tuple(lines))


FIGURE = Figure("layers", "One head in three layers", draw, prompt_panels)
