"""The figures of a run for its report: panels to play with, the print version, and the numbers behind both."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fillerscope.analysis.run import Run
from fillerscope.figures.registry import FIGURES, asked, draw, names_for
from fillerscope.figures.saved import SavedFigure
from fillerscope.figures.style import Drawn, save, styled
from fillerscope.report.panels import Panel, panels

SCREEN = 144  # dots per inch


@dataclass(frozen=True)
class Picture:
    """One figure: `files` by their endings (pdf, svg, csv), and a PNG to look at, smaller than the one for print."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    preview: bytes
    files: dict[str, bytes]


def pictures(
    run: Run, tell: Callable[[int, int], None], ready: Mapping[str, SavedFigure] | None = None
) -> tuple[list[Picture], dict[str, str]]:
    """All figures that the run allows, and why others were not drawn. `tell` gets how many of how many are done.

    `ready` are figures that were drawn already as the study asks for them, by name."""
    wanted = _wanted(run)
    drawn, missed = [], {}
    for number, (name, model) in enumerate(wanted):
        tell(number, len(wanted))
        try:
            drawn.append(_picture(run, name, model, (ready or {}).get(name)))
        except Exception as error:  # what one figure cannot do must not cost the others
            missed[name if model is None else f"{name}, {run.label(model)}"] = str(error)
    return drawn, missed


def _wanted(run: Run) -> list[tuple[str, str | None]]:
    """Figures of one model are drawn for each."""
    wanted: list[tuple[str, str | None]] = []
    for name in names_for(run):
        together = FIGURES[name].shows_all_models or len(run.models) == 1
        wanted += [(name, None)] if together else [(name, model) for model in run.models]
    return wanted


def _picture(run: Run, name: str, model: str | None, ready: SavedFigure | None) -> Picture:
    if ready is not None and ready.drawn is not None and model is None:
        drawn, files = ready.drawn, _contents(ready.paths)
    else:
        request = asked(run, name)
        drawn = draw(run, name, request if model is None else request.but(models=(model,)))
        with TemporaryDirectory(prefix="fillerscope-") as folder:
            files = _contents(save(drawn, Path(folder)))
    own = name if model is None else f"{name}-{run.models.index(model) + 1}"
    title = FIGURES[name].title + ("" if model is None else f": {run.label(model)}")
    return Picture(own, title, drawn.caption, panels(run, drawn), _preview(drawn), files)


def _contents(paths: Sequence[Path]) -> dict[str, bytes]:
    """The files that a report holds, by their endings."""
    return {path.suffix[1:]: path.read_bytes() for path in paths if path.suffix in (".pdf", ".svg", ".csv")}


def _preview(drawn: Drawn) -> bytes:
    data = io.BytesIO()
    with styled():
        drawn.figure.savefig(data, format="png", dpi=SCREEN)
    return data.getvalue()
