"""`headmap`: every head of every layer at a glance: what original tokens receive, with against without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.heads import HeadTable, head_table
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.captions import caption
from fillerscope.figures.condition_text import name_of, quotient
from fillerscope.figures.figure import Figure
from fillerscope.figures.panels import Columns, MapPanel, Shading
from fillerscope.figures.request import Request
from fillerscope.figures.style import NOTHING, Drawn, fit_titles, grid, styled
from fillerscope.figures.table import Row, Table, groups, number, rows_of, table_of_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure as Page
    from matplotlib.image import AxesImage

Floats = NDArray[np.float64]
PANELS = 3  # side by side
SMALLEST = 0.1  # log2 at the ends of the scale at least: changes of a few per cent stay pale
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True)
class Map:
    """A panel: the numbers of a table's column, and which heads are marked."""

    title: str
    values: Floats
    marked: NDArray[np.bool_]


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions, queries = request.fillers(run), request.queries or "original"
    ratio = quotient([run.condition(name) for name in conditions])
    tables = [head_table(run, name, queries) for name in conditions]
    known = [table for table in tables if table.knows("beyond")]
    kinds = {ratio: [_drop(run, table) for table in tables]}  # by what their colour bar says
    kinds |= {"drop / length alone": [_beyond(run, table) for table in known]} if known else {}
    with styled():
        layers, widest = tables[0].shape[0], min(PANELS, len(tables))
        counts = [ceil(len(maps) / widest) for maps in kinds.values()]
        height = 0.5 + sum(counts) * max(1.6, 0.9 + 0.14 * layers)
        figure, axes = grid(sum(counts), widest, min(8.5, height))
        starts = [0, counts[0]]
        drawn = [
            _draw_kind(figure, axes[start : start + count], label, maps)
            for start, count, (label, maps) in zip(starts, counts, kinds.items(), strict=False)
        ]
        fit_titles([panel for panels in drawn for panel in panels])
        figure.suptitle(run.label, fontsize=8.5)
    held = tables[0].knows("twin")
    notes = (
        f"colour: paired drop of each head, attention received by original tokens, {ratio}, the geometric "
        "mean over problems; blue is a fall, red a rise",
        "beyond length: drop / the drop where rows keep their odds and filler draws as average tokens do"
        if known else "",
        "dots: heads whose drop lies within the range of all heads of the untrained twins in that layer" if held
        else "dots: heads whose 95% interval reaches 1",
        *(["grey: layers without attention"] if len(run.attention_layers()) < layers else []),
    )  # fmt: skip
    columns = _columns(tables)
    return Drawn("headmap", figure, columns, caption([run], conditions, queries, *notes))


def _draw_kind(figure: Page, axes: NDArray[Any], label: str, maps: Sequence[Map]) -> list[Axes]:
    """Panels of one kind on one scale of colours; those that were drawn."""
    from matplotlib.colors import TwoSlopeNorm

    changes = np.abs(np.log2([one.values for one in maps]))
    reach = max(SMALLEST, float(np.max(changes, where=np.isfinite(changes), initial=0.0)))
    panels = list(axes.flat)[: len(maps)]
    for panel, one in zip(panels, maps, strict=True):
        image = _panel(panel, one, TwoSlopeNorm(0.0, -reach, reach))
    for panel in list(axes.flat)[len(maps) :]:
        panel.remove()
    for panel in axes[:, 0]:
        panel.set_ylabel("Layer")
    tall = maps[0].values.shape[0] > 8
    bar = figure.colorbar(image, ax=panels, shrink=0.6 if tall else 1.0, aspect=30, pad=0.015)
    _ratio_ticks(bar, reach)
    bar.set_label(label)
    return panels


def _drop(run: StoredRun, table: HeadTable) -> Map:
    return Map(_label(run, table), table.columns["drop"].value, _marked(table, "drop"))


def _beyond(run: StoredRun, table: HeadTable) -> Map:
    return Map(f"{_label(run, table)}, beyond length", table.columns["beyond"].value, _marked(table, "beyond"))


def _label(run: StoredRun, table: HeadTable) -> str:
    return name_of(run, table.condition)


def _marked(table: HeadTable, name: str) -> NDArray[np.bool_]:
    """Heads that untrained ones are like; without twins, those whose interval reaches 1."""
    if table.knows("twin"):
        drop, twin = table.columns["drop"].value, table.columns["twin"]
        return np.asarray((drop >= twin.low) & (drop <= twin.high))
    column = table.columns[name]
    return np.asarray((column.low <= 1) & (column.high >= 1))


def _panel(axes: Axes, one: Map, norm: Normalize) -> AxesImage:
    from matplotlib import colormaps

    layers, heads = one.values.shape
    colours = colormaps["RdBu_r"].with_extremes(bad=NOTHING)
    image = axes.imshow(
        np.log2(one.values), cmap=colours, norm=norm, aspect="auto", origin="upper",
        extent=(0.5, heads + 0.5, layers + 0.5, 0.5), interpolation="nearest",
    )  # fmt: skip
    places = np.argwhere(one.marked)
    size = 10 if heads <= 16 else 4
    axes.scatter(places[:, 1] + 1, places[:, 0] + 1, s=size / 4, color="#333333", linewidths=0)
    axes.set_title(one.title)
    axes.set_xlabel("Head")
    axes.grid(False)
    axes.set_xticks(_ticks(heads))
    axes.set_yticks(_ticks(layers))
    return image


def _ticks(count: int) -> list[int]:
    step = 1 if count <= 10 else 2 if count <= 20 else 5 if count <= 40 else 10
    return sorted({1, *range(step, count + 1, step)})


def _ratio_ticks(bar: Colorbar, reach: float) -> None:
    """Tick at round ratios, printed as ratios."""
    inside = [ratio for ratio in RATIOS if abs(np.log2(ratio)) <= reach]
    shown: list[float] = []
    for ratio in sorted(inside, key=lambda ratio: (ratio != 1.0, -abs(np.log2(ratio)))):
        if all(abs(np.log2(ratio / other)) > reach / 6 for other in shown):
            shown.append(ratio)
    bar.set_ticks([float(np.log2(ratio)) for ratio in sorted(shown)], labels=[f"{ratio:g}" for ratio in sorted(shown)])
    bar.minorticks_off()


def _columns(tables: list[HeadTable]) -> Table:
    rows: list[Row] = []
    for table in tables:
        layers, heads = table.shape
        places = [(layer, head) for layer in range(1, layers + 1) for head in range(1, heads + 1)]
        rows += [{"model": table.label, "condition": table.condition} | table.row(*place) for place in places]
    return table_of_rows(rows)


def _panels(run: Run, drawn: Drawn) -> list[MapPanel]:
    """The drop and what is beyond length, each on one scale, as in print."""
    rows = rows_of(drawn.table)
    return [*_maps(run, rows, "drop", "Paired drop"), *_maps(run, rows, "beyond", "Beyond length")]


def _maps(run: Run, rows: Sequence[Row], column: str, name: str) -> list[MapPanel]:
    known = [value for row in rows if (value := number(row, column))]
    reach = max((abs(log2(value)) for value in known if value > 0), default=0.0)
    shading = Shading(column, "ratio", name, Columns.of(column), reach)
    more = "" if column == "drop" else f", {name.lower()}"
    return [
        MapPanel(f"{label}, {name_of(run, str(condition))}{more}", own, "layer", "head", shading)
        for (label, condition), own in groups(rows, "model", "condition")
        if any(number(row, column) is not None for row in own)
    ]


FIGURE = Figure("headmap", "Every head at a glance", draw, _panels)
