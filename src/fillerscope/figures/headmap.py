"""`headmap`: every head of every layer at a glance: what original tokens receive, with against without."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.heads import HeadTable, head_table
from fillerscope.analysis.runs import Run
from fillerscope.figures.recipes import quotient
from fillerscope.figures.request import Request, caption
from fillerscope.figures.style import NOTHING, Drawn, fit_titles, grid, styled

PANELS = 3  # side by side
SMALLEST = 0.1  # log2 at the ends of the scale at least: changes of a few per cent stay pale
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


def draw(run: Run, request: Request) -> Drawn:
    from matplotlib.colors import TwoSlopeNorm

    model = run.model(request.models[0] if request.models else None)
    conditions, queries = request.fillers(run), request.queries or "original"
    ratio = quotient([run.condition(name) for name in conditions])
    tables = [head_table(run, name, queries, model) for name in conditions]
    with styled():
        rows, layers = ceil(len(tables) / PANELS), tables[0].shape[0]
        figure, axes = grid(rows, min(PANELS, len(tables)), min(8.5, 0.5 + rows * max(1.6, 0.9 + 0.14 * layers)))
        changes = np.abs(np.log2([table.columns["drop"].value for table in tables]))
        reach = max(SMALLEST, float(np.max(changes, where=np.isfinite(changes), initial=0.0)))
        norm = TwoSlopeNorm(0.0, -reach, reach)
        for panel, table in zip(axes.flat, tables, strict=False):
            image = _panel(panel, table, norm, run.condition(table.condition).label or table.condition)
        for panel in axes.flat[len(tables) :]:
            panel.remove()
        for panel in axes[:, 0]:
            panel.set_ylabel("Layer")
        fit_titles(axes.flat[: len(tables)])
        bar = figure.colorbar(
            image, ax=list(axes.flat[: len(tables)]), shrink=1.0 if layers <= 8 else 0.6, aspect=30, pad=0.015
        )
        _ratio_ticks(bar, reach)
        bar.set_label(ratio)
        figure.suptitle(run.label(model), fontsize=8.5)
    notes = (
        f"colour: paired drop of each head, attention received by original tokens, {ratio}, the geometric "
        "mean over problems; blue is a fall, red a rise",
        "dots: heads whose 95% interval reaches 1",
        *(["grey: layers without attention"] if len(run.attention_layers(model)) < layers else []),
    )
    columns = _columns(tables)
    return Drawn("headmap", figure, columns, caption(run, conditions, queries, *notes, models=[model]))


def _panel(axes: Any, table: HeadTable, norm: Any, title: str) -> Any:
    from matplotlib import colormaps

    drop = table.columns["drop"]
    layers, heads = table.shape
    colours = colormaps["RdBu_r"].with_extremes(bad=NOTHING)
    image = axes.imshow(
        np.log2(drop.value), cmap=colours, norm=norm, aspect="auto", origin="upper",
        extent=(0.5, heads + 0.5, layers + 0.5, 0.5), interpolation="nearest",
    )  # fmt: skip
    unsure = np.argwhere((drop.low <= 1) & (drop.high >= 1))
    size = 10 if heads <= 16 else 4
    axes.scatter(unsure[:, 1] + 1, unsure[:, 0] + 1, s=size / 4, color="#333333", linewidths=0)
    axes.set_title(title)
    axes.set_xlabel("Head")
    axes.grid(False)
    axes.set_xticks(_ticks(heads))
    axes.set_yticks(_ticks(layers))
    return image


def _ticks(count: int) -> list[int]:
    step = 1 if count <= 10 else 2 if count <= 20 else 5 if count <= 40 else 10
    return sorted({1, *range(step, count + 1, step)})


def _ratio_ticks(bar: Any, reach: float) -> None:
    """Tick at round ratios, printed as ratios."""
    inside = [ratio for ratio in RATIOS if abs(np.log2(ratio)) <= reach]
    shown: list[float] = []
    for ratio in sorted(inside, key=lambda ratio: (ratio != 1.0, -abs(np.log2(ratio)))):
        if all(abs(np.log2(ratio / other)) > reach / 6 for other in shown):
            shown.append(ratio)
    bar.set_ticks([float(np.log2(ratio)) for ratio in sorted(shown)], labels=[f"{ratio:g}" for ratio in sorted(shown)])
    bar.minorticks_off()


def _columns(tables: list[HeadTable]) -> dict[str, NDArray[Any]]:
    rows = []
    for table in tables:
        layers, heads = table.shape
        places = [(layer, head) for layer in range(1, layers + 1) for head in range(1, heads + 1)]
        rows += [{"model": table.label, "condition": table.condition} | table.row(*place) for place in places]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}
