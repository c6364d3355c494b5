"""How every figure looks: colours, sizes, bands, shading, captions, files. One place."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinct for colour-blind readers, of different lightness for grey print; dashes tell them apart again.
BLUE, ORANGE, RED, GREEN, PURPLE, SKY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#8E5EA2", "#56B4E9"
SERIES = (ORANGE, GREEN, PURPLE, SKY, RED, BLUE)
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (3.2, 0.8)),
    (0, (5, 1, 1, 1)),
    (0, (1, 0.8)),
    (0, (7, 1.5)),
    (0, (2, 1.5)),
)
WIDTH = 7.2  # inches: two columns of a paper
Y_LABEL = "Average Attention Weight"

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fillerscope",
    "savefig.dpi": 300,
}


@dataclass(frozen=True)
class Drawn:
    """A figure, the numbers in it, and the words under it."""

    name: str
    figure: Figure
    table: dict[str, NDArray[Any]]
    caption: str


@dataclass(frozen=True)
class Line:
    """One curve with its band."""

    label: str
    colour: str
    x: NDArray[Any]
    y: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    n: NDArray[Any]
    dash: Any = "solid"
    keys: dict[str, Any] = field(default_factory=dict)  # what the CSV says of it: model, condition, layer...

    def columns(self) -> dict[str, NDArray[Any]]:
        repeated = {key: np.full(len(self.x), value) for key, value in self.keys.items()}
        return repeated | {
            "position": self.x, "mean": self.y, "low": self.low, "high": self.high, "n": self.n,
        }  # fmt: skip


@contextmanager
def styled() -> Iterator[None]:
    import matplotlib
    from matplotlib import rc_context

    matplotlib.use("Agg")
    with rc_context(_RC):
        yield


def grid(rows: int, columns: int, height: float) -> tuple[Figure, NDArray[Any]]:
    """Panels at print width; the axes always come as [row, column]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH if columns > 1 else WIDTH / 2, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_lines(axes: Axes, lines: Sequence[Line], end: int, y_max: float | None = None) -> None:
    for line in lines:
        axes.plot(line.x, line.y, color=line.colour, linestyle=line.dash, label=line.label)
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.18, linewidth=0)
    axes.set_xlim(0, end)
    axes.set_ylim(0, y_max)
    axes.locator_params(axis="y", nbins=6)


def shade(axes: Axes, start: float, stop: float, text: str, colour: str = "#9A9A9A", level: float = 0.97) -> None:
    """The filler region: grey, dashed edges, named inside near the top."""
    axes.axvspan(start - 0.5, stop - 0.5, color=colour, alpha=0.18, linewidth=0, zorder=0)
    for edge in (start - 0.5, stop - 0.5):
        axes.axvline(edge, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    axes.text(
        (start + stop - 1) / 2, level, textwrap.fill(text, 12), transform=axes.get_xaxis_transform(),
        ha="center", va="top", fontsize=6.5, color="#333333", linespacing=1.1,
    )  # fmt: skip


def legend(figure: Figure, axes: Iterable[Axes], title: str | None = None) -> None:
    """One legend above all panels, where it can cover nothing."""
    entries: dict[str, Any] = {}
    for one in axes:
        entries |= {str(label): handle for handle, label in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(entries.values()), list(entries), loc="outside upper center", ncols=max(1, len(entries)),
        handlelength=2.6, title=title, title_fontsize=8.5,
    )  # fmt: skip


def table_of(lines: Sequence[Line]) -> dict[str, NDArray[Any]]:
    parts = [line.columns() for line in lines]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def save(drawn: Drawn, folder: Path) -> list[Path]:
    """PDF, SVG and PNG, the numbers as CSV, the caption as text. The same numbers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    dates: dict[str, dict[str, None]] = {
        "pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {},
    }  # fmt: skip
    paths = [folder / f"{drawn.name}.{kind}" for kind in dates]
    with styled():
        for path, metadata in zip(paths, dates.values(), strict=True):
            drawn.figure.savefig(path, metadata=metadata)
    caption = folder / f"{drawn.name}.txt"
    caption.write_text("\n".join(textwrap.wrap(drawn.caption, 100)) + "\n", encoding="utf-8")
    return [*paths, write_csv(drawn.table, folder / f"{drawn.name}.csv"), caption]


def write_csv(table: dict[str, NDArray[Any]], path: Path) -> Path:
    import pyarrow
    from pyarrow import csv

    csv.write_csv(pyarrow.table(table), path)
    return path
