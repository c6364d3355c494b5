"""`fillers`: repeated tokens against a random sentence over the whole prompt, a panel a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fillerscope.analysis.run import Region, Run
from fillerscope.errors import FigureError
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
    GREEN,
    HEADROOM,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Y_LABEL,
    Drawn,
    draw_lines,
    fit_titles,
    grid,
    legend,
    mark,
    shade,
    styled,
    table_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

END = 120
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)


def draw(run: Run, request: Request) -> Drawn:
    conditions = _conditions(run, request)
    queries = request.queries or "all"
    layer = first_layers(run, request, request.models[0] if request.models else None)[0]
    panels, notes = _panels(run, request, layer, conditions[0], queries)
    lines, skipped, regions = [], [], []
    with styled():
        figure, axes = grid(1, len(panels), 2.3)
        for column, (model, head) in enumerate(panels):
            skipped.append(request.skips_first(run, run.models.index(model)))
            panel = [
                line_of(run.profile(name, queries, "whole", model), layer, head, run.condition(name).label or name,
                        COLOURS[i % 6], DASHES[i % 6], request, skipped[-1], END,
                        {"model": run.label(model), "condition": name, "queries": queries})
                for i, name in enumerate(conditions)
            ]  # fmt: skip
            panel = behind(run, model, panel[0], "whole") + panel
            draw_lines(axes[0, column], panel, END, request.limit(column), HEADROOM)
            regions.append(_mark(run, axes[0, column], conditions, model))
            axes[0, column].set_title(f"{run.label(model)} Layer {layer} Head {head}")
            axes[0, column].set_xlabel("Token position")
            lines += panel
        axes[0, 0].set_ylabel(Y_LABEL)
        fit_titles(axes.flat)
        legend(figure, axes.flat)
    models = list(dict.fromkeys(model for model, _ in panels))
    notes = [*notes, first_note(skipped), band_note(request), reach_note(request), region_note(regions)]
    notes += [next(filter(None, (twin_note(run, model, conditions[0], ALL_HEADS) for model in models)), "")]
    return Drawn("fillers", figure, table_of(lines), caption(run, conditions, queries, *notes, models=models))


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


def _mark(run: Run, axes: Axes, conditions: list[str], model: str) -> list[Region]:
    """Shade the region that all fillers share; where they stand in different places, a bar for each at the top."""
    found = [run.region(name, model) for name in conditions]
    regions = [region for region in found if region is not None]
    if len(set(regions)) == 1:
        shade(axes, regions[0].start, regions[0].stop, "filler")
        return regions
    for index, region in enumerate(found):
        if region is not None:
            mark(axes, region.start, region.stop, COLOURS[index % 6], 0.98 - 0.03 * index)
    return regions


def _panels(
    run: Run, request: Request, layer: int, condition: str, queries: str
) -> tuple[list[tuple[str, int]], list[str]]:
    """One head a model; with a single model, three of its heads."""
    models = [run.model(name) for name in request.models] or run.models
    if len(models) == 1:
        choice = choose_heads(run, request, layer, 3, condition, queries, models[0])
        return [(models[0], head) for head in choice.heads], [choice.note]
    panels, notes = [], []
    for index, model in enumerate(models):
        asked = request.heads[index : index + 1] if len(request.heads) > 1 else request.heads
        choice = choose_heads(run, replace(request, heads=asked), layer, 1, condition, queries, model)
        panels.append((model, choice.heads[0]))
        notes.append(f"{run.label(model)}: {choice.note}" if choice.note else "")
    return panels, notes
