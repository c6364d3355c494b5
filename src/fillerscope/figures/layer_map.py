"""`layermap`: every measure in every layer at a glance, a panel for each condition."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.mechanism import activation_table, affine_table, mean_over
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import sample_interval
from fillerscope.figures.by_layer import shown, words
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.figure import Figure
from fillerscope.figures.panels import Columns, MapPanel, Shading
from fillerscope.figures.request import Request
from fillerscope.figures.style import NOTHING, WIDTH, Drawn, fit_titles, styled, text_width
from fillerscope.figures.table import Cell, Row, Table, groups, rows_of, table_of_rows
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize as Norm
    from matplotlib.figure import Figure as Page
    from matplotlib.gridspec import GridSpec
    from matplotlib.image import AxesImage

Floats = NDArray[np.float64]
Kind = Literal["change", "share"]
NUMBERS = ("mean", "low", "high", "effect")  # columns of the table
PANELS = 3  # side by side
ROW, GAP = 0.145, 0.5  # inches of a measure's row; rows between changes and shares
SHORTEST = 2.2  # inches that the two scales need, one above the other
TOP, BETWEEN, BOTTOM, SCALE = 0.5, 0.62, 0.42, 0.72  # inches around panels, and for the scales to their right
LIMIT, LINEAR = 8.0, 0.5  # the scale of effects: its ends, and how far from 0 it is even
TICKS = (-8, -2, -0.5, 0, 0.5, 2, 8)
ACTIVITY = {
    "near_zero": "Activations near zero", "below_median": "Activations below median", "log_variance": "Variance",
    "log_l1": "L1", "log_l2": "L2", "gini": "Gini",
}  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A row of the map: the value of each layer, and whether its interval leaves the other direction open."""

    name: str
    is_change: bool
    mean: Floats
    low: Floats
    high: Floats
    effect: Floats  # mean over standard deviation over problems; of a share, the share

    @property
    def kind(self) -> Kind:
        return "change" if self.is_change else "share"

    @classmethod
    def change(cls, name: str, samples: Floats) -> Measure:
        mean, low, high = sample_interval(samples)
        count = np.isfinite(samples).sum(axis=0)
        deviation = np.sqrt(np.nansum((samples - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            effect = np.where(mean == 0, 0.0, mean / deviation)
        effect = np.where(count > 1, effect, np.nan)  # one problem has no deviation
        return cls(name, True, mean, low, high, np.clip(effect, -LIMIT, LIMIT))

    @classmethod
    def share(cls, name: str, estimate: Estimates) -> Measure:
        return cls(name, False, *estimate, np.clip(estimate[0], 0.0, 1.0))


def lacks(study: Study) -> str:
    if study.probes.affine or study.probes.activations:
        return ""
    return "shows the mechanism: give `probes: {affine: true, activations: true}` in the study"


def measures(run: ModelRun, condition: str) -> list[Measure]:
    """All that was measured: changes first, then shares."""

    def pair(metric: str) -> tuple[Floats, Floats]:
        with_, without = (mean_over(run.summary(metric, name)) for name in (condition, BASELINE))
        return with_, without

    def log_ratio(metric: str) -> Floats:
        with_, without = pair(metric)
        return np.log(with_) - np.log(without)

    changes = [Measure.change("Attention on original tokens", log_ratio("received_original"))]
    changes += [Measure.change("Peak of attention", log_ratio("peak"))]
    changes += [Measure.change("Entropy of attention", np.subtract(*pair("entropy")))]
    shares = []
    if run.condition(condition).has_filler:
        mass = mean_over(run.summary("filler_mass", condition))
        shares.append(Measure.share("Filler mass", Estimates.of(mass)))
        if run.study.probes.answering:
            answer = lookback_table(run, condition).values["answer"]
            shares.append(Measure.share("Filler mass, answer", answer))
    if run.study.probes.affine:
        affine = affine_table(run, condition)
        changes.append(Measure.change("Lambda - 1", affine.samples["lambda_fit"] - 1))
        shares += [Measure.share(name.capitalize(), affine.values[name]) for name in ("explained", "direction")]
        bare = np.full_like(affine.consistency, np.nan)
        shares.append(Measure.share("Across problems", Estimates(affine.consistency, bare, bare)))
    if run.study.probes.activations:
        samples = activation_table(run, condition).samples
        changes += [Measure.change(name, samples[key]) for key, name in ACTIVITY.items()]
    return [*changes, *shares]


def draw(whole: Run, request: Request) -> Drawn:
    run = request.model_run(whole)
    conditions = shown(run, request, "layermap", moved=True)
    measured = {name: measures(run, name) for name in conditions}
    names = list(dict.fromkeys((row.name, row.is_change) for rows in measured.values() for row in rows))
    names.sort(key=lambda pair: not pair[1])
    columns = min(PANELS, len(conditions))
    with styled():
        figure, spec, bars = _page(ceil(len(conditions) / columns), columns, names)
        images: dict[bool, AxesImage] = {}
        panels = []
        for place, (name, table) in enumerate(measured.items()):
            panels.append(figure.add_subplot(spec[divmod(place, columns)]))
            images |= _panel(panels[-1], table, names, name_of(run, name))
            _name_rows(panels[-1], names, shown=place % columns == 0)
        fit_titles(panels)
        _bars(figure, images, bars)
        figure.suptitle(run.label, fontsize=8.5, y=1 - 0.08 / figure.get_figheight(), va="top")
    return Drawn("layermap", figure, _table(measured), _caption(run, conditions))


def _page(rows: int, columns: int, names: list[tuple[str, bool]]) -> tuple[Page, GridSpec, GridSpec]:
    """The places of panels and of the two scales, in inches from what is written around them."""
    from matplotlib.figure import Figure

    left = max(text_width(name, 7) for name, _ in names) + 0.2
    width = WIDTH if columns > 1 else left + 3.2 + SCALE
    panel = max(ROW * (len(names) + GAP), SHORTEST / rows)
    height = TOP + rows * panel + (rows - 1) * BETWEEN + BOTTOM
    figure = Figure(figsize=(width, height))
    edges = {"bottom": BOTTOM / height, "top": 1 - TOP / height}
    spec = figure.add_gridspec(
        rows, columns, left=left / width, right=1 - SCALE / width, wspace=0.08, hspace=BETWEEN / panel, **edges
    )
    start = 1 - (SCALE - 0.12) / width
    return figure, spec, figure.add_gridspec(2, 1, left=start, right=start + 0.11 / width, hspace=0.2, **edges)


def _places(names: list[tuple[str, bool]]) -> dict[str, float]:
    """Where rows stand: shares below the changes, with a gap between."""
    return {name: place + (0.0 if is_change else GAP) for place, (name, is_change) in enumerate(names)}


def _panel(axes: Axes, table: list[Measure], names: list[tuple[str, bool]], title: str) -> dict[bool, AxesImage]:
    """Draws the map of one condition; what nothing was measured for is grey."""
    from matplotlib import colormaps
    from matplotlib.colors import AsinhNorm, Normalize

    layers, places = len(table[0].mean), _places(names)
    known = {row.name: row for row in table}
    images = {}
    for is_change in (True, False):
        rows = [name for name, kind in names if kind is is_change]
        if rows:
            norm: Norm = AsinhNorm(LINEAR, -LIMIT, LIMIT) if is_change else Normalize(0, 1)
            colours = colormaps["RdBu_r" if is_change else "Greens"].with_extremes(bad=NOTHING)
            values = np.array([known[name].effect if name in known else np.full(layers, np.nan) for name in rows])
            images[is_change] = axes.imshow(
                values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest",
                extent=(0.5, layers + 0.5, places[rows[-1]] + 0.5, places[rows[0]] - 0.5),
            )  # fmt: skip
    for row in table:
        open_ = np.flatnonzero((row.low <= 0) & (row.high >= 0)) if row.is_change else np.array([], dtype=int)
        axes.scatter(open_ + 1, np.full(len(open_), places[row.name]), s=2.0, color="#333333", linewidths=0)
    axes.set_title(title)
    axes.set_xlim(0.5, layers + 0.5)
    axes.set_ylim(max(places.values()) + 0.5, -0.5)
    return images


def _name_rows(axes: Axes, names: list[tuple[str, bool]], shown: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    places = _places(names)
    axes.set_yticks(list(places.values()), list(places) if shown else [""] * len(places))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.set_xlabel("Layer")
    axes.grid(False)


def _bars(figure: Page, images: dict[bool, AxesImage], spec: GridSpec) -> None:
    """The scale of changes above that of shares."""
    for place, (is_change, image) in enumerate(sorted(images.items(), reverse=True)):
        bar = figure.colorbar(image, cax=figure.add_subplot(spec[place]))
        if is_change:
            bar.set_ticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
            bar.minorticks_off()
        bar.set_label("effect (standard deviations)" if is_change else "share")


def _table(measured: dict[str, list[Measure]]) -> Table:
    rows: list[Row] = []
    for condition, table in measured.items():
        for row in table:
            for layer in range(len(row.mean)):
                values = (float(array[layer]) for array in (row.mean, row.low, row.high, row.effect))
                keys: dict[str, Cell] = {"condition": condition, "measure": row.name, "kind": row.kind}
                rows.append(keys | {"layer": layer + 1} | dict(zip(NUMBERS, values, strict=True)))
    return table_of_rows(rows)


def _caption(run: ModelRun, conditions: list[str]) -> str:
    notes = (
        "above: paired change against none, its mean over its standard deviation over problems, of logarithms for "
        f"attention, variance, L1 and L2; blue is a fall, red a rise; the colour ends at {LIMIT:g}",
        "dots: the 95% interval reaches no change",
        "below: shares between 0 and 1; direction within problems and across them is 1 where all biases point one way",
        "grey: not measured, or nothing to measure",
    )
    return words(run, conditions, str(len(run.measured())), *notes)


def _panels(run: Run, drawn: Drawn) -> list[MapPanel]:
    """Changes and shares of a condition have maps, and scales, of their own."""
    panels = []
    for (condition, kind), rows in groups(rows_of(drawn.table), "condition", "kind"):
        shading = SHADINGS[str(kind)]
        title = f"{name_of(run, str(condition))}: {shading.name}"
        panels.append(MapPanel(title, rows, "measure", "layer", shading))
    return panels


SHADINGS = {
    "change": Shading("effect", "change", "change in standard deviations", Columns("mean")),
    "share": Shading("effect", "share", "share", Columns("mean")),
}
FIGURE = Figure("layermap", "Every measure in every layer", draw, _panels, lacks)
