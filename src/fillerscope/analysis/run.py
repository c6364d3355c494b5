"""A run folder opened for reading: names in, arrays out. Needs neither torch nor the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answer_tables import AnswerTables, unfinished
from fillerscope.analysis.profile import Profile
from fillerscope.errors import FigureError, StoreError
from fillerscope.prompts.prompt import FILLER
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import (
    ACTIVATION_METRICS,
    AFFINE_METRICS,
    METRICS,
    PAIRED_VIEWS,
    SINK_MASS,
    VIEWS,
    Array,
    Columns,
    ModelFacts,
    ProblemRecord,
    Quantity,
    answer_attention_name,
    merged_name,
)
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.generation import NoiseSpec
from fillerscope.study.study import QUERIES, AttentionProbe, Study
from fillerscope.study.token_classes import ALL, class_names

ANSWER = "answer"  # the queries are the rows of the model's own answer
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """Where the filler stands in the whole prompt; `fixed` when it is the same for every problem."""

    start: int
    stop: int
    fixed: bool


class Run:
    """A finished run, or, where `partial`, as much of one as is there. `open_run` and `open_growing` give one."""

    def __init__(self, store: RunStore, partial: bool = False) -> None:
        self.store, self.partial = store, partial
        self._part = cache(self._read)
        self._tokens = cache(self._read_tokens)

    @property
    def path(self) -> Path:
        return self.store.path

    @cached_property
    def study(self) -> Study:
        try:
            return Study.model_validate(self.store.study)
        except ValueError:
            raise StoreError(f"{self.path / 'study.json'} does not hold a study; run the study again") from None

    @property
    def models(self) -> list[str]:
        return [spec.name for spec in self.study.models]

    def twins(self, model: str | None = None) -> list[str]:
        """A model's untrained twins, to be named where a model is: all of them, or none yet in a run that goes on."""
        name = self.model(model)
        own = self.study.twins(name) if name in self.models else []
        missing = [twin for twin in own if not self.store.has(merged_name(twin))]
        if missing and not self.partial:
            raise unfinished(self.store, missing[0], "attention", self.partial)
        return [] if missing else own

    @property
    def conditions(self) -> list[str]:
        return [condition.name for condition in self.study.conditions]

    @property
    def fillers(self) -> list[str]:
        """The conditions that are not the baseline."""
        return [name for name in self.conditions if name != BASELINE]

    def needed_fillers(self) -> list[str]:
        """The same, for whatever is about nothing else."""
        if not self.fillers:
            raise FigureError("this run has no condition with filler; add one to the study, such as mless")
        return self.fillers

    @property
    def main(self) -> str:
        """What is spoken of first: the first filler with nothing done inside the model, else the first condition."""
        found = self.needed_fillers()
        plain = [name for name in found if self.condition(name).has_filler and not self.condition(name).intervention]
        return (plain or found)[0]

    def condition(self, name: str) -> Condition:
        for condition in self.study.conditions:
            if condition.name == name:
                return condition
        raise FigureError(f"this run has no condition {name!r}; it has {', '.join(self.conditions)}")

    def facts(self, model: str | None = None) -> ModelFacts:
        """What was noted about a model when it was measured: label, template, self-check."""
        return self.store.manifest.get("models", {}).get(self.model(model), {})

    def label(self, model: str | None = None) -> str:
        return str(self.facts(model).get("label") or self.model(model))

    def model(self, name: str | None = None) -> str:
        if name is None:
            return self.models[0]
        if name not in self.models and not any(name in self.study.twins(model) for model in self.models):
            raise FigureError(f"this run has no model {name!r}; it has {', '.join(self.models)}")
        return name

    @property
    def has_attention(self) -> bool:
        return self.study.probes.attention is not None

    @property
    def has_answers(self) -> bool:
        return self.study.generation is not None

    @property
    def noise(self) -> NoiseSpec | None:
        """How prompts without filler were answered a second time, where they were."""
        return self.study.generation.noise if self.study.generation else None

    @property
    def attention(self) -> AttentionProbe:
        """How attention was counted."""
        if self.study.probes.attention is None:
            raise FigureError("this run did not measure attention: its study has `probes.attention` off")
        return self.study.probes.attention

    @property
    def queries(self) -> tuple[str, ...]:
        """Whose attention was counted."""
        return (*QUERIES, ANSWER) if self.study.probes.answering else QUERIES

    def has_measured(self, model: str | None = None, queries: str = "original") -> bool:
        """Whether there is attention of these queries to look at."""
        named = answer_attention_name if queries == ANSWER else merged_name
        return self.has_attention and self.store.has(named(self.model(model)))

    def has_begun(self, model: str | None = None) -> bool:
        """Whether anything of a model is there to look at: its attention or its answers."""
        return self.has_measured(model) or self.answered(model) > 0

    def records(self, model: str | None = None, queries: str = "original") -> list[ProblemRecord]:
        """A record for each problem whose attention was to be measured, failed ones included."""
        return list(self._part(self.model(model), (), self._row(queries)[0])[1])

    @cached_property
    def _tables(self) -> AnswerTables:
        return AnswerTables(self.store, self.study, self.partial)

    def problems(self) -> list[dict[str, Any]]:
        """Id, question, answer and meta of each problem that was to be answered."""
        return [dict(problem) for problem in self._tables.problems]

    def answer_columns(self, model: str) -> Columns:
        """Every answer of a model, in the order of problems."""
        return self._tables.answers(self.model(model))

    def again_columns(self, model: str) -> Columns:
        """Every answer of the noise floor, in the order of problems; empty where a run in progress has none yet."""
        return self._tables.again(self.model(model))

    def answered(self, model: str | None = None) -> int:
        """How many problems a model has answered, from the first on."""
        return self._tables.answered(self.model(model))

    def measured(self, model: str | None = None, queries: str = "original") -> list[ProblemRecord]:
        """Where answers are the queries, problems whose answer failed are missing."""
        return [record for record in self.records(model, queries) if record["status"] == "ok"]

    def profile(
        self, condition: str, queries: str = "original", view: str = "aligned", model: str | None = None
    ) -> Profile:
        """Attention received under a condition: `whole` prompt, `aligned` to the prompt without filler, or the
        paired `difference` or `logratio` to it."""
        self.condition(condition)
        source, row = self._row(queries)
        _place(view, tuple(VIEWS), "views")
        if condition == BASELINE and view in PAIRED_VIEWS:
            raise FigureError(f"`none` is what the {view} is taken against; name another condition")
        name = self.model(model)
        keys = VIEWS[view].keys(condition)
        arrays, _ = self._part(name, keys, source)
        moments = Moments(*(arrays[key][row] for key in keys))
        tokens = self.tokens(condition if view == "whole" else BASELINE, name)
        title = f"{self.label(name)} {condition} {view} {queries}"
        return Profile(title, moments, len(self.measured(name, queries)), tokens)

    def head_profile(
        self, condition: str, layer: int, head: int | None, queries: str = "original", view: str = "aligned",
        model: str | None = None,
    ) -> Profile:  # fmt: skip
        """One head of `profile`, or all of a layer, as a profile of its own. Of the others nothing is read."""
        self.condition(condition)
        source, row = self._row(queries)
        _place(view, tuple(VIEWS), "views")
        name = self.model(model)
        heads = slice(None) if head is None else slice(head - 1, head)
        cut = (row, slice(layer - 1, layer), heads)
        moments = Moments(*self.store.cut(self._file(name, source), list(VIEWS[view].keys(condition)), cut))
        tokens = self.tokens(condition if view == "whole" else BASELINE, name)
        title = f"{self.label(name)} {condition} {view} {queries}"
        return Profile(title, moments, len(self.measured(name, queries)), tokens)

    def summary(self, metric: str, condition: str, queries: str = "original", model: str | None = None) -> Floats:
        """[problem, layer, head] of one number of the head summaries."""
        self.condition(condition)
        source, row = self._row(queries)
        if metric == SINK_MASS and self.has_sinks(model):
            return np.asarray(self._array(Quantity.SINKS.key(condition), model, source)[:, row], dtype=np.float64)
        values = self._array(Quantity.HEADS.key(condition), model, source)[:, _place(metric, METRICS, "metrics"), row]
        return np.asarray(values, dtype=np.float64)

    def same_odds(self, model: str | None = None) -> Floats | None:
        """[problem, layer, head]: what original tokens would receive from original rows if these kept their odds and
        each filler token of the study's first filler took the share of an average token; None where not measured."""
        if not self._has_odds(self.model(model)):
            return None
        return np.asarray(self._array(Quantity.SAME_ODDS_HEADS.key(BASELINE), model)[:, 0], dtype=np.float64)

    def odds_profile(self, layer: int, head: int | None, model: str | None = None) -> Profile | None:
        """The same by position, aligned, of one head or of all heads of a layer."""
        name = self.model(model)
        if not self._has_odds(name):
            return None
        cut = (0, slice(layer - 1, layer), slice(None) if head is None else slice(head - 1, head))
        moments = Moments(*self.store.cut(self._file(name, ""), list(Quantity.SAME_ODDS.keys(BASELINE)), cut))
        title = f"{self.label(name)} none same odds original"
        return Profile(title, moments, len(self.measured(name)), self.tokens(BASELINE, name))

    def _has_odds(self, model: str) -> bool:
        """Collected where filler has one place for all problems; windows must be known to say where it counts."""
        reference = self.study.reference
        known = self.facts(model).get("rowcheck") is not None and self.has_measured(model)
        return known and reference is not None and reference.position != "random"

    def attention_layers(self, model: str | None = None) -> list[int]:
        """Layers that have attention, counted from 0: all of them, but for hybrid models."""
        entropy = self.summary("entropy", BASELINE, model=model)
        there = np.isfinite(entropy).any(axis=(0, 2))
        return np.flatnonzero(there if there.any() else ~there).tolist()

    def windows(self, model: str | None = None) -> list[int | None]:
        """Of each layer, how many tokens a row sees: None for all before it, 0 where it is another rule, or not
        known."""
        layers = self.summary("entropy", BASELINE, model=model).shape[1]
        known = (self.facts(model).get("rowcheck") or {}).get("windows")
        return list(known) if known is not None else [0] * layers

    def has_sinks(self, model: str | None = None) -> bool:
        """Whether the model has learned attention sinks, so that `sink_mass` is one of its metrics."""
        return bool((self.facts(model).get("rowcheck") or {}).get("sinks"))

    def peak_at(self, condition: str, queries: str = "original", model: str | None = None) -> NDArray[np.int32]:
        """[problem, layer, head]: the original token that receives most, counted from 0."""
        self.condition(condition)
        source, row = self._row(queries)
        return np.asarray(self._array(Quantity.PEAK_AT.key(condition), model, source)[:, row])

    def affine(self, metric: str, condition: str, model: str | None = None) -> Floats:
        """[problem, layer, head] of one number of the affine picture of a condition against none."""
        self._against_none(condition)
        place = _place(metric, AFFINE_METRICS, "affine metrics")
        return np.asarray(self._array(Quantity.AFFINE.key(condition), model)[:, place], dtype=np.float64)

    def bias(self, condition: str, model: str | None = None) -> Moments:
        """Over problems, of the bias vector of every head: [layer, head, dim]."""
        self._against_none(condition)
        return Moments(*(self._array(key, model) for key in Quantity.BIAS.keys(condition)))

    def _against_none(self, condition: str) -> None:
        if not self.study.probes.affine:
            raise FigureError("this run has no affine picture: its study needs `probes: {affine: true}`")
        if self.condition(condition).is_baseline:
            raise FigureError("the affine picture is taken against `none`; name another condition")

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of tokens for which activations were counted: all of them together first."""
        if self.study.probes.activations is None:
            raise FigureError("this run did not look at activations: its study needs `probes: {activations: true}`")
        return class_names(self.study.probes.activations.classes)

    def activations(self, metric: str, condition: str, cls: str = ALL, model: str | None = None) -> Floats:
        """[problem, layer] of one number of the MLP activations; NaN where a problem has no token of the class."""
        cell = _place(metric, ACTIVATION_METRICS, "activation metrics"), _place(cls, self.classes, "classes of tokens")
        self.condition(condition)
        return np.asarray(self._array(Quantity.ACTIVATIONS.key(condition), model)[:, *cell], dtype=np.float64)

    def histogram(self, condition: str, cls: str = ALL, model: str | None = None) -> NDArray[np.int64]:
        """[layer, bin]: how many activations of all problems lie between the edges of the calibration."""
        place = _place(cls, self.classes, "classes of tokens")
        self.condition(condition)
        return np.asarray(self._array(Quantity.HISTOGRAM.key(condition, "counts"), model)[:, place])

    def calibration(self, model: str | None = None) -> dict[str, Any]:
        """What activations are held against: `eps` and `median` of each layer, and the `edges` of histograms."""
        assert self.classes
        found = self.facts(model).get("calibration")
        if found is None:
            raise StoreError(f"{self.path} is not finished for {self.model(model)}; run the study again")
        return dict(found)

    def region(self, condition: str, model: str | None = None) -> Region | None:
        """The filler's place; the median one where it differs between problems."""
        self.condition(condition)
        starts, lengths = [], []
        for record in self.measured(model):
            spans = record["prompts"][condition]["spans"]
            if FILLER in spans:
                starts.append(spans.index(FILLER))
                lengths.append(spans.count(FILLER))
        if not starts:
            return None
        start, length = int(np.median(starts)), int(np.median(lengths))
        return Region(start, start + length, len(set(starts)) == 1)

    def tokens(self, condition: str, model: str | None = None) -> tuple[str, ...]:
        """The text of the token at each position, "" where problems differ. Filler is shown as a dot."""
        self.condition(condition)
        return self._tokens(condition, self.model(model))

    def _read_tokens(self, condition: str, model: str) -> tuple[str, ...]:
        rows = [_token_row(record, condition) for record in self.measured(model)]
        width = max(len(row) for row in rows)
        shared = []
        for position in range(width):
            texts = {row[position] for row in rows if position < len(row)}
            shared.append(texts.pop() if len(texts) == 1 else "")
        return tuple(shared)

    def _row(self, queries: str) -> tuple[str, int]:
        """The file that holds these queries, and their place on its axis of queries."""
        if queries == ANSWER and not self.study.probes.answering:
            raise FigureError("this run did not look where answers attend: its study needs `probes: {answering: true}`")
        if queries == ANSWER:
            return ANSWER, 0
        return "", _place(queries, self.queries, "queries")

    def _array(self, key: str, model: str | None, source: str = "") -> Array:
        arrays, _ = self._part(self.model(model), (key,), source)
        return np.asarray(arrays[key])

    def _read(self, model: str, keys: tuple[str, ...], source: str = "") -> tuple[Any, list[ProblemRecord]]:
        assert self.attention
        part = self.store.get(self._file(model, source), list(keys))
        return part.arrays, part.records

    def _file(self, model: str, source: str) -> str:
        name = answer_attention_name(model) if source == ANSWER else merged_name(model)
        if not self.store.has(name):
            what = "attention of answers" if source else "attention"
            raise unfinished(self.store, model, what, self.partial)
        return name


def open_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(RunStore.open(Path(path)))


def _place(name: str, names: Sequence[str], noun: str) -> int:
    if name not in names:
        raise FigureError(f"{noun} are {', '.join(names)}, not {name!r}")
    return names.index(name)


def _token_row(record: ProblemRecord, condition: str) -> list[str]:
    texts = iter(record["tokens"])
    return ["\u00b7" if span == FILLER else next(texts) for span in record["prompts"][condition]["spans"]]
