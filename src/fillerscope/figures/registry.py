"""All figures by name. A new one is a module with its `FIGURE`, and a line in the list here."""

from __future__ import annotations

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
from fillerscope.figures.figure import Figure
from fillerscope.figures.request import Request
from fillerscope.figures.saved import SavedFigure, refuse_others, save_stamped, saved_before, stamp_of
from fillerscope.figures.style import Drawn
from fillerscope.study.study import Study

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        layers.FIGURE,
        heads.FIGURE,
        fillers.FIGURE,
        head_map.FIGURE,
        depth.FIGURE,
        composite.FIGURE,
        length.FIGURE,
        position.FIGURE,
        affine.FIGURE,
        activations.FIGURE,
        token_classes.FIGURE,
        layer_map.FIGURE,
        answer_attention.FIGURE,
        arm.FIGURE,
    )
}


def draw(run: Run, name: str, request: Request | None = None) -> Drawn:
    """Draw one figure. Without a request it is drawn as the run's study asks for it, or by its own defaults."""
    if name not in FIGURES:
        raise _unknown(name)
    return FIGURES[name].draw(run, request or asked(run, name))


def check(study: Study) -> None:
    """Refuse figures that do not exist, or that the study gives no numbers for, before anything is measured."""
    for spec in study.figures:
        if spec.name not in FIGURES:
            raise _unknown(spec.name)
        for name in spec.conditions:
            if name not in [condition.name for condition in study.conditions]:
                raise FigureError(f"figure {spec.name!r} asks for condition {name!r}, which the study does not have")
        if reason := FIGURES[spec.name].lacks(study):
            raise FigureError(f"figure {spec.name!r} {reason}")


def asked(run: Run, name: str) -> Request:
    """How the study asks for a figure."""
    specs = [spec for spec in run.study.figures if spec.name == name]
    return Request.of(specs[0]) if specs else Request()


def names_for(run: Run) -> list[str]:
    """The figures a run's study asks for, or all that it has numbers for; none where there is no filler."""
    return names_of(run.study)


def names_of(study: Study) -> list[str]:
    """The figures that the run of a study will have."""
    asked_for = list(dict.fromkeys(spec.name for spec in study.figures))
    chosen = asked_for or [name for name, figure in FIGURES.items() if not figure.lacks(study)]
    return chosen if len(study.conditions) > 1 else []


def draw_and_save(
    run: Run, name: str, request: Request | None = None, folder: Path | None = None, force: bool = False
) -> list[Path]:
    """Draw a figure and write its files; gives their paths. Files that are not ours are replaced only by force."""
    if folder is not None and not force:
        refuse_others(folder, [name])
    return draw_stamped(run, name, request, folder).paths


def draw_stamped(run: Run, name: str, request: Request | None = None, folder: Path | None = None) -> SavedFigure:
    """Draw a figure and write its files, with a stamp by which `drawn_before` knows them."""
    request = request or asked(run, name)
    return save_stamped(draw(run, name, request), folder or run.store.folder("figures"), stamp_of(run, request))


def drawn_before(run: Run, name: str) -> SavedFigure | None:
    """A figure as the study asks for it, if the run's folder has it already, drawn from this very run by this code."""
    return saved_before(run.path / "figures", name, stamp_of(run, asked(run, name)))


def _unknown(name: str) -> FigureError:
    return FigureError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
