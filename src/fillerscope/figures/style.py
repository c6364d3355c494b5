"""How every figure looks: colours, sizes, bands, shading, captions, files. One place."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fillerscope.display import printable, spreadsheet_text
from fillerscope.errors import FigureError
from fillerscope.figures.table import Table
from fillerscope.files import disk_errors, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOTHING = "#D8D8D8"  # where there is nothing to measure
BLUE, ORANGE, RED, GREEN, PURPLE, SKY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#8E5EA2", "#56B4E9"  # published
Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = (
    "solid",
    (0, (4, 0.6)),  # short gaps: a longer one can swallow the tip of a peak
    (0, (5, 1, 1, 1)),
    (0, (1, 0.8)),
    (0, (7, 1.5)),
    (0, (2, 1.5)),
    (0, (5, 1, 1, 1, 1, 1)),
)
WIDTH = 7.2  # inches: two columns of a paper
HEADROOM = 0.25  # above the lines, for the name of a shaded region
MARGIN = 0.06  # of the height of an axis, above and below its lines
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
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fillerscope",
    "text.parse_math": False,  # a label may hold any characters, dollars too
    "savefig.dpi": 300,
}


@dataclass(frozen=True)
class Source:
    """Which curve of a run a line shows."""

    model: str
    condition: str
    queries: str
    view: str
    layer: int
    head: int


@dataclass(frozen=True)
class Look:
    """How a line, its points or a bar look, and what the legend calls them."""

    label: str
    colour: str
    dash: Dash = "solid"
    marker: str = "o"
    hatch: str = ""


@dataclass(frozen=True)
class Line:
    """One curve with its band."""

    source: Source
    look: Look
    x: NDArray[np.int64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """A figure, the numbers in it, and the words under it."""

    name: str
    figure: Figure
    table: Table
    caption: str
    lines: tuple[Line, ...] = ()  # those along a prompt, in the order of the table


@contextmanager
def styled() -> Iterator[None]:
    """Inside the block figures look as ours do, whatever settings of matplotlib there are elsewhere."""
    _import_matplotlib()
    from matplotlib import rc_context, rcdefaults, rcParams

    with rc_context():
        rcdefaults()
        rcParams.update(_RC)
        yield


def _import_matplotlib() -> None:
    """matplotlib reads a file of the current folder when it is imported, and tells what it does not like in it. The
    folder may be somebody else's, and the file a link: it is imported as if from elsewhere. Figures are only saved: a
    backend for windows that matplotlib does not know is left out."""
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        with suppress(FileNotFoundError), chdir(Path(sys.prefix).anchor):  # the current folder may be gone
            import matplotlib  # noqa: F401
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend and "matplotlib" in sys.modules:
        with suppress(ValueError):  # for figures of the caller's own, as matplotlib itself does it
            sys.modules["matplotlib"].rcParams["backend"] = backend


def page(width: float, height: float) -> Figure:
    """An empty figure, so many inches large, that makes room for what is written around its panels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def grid(rows: int, columns: int, height: float) -> tuple[Figure, NDArray[Any]]:
    """Panels at print width, three side by side, more in a wider figure; axes always come as [row, column]."""
    figure = page(WIDTH / 2 if columns == 1 else max(WIDTH, WIDTH / 3 * columns), height)
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_lines(axes: Axes, lines: Sequence[Line], end: int, y_max: float | None = None, headroom: float = 0.05) -> None:
    for line in lines:
        look = line.look
        axes.plot(line.x, line.y, color=look.colour, linestyle=look.dash, label=look.label)
        axes.fill_between(line.x, line.low, line.high, color=look.colour, alpha=0.18, linewidth=0)
    axes.set_xlim(0, end)
    fit_to_means(axes, headroom, least=0)
    axes.set_ylim(0, y_max)
    axes.locator_params(axis="y", nbins=6)


def fit_to_means(axes: Axes, margin: float = MARGIN, least: float | None = None) -> None:
    """Let an axis of y follow lines and points, from `least` where it is given. What of a band is beyond is cut off."""
    heights = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines] or [np.zeros(0)])
    heights = heights[np.isfinite(heights)]
    if not heights.size:
        return
    low, high = float(heights.min()), float(heights.max())
    low = low if least is None else min(low, least)
    room = margin * (high - low) or margin * abs(high) or margin
    axes.set_ylim(low if least is not None else low - room, high + room)


def is_clipped(axes: Axes) -> bool:
    """Whether a band reaches beyond the frame."""
    from matplotlib.collections import PolyCollection

    low, high = axes.get_ylim()
    paths = [path for band in axes.collections if isinstance(band, PolyCollection) for path in band.get_paths()]
    heights = [np.asarray(path.vertices)[:, 1] for path in paths if np.size(path.vertices)]
    reach = 1e-9 * (high - low)
    return any(float(np.nanmin(y)) < low - reach or float(np.nanmax(y)) > high + reach for y in heights)


def shade(axes: Axes, start: int, stop: int, text: str) -> None:
    """The filler region: grey, dashed edges, named inside near the top, or beside it where it is narrow."""
    end = axes.get_xlim()[1]
    if start > end:
        return
    left, right = start - 0.5, min(stop - 0.5, end)
    axes.axvspan(start - 0.5, stop - 0.5, color="#9A9A9A", alpha=0.18, linewidth=0, zorder=0)
    for edge in (start - 0.5, stop - 0.5):
        axes.axvline(edge, color="#555555", linewidth=0.7, linestyle=(0, (3, 2)))
    text = text if len(text) <= 40 else f"{text[:37]}..."  # the legend has it in full
    text = textwrap.fill(text, max(12, len(text) // 2 + 4))
    x, side = (left + right) / 2, "center"
    if text_width(text, 6.5) > 0.8 * _pitch(axes) * (right - left) / end:
        x, side = (right + 0.01 * end, "left") if x < end / 2 else (left - 0.01 * end, "right")
    axes.text(
        x, 0.97, text, transform=axes.get_xaxis_transform(), ha=side, va="top", fontsize=6.5, color="#333333",
        linespacing=1.1,
    )  # fmt: skip


def mark(axes: Axes, start: int, stop: int, colour: str, level: float) -> None:
    """Where one filler of several stands: a bar in the colour of its line."""
    axes.axvspan(start - 0.5, stop - 0.5, level - 0.018, level, color=colour, linewidth=0)


def legend(figure: Figure, axes: Iterable[Axes], title: str | None = None) -> None:
    """One legend above all panels, where it can cover nothing; as many rows as its texts need."""
    entries: dict[str, Any] = {}
    for one in axes:
        entries |= {str(label): handle for handle, label in zip(*one.get_legend_handles_labels(), strict=True)}
    widest = max(text_width(label, 7.5) for label in entries) + 0.7  # the sample of the line, and a gap
    rows = ceil(len(entries) / max(1, int(figure.get_figwidth() / widest)))
    figure.set_figheight(figure.get_figheight() + 0.17 * (rows - 1))
    figure.legend(
        list(entries.values()), list(entries), loc="outside upper center", ncols=ceil(len(entries) / rows),
        handlelength=2.6, title=title, title_fontsize=8.5,
    )  # fmt: skip


def fit_titles(axes: Iterable[Axes]) -> None:
    """All titles in one size, small enough that none reaches its neighbour; the longest on two lines."""
    titled = [one for one in axes if one.get_title()]
    if min(_title_size(one) for one in titled) < 6.5:
        for one in titled:
            one.set_title(_two_lines(one.get_title()) if _title_size(one) < 6.5 else one.get_title())
        rows = len({one.get_subplotspec().rowspan.start for one in titled})  # type: ignore[union-attr]
        figure = titled[0].figure
        figure.set_figheight(figure.get_figheight() + 0.12 * rows)  # type: ignore[union-attr]
    size = min(_title_size(one) for one in titled)
    for one in titled:
        one.title.set_fontsize(size)


def _title_size(axes: Axes) -> float:
    """The size at which a title is a little narrower than the place of its panel."""
    return min(8.0, 8.0 * 0.84 * _pitch(axes) / text_width(axes.get_title(), 8.0))


def _pitch(axes: Axes) -> float:
    """The width of a panel with its margins, in inches."""
    spec = axes.get_subplotspec()
    return float(axes.figure.get_figwidth()) / (spec.get_gridspec().ncols if spec else 1)  # type: ignore[union-attr]


def _two_lines(text: str) -> str:
    """Broken at the space that leaves the shorter lines."""
    gaps = [index for index, letter in enumerate(text) if letter == " "]
    at = min(gaps, key=lambda gap: max(gap, len(text) - gap), default=len(text))
    return f"{text[:at]}\n{text[at + 1 :]}".rstrip()


def text_width(text: str, size: float) -> float:
    """The widest line of a text in inches."""
    _import_matplotlib()
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size)
    lines = text.splitlines() or [""]
    widths = [text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in lines]
    return max(0.01, *widths) / 72


KINDS = ("pdf", "svg", "png", "csv", "txt")  # of the files that a figure has


def save(drawn: Drawn, folder: Path, on_made: Callable[[Mapping[str, Path]], None] = lambda _: None) -> list[Path]:
    """PDF, SVG and PNG, the numbers as CSV, the caption as text: all of them, or what was there before. `on_made` is
    called with the finished files, by name, before they get their places."""
    failing = disk_errors(FigureError, f"figures to {folder}", "choose another folder with --out")
    paths = {kind: folder / f"{drawn.name}.{kind}" for kind in KINDS}
    with failing, ExitStack() as stack:
        files = {kind: stack.enter_context(replacing(path, sync=False)) for kind, path in paths.items()}
        _write(drawn, files)
        for file in files.values():
            file.flush()  # a full disk shows before any of them is replaced
        on_made({path.name: Path(files[kind].name) for kind, path in paths.items()})
    return list(paths.values())


def _write(drawn: Drawn, files: Mapping[str, BinaryIO]) -> None:
    """Write to the file of each kind. The same numbers give the same bytes."""
    kinds: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
    with styled():
        _make_visible(drawn.figure)
        drawn.figure.draw_without_rendering()
        drawn.figure.set_layout_engine("none")  # laid out once, alike in every file
        for kind, metadata in kinds.items():
            drawn.figure.savefig(files[kind], format=kind, metadata=metadata)
    files["txt"].write(("\n".join(textwrap.wrap(drawn.caption, 100)) + "\n").encode())
    write_csv(drawn.table, files["csv"])


def _make_visible(figure: Figure) -> None:
    """Labels may hold any characters, and an SVG file only those that can be seen."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        names = axis.get_major_formatter()
        if isinstance(names, FuncFormatter):  # ticks with names of their own
            axis.set_major_formatter(FuncFormatter(lambda place, at, names=names: printable(names(place, at))))


def write_csv(table: Table, file: BinaryIO) -> None:
    import pyarrow
    from pyarrow import csv

    safe = {key: [spreadsheet_text(one) if isinstance(one, str) else one for one in table[key]] for key in table}
    csv.write_csv(pyarrow.table(safe), file)
