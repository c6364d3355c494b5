"""`activations`: how MLP activations of a layer are spread, and what changes in every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.mechanism import ActivationTable, activation_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.by_layer import BANDS, GREY, by_layer, curve, one_layer, shown, words
from fillerscope.figures.captions import clip_note
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import condition_look
from fillerscope.figures.panels import LayerMeasure, LinePanel, Panel, Series, layer_panels
from fillerscope.figures.references import twin_curve, twin_note
from fillerscope.figures.request import Request
from fillerscope.figures.style import WIDTH, Drawn, fit_titles, legend, page, styled
from fillerscope.figures.table import Cell, Table, groups, numbers, rows_of, table_of_rows, where
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
MIDDLE = 1.0  # octaves on either side of zero that the bin in the middle is drawn as wide as
ZOOM = 3.0  # times eps: how far the inset goes
# Panels: title, what is drawn, and where nothing has changed. Shares and Gini as differences, sizes as ratios.
PANELS = {
    "near_zero": ("Near zero, points", 0.0),
    "variance": ("Variance, ratio", 1.0),
    "l1": ("L1, ratio", 1.0),
    "gini": ("Gini, difference", 0.0),
}


def lacks(study: Study) -> str:
    return "" if study.probes.activations else "shows activations: give `probes: {activations: true}` in the study"


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions, layer = shown(run, request, "activations"), one_layer(run, request)
    tables = [activation_table(run, name) for name in conditions]
    with styled():
        figure = page(WIDTH, 3.7)
        spec = figure.add_gridspec(2, 4)
        left = figure.add_subplot(spec[:, :2])
        _draw_histograms(left, run, conditions, layer)
        panels = [figure.add_subplot(spec[row, column]) for row in (0, 1) for column in (2, 3)]
        untrained = [activation_table(twin, conditions[0]) for twin in run.twins()]
        for panel, (metric, (title, none)) in zip(panels, PANELS.items(), strict=True):
            scale = 100 if metric == "near_zero" else 1
            twin_curve(panel, [_change(table, metric)[0] for table in untrained], scale)
            for table in tables:
                look = condition_look(run, table.condition)
                curve(panel, _change(table, metric), look, dash=look.dash, scale=scale)
            by_layer(panel, tables[0].layers, title, none)
        for panel in panels[2:]:
            panel.set_xlabel("Layer")
        fit_titles(panels)
        legend(figure, [left, panels[0]], run.label)
    return Drawn("activations", figure, _table(run, tables, layer), _caption(run, conditions, layer, clip_note(panels)))


def _change(table: ActivationTable, metric: str) -> Estimates:
    return table.ratio[metric] if metric in table.ratio else table.difference[metric]


def _draw_histograms(axes: Axes, run: ModelRun, conditions: list[str], layer: int) -> None:
    edges = np.array(run.calibration()["edges"])
    places = octaves(edges)
    inset = axes.inset_axes((0.3, 0.58, 0.68, 0.36))
    top = 0.0
    for name in [BASELINE, *conditions]:
        share, look = _shares(run, name, layer), condition_look(run, name)
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "linewidth": 1.0}
        axes.stairs(share / np.diff(places), places, label=look.label, **style)
        inset.stairs(share / np.diff(edges), edges, **style)
        top = max(top, float((share / np.diff(places)).max()))
    axes.set_ylim(0, 2.3 * max(top, 1e-12))  # the inset stands above the lines
    axes.set_xlim(places[0], places[-1])
    axes.set_xticks(*_ticks(edges))
    axes.set_title(f"Layer {layer}")
    axes.set_xlabel("Activation")
    axes.set_ylabel("Share per octave")
    _zoom(inset, run.calibration()["eps"][layer - 1])


def octaves(edges: Floats) -> Floats:
    """Places on an axis where each octave is as wide as the next, on both sides of zero."""
    smallest = edges[edges > 0].min()
    sizes = np.where(edges == 0, smallest, np.abs(edges))
    out: Floats = np.sign(edges) * (MIDDLE + np.log2(sizes / smallest))
    return out


def _ticks(edges: Floats) -> tuple[list[float], list[str]]:
    """Zero and a few powers of ten on either side."""
    positive = edges[edges > 0]
    powers = np.arange(np.ceil(np.log10(positive.min() * 1.5)), np.floor(np.log10(positive.max())) + 1)
    chosen = powers[:: max(1, -(-len(powers) // 3))]
    values = np.concatenate([-(10.0 ** chosen[::-1]), 10.0**chosen])
    out = np.sign(values) * (MIDDLE + np.log2(np.abs(values) / positive.min()))
    return [*out.tolist(), 0.0], [*(f"{value:g}" for value in values), "0"]


def _shares(run: ModelRun, condition: str, layer: int) -> Floats:
    counts = run.histogram(condition)[layer - 1]
    return np.asarray(counts / max(int(counts.sum()), 1))


def _zoom(inset: Axes, eps: float) -> None:
    for edge in (-eps, eps):
        inset.axvline(edge, color=GREY, linewidth=0.7, linestyle=(0, (3, 2)))
    inset.set_xlim(-ZOOM * eps, ZOOM * eps)
    inset.set_xticks([-2 * eps, -eps, 0, eps, 2 * eps], [f"{n * eps:.2g}" for n in (-2, -1, 0, 1, 2)])
    inset.set_yticks([])
    inset.set_ylim(0, None)
    inset.tick_params(labelsize=6)
    inset.set_title("around zero; dashed lines: eps", fontsize=6.5, pad=2)
    inset.grid(False)


def _table(run: ModelRun, tables: list[ActivationTable], layer: int) -> Table:
    rows: list[dict[str, Cell]] = []
    for table in tables:
        columns = table.columns()
        for place in range(table.layers):
            own = {key: column[place].item() for key, column in columns.items()}
            rows.append({"view": "layers", "condition": table.condition} | own)
    edges = run.calibration()["edges"]
    for name in [BASELINE, *(table.condition for table in tables)]:
        counts = run.histogram(name)[layer - 1].tolist()
        bins = zip(edges[:-1], edges[1:], counts, strict=True)
        keys: dict[str, Cell] = {"view": "histogram", "condition": name, "layer": layer}
        rows += [keys | {"low": low, "high": high, "count": count} for low, high, count in bins]
    return table_of_rows(rows)


def _caption(run: ModelRun, conditions: list[str], layer: int, clipped: str) -> str:
    eps = run.calibration()["eps"][layer - 1]
    notes = (
        "activations: output of the MLP's nonlinearity on original tokens, the same tokens under every condition",
        f"left: layer {layer}, all problems together, on a grid that was frozen without filler, a quarter of an octave "
        "to a bin; the outermost bins take all that is beyond, the one in the middle both sides of zero",
        f"near zero: smaller than eps, {eps:.3g} in this layer, 1.4826 * MAD * {_c(run):g} of sizes without filler",
        "right: paired change by layer; L1 is per token, Gini of sizes",
        BANDS,
        clipped,
        twin_note(run, conditions[0]),
    )
    return words(run, conditions, str(len(run.measured())), *notes)


def _c(run: StoredRun) -> float:
    probe = run.study.probes.activations
    return probe.c if probe else float("nan")


def _panels(_: Run, drawn: Drawn) -> list[Panel]:
    rows = rows_of(drawn.table)
    bins = where(rows, "view", "histogram")
    by_condition = {str(name): own for (name,), own in groups(bins, "condition")}
    first = next(iter(by_condition.values()))
    edges = [*numbers(first[:1], "low"), *numbers(first, "high")]
    counts = {name: [int(count) for count in numbers(own, "count")] for name, own in by_condition.items()}
    layers = layer_panels(MEASURES, where(rows, "view", "layers"))
    return [histogram(int(numbers(bins, "layer")[0]), edges, counts), *layers]


def histogram(layer: int, edges: Sequence[float], counts: Mapping[str, Sequence[int]]) -> LinePanel:
    """Shares per bin by condition, on an axis of octaves; bins are numbered, and the page names their edges."""
    series = [
        Series(name, list(range(len(values))), [value / max(sum(values), 1) for value in values], list(values))
        for name, values in counts.items()
    ]
    title = f"MLP activations, layer {layer}"
    return LinePanel(title, "Activation", "Share of activations in a bin", series, zero=True, edges=list(edges))


NEAR_ZERO = LayerMeasure("near_zero_difference", "Near zero, change in points", no_change=0.0, scale=100.0)
VARIANCE = LayerMeasure("variance_ratio", "Variance, ratio to none", no_change=1.0)
MEASURES = (
    NEAR_ZERO,
    VARIANCE,
    LayerMeasure("l1_ratio", "L1, ratio to none", no_change=1.0),
    LayerMeasure("gini_difference", "Gini, difference to none", no_change=0.0),
)
FIGURE = Figure("activations", "MLP activations", draw, _panels, lacks, MEASURES)
