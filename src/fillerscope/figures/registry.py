"""All figures by name. A new one is a module with `draw`, and a line here; a second where it shows no attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures import (
    activations,
    affine,
    answer_attention,
    arm,
    composite,
    depth,
    fillers,
    head_map,
    heads,
    layer_map,
    layers,
    length,
    position,
    token_classes,
)
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, save
from fillerscope.study.study import Study

FIGURES: dict[str, Callable[[Run, Request], Drawn]] = {
    "layers": layers.draw,
    "heads": heads.draw,
    "fillers": fillers.draw,
    "headmap": head_map.draw,
    "depth": depth.draw,
    "composite": composite.draw,
    "length": length.draw,
    "position": position.draw,
    "affine": affine.draw,
    "activations": activations.draw,
    "tokenclasses": token_classes.draw,
    "layermap": layer_map.draw,
    "lookback": answer_attention.draw,
    "arm": arm.draw,
}
# What a study lacks for a figure, in words, "" where it lacks nothing. All others need attention.
LACKS: dict[str, Callable[[Study], str]] = {
    "composite": composite.lacks,
    "length": length.lacks,
    "position": position.lacks,
    "affine": affine.lacks,
    "activations": activations.lacks,
    "tokenclasses": token_classes.lacks,
    "layermap": layer_map.lacks,
    "lookback": answer_attention.lacks,
    "arm": arm.lacks,
}


def draw(run: Run, name: str, request: Request | None = None) -> Drawn:
    """One figure. Without a request it is drawn as the run's study asks for it, or by its own defaults."""
    if name not in FIGURES:
        raise _unknown(name)
    return FIGURES[name](run, request or asked(run, name))


def check(study: Study) -> None:
    """Refuse figures that do not exist, or that the study gives no numbers for, before anything is measured."""
    for spec in study.figures:
        if spec.name not in FIGURES:
            raise _unknown(spec.name)
        for name in spec.conditions:
            if name not in [condition.name for condition in study.conditions]:
                raise FigureError(f"figure {spec.name!r} asks for condition {name!r}, which the study does not have")
        if reason := lacks(study, spec.name):
            raise FigureError(f"figure {spec.name!r} {reason}")


def lacks(study: Study, name: str) -> str:
    """Why a study of any outcome cannot have this figure; "" where it can."""
    return LACKS.get(name, _lacks_attention)(study)


def asked(run: Run, name: str) -> Request:
    """How the study asks for a figure."""
    specs = [spec for spec in run.study.figures if spec.name == name]
    return Request.of(specs[0]) if specs else Request()


def names_for(run: Run) -> list[str]:
    """The figures a run's study asks for, or all that it has numbers for; none where there is no filler."""
    asked_for = list(dict.fromkeys(spec.name for spec in run.study.figures))
    chosen = asked_for or [name for name in FIGURES if not lacks(run.study, name)]
    return chosen if run.fillers else []


def draw_and_save(run: Run, name: str, request: Request | None = None, folder: Path | None = None) -> list[Path]:
    return save(draw(run, name, request), folder or run.path / "figures")


def _lacks_attention(study: Study) -> str:
    return "" if study.probes.attention else "shows attention: leave `probes.attention` on in the study"


def _unknown(name: str) -> FigureError:
    return FigureError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
