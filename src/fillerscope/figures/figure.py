"""What is known about a figure, in one record. Each figure's module makes its own, and `registry` lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fillerscope.analysis.run import Run
from fillerscope.figures.panels import LayerMeasure, Panel
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn
from fillerscope.study.study import Study


def lacks_attention(study: Study) -> str:
    """Why a study cannot have a figure that shows attention, as most do; "" where it can."""
    return "" if study.probes.attention else "shows attention: leave `probes.attention` on in the study"


@dataclass(frozen=True)
class Figure:
    """A figure by its name in studies and files.

    `draw` gives the picture with its caption, which says what was chosen for it, and its table; `panels` what the
    page shows of that table, where it shows anything. `lacks` says what a study of any outcome lacks for it, in words
    that follow its name, "" where it lacks nothing.
    """

    name: str
    title: str  # heading in a report
    draw: Callable[[Run, Request], Drawn]
    panels: Callable[[Run, Drawn], Sequence[Panel]] | None = None
    lacks: Callable[[Study], str] = lacks_attention
    measures: tuple[LayerMeasure, ...] = ()  # the part of its panels that goes by layer
    shows_all_models: bool = False  # in one picture; others are drawn for each model of a run
