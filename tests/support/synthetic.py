"""A finished run made of formulas: a run folder without torch or a model, every number known in advance.

What original token k of problem p receives without filler is `plain(p)[..., k]`; under a filler condition it
is that times `effect * QUERY_SCALE * jitter`, where the logarithm of the jitter has mean 0 and sample
standard deviation `noise` over the measured problems. A paired ratio is therefore known exactly, with its interval.

With `right` the run is answered too: of so many problems the first ones are solved, so that between two conditions
every discordant pair goes the same way.

With `affine`, `activations` and `answering` the run holds what these probes measure, as its `Mechanism` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fillerscope.analysis.run import Run, open_run
from fillerscope.store.array_file import Part
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import (
    ACTIVATION_METRICS,
    METRICS,
    PROBLEMS,
    Quantity,
    answer_attention_name,
    answers_name,
    merged_name,
    shard_name,
)
from fillerscope.study.conditions import Condition
from fillerscope.study.study import FigureSpec, Study

Floats = NDArray[np.float64]

NONE = Condition(name="none", kind="none", label="None")
MLESS = Condition(name="mless", kind="repeat", text=" /", count=30, label="Meaningless tokens")
RANDOM = Condition(name="random", kind="sentence", count=30, label="Random sentence")
QUERY_SCALE = np.array([0.9, 1.0, 1.1])  # all, original, last: a mix-up of queries changes every ratio
SYSTEM, FILLER, QUESTION, TAIL = range(4)
PEAK_RATIO, SPREAD_RATIO, ENTROPY_GAIN = 1.25, 0.75, 0.5
CLASSES = ("all", "digits", "operators", "words", "other")
PATTERNS = {"digits": "[0-9]+", "operators": "[-+*/=]", "words": "and|or"}
SIDE = 2.0 ** (np.arange(-24, 13) / 4)
EDGES = np.concatenate([-SIDE[::-1], SIDE])  # the bin in the middle takes both sides of zero


@dataclass(frozen=True)
class Effect:
    """What a filler does, alike in every problem but for the jitter. Arrays are [layer, head] or broadcast to it."""

    drop: Any = 0.8  # received with / without, queries `original`
    filler: float = 0.3  # what a filler token receives, as a share of a plain original token
    mass: Any = 0.4


@dataclass(frozen=True)
class Mechanism:
    """What a condition does inside the model: in layer 1, and in all deeper ones. Heads differ by `HEAD_STEP`."""

    lam: tuple[float, float] = (0.7, 0.99)
    explained: tuple[float, float] = (0.9, 0.8)
    direction: tuple[float, float] = (0.8, 0.3)
    bias: float = 0.2  # |b|; the mean of |o| is 2
    together: float = 0.6  # how far biases of different problems are the same vector
    near_zero: tuple[float, float] = (-0.03, 0.0)  # added to the share; class number k of CLASSES has k + 1 times this
    variance: tuple[float, float] = (1.3, 1.0)  # with / without; L1 and L2 go with its root
    gini: tuple[float, float] = (-0.02, 0.0)
    lookback: float = 0.5  # mass of the answer's rows, as a share of that of the question's


CENTRED = 0.125  # what an intercept adds to lambda
HEAD_STEP = 0.01


@dataclass(frozen=True)
class Synthetic:
    """`build(folder)` writes the run; the other methods say what it must contain."""

    labels: Mapping[str, str] = field(default_factory=lambda: {"tiny-a": "Tiny-A"})
    conditions: tuple[Condition, ...] = (NONE, MLESS, RANDOM)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    layers: int = 3
    heads: int = 4
    problems: int = 12
    failed: tuple[int, ...] = ()
    system: int = 20
    shortest: int = 20  # tokens of the shortest question; each problem has two more than the one before
    noise: float = 0.02
    shard: int = 5
    figures: tuple[FigureSpec, ...] = ()
    right: Mapping[str, float] = field(default_factory=dict)  # share solved, by "condition" or "model condition"
    generation: Mapping[str, Any] = field(default_factory=dict)
    unjudged: tuple[int, ...] = ()  # problems whose answers failed under every condition but none
    attention: bool = True
    source: str = "builtin"
    affine: bool = False
    activations: bool = False
    answering: bool = False
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)
    missing: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by class, problems without such a token
    unanswered: tuple[int, ...] = ()  # problems whose answer could not be looked at
    diluted: float | None = None  # the drop that length alone would give, of every head
    twins: tuple[Effect, ...] = ()  # untrained twins, by what every filler does to them

    @cached_property
    def study(self) -> Study:
        return Study(
            name="synthetic",
            models=tuple(self.labels),
            problems={"limit": self.problems, "source": self.source},
            probes={
                "attention": self.attention,
                "affine": self.affine,
                "activations": {"classes": PATTERNS} if self.activations else None,
                "answering": self.answering,
            },
            generation=dict(self.generation) if self.right else None,
            conditions=self.conditions,
            batch={"shard": self.shard},
            figures=self.figures,
            references={"twin": len(self.twins)},
        )

    @property
    def measured(self) -> list[int]:
        return [number for number in range(self.problems) if number not in self.failed]

    def effect(self, condition: str) -> Effect:
        return self.effects.get(condition, Effect(filler=0.9, mass=0.5) if condition == "random" else Effect())

    def drop(self, condition: str) -> Floats:
        """[layer, head]: the paired drop of queries `original`; deeper layers are nearer to 1."""
        layer, head = np.indices((self.layers, self.heads))
        nearer = 0.02 * head + 0.1 * layer
        given = self.effect(condition).drop
        return given + nearer * (1 - given) if np.ndim(given) == 0 else np.asarray(given, dtype=np.float64)

    def mass(self, condition: str) -> Floats:
        layer, head = np.indices((self.layers, self.heads))
        return np.asarray(self.effect(condition).mass * (1 - 0.2 * layer) * (1 - 0.05 * head))

    def jitter(self, number: int) -> float:
        """Logarithm; over the measured problems its mean is 0 and its sample standard deviation `noise`."""
        return self._jitters[number]

    @cached_property
    def _jitters(self) -> dict[int, float]:
        count = len(self.measured)
        steps = np.arange(count) - (count - 1) / 2
        scale = steps.std(ddof=1) if count > 1 else 1.0
        return {number: float(self.noise * step / scale) for number, step in zip(self.measured, steps, strict=True)}

    def reach(self) -> float:
        """Half the 95% interval of a mean whose samples spread like the jitter."""
        count = len(self.measured)
        return float(stats.t.ppf(0.975, count - 1) * self.noise / np.sqrt(count))

    def length(self, number: int) -> int:
        """Tokens of a prompt without filler."""
        return self.system + self.shortest + 2 * number + 5

    def tokens(self, number: int) -> list[str]:
        question = [f"q{number}.{index}" for index in range(self.length(number) - self.system - 5)]
        return [*(f"s{index}" for index in range(self.system)), *question, *(f"t{index}" for index in range(5))]

    def spans(self, number: int, condition: str) -> list[int]:
        question = self.length(number) - self.system - 5
        plain = [SYSTEM] * self.system + [QUESTION] * question + [TAIL] * 5
        recipe = next(item for item in self.conditions if item.name == condition)
        if not recipe.has_filler:
            return plain
        places = {"start": 0, "before_question": self.system, "end": self.system + question}
        at = places.get(recipe.position, self.system + number)  # `random`: another place for each problem
        return [*plain[:at], *[FILLER] * (recipe.count or len(recipe.text.split()) or 7), *plain[at:]]

    def plain(self, number: int) -> Floats:
        """[query, layer, head, original token]; the last token receives nothing that could be counted."""
        if number not in self._plain_made:
            self._plain_made[number] = self._plain(number)
        return self._plain_made[number]

    @cached_property
    def _plain_made(self) -> dict[int, Floats]:
        return {}

    def _plain(self, number: int) -> Floats:
        query, layer, head, token = np.indices((3, self.layers, self.heads, self.length(number)))
        peaks = 0.02 + 0.06 * (token % 7 == 5) + 0.2 * (token == 0)
        values = peaks * (1 + 0.1 * layer + 0.05 * head + 0.02 * query) * (1 + 0.03 * np.sin(number + token))
        values[..., -1] = np.nan
        return np.asarray(values)

    def whole(self, number: int, condition: str) -> Floats:
        """[query, layer, head, position of the whole prompt]."""
        if (number, condition) not in self._made:
            self._made[number, condition] = self._whole(number, condition)
        return self._made[number, condition]

    @cached_property
    def _made(self) -> dict[tuple[int, str], Floats]:
        return {}

    def _whole(self, number: int, condition: str) -> Floats:
        if condition == "none":
            return self.plain(number)
        filler = np.array(self.spans(number, condition)) == FILLER
        effect = self.effect(condition)
        scale = (QUERY_SCALE[:, None, None] * self.drop(condition) * np.exp(self.jitter(number)))[..., None]
        values = np.empty((3, self.layers, self.heads, len(filler)))
        values[..., ~filler] = self.plain(number) * scale
        values[..., filler] = 0.03 * effect.filler * np.exp(self.jitter(number)) * np.linspace(1.1, 0.9, filler.sum())
        return values

    def aligned(self, number: int, condition: str) -> Floats:
        return self.whole(number, condition)[..., np.array(self.spans(number, condition)) != FILLER]

    def samples(self, condition: str, view: str) -> Floats:
        """[measured problem, query, layer, head, position], NaN where a prompt has ended."""
        makers = {
            "whole": lambda number: self.whole(number, condition),
            "aligned": lambda number: self.aligned(number, condition),
            "difference": lambda number: self.aligned(number, condition) - self.plain(number),
            "logratio": lambda number: np.log(self.aligned(number, condition) / self.plain(number)),
        }
        return _stacked([makers[view](number) for number in self.measured])

    def summary(self, metric: str, condition: str) -> Floats:
        """[measured problem, query, layer, head]."""
        return np.stack([self._summary(metric, condition, number) for number in self.measured])

    def peak_at(self, number: int, condition: str) -> int:
        """Token 5, but token 12 in every fourth problem with filler."""
        return 12 if condition != "none" and self.measured.index(number) % 4 == 0 else 5

    def build(self, folder: Path) -> Run:
        store = RunStore.create(folder, {"synthetic": True}, self.study.model_dump(mode="json"))
        groups = [range(self.problems)[start : start + self.shard] for start in range(0, self.problems, self.shard)]
        if self.right:
            store.put_table(PROBLEMS, self._problem_table())
        for model, label in self.labels.items():
            for index, group in enumerate(groups):
                if self.attention:
                    store.put(shard_name(model, index), self._part(group))
                if self.right:
                    rows = [row for number in group for row in self._answers(model, number)]
                    store.put_table(answers_name(model, index), {key: [row[key] for row in rows] for key in rows[0]})
            if self.attention:
                store.put(merged_name(model), self._part(range(self.problems)))
            if self.answering:
                store.put(answer_attention_name(model), self._looked_back())
            check: dict[str, Any] = {"difference": 0.0, "tolerance": 1e-5}
            facts = {"label": label, "template": "raw", "selfcheck": check}
            facts |= {"calibration": self.calibration} if self.activations else {}
            facts |= {"rowcheck": check | {"windows": [None] * self.layers}} if self.diluted else {}
            store.note("models", store.manifest.get("models", {}) | {model: facts})
            for name, effect in zip(self.study.twins(model), self.twins, strict=True):
                other = replace(self, effects={one.name: effect for one in self.conditions})
                store.put(merged_name(name), other._part(range(self.problems)))
                store.note("models", store.manifest["models"] | {name: facts | {"label": name}})
        return open_run(folder)

    def is_right(self, model: str, condition: str, number: int, sample: int = 0) -> bool:
        """Of several samples every other one solves one problem less."""
        share = self.right.get(f"{model} {condition}", self.right.get(condition, 0.5))
        return number < round(share * self.problems) - sample % 2

    def _problem_table(self) -> dict[str, list[Any]]:
        numbers = range(self.problems)
        metas = [json.dumps({"level": 1 + number % 2}) for number in numbers]
        return {
            "id": [f"p{number:02d}" for number in numbers], "question": [f"{number} + 1?" for number in numbers],
            "answer": [str(number + 1) for number in numbers], "meta": metas,
        }  # fmt: skip

    def _answers(self, model: str, number: int) -> Iterator[dict[str, Any]]:
        """What is stored of one problem, in the order of the store."""
        spec = self.study.generation
        assert spec is not None
        for temperature in spec.temperature:
            for name in (condition.name for condition in self.conditions):
                for sample in range(spec.drawn(temperature)):
                    failed = number in self.unjudged and name != "none"
                    right = self.is_right(model, name, number, sample)
                    yield {
                        "number": number, "id": f"p{number:02d}", "condition": name, "temperature": temperature,
                        "sample": sample, "prompt_tokens": 0 if failed else 50, "tokens": 0 if failed else 20,
                        "finish": "failed" if failed else "stop",
                        "verdict": "failed" if failed else "right" if right else "wrong",
                        "extracted": str(number + right), "note": "", "text": f"It is {number + right}.",
                    }  # fmt: skip

    def _summary(self, metric: str, condition: str, number: int) -> Floats:
        spans = np.array(self.spans(number, condition))
        whole, aligned = self.whole(number, condition), self.aligned(number, condition)
        filled, changed = bool((spans == FILLER).any()), condition != "none"
        boundary = int((spans[: list(spans).index(FILLER)] != FILLER).sum()) if filled else self.system
        plain = self.plain(number)[..., 1:-1]
        jitter, scale = np.exp(self.jitter(number)), QUERY_SCALE[:, None, None]
        if metric == "received_original":
            return aligned[..., 1:-1].mean(-1)
        if metric == "received_before":
            part = aligned[..., 1:boundary]
            return part.mean(-1) if part.shape[-1] else np.full(part.shape[:-1], np.nan)
        if metric == "received_after":
            return aligned[..., max(boundary, 1) : -1].mean(-1)
        if metric == "received_filler":
            return whole[..., spans == FILLER].mean(-1) if filled else np.full(whole.shape[:-1], np.nan)
        if metric == "received_first":
            return whole[..., 0]
        if metric == "peak":
            return plain.max(-1) * (scale * self.drop(condition) * PEAK_RATIO * jitter if changed else 1.0)
        if metric == "spread":
            return plain.std(-1) * (scale * self.drop(condition) * SPREAD_RATIO * jitter if changed else 1.0)
        if metric == "kurtosis":
            return np.full(whole.shape[:-1], 3.0)
        if metric == "entropy":
            return 2.0 + 0.1 * number + np.zeros(whole.shape[:-1]) + (ENTROPY_GAIN + self.jitter(number)) * changed
        if metric == "filler_mass":
            return (
                self.mass(condition) * np.ones((3, 1, 1)) + self.jitter(number)
                if filled
                else np.full(whole.shape[:-1], np.nan)
            )
        raise KeyError(metric)

    @cached_property
    def _tables(self) -> dict[str, Floats]:
        """[problem, metric, query, layer, head] by condition."""
        names = [condition.name for condition in self.conditions]
        return {name: np.stack([self.summary(metric, name) for metric in METRICS], axis=1) for name in names}

    def _samples(self, condition: str, view: str) -> Floats:
        if (condition, view) not in self._stacks:
            self._stacks[condition, view] = self.samples(condition, view)
        return self._stacks[condition, view]

    @cached_property
    def _stacks(self) -> dict[tuple[str, str], Floats]:
        return {}

    def _part(self, numbers: range) -> Part:
        """What the runner stores of these problems, under the names that it gives."""
        measured = [number for number in numbers if number in self.measured]
        records = [self._record(number) for number in numbers]
        if not measured:
            return Part({}, records)
        arrays: dict[str, Any] = {}
        rows = [self.measured.index(number) for number in measured]
        longest = max(self.length(number) for number in measured)
        for condition in self.conditions:
            views = ("whole", "aligned") if condition.is_baseline else ("whole", "aligned", "difference", "logratio")
            for view in views:
                width = longest + (self.spans(0, condition.name).count(FILLER) if view == "whole" else 0)
                values = self._samples(condition.name, view)[rows][..., :width]
                valid = np.isfinite(values if view == "logratio" else values[:, :, :1, :1])
                state = Moments.of(values, valid).state()
                arrays |= {f"{condition.name}/{view}/{key}": array for key, array in state.items()}
            table = self._tables[condition.name][rows]
            places = [[[[self.peak_at(n, condition.name)] * self.heads] * self.layers] * 3 for n in measured]
            arrays |= {
                f"{condition.name}/heads": table.astype(np.float32),
                f"{condition.name}/peak_at": np.array(places, dtype=np.int32),
            }
            if condition.is_baseline and self.diluted:
                received = table[:, METRICS.index("received_original"), 1:2]
                values = self.diluted * self._samples("none", "aligned")[rows][:, 1:2, ..., :longest]
                state = Moments.of(values, np.isfinite(values[:, :, :1, :1]))
                arrays |= {Quantity.SAME_ODDS_HEADS.key("none"): (self.diluted * received).astype(np.float32)}
                arrays |= {Quantity.SAME_ODDS.key("none", key): array for key, array in state.state().items()}
            arrays |= self._affine(condition.name, rows) if self.affine and not condition.is_baseline else {}
            arrays |= self._activations(condition.name, rows) if self.activations else {}
        return Part(arrays, records)

    def mechanism(self, condition: str) -> Mechanism:
        return self.mechanisms.get(condition, Mechanism())

    def by_layer(self, pair: tuple[float, float]) -> Floats:
        return np.array([pair[layer > 0] for layer in range(self.layers)])

    def affine_samples(self, condition: str) -> Floats:
        """[measured problem, metric, layer, head]."""
        found, jitter = self.mechanism(condition), np.array([self.jitter(n) for n in self.measured])[:, None, None]
        step = HEAD_STEP * np.arange(self.heads)
        levels = [self.by_layer(pair)[:, None] + step for pair in (found.lam, found.explained, found.direction)]
        shape = (len(self.measured), self.layers, self.heads)
        return np.stack([
            *(level + jitter for level in levels), np.full(shape, found.bias), np.full(shape, 2.0),
            levels[0] + CENTRED + jitter,
        ], axis=1)  # fmt: skip

    def bias_samples(self, condition: str) -> Floats:
        """[measured problem, layer, head, dim]: one part is the same in all problems, the other turns round."""
        found = self.mechanism(condition)
        turns = (-1.0) ** np.arange(len(self.measured))
        apart = np.sqrt(1 - found.together**2) * turns
        common = found.together * np.array([0.6, 0.0, 0.8])
        vectors = found.bias * (common + apart[:, None] * np.array([0.0, 1.0, 0.0]))
        return np.broadcast_to(vectors[:, None, None], (len(turns), self.layers, self.heads, 3))

    def activation_samples(self, condition: str) -> Floats:
        """[measured problem, metric, class, layer]."""
        found, none = self.mechanism(condition), condition == "none"
        number, kind, layer = np.meshgrid(self.measured, range(len(CLASSES)), range(self.layers), indexing="ij")
        jitter = np.array([self.jitter(n) for n in self.measured])[:, None, None] * (not none)
        near, size, gini = (self.by_layer(pair) for pair in (found.near_zero, found.variance, found.gini))
        size = np.ones_like(size) if none else size
        values = {
            "tokens": 20.0 + 0 * number, "near_zero": 0.3 + 0.01 * layer + 0.001 * number, "below_median": 0.5,
            "mean": 0.1, "variance": (1 + 0.1 * layer + 0.05 * number) * size * np.exp(jitter),
            "l1": 100 * np.sqrt(size * np.exp(jitter)), "l2": 10 * np.sqrt(size * np.exp(jitter)),
            "gini": 0.6 + (0.0 if none else gini) + 0.1 * jitter,
        }  # fmt: skip
        values["near_zero"] = values["near_zero"] + (0.0 if none else near * (kind + 1)) + 0.1 * jitter
        table = np.stack([np.broadcast_to(values[metric], number.shape) for metric in ACTIVATION_METRICS], axis=1)
        table = np.array(table)
        for name, problems in self.missing.items():
            table[[self.measured.index(n) for n in problems], :, CLASSES.index(name)] = np.nan
        return table

    def histogram(self, condition: str) -> NDArray[np.int64]:
        """[layer, class, bin]: many near zero, and with filler fewer of them."""
        middle = (EDGES[1:] + EDGES[:-1]) / 2
        shape = np.exp(-0.5 * (middle / (1.0 if condition == "none" else 1.1)) ** 2) * np.diff(EDGES)
        scale = 1e5 * (1 + np.arange(self.layers))[:, None, None] * (1 + np.arange(len(CLASSES)))[:, None]
        return np.asarray(np.round(scale * shape), dtype=np.int64)

    @cached_property
    def calibration(self) -> dict[str, Any]:
        layers = np.arange(1, self.layers + 1)
        return {
            "eps": (0.1 * layers).tolist(), "median": (0.5 * layers).tolist(), "edges": EDGES.tolist(),
            "tokens": 900, "problems": 8,
        }  # fmt: skip

    def _affine(self, condition: str, rows: list[int]) -> dict[str, Any]:
        bias = self.bias_samples(condition)[rows]
        state = Moments.of(bias, np.ones((len(rows), 1, 1, 1), dtype=np.bool_)).state()
        arrays = {f"{condition}/bias/{key}": array for key, array in state.items()}
        return arrays | {f"{condition}/affine": self.affine_samples(condition)[rows].astype(np.float32)}

    def _activations(self, condition: str, rows: list[int]) -> dict[str, Any]:
        return {
            f"{condition}/activations": self.activation_samples(condition)[rows].astype(np.float32),
            f"{condition}/histogram/counts": self.histogram(condition),
        }

    def _looked_back(self) -> Part:
        """As the row of the last token, but for the mass."""
        kept = [place for place, number in enumerate(self.measured) if number not in self.unanswered]
        arrays: dict[str, Any] = {}
        for condition in (item.name for item in self.conditions):
            for view in ("whole", "aligned") if condition == "none" else ("whole", "aligned", "difference", "logratio"):
                values = self._samples(condition, view)[kept][:, 2:]
                valid = np.isfinite(values if view == "logratio" else values[:, :, :1, :1])
                state = Moments.of(values, valid).state()
                arrays |= {f"{condition}/{view}/{key}": array for key, array in state.items()}
            table = np.array(self._tables[condition][kept][:, :, 2:])
            table[:, METRICS.index("filler_mass")] *= self.mechanism(condition).lookback
            places = [[[[self.peak_at(self.measured[row], condition)] * self.heads] * self.layers] for row in kept]
            arrays |= {
                f"{condition}/heads": table.astype(np.float32),
                f"{condition}/peak_at": np.array(places, "int32"),
            }
        records = [self._record(number) for number in range(self.problems)]
        for number in self.unanswered:
            records[number] = {"number": number, "id": f"p{number:02d}", "status": "failed", "error": "no answer"}
        return Part(arrays, records)

    def _record(self, number: int) -> dict[str, Any]:
        entry = {"number": number, "id": f"p{number:02d}", "status": "failed" if number in self.failed else "ok"}
        if number in self.failed:
            return entry | {"error": "9000 tokens, and the model takes 1024"}
        prompts = {}
        for condition in self.conditions:
            spans = self.spans(number, condition.name)
            prompts[condition.name] = {"ids": list(range(len(spans))), "spans": spans}
        return entry | {"tokens": self.tokens(number), "prompts": prompts}


def swept(*items: Any) -> tuple[Condition, ...]:
    """`none`, and the conditions that these items of a study stand for."""
    return Study(name="swept", models=("m",), conditions=("none", *items)).conditions


def _stacked(profiles: list[Floats]) -> Floats:
    values = np.full((len(profiles), *profiles[0].shape[:-1], max(p.shape[-1] for p in profiles)), np.nan)
    for row, profile in zip(values, profiles, strict=True):
        row[..., : profile.shape[-1]] = profile
    return values
