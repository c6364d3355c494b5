"""Cost against length, as multiples of the plain forward: a panel for each file of measurements.

    python benchmarks/plot.py CPU.json GPU.json [--out docs/images/cost]

Draws the first model of each file: medians of the rounds, and bars from quartile to quartile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from contenders import NAMES, OURS
from timing import PLAIN

from fillerscope.figures.style import BLUE, DASHES, GREEN, PURPLE, RED, grid, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    OURS: "fillerscope",
    "eager": "transformers, eager",
    "transformer-lens": "TransformerLens",
    "nnsight": "nnsight",
}
COLOURS = dict(zip(LABELS, (BLUE, RED, PURPLE, GREEN), strict=True))
MARKERS = dict(zip(LABELS, "osD^", strict=True))
GREY = "#555555"
TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100)
GAP = 0.075  # between two labels, as a share of the axis
ROOM = 0.6  # of the range of lengths, for the labels on the right


def main() -> None:
    asked = arguments()
    with styled():
        figure, panels = grid(1, len(asked.files), 2.8)
        for axes, path in zip(panels.flat, asked.files, strict=True):
            found = json.loads(path.read_text(encoding="utf-8"))
            draw(axes, found["environment"], first_model(found["results"]))
        panels[0, 0].set_ylabel("Time (plain forward = 1)")
        for kind, about in (("png", {}), ("svg", {"Date": None})):
            figure.savefig(asked.out.with_suffix(f".{kind}"), metadata=about)


def first_model(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in results if result["model"] == results[0]["model"]]


def draw(axes: Axes, environment: dict[str, Any], results: Sequence[dict[str, Any]]) -> None:
    timed = [result for result in results if result["ratio"] and result["contender"] != PLAIN]
    names = [name for name in NAMES if any(result["contender"] == name for result in timed)]
    ends = {name: line(axes, name, [result for result in timed if result["contender"] == name]) for name in names}
    axes.axhline(1, color=GREY, linewidth=0.8, linestyle=DASHES[3], zorder=1)
    axes.set_title(f"{environment['device']}: {results[0]['model']}, {results[0]['dtype']}")
    set_scales(axes, sorted({result["length"] for result in results}), [result["ratio"]["high"] for result in timed])
    name_lines(axes, ends)


def line(axes: Axes, name: str, results: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Where it ends, for its name."""
    results = sorted(results, key=lambda result: result["length"])
    x, ratios = [result["length"] for result in results], [result["ratio"] for result in results]
    y = np.array([ratio["median"] for ratio in ratios])
    bars = np.array([[ratio["median"] - ratio["low"], ratio["high"] - ratio["median"]] for ratio in ratios]).T
    dash = DASHES[list(LABELS).index(name)]
    axes.errorbar(
        x, y, yerr=bars, color=COLOURS[name], linestyle=dash, marker=MARKERS[name], markersize=4, capsize=2,
        elinewidth=0.8, linewidth=1.6 if name == OURS else 1.1, zorder=3 if name == OURS else 2,
    )  # fmt: skip
    return x[-1], float(y[-1])


def set_scales(axes: Axes, lengths: Sequence[int], highest: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=30)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("Tokens in a text")
    axes.set_xlim(lengths[0] * 0.8, lengths[-1] * (lengths[-1] / lengths[0]) ** ROOM)
    axes.set_yscale("log")
    top = max(2.0, *highest) * 1.1
    axes.set_ylim(0.8, top)
    shown = [tick for tick in TICKS if tick <= top]
    axes.set_yticks(shown, [f"{tick:g}" for tick in shown])
    axes.set_yticks([], minor=True)


def name_lines(axes: Axes, ends: dict[str, tuple[float, float]]) -> None:
    """Each line's name where it ends, moved up where two would meet; the plain forward's under its line."""
    for end in {x for x, _ in ends.values()}:
        names = sorted((name for name, (x, _) in ends.items() if x == end), key=lambda name: ends[name][1])
        for name, y in zip(names, apart(axes, [ends[name][1] for name in names]), strict=True):
            name_at(axes, end, y, LABELS[name], COLOURS[name], weight="bold" if name == OURS else "normal")
    name_at(axes, max(x for x, _ in ends.values()), 1, "plain forward", GREY, down=8)


def name_at(axes: Axes, x: float, y: float, text: str, colour: str, down: float = 0, weight: str = "normal") -> None:
    axes.annotate(
        text, (x, y), (7, -down), textcoords="offset points", va="center", color=colour, weight=weight, fontsize=7
    )


def apart(axes: Axes, ascending: Sequence[float]) -> list[float]:
    low, high = np.log(axes.get_ylim())
    levels: list[float] = []
    for level in np.log(ascending):
        levels.append(max(level, levels[-1] + GAP * (high - low)) if levels else level)
    return [float(level) for level in np.exp(levels)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what capture.py and gpu.py wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/images/cost"), help="without .png and .svg")
    return parser.parse_args()


if __name__ == "__main__":
    main()
