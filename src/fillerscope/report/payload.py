"""Answers to what the page asks of a run, as JSON (`payload_types`) or packed numbers (`wire`).

Attention and activations; answers are in `answer_payload`. Knows no server and no page. Layers and heads count from 1,
positions from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import Columns, activation_table, affine_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.run import Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.analysis.twins import UNTRAINED, head_profiles
from fillerscope.errors import FigureError, StoreError
from fillerscope.figures.captions import data_name
from fillerscope.figures.condition_text import described
from fillerscope.prompts.prompt import QUESTION
from fillerscope.report.packed_arrays import clean, pack
from fillerscope.report.panel_types import LinePanel, Region, Scale
from fillerscope.report.panels import histogram, layer_panels, named_look, regions, twin_rows
from fillerscope.report.payload_types import (
    Condition,
    MapHeader,
    Metric,
    Model,
    Overview,
    ProblemName,
    ProfileHeader,
    Tokens,
)
from fillerscope.store.array_file import Part, fitted
from fillerscope.store.layouts import prompt_tokens
from fillerscope.store.moments import Moments
from fillerscope.store.schema import MOMENTS, ProblemRecord
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import QUERIES
from fillerscope.study.token_classes import ALL

Floats = NDArray[np.floating]
LINE = 90  # characters of a question in a list
LISTED = 1000  # problems; others are asked for by their number
# What a map of heads can show, the first that is known by default: its label, and how its colours run. A drop alone
# says little, because any longer prompt gives one.
METRICS: dict[str, tuple[str, Scale]] = {
    "beyond": ("Beyond length: drop / length alone", "ratio"),
    "beyond_uniform": ("Beyond length: drop / that of uniform attention", "ratio"),
    "drop": ("Paired drop: received, ratio to none", "ratio"),
    "mass": ("Filler mass: share of attention", "share"),
    "lambda": ("Lambda", "lambda"),
    "peak": ("Peak, ratio to none", "ratio"),
    "entropy": ("Entropy, difference in nats", "difference"),
    "explained": ("Explained by lambda and bias", "share"),
    "direction": ("One direction of the bias", "share"),
}


def overview(run: Run) -> Overview:
    """What the page must know before it asks for numbers."""
    probes = run.study.probes
    known: Overview = {
        "name": run.study.name, "folder": run.path.resolve().name, "data": data_name(run.study), "main": _main(run),
        "models": [_model(one) for one in run.model_runs],
        "conditions": [_condition(run, name) for name in run.conditions],
        "queries": list(run.queries) if run.has_attention else [],
        "skip_first": bool(probes.attention and probes.attention.skip_first),
        "metrics": [_metric(run, name) for name in _metrics(run)],
        "has": {
            "attention": run.has_attention, "answers": run.has_answers, "affine": probes.affine,
            "activations": probes.activations is not None, "answering": probes.answering,
        },
        "classes": list(run.classes) if probes.activations else [],
        "temperatures": list(run.study.generation.temperature) if run.study.generation else [],
    }  # fmt: skip
    return clean(known)


def _main(run: Run) -> str | None:
    return run.main if run.fillers else None


def _model(run: ModelRun) -> Model:
    """Shape and counts of a model; zeros where nothing of it is stored yet."""
    try:
        records, (_, layers, heads) = run.records(), run.summary("entropy", BASELINE).shape
    except (StoreError, FigureError):
        records, layers, heads = [], 0, 0
    measured = [record for record in records if record["status"] == "ok"]
    return {
        "name": run.name, "label": run.label, "layers": layers, "heads": heads, "measured": len(measured),
        "failed": len(records) - len(measured),
        "problems": [_problem(record) for record in measured[:LISTED]],
    }  # fmt: skip


def _problem(record: ProblemRecord) -> ProblemName:
    """A problem as a list shows it: its id, and its question as far as that fits into a line."""
    texts = zip(record["tokens"], record["prompts"][BASELINE]["spans"], strict=True)
    question = "".join(text for text, span in texts if span == QUESTION)
    return {"number": record["number"], "id": record["id"], "question": shorten(question, LINE, placeholder=" \u2026")}


def _condition(run: Run, name: str) -> Condition:
    condition = run.condition(name)
    words = "the prompt as it is" if condition.is_baseline else f"{described([condition])}."
    look = named_look(run, name)
    return {
        "name": name, "label": look["label"], "recipe": words, "filler": condition.has_filler,
        "style": look["style"], "dash": look["dash"],
    }  # fmt: skip


def _metrics(run: Run) -> list[str]:
    if not (run.has_attention and run.fillers):
        return []
    has_odds, has_twins = run[None].same_odds() is not None, bool(run.study.references.twin)
    left_out = {
        *(() if run.study.probes.affine else ("explained", "direction")),
        *(() if has_odds else ("beyond",)),
        *(() if has_twins and not has_odds else ("beyond_uniform",)),
    }
    return [name for name in METRICS if name not in left_out]


def _metric(run: Run, name: str) -> Metric:
    label, scale = METRICS[name]
    how = " fitted to outputs" if run.study.probes.affine else ", 1 - filler mass"
    return {"name": name, "label": label + (how if name == "lambda" else ""), "scale": scale}


def head_maps(run: ModelRun, condition: str, queries: str) -> bytes:
    """Every metric of every head under a condition: value, low and high, each [layer, head]."""
    table = head_table(run, condition, queries)
    columns = {name: (one.value, one.low, one.high) for name, one in table.columns.items()}
    mass = columns["mass"]
    columns["lambda"] = (1.0 - mass[0], 1.0 - mass[2], 1.0 - mass[1])
    if run.study.probes.affine:
        affine = affine_table(run, condition).heads
        columns |= {"lambda": affine["lambda_fit"], "explained": affine["explained"], "direction": affine["direction"]}
    header: MapHeader = {"n": len(run.measured(queries)), "condition": condition, "queries": queries}
    return pack(header, {f"{name}/{part}": array for name, three in columns.items() for part, array in _parts(three)})


def _parts(three: tuple[Floats, ...]) -> zip[tuple[str, Floats]]:
    return zip(("value", "low", "high"), three, strict=True)


@dataclass(frozen=True)
class Place:
    """One head, or one layer, as it is looked at."""

    layer: int
    head: int
    queries: str
    view: str

    @classmethod
    def of(cls, run: ModelRun, asked: Mapping[str, str]) -> Place:
        """From what a page asks; a head that the model lacks is refused."""
        layers, heads = run.summary("entropy", BASELINE).shape[1:]
        place = cls(int(asked["layer"]), int(asked.get("head", 1)), asked["queries"], asked["view"])
        if not (1 <= place.layer <= layers and 1 <= place.head <= heads):
            raise FigureError(
                f"there is no layer {place.layer} head {place.head}: {run.label} has layers 1 to {layers} and "
                f"heads 1 to {heads}"
            )
        return place

    def header(self, profiles: Mapping[str, Profile]) -> ProfileHeader:
        """What is sent before the numbers of some profiles of the place."""
        reach = {name: profile.reach() for name, profile in profiles.items()}
        return {"layer": self.layer, "head": self.head, "queries": self.queries, "view": self.view, "reach": reach}


def head(run: ModelRun, place: Place) -> bytes:
    """One head's profile under every condition that has the view."""
    at = (place.layer, place.head, place.queries, place.view)
    profiles = {name: run.head_profile(name, *at) for name in _viewed(run, place.view)}
    return packed_profiles(profiles, place.header(profiles), _twins(run, place))


def _twins(run: ModelRun, place: Place) -> dict[str, Floats]:
    """Of untrained twins under the main condition: mean and range over all their heads of the layer."""
    if not run.twins() or place.view not in ("whole", "aligned") or place.queries not in QUERIES:
        return {}
    values = head_profiles(run, run.main, place.layer, place.queries, place.view)
    parts = {"mean": values.mean(0), "low": values.min(0), "high": values.max(0)}
    return {f"{UNTRAINED}/{name}": array for name, array in parts.items()}


def one_problem(run: ModelRun, part: Part, place: Place, note: str) -> bytes:
    """The same of a problem that was measured alone: `part` is a shard of it."""
    row = QUERIES.index(place.queries) if place.queries in QUERIES else -1
    if row < 0:
        raise FigureError("a problem is measured again without its answer: choose other queries than the answer's")
    profiles = {}
    for name in _viewed(run, place.view):
        arrays = [np.asarray(part.arrays[f"{name}/{place.view}/{key}"]) for key in MOMENTS]
        index = (row, slice(place.layer - 1, place.layer), slice(place.head - 1, place.head))
        moments = Moments(*(array[fitted(index, array.shape)] for array in arrays))
        profiles[name] = Profile(name, moments, 1)
    header: ProfileHeader = {**place.header(profiles), "note": note, "tokens": _own_tokens(part.records[0], place.view)}
    return packed_profiles(profiles, header)


def _own_tokens(record: ProblemRecord, view: str) -> dict[str, list[str]]:
    """The problem's own tokens by condition, filler as a dot; without filler alone where positions are aligned."""
    names = record["prompts"] if view == "whole" else [BASELINE]
    return {name: prompt_tokens(record, name) for name in names}


def packed_profiles(
    profiles: Mapping[str, Profile], header: ProfileHeader, more: Mapping[str, Floats] | None = None
) -> bytes:
    """Count, mean, interval and standard deviation of each profile's one head, behind `more`."""
    arrays: dict[str, NDArray[np.generic]] = dict(more or {})
    for name, profile in profiles.items():
        low, high = profile.interval()
        parts = {"n": profile.count, "mean": profile.mean, "low": low, "high": high, "sd": profile.sd}
        arrays |= {f"{name}/{key}": array[0, 0] for key, array in parts.items()}
    return pack(header, arrays)


def whole_layer(run: ModelRun, place: Place) -> bytes:
    """The means of all heads of a layer, [head, position] for every condition."""
    at = (place.layer, None, place.queries, place.view)
    profiles = {name: run.head_profile(name, *at) for name in _viewed(run, place.view)}
    return pack(place.header(profiles), {name: profile.mean[0] for name, profile in profiles.items()})


def _viewed(run: StoredRun, view: str) -> list[str]:
    """The baseline has no difference to itself."""
    return run.fillers if view in ("difference", "logratio") else run.conditions


def tokens(run: ModelRun) -> Tokens:
    """The text at each position, and where fillers stand."""
    texts: Tokens = {
        "aligned": list(run.tokens(BASELINE)),
        "whole": {name: list(run.tokens(name)) for name in run.conditions},
        "regions": cast("list[Region]", regions(run, run.conditions)),
    }
    return clean(texts)


def depth(run: ModelRun, queries: str) -> list[LinePanel]:
    """Filler mass, lambda and drop by layer."""
    return _by_layer(run, "depth", lambda one, name: depth_table(one, name, queries).columns())


def affine(run: ModelRun) -> list[LinePanel]:
    """What the affine probe fitted, by layer."""
    return _by_layer(run, "affine", lambda one, name: affine_table(one, name).columns())


def activations(run: ModelRun, cls: str = ALL) -> list[LinePanel]:
    """Changes of MLP activations by layer, of one class of tokens."""
    return _by_layer(run, "activations", lambda one, name: activation_table(one, name, cls).columns())


def _by_layer(run: ModelRun, name: str, table: Callable[[ModelRun, str], Columns]) -> list[LinePanel]:
    """The panels of a figure by layer under every condition; behind them untrained twins under the main one."""
    tables = [(condition, table(run, condition)) for condition in run.fillers]
    twins = [table(twin, run.main) for twin in run.twins()] if run.fillers else []
    return cast("list[LinePanel]", layer_panels(run, name, [*twin_rows(twins), *tables]))


def histogram_of(run: ModelRun, layer: int, cls: str = ALL) -> LinePanel:
    """Bins of one layer under every condition, with the threshold that was frozen without filler."""
    calibration = run.calibration()
    layers = len(calibration["eps"])
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {run.label} has layers 1 to {layers}")
    counts = {name: run.histogram(name, cls)[layer - 1].tolist() for name in run.conditions}
    panel = histogram(run, layer, calibration["edges"], counts)
    return cast("LinePanel", clean(panel | {"eps": calibration["eps"][layer - 1]}))
