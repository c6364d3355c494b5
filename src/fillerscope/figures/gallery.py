"""All figures by name. A new one is a module with `draw`, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fillerscope.analysis.runs import Run
from fillerscope.errors import FigureError
from fillerscope.figures import depth, fillers, headmap, heads, layers
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, save
from fillerscope.study import Study

FIGURES: dict[str, Callable[[Run, Request], Drawn]] = {
    "layers": layers.draw,
    "heads": heads.draw,
    "fillers": fillers.draw,
    "headmap": headmap.draw,
    "depth": depth.draw,
}


def draw(run: Run, name: str, request: Request | None = None) -> Drawn:
    """One figure. Without a request it is drawn as the run's study asks for it, or by its own defaults."""
    if name not in FIGURES:
        raise _unknown(name)
    return FIGURES[name](run, request or asked(run, name))


def check(study: Study) -> None:
    """Refuse figures that do not exist before anything is measured for them."""
    for spec in study.figures:
        if spec.name not in FIGURES:
            raise _unknown(spec.name)
        for name in spec.conditions:
            if name not in [condition.name for condition in study.conditions]:
                raise FigureError(f"figure {spec.name!r} asks for condition {name!r}, which the study does not have")


def asked(run: Run, name: str) -> Request:
    """How the study asks for a figure."""
    specs = [spec for spec in run.study.figures if spec.name == name]
    return Request.of(specs[0]) if specs else Request()


def names_for(run: Run) -> list[str]:
    """The figures a run's study asks for, or all; none where there is no filler to look at."""
    chosen = list(dict.fromkeys(spec.name for spec in run.study.figures)) or list(FIGURES)
    return chosen if run.fillers else []


def draw_and_save(run: Run, name: str, request: Request | None = None, folder: Path | None = None) -> list[Path]:
    return save(draw(run, name, request), folder or run.path / "figures")


def _unknown(name: str) -> FigureError:
    return FigureError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
