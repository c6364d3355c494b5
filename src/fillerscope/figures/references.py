"""What stands behind the curves of a model: untrained twins as a grey band, and what length alone would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.model_run import ModelRun
from fillerscope.figures.looks import COLOURS, TWIN_NUMBER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = COLOURS[TWIN_NUMBER]
DOTTED = (0, (1, 1.4))
TWINS, LENGTH = "Untrained twins", "Length alone"
ALL_HEADS = "their heads of that layer"  # what the band behind a head is over
Floats = NDArray[np.float64]


def twin_curve(axes: Axes, twins: Sequence[Floats], scale: float = 1.0) -> None:
    """A measure by layer of every twin: their mean, and a band from the least to the largest."""
    if not twins:
        return
    values = scale * np.array(twins)
    measured = np.flatnonzero(np.isfinite(values).all(axis=0))
    values = values[:, measured]
    axes.plot(measured + 1, values.mean(0), color=GREY, linestyle=DOTTED, label=TWINS, zorder=1)
    axes.fill_between(measured + 1, values.min(0), values.max(0), color=GREY, alpha=0.3, linewidth=0, zorder=0.5)


def twin_note(run: ModelRun, condition: str, what: str = "") -> str:
    """What a caption says of the band; nothing where there is none."""
    count = len(run.twins())
    if not count:
        return ""
    over = f" over {what}" if what else ""
    return (
        f"grey, dotted: {count} untrained twins (the same configuration, weights drawn anew) under {condition}, mean "
        f"and range{over}"
    )
