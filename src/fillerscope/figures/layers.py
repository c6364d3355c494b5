"""`layers`: one head in three layers, with and without filler, aligned to the prompt without."""

from __future__ import annotations

from fillerscope.analysis.run import Run
from fillerscope.figures.references import ALL_HEADS, behind, twin_note
from fillerscope.figures.request import (
    Request,
    band_note,
    caption,
    choose_heads,
    first_layers,
    first_note,
    line_of,
    reach_note,
)
from fillerscope.figures.style import (
    BLUE,
    DASHES,
    ORANGE,
    Y_LABEL,
    Drawn,
    draw_lines,
    fit_titles,
    grid,
    legend,
    styled,
    table_of,
)
from fillerscope.study.conditions import BASELINE

END = 60


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    filler, queries = request.filler(run), request.queries or "all"
    series = ((BASELINE, "None", BLUE, DASHES[0]), (filler, filler.capitalize(), ORANGE, DASHES[1]))
    profiles = {name: run.profile(name, queries, "aligned", model) for name, *_ in series}
    layers = first_layers(run, request, model, 3)
    choice = choose_heads(run, request, layers[0], 1, filler, queries, model)
    head, skip = choice.heads[0], request.skips_first(run, run.models.index(model))
    lines = []
    with styled():
        figure, axes = grid(1, len(layers), 2.2)
        for column, layer in enumerate(layers):
            panel = [
                line_of(profiles[name], layer, head, label, colour, dash, request, skip, END,
                        {"model": run.label(model), "condition": name, "queries": queries})
                for name, label, colour, dash in series
            ]  # fmt: skip
            panel = behind(run, model, panel[-1], "aligned") + panel
            draw_lines(axes[0, column], panel, END, request.limit(column))
            axes[0, column].set_title(f"{run.label(model)} Layer {layer} Head {head}")
            axes[0, column].set_xlabel("Token position")
            lines += panel
        axes[0, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes.flat)
    twins = twin_note(run, model, filler, ALL_HEADS)
    notes = (choice.note, first_note([skip]), band_note(request), reach_note(request), twins)
    return Drawn("layers", figure, table_of(lines), caption(run, [filler], queries, *notes, models=[model]))
