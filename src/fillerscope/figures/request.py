"""What a figure is asked to show, and the choices that all figures make alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fillerscope.analysis.heads import head_table
from fillerscope.analysis.profiles import Profile
from fillerscope.analysis.runs import Region, Run
from fillerscope.errors import FigureError
from fillerscope.figures.style import Line
from fillerscope.study import FigureSpec, Study

PLACES = {
    "start": "at the start",
    "before_question": "before the question",
    "end": "at the end",
    "random": "at random places",
}


@dataclass(frozen=True)
class Request:
    """Empty means the figure's own default. Layers and heads count from 1."""

    models: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    strict: bool = False  # a head that does not exist is an error, not a reason to choose another
    queries: str = ""
    skip_first: tuple[bool, ...] = ()
    band: str = "interval"  # or "sd"
    y_max: tuple[float, ...] = ()
    share: float = 0.5  # of the problems that must have a position for it to be shown

    @classmethod
    def of(cls, spec: FigureSpec) -> Request:
        return cls(
            conditions=spec.conditions, layers=spec.layers, heads=spec.heads, queries=spec.queries or "",
            skip_first=spec.skip_first, y_max=spec.y_max,
        )  # fmt: skip

    def but(self, **changes: Any) -> Request:
        """A copy in which everything that was given (not empty) replaces what was there."""
        return replace(self, **{key: value for key, value in changes.items() if value not in ((), "", None)})

    def filler(self, run: Run) -> str:
        """The one filler condition of a figure that compares it with none."""
        return self.fillers(run)[0]

    def fillers(self, run: Run) -> list[str]:
        if self.conditions and set(self.conditions) == {"none"}:
            raise FigureError("`none` is what the others are compared with; name a condition with filler")
        names = [name for name in self.conditions if name != "none"] or run.needed_fillers()
        return [run.condition(name).name for name in names]

    def skips_first(self, run: Run, index: int = 0) -> bool:
        if not self.skip_first:
            return run.study.probes.attention.skip_first
        return self.skip_first[index if index < len(self.skip_first) else 0]

    def limit(self, index: int) -> float | None:
        return self.y_max[index] if index < len(self.y_max) else None


@dataclass(frozen=True)
class Choice:
    """The heads that a figure shows, and a word on it where they are not the ones asked for."""

    heads: tuple[int, ...]
    note: str = ""


def choose_heads(
    run: Run, request: Request, layer: int, wanted: int, condition: str, queries: str, model: str | None = None
) -> Choice:
    """The heads asked for; where there are none, or they do not exist, those with the largest paired drop."""
    table = head_table(run, condition, queries, model)
    layers, heads = table.shape
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {table.label} has layers 1 to {layers}")
    missing = [head for head in request.heads if not 1 <= head <= heads]
    if missing and request.strict:
        raise FigureError(f"there is no head {missing[0]}: {table.label} has heads 1 to {heads}")
    if request.heads and not missing:
        return Choice(request.heads[:wanted] if not request.strict else request.heads)
    best = tuple(sorted(head for _, head in table.ranked("drop", layer)[:wanted]))
    why = f"of the heads asked for, {', '.join(map(str, missing))} not in this model; " if missing else ""
    noun = "head" if wanted == 1 else "heads"
    return Choice(best, f"{why}{noun} chosen by the largest paired drop in layer {layer}")


def line_of(
    profile: Profile, layer: int, head: int, label: str, colour: str, dash: Any, request: Request,
    skip_first: bool, end: int, keys: dict[str, Any],
) -> Line:  # fmt: skip
    """One head of a profile as a curve, from the first position shown to the last that enough problems have."""
    one = profile.head(layer, head)
    stop = min(end + 1, one.reach(request.share))
    shown = slice(1 if skip_first else 0, stop)
    mean, sd = one.mean[0, 0], one.sd[0, 0]
    low, high = (bound[0, 0] for bound in one.interval()) if request.band == "interval" else (mean - sd, mean + sd)
    x = np.arange(one.positions)[shown]
    keys = keys | {"layer": layer, "head": head}
    count = one.count[0, 0]
    return Line(label, colour, x, mean[shown], low[shown], high[shown], count[shown], dash, keys)


def caption(run: Run, conditions: list[str], queries: str, *more: str, models: list[str]) -> str:
    """What a reader must know to read the picture, in full sentences."""
    study = run.study
    labels = ", ".join(run.label(model) for model in models)
    n = ", ".join(str(len(run.measured(model))) for model in models)
    parts = [
        f"{labels}; {_data(study)}, n = {n} problems.",
        *[_condition(run, name) for name in conditions if name != "none"],
        f"Attention received, mean over queries: {queries}; diagonal {_yes(study.probes.attention.diagonal)}.",
        *[f"{text[0].upper()}{text[1:]}." for text in more if text],
    ]
    return " ".join(parts)


def band_note(request: Request) -> str:
    return "bands: 95% interval over problems" if request.band == "interval" else "bands: standard deviation"


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


def _data(study: Study) -> str:
    source = study.problems.source
    return "built-in problems" if source == "builtin" else source.removeprefix("hub:").rsplit("/", 1)[-1]


def _condition(run: Run, name: str) -> str:
    condition = run.condition(name)
    text = repr(condition.text if len(condition.text) <= 40 else condition.text[:37] + "...")
    what = {"repeat": f"{text} repeated", "sentence": "random sentences", "characters": "random characters"}
    count = f"{condition.count} tokens" if condition.count else "as it stands"
    return f"{name}: {what.get(condition.kind, text)}, {count}, {PLACES[condition.position]}."


def _yes(included: bool) -> str:
    return "included" if included else "left out"
