"""All figures by name. A new one is a module with `draw`, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fillerscope.analysis.runs import Run
from fillerscope.errors import FigureError
from fillerscope.figures import depth, fillers, headmap, heads, layers
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, save

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
        raise FigureError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    return FIGURES[name](run, request or asked(run, name))


def asked(run: Run, name: str) -> Request:
    """How the study asks for a figure."""
    specs = [spec for spec in run.study.figures if spec.name == name]
    return Request.of(specs[0]) if specs else Request()


def names_for(run: Run) -> list[str]:
    """The figures a run's study asks for, or all."""
    return [spec.name for spec in run.study.figures] or list(FIGURES)


def draw_and_save(run: Run, name: str, request: Request | None = None, folder: Path | None = None) -> list[Path]:
    return save(draw(run, name, request), folder or run.path / "figures")
