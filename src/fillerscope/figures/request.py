"""What a figure is asked to show, and the choices that all figures make alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fillerscope.analysis.heads import head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import FigureError
from fillerscope.figures.condition_text import PLACES
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import FigureSpec, Study
from fillerscope.study.sweeps import INSIDE


@dataclass(frozen=True)
class Request:
    """Empty means the figure's own default. Layers and heads count from 1."""

    models: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    usual: bool = False  # the heads are the figure's own, as published: nobody asked for them
    strict: bool = False  # a head that does not exist is an error, not a reason to choose another
    queries: str = ""
    skip_first: tuple[bool, ...] = ()
    band: str = "interval"  # or "sd"
    y_max: tuple[float, ...] = ()
    published: bool = False  # the colours of the published figures, where one was published
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

    def model_run(self, run: Run) -> ModelRun:
        """The run of the one model of a figure: the first asked for, or the first of all."""
        return run[self.models[0] if self.models else None]

    def filler(self, run: StoredRun) -> str:
        """The one condition of a figure that compares it with the baseline."""
        return self.fillers(run)[0] if self.conditions else run.main

    def fillers(self, run: StoredRun) -> list[str]:
        """The conditions asked for without the baseline; where none are, those of the run."""
        if self.conditions and set(self.conditions) == {BASELINE}:
            raise FigureError("`none` is what the others are compared with; name a condition with filler")
        names = [name for name in self.conditions if name != BASELINE] or run.needed_fillers()
        return [run.condition(name).name for name in names]

    def skips_first(self, run: StoredRun, index: int = 0) -> bool:
        if not self.skip_first:
            return run.attention.skip_first
        return self.skip_first[index if index < len(self.skip_first) else 0]

    def limit(self, index: int) -> float | None:
        return self.y_max[index] if index < len(self.y_max) else None


@dataclass(frozen=True)
class Layer:
    """A layer of a model, counted from 1, and the queries whose attention is looked at."""

    model: str
    number: int
    queries: str


@dataclass(frozen=True)
class Choice:
    """The heads that a figure shows, and a word on it where they are not the ones asked for."""

    heads: tuple[int, ...]
    note: str = ""


def choose_heads(run: Run, request: Request, layer: Layer, condition: str, wanted: int) -> Choice:
    """The heads asked for; where there are none, or they do not exist, those with the largest paired drop."""
    table = head_table(run[layer.model], condition, layer.queries)
    heads = table.shape[1]
    refuse_layer(run[layer.model], layer.number)
    missing = [head for head in request.heads if not 1 <= head <= heads]
    if missing and request.strict:
        raise FigureError(f"there is no head {missing[0]}: {table.label} has heads 1 to {heads}")
    if request.heads and not missing:
        return Choice(request.heads[:wanted] if not request.strict else request.heads)
    best = tuple(sorted(head for _, head in table.ranked("drop", layer.number)[:wanted]))
    why = f"{_missing(missing, request.usual)}; " if missing else ""
    noun = "head" if wanted == 1 else "heads"
    return Choice(best, f"{why}{noun} chosen by the largest paired drop in layer {layer.number}")


def _missing(heads: Sequence[int], usual: bool) -> str:
    """That a model has fewer heads: than somebody asked for, or than the published figure has."""
    numbers = ", ".join(map(str, heads))
    if not usual:
        return f"of the heads asked for, {numbers} not in this model"
    return f"the published head{'s' * (len(heads) > 1)} {numbers} {'are' if len(heads) > 1 else 'is'} not in this model"


def first_layers(run: ModelRun, request: Request, wanted: int = 1) -> tuple[int, ...]:
    """The layers asked for; where none are, the first that have attention."""
    for layer in request.layers:
        refuse_layer(run, layer)
    return request.layers or tuple(layer + 1 for layer in run.attention_layers()[:wanted])


def refuse_layer(run: ModelRun, layer: int) -> None:
    """Raise an error for a layer that does not exist or, as some of hybrid models, has no attention."""
    attending = [one + 1 for one in run.attention_layers()]
    layers = run.summary("entropy", BASELINE).shape[1]
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {run.label} has layers 1 to {layers}")
    if layer not in attending:
        listed = ", ".join(map(str, attending))
        raise FigureError(f"layer {layer} of {run.label} has no attention; these have it: {listed}")


def swept(study: Study, along: str, names: Sequence[str] = ()) -> dict[str, list[Condition]]:
    """The cells of sweeps along `count` or `position`, a list for whatever else they have, by its name."""
    groups: dict[tuple[object, ...], list[Condition]] = {}
    others = [key for key in ("sweep", "text", "count", "position", "intervention") if key != along]
    for cell in study.conditions:
        if cell.sweep and (not names or cell.name in names):
            groups.setdefault(tuple(getattr(cell, key) for key in others), []).append(cell)
    lines = {key: cells for key, cells in groups.items() if len({getattr(cell, along) for cell in cells}) > 1}
    own = [i for i in range(len(others)) if len({key[i] for key in lines}) > 1]
    own = own[:1] if len({key[0] for key in lines}) == len(lines) else own  # the name of the sweep says it all
    changes = [key for key in INSIDE if len({getattr(one[-1], key, None) for one in lines}) > 1]
    return {
        ", ".join(setting_word(others[i], key[i], changes) for i in own) or cells[0].label or cells[0].sweep: cells
        for key, cells in lines.items()
    }


def setting_word(key: str, value: object, changes: Sequence[str] = ()) -> str:
    """A setting of a condition in a word; of an intervention, those of its own settings that differ."""
    if key == "intervention":
        own = [f"{change} {_shown(getattr(value, change))}" for change in changes if hasattr(value, change)]
        return ", ".join(own) or str(getattr(value, "kind", "no intervention"))
    words = {"text": repr(value), "count": f"{value} tokens", "position": PLACES.get(str(value), "")}
    return words.get(key, str(value))


def _shown(value: object) -> str:
    """A setting of an intervention; of layers, all of them."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
