"""What a figure is asked to show, and the choices that all figures make alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.run import ANSWER, Region, Run
from fillerscope.errors import FigureError
from fillerscope.figures.condition_text import PLACES, recipe
from fillerscope.figures.style import Line
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.published import benchmark
from fillerscope.study.study import FigureSpec, Study


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
        """The one condition of a figure that compares it with none."""
        return self.fillers(run)[0] if self.conditions else run.main

    def fillers(self, run: Run) -> list[str]:
        if self.conditions and set(self.conditions) == {BASELINE}:
            raise FigureError("`none` is what the others are compared with; name a condition with filler")
        names = [name for name in self.conditions if name != BASELINE] or run.needed_fillers()
        return [run.condition(name).name for name in names]

    def skips_first(self, run: Run, index: int = 0) -> bool:
        if not self.skip_first:
            return run.attention.skip_first
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
    heads = table.shape[1]
    refuse_layer(run, layer, [one + 1 for one in run.attention_layers(model)], model)
    missing = [head for head in request.heads if not 1 <= head <= heads]
    if missing and request.strict:
        raise FigureError(f"there is no head {missing[0]}: {table.label} has heads 1 to {heads}")
    if request.heads and not missing:
        return Choice(request.heads[:wanted] if not request.strict else request.heads)
    best = tuple(sorted(head for _, head in table.ranked("drop", layer)[:wanted]))
    why = f"of the heads asked for, {', '.join(map(str, missing))} not in this model; " if missing else ""
    noun = "head" if wanted == 1 else "heads"
    return Choice(best, f"{why}{noun} chosen by the largest paired drop in layer {layer}")


def first_layers(run: Run, request: Request, model: str | None, wanted: int = 1) -> tuple[int, ...]:
    """The layers asked for; where none are, the first that have attention."""
    there = [layer + 1 for layer in run.attention_layers(model)]
    for layer in request.layers:
        refuse_layer(run, layer, there, model)
    return request.layers or tuple(there[:wanted])


def refuse_layer(run: Run, layer: int, there: Sequence[int], model: str | None) -> None:
    """One that is not there, or has no attention, as some of hybrid models."""
    layers = run.summary("entropy", BASELINE, model=model).shape[1]
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {run.label(run.model(model))} has layers 1 to {layers}")
    if layer not in there:
        listed = ", ".join(map(str, there))
        raise FigureError(f"layer {layer} of {run.label(run.model(model))} has no attention; these have it: {listed}")


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


@dataclass(frozen=True)
class Answered:
    """Accuracies for one way of drawing answers, the study's first."""

    rows: list[Accuracy]
    family: int  # comparisons that the p values are adjusted over
    drawn: str  # how the answers were drawn
    notes: tuple[str, ...]  # what a caption says of them

    @classmethod
    def of(cls, run: Run, models: Sequence[str]) -> Answered:
        table = compare(run, models)
        spec = run.study.generation
        assert spec is not None
        cells = spec.cells()
        temperature, samples = cells[0]
        drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}, {_count(samples, 'sample')}"
        several = f", the first of {len(cells)} ways in which answers were drawn" if len(cells) > 1 else ""
        accuracy = f"accuracy: share of right answers of at most {spec.max_tokens} tokens, {drawn}{several}"
        notes = accuracy, f"error bars: 95% interval, {'Wilson' if samples == 1 else 'problems resampled'}"
        rows = [row for row in table if (row.temperature, row.samples) == (temperature, samples)]
        family = sum(row.against is not None and np.isfinite(row.against.p) for row in table)
        return cls(rows, family, drawn, notes)

    def row(self, model: str, condition: str) -> Accuracy:
        return next(row for row in self.rows if (row.model, row.condition) == (model, condition))

    def count(self, *models: str) -> str:
        """How many problems the accuracies are over; failed answers may make it differ between conditions."""
        found = sorted({row.n for row in self.rows if row.model in models})
        return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"

    @property
    def test(self) -> str:
        test = "exact McNemar test" if self.rows[0].samples == 1 else "permutation test on the problems' means"
        return f"{test} against none on the same problems, adjusted by Holm over {_count(self.family, 'comparison')}"


def accuracy_record(row: Accuracy, **more: Any) -> dict[str, Any]:
    """What the CSV says of an accuracy."""
    kept = {key: value for key, value in row.record().items() if key not in ("label", "group")}
    return kept | {"model": row.label} | more


def swept(study: Study, along: str, names: Sequence[str] = ()) -> dict[str, list[Condition]]:
    """The cells of sweeps along `count` or `position`, a list for whatever else they have, by its name."""
    groups: dict[tuple[Any, ...], list[Condition]] = {}
    others = [key for key in ("sweep", "text", "count", "position") if key != along]
    for cell in study.conditions:
        if cell.sweep and (not names or cell.name in names):
            groups.setdefault(tuple(getattr(cell, key) for key in others), []).append(cell)
    lines = {key: cells for key, cells in groups.items() if len({getattr(cell, along) for cell in cells}) > 1}
    own = [i for i in range(len(others)) if len({key[i] for key in lines}) > 1]
    own = own[:1] if len({key[0] for key in lines}) == len(lines) else own  # the name of the sweep says it all
    return {
        ", ".join(_word(others[i], key[i]) for i in own) or cells[0].label or cells[0].sweep: cells
        for key, cells in lines.items()
    }


def _word(key: str, value: Any) -> str:
    return {"text": repr(value), "count": f"{value} tokens", "position": PLACES.get(value, "")}.get(key, str(value))


def caption(run: Run, conditions: list[str], queries: str, *more: str, models: list[str]) -> str:
    """What a reader must know to read the picture, in full sentences."""
    counts = [str(len(run.measured(model, queries))) for model in models]
    recipes = [recipe(name, [run.condition(name)]) for name in conditions if name != BASELINE]
    return " ".join([opening(run, models, counts), *recipes, attention_words(run, queries), *sentences(more)])


def opening(run: Run, models: Sequence[str], counts: Sequence[str]) -> str:
    """Models, data, and how many problems of each model."""
    labels = ", ".join(run.label(model) for model in models)
    return f"{labels}; {data_name(run.study)}, n = {', '.join(counts)} problems."


def attention_words(run: Run, queries: str) -> str:
    whose = "the tokens of the model's own answer" if queries == ANSWER else queries
    return f"Attention received, mean over queries: {whose}; diagonal {_yes(run.attention.diagonal)}."


def sentences(notes: Sequence[str]) -> list[str]:
    return [f"{text[0].upper()}{text[1:]}." for text in notes if text]


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


def data_name(study: Study) -> str:
    """A benchmark by its name, whatever the file is called."""
    source = study.problems.source
    if source == "builtin":
        return "built-in problems"
    return benchmark(source) or source.removeprefix("hub:").rsplit("/", 1)[-1]


def _yes(included: bool) -> str:
    return "included" if included else "left out"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
