"""What the page shows for a figure, as data: panels of lines, bars or a map, made from the rows of the figure's table.

Conditions go by their names here. What they are called and how they look on the page is not known to panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fillerscope.figures.table import Cell, Row, groups, number

Numbers = list[float | None]


class Columns(NamedTuple):
    """The names of the columns that hold a value and the ends of its interval."""

    value: str
    low: str = "low"
    high: str = "high"

    @classmethod
    def of(cls, measure: str) -> Columns:
        """Those of a table with several measures side by side."""
        return cls(measure, f"{measure}_low", f"{measure}_high")


@dataclass(frozen=True)
class OwnLook:
    """Name and look of a line that does not stand for one condition."""

    label: str
    style: int
    dash: int


@dataclass(frozen=True)
class Series:
    """One line of a panel: of a condition, or with a name and a look of its own."""

    name: str | OwnLook
    x: list[Cell]
    y: Numbers
    n: list[Cell]
    interval: tuple[Numbers, Numbers] | None = None

    @classmethod
    def of(cls, name: str | OwnLook, rows: Sequence[Row], x: str, columns: Columns, scale: float = 1.0) -> Series:
        y, low, high = ([number(row, key, scale) for row in rows] for key in columns)
        return cls(name, [row[x] for row in rows], y, [row.get("n") for row in rows], (low, high))


@dataclass(frozen=True)
class PromptAxis:
    """Positions of a model's prompts: `whole`, or `aligned` to the prompt without filler."""

    model: str
    view: str


@dataclass(frozen=True)
class LinePanel:
    """Lines over an axis. `zero`: the other axis begins at 0. `no_change`: the value where nothing has changed."""

    title: str
    x: str
    y: str
    series: list[Series]
    zero: bool = False
    no_change: float | None = None
    prompt: PromptAxis | None = None  # where x is a position in a prompt
    edges: list[float] | None = None  # where x numbers the bins between these


@dataclass(frozen=True)
class Remark:
    """What is said of an accuracy beside its number: a note, a mark of significance, the published value."""

    note: str
    mark: str
    published: float | None


@dataclass(frozen=True)
class Bar:
    """A condition's value with its interval."""

    condition: str
    value: float | None
    low: float | None
    high: float | None
    n: Cell
    remark: Remark | None = None

    @classmethod
    def of(cls, row: Row, columns: Columns, scale: float = 1.0, remark: Remark | None = None) -> Bar:
        value, low, high = (number(row, key, scale) for key in columns)
        return cls(str(row["condition"]), value, low, high, row.get("n"), remark)


@dataclass(frozen=True)
class BarPanel:
    """Groups of bars, or of points, each under a label."""

    title: str
    y: str
    groups: list[tuple[str, list[Bar]]]
    no_change: float | None = None
    mark: Literal["bar", "point"] = "bar"


@dataclass(frozen=True)
class Shading:
    """What a map shows: the column behind its colours, their scale and its name, and the numbers of a cell."""

    column: str
    scale: Literal["ratio", "change", "share"]
    name: str
    numbers: Columns
    reach: float | None = None  # how far the colours go, in octaves, where several maps share a scale


@dataclass(frozen=True)
class MapPanel:
    """Cells by the values of two columns of a table, `down` and `across`."""

    title: str
    rows: list[Row]
    down: str
    across: str
    shading: Shading


Panel = LinePanel | BarPanel | MapPanel


@dataclass(frozen=True)
class LayerMeasure:
    """A column of a table by layer, and the panel that shows it with a line for each condition."""

    column: str
    title: str
    no_change: float | None = None
    zero: bool = False
    scale: float = 1.0


def layer_panels(measures: Sequence[LayerMeasure], rows: Sequence[Row]) -> list[Panel]:
    """A panel for each measure that has numbers."""
    panels = [_layer_panel(measure, [row for row in rows if measure.column in row]) for measure in measures]
    return [panel for panel in panels if any(value is not None for line in panel.series for value in line.y)]


def _layer_panel(measure: LayerMeasure, rows: Sequence[Row]) -> LinePanel:
    columns = Columns.of(measure.column)
    series = [Series.of(str(name), own, "layer", columns, measure.scale) for (name,), own in groups(rows, "condition")]
    return LinePanel(measure.title, "Layer", measure.title, series, measure.zero, measure.no_change)


def accuracy_bar(row: Row) -> Bar:
    """An accuracy in per cent, with what is known of it."""
    parts = [f"{row['gained']} better, {row['lost']} worse, p Holm {row['adjusted']:.3g}"] if row.get("pairs") else []
    published = number(row, "published", 100.0)
    parts += [f"published: {published:g}%"] if published is not None else []
    remark = Remark("; ".join(parts), str(row.get("mark", "")), published)
    return Bar.of(row, Columns("accuracy"), 100.0, remark)
