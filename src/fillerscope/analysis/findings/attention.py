"""What a run says of attention, in sentences with numbers and intervals, each tied to the table it came from.

More keys take weight from the others whatever they mean: a change is called an effect where `attentionclaims` decides
so, and otherwise its number stands beside what length alone and untrained twins show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.depth import DepthTable, depth_table
from fillerscope.analysis.findings import attention_claims as claims
from fillerscope.analysis.findings.attention_claims import COLLAPSE, NEAR
from fillerscope.analysis.findings.verdict import Decision, Degree
from fillerscope.analysis.heads import HeadTable, head_table
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import ratio_interval, sample_interval
from fillerscope.analysis.twins import over_twins

Floats = NDArray[np.float64]
SIDES = ("before", "after")


@dataclass(frozen=True)
class Finding:
    name: str
    text: str
    numbers: dict[str, float]
    table: str  # where the numbers can be read in full
    verdict: Degree | None = None  # of findings that decide a claim

    def record(self) -> dict[str, Any]:
        return asdict(self)


def findings(run: Run, queries: str = "original", model: str | None = None) -> list[Finding]:
    """All that can be said of one model, the main filler condition first."""
    if not run.fillers:
        return []
    main = run.main
    table, layers = head_table(run, main, queries, model), depth_table(run, main, queries, model)
    found = [
        _first_layer(run, table, layers, queries, model),
        _depth(run, layers, queries, model),
        *_others(run, main, queries, model),
        _collapse(run, main, model),
        _peaks(run, table, queries, model),
        _spread(run, main, queries, model),
        _reliability(table),
    ]
    return [finding for finding in found if finding is not None]


def _first_layer(run: Run, table: HeadTable, layers: DepthTable, queries: str, model: str | None) -> Finding:
    layer = run.attention_layers(model)[0]
    ratio = [float(bound[layer]) for bound in layers.values["drop"]]
    length = Length.of(layers, layer)
    decision = claims.first_layer(run, table.condition, layer, queries, model)
    heads, numbers = _heads(table, layer)
    text = (
        f"{_first(layer)}, {table.condition}, {table.queries} queries: original tokens receive "
        f"{with_interval(*ratio)} of what they receive {_baseline(run, table.condition)}{length.told}; {heads} "
        f"(n = {table.problems}). {_effect(run, table.condition, decision, length)}."
    )
    return Finding("first_layer", text, _numbers(*ratio) | {"layer": layer + 1} | numbers | length.numbers, "depth",
                   decision.degree)  # fmt: skip


def _effect(run: Run, condition: str, decision: Decision, length: Length) -> str:
    """The claim, and what was decided."""
    if not run.condition(condition).has_filler:
        return f"That {condition} changes what original tokens receive {decision.told}"
    way = {-1: "more", 1: "less"}.get(length.side, "more or less")
    return f"That filler draws {way} attention than as many average tokens {decision.told}"


@dataclass(frozen=True)
class Length:
    """What length alone would give in one layer, beside a drop; NaN where it is not known."""

    uniform: float
    odds: float
    beyond: tuple[float, float, float]  # drop / odds
    twins: tuple[float, float]  # the least and the largest drop of untrained twins

    @classmethod
    def of(cls, table: DepthTable, layer: int) -> Length:
        nothing = [np.full(table.layers, np.nan)] * 3
        found = {name: [float(bound[layer]) for bound in table.values.get(name, nothing)] for name in BESIDE}
        beyond = found["beyond"] if np.isfinite(found["beyond"][0]) else found["beyond_uniform"]
        twins = found["twin"][1], found["twin"][2]
        return cls(found["uniform"][0], found["odds"][0], (beyond[0], beyond[1], beyond[2]), twins)

    @property
    def side(self) -> int:
        """On which side of 1 the interval of `beyond` lies; 0 where it holds 1."""
        return int(self.beyond[1] > 1) - int(self.beyond[2] < 1)

    @property
    def told(self) -> str:
        parts = [
            f"uniform attention over the longer prompt would give {self.uniform:.3f}" * bool(np.isfinite(self.uniform)),
            f"rows that keep their odds {self.odds:.3f}" * bool(np.isfinite(self.odds)),
            f"untrained twins give {_range(self.twins)}" * bool(np.isfinite(self.twins[0])),
        ]
        known = ", ".join(filter(None, parts))
        beyond = f"; beyond length it is {with_interval(*self.beyond)}" * bool(np.isfinite(self.beyond[0]))
        return f" ({known}{beyond})" if known else ""

    @property
    def numbers(self) -> dict[str, float]:
        keys = "uniform", "odds", "beyond", "beyond_low", "beyond_high", "twin_low", "twin_high"
        found = dict(zip(keys, (self.uniform, self.odds, *self.beyond, *self.twins), strict=True))
        return {name: value for name, value in found.items() if np.isfinite(value)}


BESIDE = ("uniform", "odds", "beyond", "beyond_uniform", "twin")


def _heads(table: HeadTable, layer: int) -> tuple[str, dict[str, float]]:
    """How many heads of a layer lie outside the range of untrained ones, or on which side of length alone."""
    drop = table.columns["drop"]
    count = table.shape[1]
    if table.knows("twin") and np.isfinite(table.columns["twin"].value[layer]).any():
        twin = table.columns["twin"]
        below, above = drop.value[layer] < twin.low[layer], drop.value[layer] > twin.high[layer]
        word = f"{below.sum()} of {count} heads lie below and {above.sum()} above all heads of the twins"
        return word, {"heads_below": int(below.sum()), "heads_above": int(above.sum())}
    if table.knows("beyond") and np.isfinite(table.columns["beyond"].value[layer]).any():
        beyond = table.columns["beyond"]
        below, above = beyond.high[layer] < 1, beyond.low[layer] > 1
        word = f"{below.sum()} of {count} heads lie below and {above.sum()} above what length alone gives"
        return word, {"heads_below": int(below.sum()), "heads_above": int(above.sum())}
    below, above = drop.high[layer] < 1, drop.low[layer] > 1
    return f"{below.sum()} of {count} heads fall and {above.sum()} rise", {
        "heads_below": int(below.sum()),
        "heads_above": int(above.sum()),
    }


def _depth(run: Run, table: DepthTable, queries: str, model: str | None) -> Finding:
    """Where the ratio differs from what length alone gives, or from 1 where that is not known."""
    layers, condition = run.attention_layers(model), table.condition
    known = [layer for layer in layers if np.isfinite(table.values["beyond"][0][layer])]
    name, word = ("beyond", "drop / what length alone gives") if known else ("drop", "the ratio")
    counted = known or layers
    _, low, high = (bound[counted] for bound in table.values[name])
    moved = [counted[place] for place in np.flatnonzero((low > 1 + NEAR) | (high < 1 - NEAR))]
    where = f"{'layers' if len(moved) > 1 else 'layer'} {_ranges(moved)}" if moved else "no layer"
    excluded = int(((low > 1) | (high < 1)).sum())
    deep = layers[len(layers) // 2 :]
    received = [
        run.summary("received_original", name, queries, model)[:, deep].mean((-1, -2)) for name in (condition, "none")
    ]
    value, below, above = (float(x) for x in ratio_interval(*received))
    text = (
        f"Depth, {condition}: the interval of {word} excludes 1 in {excluded} of {len(counted)} "
        f"layers{_without(run, model)}{' where it is known' * (len(counted) < len(layers))}, and lies more than "
        f"{NEAR:.0%} away from it in {where}; over the deeper half, "
        f"{span(deep)}, original tokens receive {with_interval(value, below, above)} of what they receive under none"
        f"{_beside_twins(run, model, lambda twin: _deep_ratio(run, condition, deep, queries, twin))}."
    )
    return Finding("depth", text, _numbers(value, below, above) | {"layers_moved": len(moved)}, "summaries")


def _deep_ratio(run: Run, condition: str, deep: Sequence[int], queries: str, model: str) -> float:
    pair = [
        run.summary("received_original", one, queries, model)[:, deep].mean((-1, -2)) for one in (condition, "none")
    ]
    return float(ratio_interval(*pair)[0])


def _beside_twins(run: Run, model: str | None, read: Callable[[str], float]) -> str:
    """The range of a number over untrained twins; that it was not measured, where so."""
    values = over_twins(run, model, lambda twin: np.asarray(read(twin)))
    if not values.size:
        return " (untrained models were not measured)"
    return f" (untrained twins: {_range((float(values.min()), float(values.max())))})"


def _range(values: tuple[float, float]) -> str:
    return f"{values[0]:.3f} to {values[1]:.3f}"


def _others(run: Run, main: str, queries: str, model: str | None) -> list[Finding]:
    """Other fillers of the same length at the same place against the main one, on the same problems."""
    found, layers = [], run.attention_layers(model)

    def gaps(other: str, model: str | None) -> Floats:
        masses = [run.summary("filler_mass", name, queries, model)[:, layers].mean((-1, -2)) for name in (other, main)]
        return np.asarray(masses[0] - masses[1])

    for other in _alike(run, main):
        masses = [run.summary("filler_mass", name, queries, model)[:, layers].mean() for name in (other, main)]
        pair = [run.summary("received_original", name, queries, model)[:, layers[0]] for name in (other, main)]
        drop, low, high = (float(x) for x in ratio_interval(pair[0].mean(-1), pair[1].mean(-1)))
        gap, below, above = (float(x) for x in sample_interval(gaps(other, model)))
        beside = _beside_twins(run, model, lambda twin, name=other: float(gaps(name, twin).mean()))  # type: ignore[misc]
        text = (
            f"{other} against {main}: the filler takes {masses[0]:.3f} against {masses[1]:.3f} of the attention over "
            f"all layers, difference {with_interval(gap, below, above)}{beside}; in layer {layers[0] + 1} "
            f"original tokens receive {with_interval(drop, low, high)} times what they receive under {main}."
        )
        numbers = _numbers(drop, low, high) | {"mass_gap": gap, "mass_gap_low": below, "mass_gap_high": above}
        found.append(Finding(f"{other}_against_{main}", text, numbers, "summaries"))
    return found


def _alike(run: Run, main: str) -> list[str]:
    """Fillers that may be compared by mass: another length or place alone would change it."""

    def kind(name: str) -> tuple[object, ...]:
        condition = run.condition(name)
        return condition.has_filler, condition.count, condition.position, condition.intervention

    if not run.condition(main).has_filler:
        return []

    return [name for name in run.fillers if name != main and kind(name) == kind(main)]


def _collapse(run: Run, condition: str, model: str | None) -> Finding | None:
    """All queries count, as published. Tokens after a place differ from those before it without any filler too,
    so that ratio stands beside."""
    layer = run.attention_layers(model)[0]
    received = {
        (name, where): run.summary(f"received_{where}", name, "all", model)[:, layer].mean(-1)
        for name, where in ((condition, "filler"), *((name, where) for name in (condition, "none") for where in SIDES))
    }
    to_before, to_after, control = (
        [float(x) for x in ratio_interval(received[above], received[below])]
        for above, below in (
            ((condition, "filler"), (condition, "before")),
            ((condition, "filler"), (condition, "after")),
            (("none", "after"), ("none", "before")),
        )
    )
    if not np.isfinite([*to_before, *to_after]).all():
        return None
    decision = claims.collapse(run, condition, layer, model)
    beside = _beside_twins(run, model, lambda twin: _on_filler(run, condition, layer, twin))
    text = (
        f"{_first(layer)}, {condition}, all queries: a filler token receives {with_interval(*to_before)} times what an "
        f"original token before it receives{beside} and {with_interval(*to_after)} times what one after it receives; "
        f"without filler, tokens after the place receive {with_interval(*control)} times those before. That attention "
        f"collapses on the filler, to less than {COLLAPSE:g} of what stands before it, {decision.told}."
    )
    numbers = {
        f"{name}{part}": value
        for name, values in (("to_before", to_before), ("to_after", to_after), ("control", control))
        for part, value in zip(("", "_low", "_high"), values, strict=True)
    }
    return Finding("collapse", text, numbers, "summaries", decision.degree)


def _on_filler(run: Run, condition: str, layer: int, model: str) -> float:
    return float(np.exp(np.nanmean(claims.on_filler(run, condition, model)[:, layer])))


def _peaks(run: Run, table: HeadTable, queries: str, model: str | None) -> Finding:
    layer, condition = run.attention_layers(model)[0], table.condition
    places = [run.peak_at(name, queries, model)[:, layer] for name in (condition, "none")]
    same = float((places[0] == places[1]).mean())
    ratio = _mean_peak(table, layer)
    beside = _beside_twins(run, model, lambda twin: _mean_peak(head_table(run, condition, queries, twin), layer))
    text = (
        f"Peaks in layer {layer + 1}, {condition}: the highest value of a head is {ratio:.3f} of that under none on "
        f"average over heads{beside}; the peak stays on the same token in {same:.0%} of cases."
    )
    return Finding("peaks", text, {"ratio": ratio, "same_token": same}, "summaries")


def _mean_peak(table: HeadTable, layer: int) -> float:
    return float(np.exp(np.nanmean(np.log(table.columns["peak"].value[layer]))))


def _spread(run: Run, condition: str, queries: str, model: str | None) -> Finding:
    layer = run.attention_layers(model)[0]

    def ratio(name: str | None) -> list[float]:
        pair = [run.summary("spread", one, queries, name)[:, layer].mean(-1) for one in (condition, "none")]
        return [float(x) for x in ratio_interval(pair[0], pair[1])]

    own = ratio(model)
    text = (
        f"Variability in layer {layer + 1}, {condition}: the standard deviation over original tokens is "
        f"{with_interval(*own)} of its value {_baseline(run, condition)}"
        f"{_beside_twins(run, model, lambda twin: ratio(twin)[0])}."
    )
    return Finding("spread", text, _numbers(*own), "summaries")


def _reliability(table: HeadTable) -> Finding | None:
    value = table.reliability("drop")
    if not np.isfinite(value):
        return None
    word = "repeats itself" if value >= 0.8 else "repeats itself in part" if value >= 0.4 else "is mostly noise"
    text = f"The ranking of heads by drop {word}: rank correlation of random halves of the problems is {value:.2f}."
    return Finding("reliability", text, {"split_half": value}, "summaries")


def _first(layer: int) -> str:
    """The first layer with attention, counted from 0: in hybrid models not always the first of all."""
    return f"Layer {layer + 1}" if layer == 0 else f"Layer {layer + 1}, the first with attention"


def _without(run: Run, model: str | None) -> str:
    layers = run.summary("entropy", "none", model=model).shape[1]
    missing = layers - len(run.attention_layers(model))
    return f" with attention ({missing} of {layers} have none)" if missing else ""


def _baseline(run: Run, condition: str) -> str:
    return "without filler" if run.condition(condition).has_filler else "under none"


def with_interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]" if np.isfinite([low, high]).all() else f"{value:.3f}"


def _numbers(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def span(layers: list[int]) -> str:
    """Zero-based layers from the first to the last, as people count them."""
    if len(layers) == 1:
        return f"layer {layers[0] + 1}"
    gaps = layers[-1] - layers[0] >= len(layers)
    return f"layers {layers[0] + 1} to {layers[-1] + 1}{' that have attention' if gaps else ''}"


def _ranges(layers: list[int]) -> str:
    """Zero-based layers as people write them: 1-3, 7."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{r[0] + 1}-{r[-1] + 1}" if len(r) > 1 else str(r[0] + 1) for r in runs)
