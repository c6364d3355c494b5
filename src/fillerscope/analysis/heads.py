"""The effect of filler on every head: a row a head, ranked, with the reliability of the ranking."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fillerscope.analysis.colour_scale import Scale
from fillerscope.analysis.estimate import Estimate, Estimates
from fillerscope.analysis.inline_svg import heat_map
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.notebook_html import block, note
from fillerscope.analysis.notebook_html import table as columned
from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.rows import optional
from fillerscope.analysis.stats import split_half
from fillerscope.analysis.text_table import MOST_LINES, left_out, text_table
from fillerscope.analysis.twins import head_drops, head_masses, spread
from fillerscope.errors import FigureError
from fillerscope.files import Json
from fillerscope.store.schema import SINK_MASS
from fillerscope.study.conditions import BASELINE

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One measure of all heads: values with their intervals [layer, head], and its samples [problem, layer, head]."""

    value: Floats
    low: Floats
    high: Floats
    samples: Floats

    @classmethod
    def ratio(cls, after: Floats, before: Floats) -> Column:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(after) - np.log(before)
        return cls(*Estimates.ratios(after, before), logs)

    @classmethod
    def mean(cls, samples: Floats) -> Column:
        return cls(*Estimates.of(samples), samples)

    def at(self, layer: int, head: int) -> Estimate:
        """Of one head; both are counted from 1."""
        return Estimates(self.value, self.low, self.high).at(layer - 1, head - 1)


# How a head is placed: the largest key comes first.
RANKINGS: dict[str, Callable[[dict[str, Column]], Floats]] = {
    "drop": lambda columns: -columns["drop"].value,
    "mass": lambda columns: columns["mass"].value,
    "peak": lambda columns: np.abs(np.log(columns["peak"].value)),
    "beyond": lambda columns: np.abs(np.log(columns["beyond"].value)),
}

RATIOS = ("drop", "peak", "beyond")  # rankings in which a head that attends elsewhere is a ratio of nothing to nothing
LEAST_RECEIVED = 0.01  # of what uniform attention gives

# Columns that are shown, with their titles.
SHOWN = {
    "drop": "drop", "twin": "untrained", "beyond": "beyond length", "mass": "filler mass", "received": "received",
    "peak": "peak", "entropy": "entropy, nats",
}  # fmt: skip
IN_TEXT = ("drop", "twin", "beyond")  # as many as fit into 80 characters of text


@dataclass(frozen=True, repr=False)
class HeadTable:
    """`drop` and `peak` are ratios with / without filler; `mass` is a share of attention; `entropy` is a
    difference in nats. `uniform` and `odds` are the drops that length alone would give, by uniform attention and by
    rows that keep their odds among original tokens; `beyond_uniform` and `beyond` are drop / those: below 1 the filler
    draws more than average tokens would, above 1 less. `received` is what original tokens receive without filler, as a
    ratio to uniform attention. `twin` and `twin_mass` are drop and mass of untrained twins,
    with the least and the largest of their heads in the layer in place of an interval."""

    model: str
    label: str
    condition: str
    queries: str
    problems: int
    columns: dict[str, Column]

    @property
    def shape(self) -> tuple[int, int]:
        layers, heads = self.columns["drop"].value.shape
        return layers, heads

    def knows(self, column: str) -> bool:
        """Whether there is a number for any head."""
        return column in self.columns and bool(np.isfinite(self.columns[column].value).any())

    @property
    def without(self) -> tuple[int, ...]:
        """Layers without attention, from 1, as hybrid models have them."""
        known = np.any([np.isfinite(column.value).any(axis=1) for column in self.columns.values()], axis=0)
        return tuple((np.flatnonzero(~known) + 1).tolist()) if known.any() else ()

    @property
    def negligible(self) -> NDArray[np.bool_]:
        """[layer, head] whether original tokens receive next to nothing without filler, as where a head attends to
        the first token alone."""
        return self.columns["received"].value < LEAST_RECEIVED

    def ranked(self, by: str = "drop", layer: int | None = None) -> list[tuple[int, int]]:
        """(layer, head) from 1 of layers with attention, the strongest first; then, for ratios, heads whose original
        tokens receive next to nothing; NaN last."""
        if by not in RANKINGS:
            raise FigureError(f"heads are ranked by {', '.join(RANKINGS)}, not by {by!r}")
        if by == "beyond" and not self.knows(by):
            raise FigureError(
                f"what length alone does is not known for {self.condition}: it was collected for filler as long as "
                "the study's first, at its place, with original queries"
            )
        keys = RANKINGS[by](self.columns)
        order = np.lexsort((-keys.ravel(), (by in RATIOS) & self.negligible.ravel(), ~np.isfinite(keys).ravel()))
        places = [(int(flat // self.shape[1]) + 1, int(flat % self.shape[1]) + 1) for flat in order]
        return [place for place in places if layer in (None, place[0]) and place[0] not in self.without]

    def reliability(self, by: str = "drop") -> float:
        """Split-half rank correlation of what the ranking is made of."""
        samples = self.columns[by].samples
        return split_half(samples.reshape(samples.shape[0], -1))

    def row(self, layer: int, head: int, names: Iterable[str] | None = None) -> Json:
        """The numbers of one head, flat; both are counted from 1."""
        row: Json = {"layer": layer, "head": head}
        for name in self.columns if names is None else names:
            row |= self.at(name, layer, head).numbers(name)
        return row

    def at(self, column: str, layer: int, head: int) -> Estimate:
        """One measure of one head; both are counted from 1."""
        return self.columns[column].at(layer, head)

    def records(self, by: str = "drop") -> list[Json]:
        """A dictionary for each head, ranked, with all measures that are known and their intervals."""
        names = [name for name in self.columns if self.knows(name)]
        return [self.row(layer, head, names) for layer, head in self.ranked(by)]

    def to_pandas(self, by: str = "drop") -> pandas.DataFrame:
        """The records as a table."""
        frame: pandas.DataFrame = optional("pandas").DataFrame(self.records(by))
        return frame

    @property
    def _title(self) -> str:
        return f"{self.label}: {self.condition} against {BASELINE}, queries {self.queries}, n = {self.problems}"

    def __repr__(self) -> str:
        """The heads that are changed most, as a Python prompt and `print` show them."""
        names, places = [name for name in IN_TEXT if self.knows(name)], self.ranked()
        rows = [[f"{layer}", f"{head}", *self._ratios(layer, head, names)] for layer, head in places[:MOST_LINES]]
        columns = ("layer", "head", *(SHOWN[name] for name in names))
        layers, heads = self.shape
        title = f"{self._title} ({layers} layers, {heads} heads)"
        return text_table(title, columns, rows, left_out(len(places) - len(rows)))

    def _ratios(self, layer: int, head: int, names: Iterable[str]) -> list[str]:
        return [self.at(name, layer, head).ratio for name in names]

    def _repr_html_(self) -> str:
        """What a notebook shows: the map of `drop`, and the heads that are changed most."""
        return block(self._title, head_map(self), note(MAP_NOTE), _strongest(self))


MAP_NOTE = (
    "Attention received by original tokens as a ratio to none: blue is a fall, red a rise. Dots: the 95% interval "
    "reaches 1. Point at a cell for its numbers."
)


def head_map(table: HeadTable) -> Markup:
    """`drop` of every head as SVG."""
    drop = table.columns["drop"]

    def tip(layer: int, head: int) -> str:
        return f"layer {layer + 1}, head {head + 1}: {drop.at(layer + 1, head + 1).ratio}"

    layers, heads = table.shape
    tips = [[tip(layer, head) for head in range(heads)] for layer in range(layers)]
    dots = (drop.low <= 1) & (drop.high >= 1)
    labels = ("Layer", "Head", f"{table.condition} / {BASELINE}")
    return heat_map(drop.value, Scale.ratios(drop.value), labels, tips, dots=dots)


def _strongest(table: HeadTable, top: int = 5) -> Markup:
    rows, names = [], [name for name in SHOWN if table.knows(name)]
    for layer, head in table.ranked("drop")[:top]:
        rows.append([f"layer {layer}, head {head}", *table._ratios(layer, head, names)])
    return columned(("strongest", *(SHOWN[name] for name in names)), rows)


def _of_twins(run: ModelRun, condition: str, queries: str, shape: tuple[int, ...]) -> dict[str, Column]:
    """Drop and mass of untrained twins: over their heads of a layer the mean, the least and the largest."""
    measures = {
        "twin": head_drops(run, condition, queries),
        "twin_mass": head_masses(run, condition, queries),
    }
    columns = {}
    for name, values in measures.items():
        mean, low, high = spread(values if len(values) else np.full((1, *shape), np.nan), (0, 2))
        wide = [np.broadcast_to(bound[:, None], shape) for bound in (mean, low, high)]
        columns[name] = Column(wide[0], wide[1], wide[2], np.empty((0, *shape)))
    return columns


def head_table(run: ModelRun, condition: str, queries: str = "original") -> HeadTable:
    """Every head under a filler condition against none, pair by pair."""
    if condition == BASELINE:
        raise FigureError(f"heads are compared with `{BASELINE}`; name a condition with filler")

    def pair(metric: str) -> tuple[Floats, Floats]:
        return run.summary(metric, condition, queries), run.summary(metric, BASELINE, queries)

    with_entropy, without_entropy = pair("entropy")
    columns = {
        "drop": Column.ratio(*pair("received_original")),
        "mass": Column.mean(run.summary("filler_mass", condition, queries)),
        "peak": Column.ratio(*pair("peak")),
        "entropy": Column.mean(with_entropy - without_entropy),
    }
    after, before = (uniform(run, name, queries).received[..., None] for name in (condition, BASELINE))
    received, plain = pair("received_original")
    columns["received"] = Column.mean(plain / before)
    odds = same_odds(run, condition, queries)
    columns |= {
        "uniform": Column.ratio(after + 0 * received, before + 0 * plain),
        "odds": Column.ratio(odds, plain),
        "beyond_uniform": Column.ratio(received / after, plain / before),
        "beyond": Column.ratio(received, odds),
    }
    if run.study.references.twin:
        columns |= _of_twins(run, condition, queries, received.shape[1:])
    if run.has_sinks():
        columns[SINK_MASS] = Column.mean(run.summary(SINK_MASS, condition, queries))
    return HeadTable(run.name, run.label, condition, queries, len(run.measured(queries)), columns)
