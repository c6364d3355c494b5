"""The types of panels, the charts that the page draws: curves, bars or a map, with their numbers.

Part of `payload_types`, which says where they go. How a panel looks is the page's business.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Scale = Literal["ratio", "lambda", "difference", "change", "share"]  # how the colours of a map run
Numbers = list[float | None]


class Line(TypedDict):
    """A curve with its band. `style` and `dash` say which colour and which dashes, the same in every panel."""

    label: str
    condition: NotRequired[str]
    style: int
    dash: int
    x: list[int]
    y: Numbers
    low: NotRequired[Numbers]
    high: NotRequired[Numbers]
    n: NotRequired[list[int | None]]


class Region(TypedDict):
    """Where the filler of a condition stands; `fixed`: at the same place in every problem."""

    label: str
    condition: str
    style: int
    dash: int
    start: int
    stop: int
    fixed: bool


class LinePanel(TypedDict):
    """Curves over one axis. `zero`: the y axis begins at 0. `none`: the value of no change."""

    kind: Literal["lines"]
    title: str
    x: str
    y: str
    series: list[Line]
    zero: bool
    none: float | None
    view: NotRequired[str]
    regions: NotRequired[list[Region]]
    tokens: NotRequired[list[str]]
    steps: NotRequired[bool]
    edges: NotRequired[list[float]]  # of the bins, where x numbers bins
    eps: NotRequired[float]  # activations smaller than this count as near zero


class Bar(TypedDict):
    """A value with its interval. `published`: what a paper reports for it."""

    label: str
    condition: str
    style: int
    dash: NotRequired[int]
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    note: NotRequired[str]
    text: NotRequired[str]
    published: NotRequired[float | None]


class BarGroup(TypedDict):
    label: str
    bars: list[Bar]


class BarPanel(TypedDict):
    """Bars, or points, side by side in groups."""

    kind: Literal["bars"]
    title: str
    y: str
    groups: list[BarGroup]
    none: float | None
    mark: Literal["bar", "point"]


class MapPanel(TypedDict):
    """Cells in rows and columns. `reach`: octaves that the colours span, where several maps share a scale."""

    kind: Literal["map"]
    title: str
    down: str
    across: str
    rows: list[str | int]
    columns: list[str | int]
    scale: Scale
    name: str
    reach: NotRequired[float]
    colour: list[Numbers]
    value: list[Numbers]
    low: list[Numbers]
    high: list[Numbers]


Panel = LinePanel | BarPanel | MapPanel
