"""`heads`: three heads of a layer. Above, with and without filler, aligned; below, the whole prompt."""

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
    region_note,
)
from fillerscope.figures.style import (
    BLUE,
    DASHES,
    HEADROOM,
    RED,
    Y_LABEL,
    Drawn,
    draw_lines,
    fit_titles,
    grid,
    legend,
    shade,
    styled,
    table_of,
)
from fillerscope.study.conditions import BASELINE

ALIGNED_END, WHOLE_END = 60, 120


def draw(run: Run, request: Request) -> Drawn:
    model = run.model(request.models[0] if request.models else None)
    filler, queries = request.filler(run), request.queries or "all"
    (layer, *_) = first_layers(run, request, model)
    choice = choose_heads(run, request, layer, 3, filler, queries, model)
    skip, label = request.skips_first(run, run.models.index(model)), run.condition(filler).label or filler
    region = run.region(filler, model)
    keys = {"model": run.label(model), "queries": queries}

    def line(name: str, view: str, head: int, text: str, colour: str, dash: object, end: int):  # type: ignore[no-untyped-def]
        profile = profiles[name, view]
        return line_of(
            profile,
            layer,
            head,
            text,
            colour,
            dash,
            request,
            skip,
            end,
            keys | {"view": view, "condition": name},
        )

    views = ((BASELINE, "aligned"), (filler, "aligned"), (filler, "whole"))
    profiles = {(name, view): run.profile(name, queries, view, model) for name, view in views}
    lines = []
    with styled():
        figure, axes = grid(2, len(choice.heads), 3.9)
        for column, head in enumerate(choice.heads):
            top = [
                line(BASELINE, "aligned", head, f"w/o {label}", BLUE, DASHES[0], ALIGNED_END),
                line(filler, "aligned", head, f"w/ {label}", RED, DASHES[1], ALIGNED_END),
            ]
            bottom = [line(filler, "whole", head, f"w/ {label}", RED, DASHES[1], WHOLE_END)]
            top = behind(run, model, top[-1], "aligned") + top
            bottom = behind(run, model, bottom[-1], "whole") + bottom
            draw_lines(axes[0, column], top, ALIGNED_END, request.limit(column))
            draw_lines(axes[1, column], bottom, WHOLE_END, request.limit(column + len(choice.heads)), HEADROOM)
            if region is not None:
                shade(axes[1, column], region.start, region.stop, label)
            for row in (0, 1):
                axes[row, column].set_title(f"{run.label(model)} Layer {layer} Head {head}")
            axes[1, column].set_xlabel("Token position")
            lines += top + bottom
        for row in (0, 1):
            axes[row, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes[0])
    notes = (
        choice.note,
        first_note([skip]),
        band_note(request),
        reach_note(request),
        region_note([[region] if region else []]),
        twin_note(run, model, filler, ALL_HEADS),
    )
    return Drawn("heads", figure, table_of(lines), caption(run, [filler], queries, *notes, models=[model]))
