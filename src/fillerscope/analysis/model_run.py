"""A run seen through one of its models: names in, arrays out. Needs neither torch nor the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.answer_tables import unfinished
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.stored_run import ANSWER, StoredRun, place_of
from fillerscope.errors import FigureError, StoreError
from fillerscope.files import Json
from fillerscope.prompts.prompt import FILLER
from fillerscope.store.layouts import Layouts
from fillerscope.store.manifest import RESTORE
from fillerscope.store.moments import Moments
from fillerscope.store.schema import (
    ACTIVATION_METRICS,
    AFFINE_METRICS,
    MANIFEST,
    METRICS,
    MOMENTS,
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
from fillerscope.study.conditions import BASELINE
from fillerscope.study.token_classes import ALL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Region:
    """Where the filler stands in the whole prompt; `fixed` when it is the same for every problem."""

    start: int
    stop: int
    fixed: bool


class ModelRun(StoredRun):
    """One model of a run, or one of its untrained twins. `run[model]` gives one."""

    def __init__(self, run: StoredRun, name: str) -> None:
        super().__init__(run.store, run.partial)
        self.name, self.study, self._tables = name, run.study, run._tables
        self._array = cache(self._read_array)
        self._records = cache(lambda source: self.store.get(self._file(source), []).records)
        self._layouts = cache(lambda source, problems: self.store.layouts(self._file(source), problems))

    def twins(self) -> list[ModelRun]:
        """The model's untrained twins: all of them, or none yet in a run in progress."""
        return list(self._twins)

    @cached_property
    def _twins(self) -> list[ModelRun]:
        own = self.study.twins(self.name) if self.name in self.models else []
        missing = [twin for twin in own if not self.store.has(merged_name(twin))]
        if missing and not self.partial:
            raise unfinished(self.store, missing[0], "attention", self.partial)
        return [] if missing else [ModelRun(self, twin) for twin in own]

    @property
    def facts(self) -> ModelFacts:
        """What was noted about the model when it was measured: label, template, checks."""
        return self.store.manifest.get("models", {}).get(self.name, {})

    @property
    def label(self) -> str:
        return str(self.facts.get("label") or self.name)

    def has_measured(self, queries: str = "original") -> bool:
        """Whether attention of these queries has been written."""
        named = answer_attention_name if queries == ANSWER else merged_name
        return self.has_attention and self.store.has(named(self.name))

    def has_begun(self) -> bool:
        """Whether any attention or any answer has been written."""
        return self.has_measured() or self.answered() > 0

    def records(self, queries: str = "original") -> list[ProblemRecord]:
        """A record for each problem whose attention was to be measured, failed ones included."""
        assert self.attention
        return list(self._records(self._row(queries)[0]))

    def measured(self, queries: str = "original") -> list[ProblemRecord]:
        """The records of problems that did not fail; where answers are the queries, of those that have one."""
        return [record for record in self.records(queries) if record["status"] == "ok"]

    def answer_columns(self) -> Columns:
        """Every answer, in the order of problems."""
        return self._tables.answers(self.name)

    def again_columns(self) -> Columns:
        """Every answer of the noise floor, in the order of problems; empty where a run in progress has none yet."""
        return self._tables.again(self.name)

    def answered(self) -> int:
        """How many problems have been answered, from the first on."""
        return self._tables.answered(self.name)

    def profile(self, condition: str, queries: str = "original", view: str = "aligned") -> Profile:
        """Attention received under a condition: `whole` prompt, `aligned` to the prompt without filler, or the
        paired `difference` or `logratio` to it."""
        source, row = self._row(queries)
        moments = Moments(*(self._array(key, source)[row] for key in self._view_keys(condition, view)))
        return self._profile(moments, condition, queries, view)

    def head_profile(
        self, condition: str, layer: int, head: int | None, queries: str = "original", view: str = "aligned"
    ) -> Profile:
        """One head of `profile`, or all of a layer, as a profile of its own. Of the others nothing is read."""
        source, row = self._row(queries)
        moments = self._moments(source, row, self._view_keys(condition, view), (layer, head))
        return self._profile(moments, condition, queries, view)

    def _moments(self, source: str, row: int, keys: tuple[str, ...], cell: tuple[int, int | None]) -> Moments:
        """The moments of one head, or of all heads of a layer; a head that the model lacks is refused."""
        (layer, head), file = cell, self._file(source)
        every, no_position = slice(None), slice(0, 0)
        (empty,) = self.store.cut(file, [keys[MOMENTS.index("mean")]], (row, every, every, no_position))
        layers, heads = empty.shape[:2]
        if not 1 <= layer <= layers:
            raise FigureError(f"there is no layer {layer}: {self.label} has layers 1 to {layers}")
        if head is not None and not 1 <= head <= heads:
            raise FigureError(f"there is no head {head}: {self.label} has heads 1 to {heads}")
        of_layer = every if head is None else slice(head - 1, head)
        return Moments(*self.store.cut(file, list(keys), (row, slice(layer - 1, layer), of_layer)))

    def _view_keys(self, condition: str, view: str) -> tuple[str, ...]:
        self.condition(condition)
        place_of(view, tuple(VIEWS), "views")
        if condition == BASELINE and view in PAIRED_VIEWS:
            raise FigureError(f"`{BASELINE}` is what the {view} is taken against; name another condition")
        return VIEWS[view].keys(condition)

    def _profile(self, moments: Moments, condition: str, queries: str, view: str) -> Profile:
        region = self.region(condition) if view == "whole" else None
        return Profile(
            f"{self.label} {condition} {view} {queries}", moments, len(self.measured(queries)),
            self.tokens(condition if view == "whole" else BASELINE), condition, view,
            (region.start, region.stop) if region else None,
        )  # fmt: skip

    def summary(self, metric: str, condition: str, queries: str = "original") -> Floats:
        """[problem, layer, head] of one number of the head summaries."""
        self.condition(condition)
        source, row = self._row(queries)
        if metric == SINK_MASS and self.has_sinks():
            return np.asarray(self._array(Quantity.SINKS.key(condition), source)[:, row], dtype=np.float64)
        place = place_of(metric, METRICS, "metrics")
        return np.asarray(self._array(Quantity.HEADS.key(condition), source)[:, place, row], dtype=np.float64)

    def peak_at(self, condition: str, queries: str = "original") -> NDArray[np.int32]:
        """[problem, layer, head]: the original token that receives most, counted from 0."""
        self.condition(condition)
        source, row = self._row(queries)
        return np.asarray(self._array(Quantity.PEAK_AT.key(condition), source)[:, row])

    def same_odds(self) -> Floats | None:
        """[problem, layer, head]: what original tokens would receive from original rows if these kept their odds and
        each filler token of the study's first filler took the share of an average token; None where not measured."""
        if not self._has_odds():
            return None
        return np.asarray(self._array(Quantity.SAME_ODDS_HEADS.key(BASELINE))[:, 0], dtype=np.float64)

    def odds_profile(self, layer: int, head: int | None) -> Profile | None:
        """The same by position, aligned, of one head or of all heads of a layer."""
        if not self._has_odds():
            return None
        moments = self._moments("", 0, Quantity.SAME_ODDS.keys(BASELINE), (layer, head))
        title = f"{self.label} {BASELINE} same odds original"
        return Profile(title, moments, len(self.measured()), self.tokens(BASELINE))

    def _has_odds(self) -> bool:
        """Collected where filler has one place for all problems; windows must be known to say where it counts."""
        reference = self.study.reference
        known = self.facts.get("rowcheck") is not None and self.has_measured()
        return known and reference is not None and reference.position != "random"

    def attention_layers(self) -> list[int]:
        """Layers that have attention, counted from 0: all of them, but for hybrid models."""
        entropy = self.summary("entropy", BASELINE)
        measured = np.isfinite(entropy).any(axis=(0, 2))
        return np.flatnonzero(measured if measured.any() else ~measured).tolist()

    def windows(self) -> list[int | None]:
        """Of each layer, how many tokens a row sees: None for all before it, 0 for another rule, or where unknown."""
        layers = self.summary("entropy", BASELINE).shape[1]
        known = (self.facts.get("rowcheck") or {}).get("windows")
        if known is None:
            return [0] * layers
        if len(known) != layers:
            raise self._damaged(f"its `windows` of {self.name} are not one for each of {layers} layers")
        return list(known)

    def has_sinks(self) -> bool:
        """Whether the model has learned attention sinks, so that `sink_mass` is one of its metrics."""
        return bool((self.facts.get("rowcheck") or {}).get("sinks"))

    def affine(self, metric: str, condition: str) -> Floats:
        """[problem, layer, head] of one number of the affine picture of a condition against none."""
        self._against_baseline(condition)
        place = place_of(metric, AFFINE_METRICS, "affine metrics")
        return np.asarray(self._array(Quantity.AFFINE.key(condition))[:, place], dtype=np.float64)

    def bias(self, condition: str) -> Moments:
        """Over problems, of the bias vector of every head: [layer, head, dim]."""
        self._against_baseline(condition)
        return Moments(*(self._array(key) for key in Quantity.BIAS.keys(condition)))

    def _against_baseline(self, condition: str) -> None:
        if not self.study.probes.affine:
            raise FigureError("this run has no affine picture: its study needs `probes: {affine: true}`")
        if self.condition(condition).is_baseline:
            raise FigureError(f"the affine picture is taken against `{BASELINE}`; name another condition")

    def activations(self, metric: str, condition: str, cls: str = ALL) -> Floats:
        """[problem, layer] of one number of the MLP activations; NaN where a problem has no token of the class."""
        cell = place_of(metric, ACTIVATION_METRICS, "activation metrics"), self._class(cls)
        self.condition(condition)
        return np.asarray(self._array(Quantity.ACTIVATIONS.key(condition))[:, *cell], dtype=np.float64)

    def histogram(self, condition: str, cls: str = ALL) -> NDArray[np.int64]:
        """[layer, bin]: how many activations of all problems lie between the edges of the calibration."""
        place = self._class(cls)
        self.condition(condition)
        return np.asarray(self._array(Quantity.HISTOGRAM.key(condition, "counts"))[:, place])

    def _class(self, cls: str) -> int:
        return place_of(cls, self.classes, "classes of tokens")

    def calibration(self) -> Json:
        """What activations are held against: `eps` and `median` of each layer, and the `edges` of histograms."""
        assert self.classes
        record = self.facts.get("calibration")
        if record is None:
            raise StoreError(f"{self.path} is not finished for {self.name}; run the study again")
        layers, bins = self.histogram(BASELINE).shape
        eps, edges = record.get("eps", []), record.get("edges", [])
        if (len(eps), len(edges)) != (layers, bins + 1) or min(np.diff(edges)) <= 0:
            raise self._damaged(f"its `calibration` of {self.name} is not that of {layers} layers and {bins} bins")
        return dict(record)

    def _damaged(self, reason: str) -> StoreError:
        return StoreError(f"{self.path / MANIFEST} is damaged ({reason}); {RESTORE}")

    def region(self, condition: str) -> Region | None:
        """The filler's place; the median one where it differs between problems."""
        self.condition(condition)
        layouts = self.layouts()
        kinds, of = layouts.used(condition)
        fillers = [np.flatnonzero(layouts.spans(kind) == FILLER) for kind in kinds]
        places = np.array([(one[0] if len(one) else -1, len(one)) for one in fillers])[of]
        starts, lengths = places[places[:, 1] > 0].T
        if not len(starts):
            return None
        start, length = int(np.median(starts)), int(np.median(lengths))
        return Region(start, start + length, len(set(starts)) == 1)

    def tokens(self, condition: str) -> tuple[str, ...]:
        """The text of the token at each position, "" where problems differ. Filler is shown as a dot."""
        self.condition(condition)
        return self.layouts().texts[condition]

    def layouts(self, queries: str = "original") -> Layouts:
        """Where spans stand in the prompts of problems that did not fail; of those that have an answer, where answers
        are the queries."""
        problems = len(self.measured(queries))
        if not problems:
            none = {name: np.zeros(0, dtype=np.int64) for name in self.conditions}
            return Layouts((), none, dict.fromkeys(self.conditions, ()))
        found = self._layouts(self._row(queries)[0], problems)
        if missing := set(self.conditions) - found.of.keys():
            raise StoreError(f"{self.path} holds no prompts of {min(missing)}; run the study again")
        return found

    def _row(self, queries: str) -> tuple[str, int]:
        """The file that holds these queries, and their place on its axis of queries."""
        if queries == ANSWER and not self.study.probes.answering:
            raise FigureError("this run did not look where answers attend: its study needs `probes: {answering: true}`")
        if queries == ANSWER:
            return ANSWER, 0
        return "", place_of(queries, self.queries, "queries")

    def _read_array(self, key: str, source: str = "") -> Array:
        assert self.attention
        return self.store.cut(self._file(source), [key], (slice(None),))[0]

    def _file(self, source: str) -> str:
        name = answer_attention_name(self.name) if source == ANSWER else merged_name(self.name)
        if not self.store.has(name):
            what = "attention of answers" if source else "attention"
            raise unfinished(self.store, self.name, what, self.partial)
        return name
