"""What is drawn in a panel of accuracies: bars, points, error bars and texts; and the accuracies themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.run import Run
from fillerscope.figures.style import Drawn
from support.synthetic import MLESS, NONE, Synthetic


def only_answers(folder: Path, **changes: Any) -> Run:
    settings: dict[str, Any] = {
        "conditions": (NONE, MLESS), "right": {"none": 0.4, "mless": 0.6}, "attention": False, "problems": 20,
    }  # fmt: skip
    return Synthetic(**(settings | changes)).build(folder)


def panel(drawn: Drawn, title: str) -> Axes:
    return next(axes for axes in drawn.figure.axes if axes.get_title().replace("\n", " ") == title)


def bars(axes: Axes) -> dict[str, BarContainer]:
    return {str(item.get_label()): item for item in axes.containers if isinstance(item, BarContainer)}


def points(axes: Axes) -> dict[str, ErrorbarContainer]:
    return {str(item.get_label()): item for item in axes.containers if isinstance(item, ErrorbarContainer)}


def ends(container: ErrorbarContainer) -> list[tuple[float, float]]:
    """Low and high of each error bar."""
    (lines,) = container.lines[2]
    return [(segment[0][1], segment[1][1]) for segment in lines.get_segments()]


def rows_of(run: Run, model: str) -> dict[str, Accuracy]:
    return {row.condition: row for row in compare(run) if row.model == model}


def labels_of(axes: Axes) -> list[tuple[float, str]]:
    """Texts in the panel by place."""
    return sorted((float(text.xy[0]), text.get_text()) for text in axes.texts)  # type: ignore[attr-defined]
