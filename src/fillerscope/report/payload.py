"""Answers to what the page asks of a run, as JSON (`payload_types`) or packed numbers (`wire`).

The explorer sends them, the report holds some of them. Knows no server and no page. Layers and heads count from 1,
positions from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.answers import Answers, answers
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.findings.all import available_comparison, available_noise
from fillerscope.analysis.findings.noise import beyond_rounding, rounding
from fillerscope.analysis.findings.significance import drawing, significance
from fillerscope.analysis.flips import Flip as Changed
from fillerscope.analysis.flips import flips
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import Columns, activation_table, affine_table
from fillerscope.analysis.noise import Noise
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.run import Run
from fillerscope.analysis.twins import UNTRAINED, head_profiles
from fillerscope.errors import FigureError, StoreError
from fillerscope.figures.captions import data_name
from fillerscope.figures.condition_text import described, name_of
from fillerscope.report.packed_arrays import clean, pack
from fillerscope.report.panel_types import LinePanel, Region, Scale
from fillerscope.report.panels import histogram, layer_panels, regions
from fillerscope.report.payload_types import (
    Answer,
    Comparison,
    ComparisonRow,
    Condition,
    Flip,
    Flips,
    MapHeader,
    Metric,
    Model,
    NoiseRow,
    Overview,
    ProfileHeader,
    Side,
    Tokens,
    Transcripts,
)
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import Part, fitted
from fillerscope.store.schema import MOMENTS, AnsweredProblem
from fillerscope.study.study import QUERIES
from fillerscope.study.token_classes import ALL

Floats = NDArray[np.floating]
PAGE = 50  # answers sent at once
METRICS: dict[str, tuple[str, Scale]] = {  # what a map of heads can show: its label, and how its colours run
    "drop": ("Paired drop: received, ratio to none", "ratio"),
    "beyond": ("Beyond length: drop / length alone", "ratio"),
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
        "models": [_model(run, name) for name in run.models],
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


def _model(run: Run, name: str) -> Model:
    """Shape and counts of a model; zeros where nothing of it is stored yet."""
    try:
        records, (_, layers, heads) = run[name].records(), run.summary("entropy", "none", model=name).shape
    except (StoreError, FigureError):
        records, layers, heads = [], 0, 0
    measured = [record for record in records if record["status"] == "ok"]
    return {
        "name": name, "label": run.label(name), "layers": layers, "heads": heads, "measured": len(measured),
        "failed": len(records) - len(measured),
        "problems": [{"number": record["number"], "id": record["id"]} for record in measured],
    }  # fmt: skip


def _condition(run: Run, name: str) -> Condition:
    condition = run.condition(name)
    words = "the prompt as it is" if condition.is_baseline else f"{described([condition])}."
    return {"name": name, "label": name_of(run, name), "recipe": words, "filler": condition.has_filler}


def _metrics(run: Run) -> list[str]:
    if not (run.has_attention and run.fillers):
        return []
    inside = ("explained", "direction")
    left_out = {
        *(() if run.study.probes.affine else inside),
        *(() if run[None].same_odds() is not None else ("beyond",)),
    }
    return [name for name in METRICS if name not in left_out]


def _metric(run: Run, name: str) -> Metric:
    label, scale = METRICS[name]
    how = " fitted to outputs" if run.study.probes.affine else ", 1 - filler mass"
    return {"name": name, "label": label + (how if name == "lambda" else ""), "scale": scale}


def head_maps(run: Run, model: str, condition: str, queries: str) -> bytes:
    """Every metric of every head under a condition: value, low and high, each [layer, head]."""
    table = head_table(run[model], condition, queries)
    columns = {name: (one.value, one.low, one.high) for name, one in table.columns.items()}
    mass = columns["mass"]
    columns["lambda"] = (1.0 - mass[0], 1.0 - mass[2], 1.0 - mass[1])
    if run.study.probes.affine:
        affine = affine_table(run[model], condition).heads
        columns |= {"lambda": affine["lambda_fit"], "explained": affine["explained"], "direction": affine["direction"]}
    header: MapHeader = {"n": len(run[model].measured(queries)), "condition": condition, "queries": queries}
    return pack(header, {f"{name}/{part}": array for name, three in columns.items() for part, array in _parts(three)})


def _parts(three: tuple[Floats, ...]) -> zip[tuple[str, Floats]]:
    return zip(("value", "low", "high"), three, strict=True)


@dataclass(frozen=True)
class Place:
    """One head, or one layer, as it is looked at."""

    model: str
    layer: int
    head: int
    queries: str
    view: str

    @classmethod
    def of(cls, run: Run, asked: Mapping[str, str]) -> Place:
        """From what a page asks; a head that the model lacks is refused."""
        model = run.model(asked.get("model"))
        layers, heads = run.summary("entropy", "none", model=model).shape[1:]
        place = cls(model, int(asked["layer"]), int(asked.get("head", 1)), asked["queries"], asked["view"])
        if not (1 <= place.layer <= layers and 1 <= place.head <= heads):
            raise FigureError(
                f"there is no layer {place.layer} head {place.head}: {run.label(model)} has layers 1 to {layers} and "
                f"heads 1 to {heads}"
            )
        return place

    def header(self, profiles: Mapping[str, Profile]) -> ProfileHeader:
        """What is sent before the numbers of some profiles of the place."""
        reach = {name: profile.reach() for name, profile in profiles.items()}
        return {"layer": self.layer, "head": self.head, "queries": self.queries, "view": self.view, "reach": reach}


def head(run: Run, place: Place) -> bytes:
    """One head's profile under every condition that has the view."""
    at = (place.layer, place.head, place.queries, place.view)
    profiles = {name: run[place.model].head_profile(name, *at) for name in _viewed(run, place.view)}
    return packed_profiles(profiles, place.header(profiles), _twins(run, place))


def _twins(run: Run, place: Place) -> dict[str, Floats]:
    """Of untrained twins under the main condition: mean and range over all their heads of the layer."""
    if not run[place.model].twins() or place.view not in ("whole", "aligned") or place.queries not in QUERIES:
        return {}
    values = head_profiles(run[place.model], run.main, place.layer, place.queries, place.view)
    parts = {"mean": values.mean(0), "low": values.min(0), "high": values.max(0)}
    return {f"{UNTRAINED}/{name}": array for name, array in parts.items()}


def one_problem(run: Run, part: Part, place: Place, note: str) -> bytes:
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
    return packed_profiles(profiles, {**place.header(profiles), "note": note})


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


def whole_layer(run: Run, place: Place) -> bytes:
    """The means of all heads of a layer, [head, position] for every condition."""
    at = (place.layer, None, place.queries, place.view)
    profiles = {name: run[place.model].head_profile(name, *at) for name in _viewed(run, place.view)}
    return pack(place.header(profiles), {name: profile.mean[0] for name, profile in profiles.items()})


def _viewed(run: Run, view: str) -> list[str]:
    """The baseline has no difference to itself."""
    return run.fillers if view in ("difference", "logratio") else run.conditions


def tokens(run: Run, model: str) -> Tokens:
    """The text at each position, and where fillers stand."""
    texts: Tokens = {
        "aligned": list(run.tokens("none", model)),
        "whole": {name: list(run.tokens(name, model)) for name in run.conditions},
        "regions": cast("list[Region]", regions(run[model], run.conditions)),
    }
    return clean(texts)


def depth(run: Run, model: str, queries: str) -> list[LinePanel]:
    """Filler mass, lambda and drop by layer."""
    return _by_layer(run, "depth", [(name, depth_table(run[model], name, queries).columns()) for name in run.fillers])


def affine(run: Run, model: str) -> list[LinePanel]:
    """What the affine probe fitted, by layer."""
    return _by_layer(run, "affine", [(name, affine_table(run[model], name).columns()) for name in run.fillers])


def activations(run: Run, model: str, cls: str = ALL) -> list[LinePanel]:
    """Changes of MLP activations by layer, of one class of tokens."""
    tables = [(name, activation_table(run[model], name, cls).columns()) for name in run.fillers]
    return _by_layer(run, "activations", tables)


def _by_layer(run: Run, name: str, tables: list[tuple[str, Columns]]) -> list[LinePanel]:
    return cast("list[LinePanel]", layer_panels(run, name, tables))


def histogram_of(run: Run, model: str, layer: int, cls: str = ALL) -> LinePanel:
    """Bins of one layer under every condition, with the threshold that was frozen without filler."""
    calibration = run[model].calibration()
    layers = len(calibration["eps"])
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {run.label(model)} has layers 1 to {layers}")
    counts = {name: run[model].histogram(name, cls)[layer - 1].tolist() for name in run.conditions}
    panel = histogram(run, layer, calibration["edges"], counts)
    return cast("LinePanel", clean(panel | {"eps": calibration["eps"][layer - 1]}))


def comparison(run: Run, by: str | None = None) -> Comparison:
    """The comparison table, and the fields that it can be split by."""
    fields = sorted({key for problem in run.problems() for key in problem["meta"]})
    rows = rows_told(available_comparison(run) if not by else compare(run, by=by))
    return {"rows": rows, "fields": fields, "noise": [] if by else noise_told(run)}


def rows_told(rows: Sequence[Accuracy]) -> list[ComparisonRow]:
    """The rows of a comparison with the words to each."""
    words = [{"drawing": drawing(row), "verdict": significance(row.against) if row.against else ""} for row in rows]
    records = [row.record() | more for row, more in zip(rows, words, strict=True)]
    return cast("list[ComparisonRow]", clean(records))


def noise_told(run: Run) -> list[NoiseRow]:
    """The noise floor of every model that has one, with the words to each row."""
    rows = [row for model in run.models for row in available_noise(run[model])]
    records = [row.record() | {"drawing": drawing(row), "verdict": _judged(row)} for row in rows]
    return cast("list[NoiseRow]", clean(records))


def _judged(row: Noise) -> str:
    return rounding(row) if row.condition == "none" else beyond_rounding(row)


def flipped(run: Run, model: str, condition: str, against: str, temperature: float | None) -> Flips:
    """The problems whose verdict changed, at one temperature or the study's first."""
    changed = [_flip(one) for one in flips(run[model], condition, against, temperature)]
    answer: Flips = {"condition": condition, "against": against, "flips": changed}
    return clean(answer)


def _flip(flip: Changed) -> Flip:
    before, after = (cast("Side", side) for side in (flip.before, flip.after))
    return {
        "id": flip.id, "sample": flip.sample, "direction": "gained" if flip.direction == "gained" else "lost",
        "question": flip.question, "reference": flip.reference, "before": before, "after": after,
    }  # fmt: skip


def transcripts(run: Run, model: str, wanted: Mapping[str, str], start: int = 0) -> Transcripts:
    """Some answers at a time: of a condition, of a verdict, with a text in question, answer, reference or id."""
    if start < 0:
        raise FigureError(f"answers are counted from 0, not from {start}")
    temperature = float(wanted["temperature"]) if wanted.get("temperature") else None
    every = _transcripts(answers(run[model], temperature), run.problems())
    rows = [row for row in every if _matches(row, wanted)]
    answer: Transcripts = {"total": len(rows), "start": start, "answers": rows[start : start + PAGE]}
    return clean(answer)


def _transcripts(every: Answers, problems: Sequence[AnsweredProblem]) -> Iterator[Answer]:
    """Every answer, condition by condition. Problems are taken by number, because ids need not differ."""
    for place, name in enumerate(every.conditions):
        columns = {key: array[:, place] for key, array in every.fields.items()}
        for problem, sample in np.ndindex(columns["id"].shape):
            side = cast("Side", {key: array[problem, sample] for key, array in columns.items()})
            question, reference = problems[problem]["question"], problems[problem]["answer"]
            yield {**side, "condition": name, "sample": sample + 1, "question": question, "reference": reference}


def _matches(row: Answer, wanted: Mapping[str, str]) -> bool:
    if wanted.get("condition") not in (None, "", row["condition"]):
        return False
    if wanted.get("verdict") not in (None, "", row["verdict"]):
        return False
    needle = wanted.get("text", "").casefold()
    return any(needle in text.casefold() for text in (row["text"], row["question"], row["reference"], row["id"]))
