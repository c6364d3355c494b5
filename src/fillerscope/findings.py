"""What a run says, in sentences with numbers and intervals, each tied to the table it came from.

Every sentence can come out either way: it states what was measured, and denies as readily as it affirms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import HeadTable, head_table
from fillerscope.analysis.runs import Run
from fillerscope.stats import ratio_interval, sample_interval
from fillerscope.verdicts import Degree

Floats = NDArray[np.float64]
COLLAPSE = 0.5  # attention that falls below this share of what stands before it has collapsed
SIDES = ("before", "after")
NEAR = 0.05  # a layer whose ratio is within this of 1 is called unchanged


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
    table = head_table(run, main, queries, model)
    found = [
        _first_layer(run, table, queries, model),
        _depth(run, main, queries, model),
        *_others(run, main, queries, model),
        _collapse(run, main, model),
        _peaks(run, table, queries, model),
        _spread(run, main, queries, model),
        _reliability(table),
    ]
    return [finding for finding in found if finding is not None]


def _first_layer(run: Run, table: HeadTable, queries: str, model: str | None) -> Finding:
    layer = run.attention_layers(model)[0]
    received = [run.summary("received_original", name, queries, model)[:, layer] for name in (table.condition, "none")]
    ratio, low, high = (float(x) for x in ratio_interval(received[0].mean(-1), received[1].mean(-1)))
    reference = Beyond.of(run, table.condition, layer, queries, model)
    drop = table.columns["drop"]
    falls, rises = int((drop.high[layer] < 1).sum()), int((drop.low[layer] > 1).sum())
    verdict = _verdict(low, high, "falls", "rises")
    text = (
        f"{_first(layer)}, {table.condition}, {table.queries} queries: what original tokens receive {verdict}: "
        f"{with_interval(ratio, low, high)} of its value {_baseline(run, table.condition)}{reference.told}; {falls} of "
        f"{table.shape[1]} heads fall and {rises} rise beyond their interval (n = {table.problems})."
    )
    numbers = _numbers(ratio, low, high) | {"falls": falls, "rises": rises, "layer": layer + 1} | reference.numbers
    return Finding("first_layer", text, numbers, "depth")


@dataclass(frozen=True)
class Beyond:
    """A layer's drop beside what length alone would give; without a value where that is not known."""

    uniform: float
    value: float  # drop / uniform
    low: float
    high: float

    @classmethod
    def of(cls, run: Run, condition: str, layer: int, queries: str, model: str | None) -> Beyond:
        values = depth_table(run, condition, queries, model).values
        if "beyond" not in values or not run.condition(condition).has_filler:
            return cls(*[float("nan")] * 4)
        return cls(float(values["uniform"][0][layer]), *(float(bound[layer]) for bound in values["beyond"]))

    @property
    def told(self) -> str:
        if not np.isfinite(self.value):
            return ""
        return (
            f", where attention spread evenly over the longer prompt would give {self.uniform:.3f}: beyond length "
            f"alone it is {with_interval(self.value, self.low, self.high)}{self._meaning}"
        )

    @property
    def _meaning(self) -> str:
        if self.low > 1:
            return ", so filler draws less than an average token"
        return ", so filler draws more than an average token" if self.high < 1 else ", no more than length explains"

    @property
    def numbers(self) -> dict[str, float]:
        if not np.isfinite(self.value):
            return {}
        return {"uniform": self.uniform, "beyond": self.value, "beyond_low": self.low, "beyond_high": self.high}


def _depth(run: Run, condition: str, queries: str, model: str | None) -> Finding:
    layers = run.attention_layers(model)
    _, low, high = (bound[layers] for bound in depth_table(run, condition, queries, model).values["drop"])
    moved = [layers[place] for place in np.flatnonzero((low > 1 + NEAR) | (high < 1 - NEAR))]
    where = f"{'layers' if len(moved) > 1 else 'layer'} {_ranges(moved)}" if moved else "no layer"
    beyond = int(((low > 1) | (high < 1)).sum())
    deep = layers[len(layers) // 2 :]
    received = [
        run.summary("received_original", name, queries, model)[:, deep].mean((-1, -2)) for name in (condition, "none")
    ]
    value, below, above = (float(x) for x in ratio_interval(*received))
    text = (
        f"Depth, {condition}: the interval excludes 1 in {beyond} of {len(layers)} layers{_without(run, model)}, and "
        f"lies more than {NEAR:.0%} away from it in {where}; over the deeper "
        f"half, {span(deep)}, the ratio is {with_interval(value, below, above)}."
    )
    return Finding("depth", text, _numbers(value, below, above) | {"layers_moved": len(moved)}, "summaries")


def _others(run: Run, main: str, queries: str, model: str | None) -> list[Finding]:
    """Other fillers of the same length at the same place against the main one, on the same problems."""
    found, layers = [], run.attention_layers(model)
    for other in _alike(run, main):
        masses = [run.summary("filler_mass", name, queries, model)[:, layers].mean((-1, -2)) for name in (other, main)]
        pair = [run.summary("received_original", name, queries, model)[:, layers[0]] for name in (other, main)]
        received = [one.mean(-1) for one in pair]
        drop, low, high = (float(x) for x in ratio_interval(received[0], received[1]))
        gap, below, above = (float(x) for x in sample_interval(masses[0] - masses[1]))
        level = (
            f"{np.mean(masses[0]):.3f} against {np.mean(masses[1]):.3f}, difference {with_interval(gap, below, above)}"
        )
        text = (
            f"{other} against {main}: {_takes(below, above, main)} over all layers ({level}); in layer {layers[0] + 1} "
            f"original tokens receive {with_interval(drop, low, high)} times what they receive under {main}."
        )
        numbers = _numbers(drop, low, high) | {"mass_gap": gap, "mass_gap_low": below, "mass_gap_high": above}
        found.append(Finding(f"{other}_against_{main}", text, numbers, "summaries"))
    return found


def _alike(run: Run, main: str) -> list[str]:
    """Fillers that may be compared by mass: another length or place alone would change it."""

    def kind(name: str) -> tuple[object, ...]:
        condition = run.condition(name)
        return condition.has_filler, condition.count, condition.position

    if not run.condition(main).has_filler:
        return []

    return [name for name in run.fillers if name != main and kind(name) == kind(main)]


def _takes(low: float, high: float, main: str) -> str:
    """On the difference of two filler masses."""
    if not np.isfinite([low, high]).all():
        return f"it cannot be told whether it takes more attention than {main}"
    if low <= 0 <= high:
        return f"the attention that it takes cannot be told apart from that of {main}"
    return f"it takes {'more' if low > 0 else 'less'} attention than {main}"


def _collapse(run: Run, condition: str, model: str | None) -> Finding | None:
    """All queries vote, as published. Tokens after a place differ from those before it without any filler too,
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
    verdict = _decided(to_before, COLLAPSE, "collapses on the filler", "does not collapse on the filler")
    back = _decided(to_after, 1, "is higher again after it", "is not higher after it")
    text = (
        f"{_first(layer)}, {condition}, all queries: attention {verdict or 'may or may not collapse on the filler'} "
        f"and {back or 'cannot be told apart from that after it'}: a filler token receives {with_interval(*to_before)} "
        f"times what an original token before it receives (below {COLLAPSE:g} is called a collapse) and "
        f"{with_interval(*to_after)} times what one after it receives; without filler, tokens after the place receive "
        f"{with_interval(*control)} times those before."
    )
    numbers = {
        f"{name}{part}": value
        for name, values in (("to_before", to_before), ("to_after", to_after), ("control", control))
        for part, value in zip(("", "_low", "_high"), values, strict=True)
    }
    return Finding("collapse", text, numbers, "summaries")


def _decided(ratio: list[float], threshold: float, below: str, above: str) -> str:
    """What the interval decides; nothing where the threshold lies inside it."""
    return below if ratio[2] < threshold else above if ratio[1] > threshold else ""


def _peaks(run: Run, table: HeadTable, queries: str, model: str | None) -> Finding:
    layer, peak = run.attention_layers(model)[0], table.columns["peak"]
    falls, rises = int((peak.high[layer] < 1).sum()), int((peak.low[layer] > 1).sum())
    places = [run.peak_at(name, queries, model)[:, layer] for name in (table.condition, "none")]
    same = float((places[0] == places[1]).mean())
    ratio = float(np.exp(np.nanmean(np.log(peak.value[layer]))))
    text = (
        f"Peaks in layer {layer + 1}, {table.condition}: the highest value falls in {falls} and rises in {rises} of "
        f"{table.shape[1]} heads beyond the interval, and is {ratio:.3f} of itself on average; the peak stays on the "
        f"same token in {same:.0%} of cases."
    )
    return Finding("peaks", text, {"ratio": ratio, "falls": falls, "rises": rises, "same_token": same}, "summaries")


def _spread(run: Run, condition: str, queries: str, model: str | None) -> Finding:
    layer = run.attention_layers(model)[0]
    pair = [run.summary("spread", name, queries, model)[:, layer].mean(-1) for name in (condition, "none")]
    ratio, low, high = (float(x) for x in ratio_interval(pair[0], pair[1]))
    verdict = _verdict(low, high, "shrinks", "grows")
    text = (
        f"Variability in layer {layer + 1}, {condition}: the standard deviation over original tokens {verdict}: "
        f"{with_interval(ratio, low, high)} of its value {_baseline(run, condition)}."
    )
    return Finding("spread", text, _numbers(ratio, low, high), "summaries")


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


def _verdict(low: float, high: float, falls: str, rises: str) -> str:
    """On a ratio, from its interval alone."""
    if not np.isfinite([low, high]).all():
        return "cannot be told from noise with so few problems"
    return falls if high < 1 else rises if low > 1 else "does not change beyond noise"


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
