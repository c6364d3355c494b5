"""The words under a figure: what a reader must know to read the picture, in full sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fillerscope.analysis.model_run import ModelRun, Region
from fillerscope.analysis.stored_run import ANSWER, StoredRun
from fillerscope.figures.condition_text import name_of, recipe
from fillerscope.figures.request import Request
from fillerscope.figures.style import is_clipped
from fillerscope.study.conditions import BASELINE
from fillerscope.study.published import benchmark
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def caption(runs: Sequence[ModelRun], conditions: list[str], queries: str, *more: str) -> str:
    """What a reader must know to read the picture, in full sentences."""
    counts = [str(len(run.measured(queries))) for run in runs]
    return " ".join(
        [opening(runs, counts), *recipes(runs[0], conditions), attention_words(runs[0], queries), *sentences(more)]
    )


def recipes(run: StoredRun, conditions: Sequence[str]) -> list[str]:
    """A sentence on each condition, by the name that it has in the legend."""
    return [recipe(name_of(run, name), [run.condition(name)]) for name in conditions if name != BASELINE]


def opening(runs: Sequence[ModelRun], counts: Sequence[str]) -> str:
    """Models, data, and how many problems of each model."""
    labels = ", ".join(run.label for run in runs)
    return f"{labels}; {data_name(runs[0].study)}, n = {', '.join(counts)} problems."


def attention_words(run: StoredRun, queries: str) -> str:
    whose = "the tokens of the model's own answer" if queries == ANSWER else queries
    return f"Attention received, mean over queries: {whose}; diagonal {_yes(run.attention.diagonal)}."


def sentences(notes: Sequence[str]) -> list[str]:
    return [f"{text[0].upper()}{text[1:]}." for text in notes if text]


def band_note(request: Request) -> str:
    return "bands: 95% interval over problems" if request.band == "interval" else "bands: standard deviation"


def clip_note(axes: Iterable[Axes]) -> str:
    """What is said where a band reaches beyond its frame: axes follow the means."""
    return "axes follow the means; what of a band is beyond the frame is cut off" if any(map(is_clipped, axes)) else ""


def first_note(skipped: list[bool]) -> str:
    if all(skipped):
        return "first token left out"
    return "first token left out where the line starts at 1" if any(skipped) else "first token shown"


def reach_note(request: Request) -> str:
    return f"lines end where fewer than {request.share:.0%} of the problems have the position"


def region_note(panels: Sequence[Sequence[Region]]) -> str:
    """On the regions that each panel marks."""
    several = any(len(set(regions)) > 1 for regions in panels)
    moving = any(not region.fixed for regions in panels for region in regions)
    bars = "bars at the top: where each filler stands, in the colour of its line" if several else ""
    median = "where the place of the filler differs between problems, its median is marked" if moving else ""
    return "; ".join(filter(None, (bars, median)))


def data_name(study: Study) -> str:
    """A benchmark by its name, whatever the file is called."""
    source = study.problems.source
    if source == "builtin":
        return "built-in problems"
    return benchmark(source) or source.removeprefix("hub:").rsplit("/", 1)[-1]


def _yes(included: bool) -> str:
    return "included" if included else "left out"
