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

Floats = NDArray[np.float64]
NEAR = 0.05  # a layer whose ratio is within this of 1 is called unchanged


@dataclass(frozen=True)
class Finding:
    name: str
    text: str
    numbers: dict[str, float]
    table: str  # where the numbers can be read in full

    def record(self) -> dict[str, Any]:
        return asdict(self)


def findings(run: Run, queries: str = "original", model: str | None = None) -> list[Finding]:
    """All that can be said of one model, the main filler condition first."""
    if not run.fillers:
        return []
    main = run.fillers[0]
    table = head_table(run, main, queries, model)
    found = [
        _first_layer(run, table, queries, model),
        _depth(run, main, queries, model),
        *_others(run, main, queries, model),
        _collapse(run, main, queries, model),
        _peaks(run, table, queries, model),
        _spread(run, main, queries, model),
        _reliability(table),
    ]
    return [finding for finding in found if finding is not None]


def _first_layer(run: Run, table: HeadTable, queries: str, model: str | None) -> Finding:
    received = [run.summary("received_original", name, queries, model)[:, 0] for name in (table.condition, "none")]
    ratio, low, high = (float(x) for x in ratio_interval(received[0].mean(-1), received[1].mean(-1)))
    drop = table.columns["drop"]
    falls, rises = int((drop.high[0] < 1).sum()), int((drop.low[0] > 1).sum())
    verdict = "falls" if high < 1 else "rises" if low > 1 else "does not change beyond noise"
    text = (
        f"Layer 1, {table.condition}: what original tokens receive {verdict}, to {_with(ratio, low, high)} of its "
        f"value without filler; {falls} of {table.shape[1]} heads fall and {rises} rise beyond their interval "
        f"(n = {table.problems})."
    )
    return Finding("first_layer", text, _numbers(ratio, low, high) | {"falls": falls, "rises": rises}, "heads")


def _depth(run: Run, condition: str, queries: str, model: str | None) -> Finding:
    ratio, low, high = depth_table(run, condition, queries, model).values["drop"]
    moved = [layer for layer in range(len(ratio)) if low[layer] > 1 + NEAR or high[layer] < 1 - NEAR]
    where = f"layers {_ranges(moved)}" if moved else "no layer"
    half = len(ratio) // 2
    deep = [
        run.summary("received_original", name, queries, model)[:, half:].mean((-1, -2)) for name in (condition, "none")
    ]
    value, below, above = (float(x) for x in ratio_interval(deep[0], deep[1]))
    text = (
        f"Depth, {condition}: the whole interval lies more than {NEAR:.0%} away from 1 in {where}; over the deeper "
        f"half, layers {half + 1} to {len(ratio)}, the ratio is {_with(value, below, above)}."
    )
    return Finding("depth", text, _numbers(value, below, above) | {"layers_moved": len(moved)}, "depth")


def _others(run: Run, main: str, queries: str, model: str | None) -> list[Finding]:
    """Another filler of the same length against the main one, on the same problems."""
    found = []
    for other in run.fillers[1:]:
        masses = [run.summary("filler_mass", name, queries, model).mean((-1, -2)) for name in (other, main)]
        received = [run.summary("received_original", name, queries, model)[:, 0].mean(-1) for name in (other, main)]
        drop, low, high = (float(x) for x in ratio_interval(received[0], received[1]))
        gap, below, above = (float(x) for x in sample_interval(masses[0] - masses[1]))
        word = "more" if below > 0 else "less" if above < 0 else "as much, within noise,"
        than = "as" if word.startswith("as") else "than"
        text = (
            f"{other} against {main}: it takes {word} attention {than} {main} over all layers "
            f"({np.nanmean(masses[0]):.3f} against {np.nanmean(masses[1]):.3f}, difference "
            f"{_with(gap, below, above)}); in layer 1 original tokens receive {_with(drop, low, high)} times what "
            f"they receive under {main}."
        )
        numbers = _numbers(drop, low, high) | {"mass_gap": gap, "mass_gap_low": below, "mass_gap_high": above}
        found.append(Finding(f"{other}_against_{main}", text, numbers, "depth"))
    return found


def _collapse(run: Run, condition: str, queries: str, model: str | None) -> Finding | None:
    filler, before, after = (
        run.summary(f"received_{name}", condition, queries, model)[:, 0].mean(-1)
        for name in ("filler", "before", "after")
    )
    to_before = [float(x) for x in ratio_interval(filler, before)]
    to_after = [float(x) for x in ratio_interval(filler, after)]
    if not np.isfinite([*to_before, *to_after]).all():
        return None
    verdict = "collapses on the filler" if to_before[2] < 0.5 else "does not collapse on the filler"
    back = "recovers after it" if to_after[2] < 1 else "does not recover after it"
    text = (
        f"Layer 1, {condition}: attention {verdict} and {back}: a filler token receives {_with(*to_before)} times what "
        f"an original token before it receives, and {_with(*to_after)} times one after it."
    )
    numbers = {"to_before": to_before[0], "to_after": to_after[0]}
    return Finding("collapse", text, numbers, "profiles")


def _peaks(run: Run, table: HeadTable, queries: str, model: str | None) -> Finding:
    peak = table.columns["peak"]
    falls, rises = int((peak.high[0] < 1).sum()), int((peak.low[0] > 1).sum())
    places = [run.peak_at(name, queries, model)[:, 0] for name in (table.condition, "none")]
    same = float((places[0] == places[1]).mean())
    ratio = float(np.exp(np.nanmean(np.log(peak.value[0]))))
    text = (
        f"Peaks in layer 1, {table.condition}: the highest value falls in {falls} and rises in {rises} of "
        f"{table.shape[1]} heads beyond the interval, to {ratio:.3f} of itself on average; the peak stays on the same "
        f"token in {same:.0%} of cases."
    )
    return Finding("peaks", text, {"ratio": ratio, "falls": falls, "rises": rises, "same_token": same}, "heads")


def _spread(run: Run, condition: str, queries: str, model: str | None) -> Finding:
    pair = [run.summary("spread", name, queries, model)[:, 0].mean(-1) for name in (condition, "none")]
    ratio, low, high = (float(x) for x in ratio_interval(pair[0], pair[1]))
    verdict = "shrinks" if high < 1 else "grows" if low > 1 else "does not change beyond noise"
    text = (
        f"Variability in layer 1, {condition}: the standard deviation over original tokens {verdict}, to "
        f"{_with(ratio, low, high)} of its value without filler."
    )
    return Finding("spread", text, _numbers(ratio, low, high), "heads")


def _reliability(table: HeadTable) -> Finding | None:
    value = table.reliability("drop")
    if not np.isfinite(value):
        return None
    word = "repeats itself" if value >= 0.8 else "repeats itself in part" if value >= 0.4 else "is mostly noise"
    text = f"The ranking of heads by drop {word}: rank correlation of random halves of the problems is {value:.2f}."
    return Finding("reliability", text, {"split_half": value}, "heads")


def _with(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _numbers(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def _ranges(layers: list[int]) -> str:
    """Zero-based layers as people write them: 1-3, 7."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{r[0] + 1}-{r[-1] + 1}" if len(r) > 1 else str(r[0] + 1) for r in runs)
