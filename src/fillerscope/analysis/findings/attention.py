"""Findings on attention, each tied to the table that it came from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.depth import DepthTable, depth_table
from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.attention_claims import NEAR
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.first_layer import collapse_finding, first_layer_finding
from fillerscope.analysis.findings.view import View
from fillerscope.analysis.findings.wording import compared_with, layer_list, layer_span
from fillerscope.analysis.heads import HeadTable, head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.study.conditions import BASELINE

Floats = NDArray[np.float64]


def attention_findings(run: ModelRun, queries: str = "original") -> list[Finding]:
    """All findings on the attention of one model under its main filler condition."""
    if not run.fillers:
        return []
    view = View(run, run.main, queries)
    heads, depth = _head_table(view), depth_table(run, run.main, queries)
    findings = [
        first_layer_finding(view, heads, depth),
        _depth(view, depth),
        *(_against(view, other) for other in _alike(run, run.main)),
        collapse_finding(view),
        _peaks(view, heads),
        _spread(view),
        _reliability(heads),
    ]
    return [finding for finding in findings if finding is not None]


def _head_table(view: View) -> HeadTable:
    return head_table(view.run, view.condition, view.queries)


def _depth(view: View, table: DepthTable) -> Finding:
    """Where the ratio differs from what length alone gives, or from 1 where that is missing."""
    known = [layer for layer in view.layers if np.isfinite(table.values["beyond"].value[layer])]
    measure, words = ("beyond", "drop / what length alone gives") if known else ("drop", "the ratio")
    counted = known or view.layers
    _, low, high = (bound[counted] for bound in table.values[measure])
    moved = [counted[place] for place in np.flatnonzero((low > 1 + NEAR) | (high < 1 - NEAR))]
    excluded = int(((low > 1) | (high < 1)).sum())
    deep = view.layers[len(view.layers) // 2 :]
    estimate = _deep_ratio(view, deep)
    text = (
        f"Depth, {view.condition}: {words} lies more than {NEAR:.0%} away from 1 in {layer_list(moved)}. Its interval "
        f"excludes 1 in {excluded} of {len(counted)} layers{_without(view)}"
        f"{' where it is known' * (len(counted) < len(view.layers))}. Over the deeper half, {layer_span(deep)}, "
        f"original tokens receive {estimate.ratio} of what they receive under {BASELINE}"
        f"{view.twins_text(lambda twin: _deep_ratio(twin, deep).value)}."
    )
    return Finding(
        "depth", text, "summaries", condition=view.condition, estimates={"value": estimate},
        facts={"layers_moved": len(moved), "layers_excluding_1": excluded},
    )  # fmt: skip


def _deep_ratio(view: View, deep: list[int]) -> Estimate:
    return Estimate.ratio_of(*(values[:, deep].mean((-1, -2)) for values in view.pair("received_original")))


def _without(view: View) -> str:
    layers = view.run.summary("entropy", BASELINE).shape[1]
    missing = layers - len(view.layers)
    return f" with attention ({missing} of {layers} have none)" if missing else ""


def _against(view: View, other: str) -> Finding:
    """Another filler of the same length at the same place against the main one, on the same problems."""
    main, layer = view.condition, view.first
    masses = [one.summary("filler_mass")[:, view.layers].mean() for one in (view.under(other), view)]
    received = [values[:, layer].mean(-1) for values in view.pair("received_original", other)]
    drop, gap = Estimate.ratio_of(received[1], received[0]), Estimate.of(_mass_gaps(view, other))
    text = (
        f"{other} against {main}: the filler takes {masses[0]:.3f} against {masses[1]:.3f} of the attention over all "
        f"layers, difference {gap.ratio}{view.twins_text(lambda twin: float(_mass_gaps(twin, other).mean()))}. In "
        f"layer {layer + 1} original tokens receive {drop.ratio} times what they receive under {main}."
    )
    return Finding(
        f"{other}_against_{main}", text, "summaries", condition=other, estimates={"value": drop, "mass_gap": gap}
    )


def _mass_gaps(view: View, other: str) -> Floats:
    """[problem]: by how much more another filler takes over all layers."""
    own, theirs = (values[:, view.layers].mean((-1, -2)) for values in view.pair("filler_mass", other))
    return np.asarray(theirs - own)


def _alike(run: ModelRun, main: str) -> list[str]:
    """Fillers that may be compared by mass: another length or place alone would change it, in any problem."""
    own, places = run.condition(main), run.layouts().of
    if not own.has_filler:
        return []
    others = [run.condition(name) for name in run.fillers if name != main]
    return [
        other.name
        for other in others
        if other.has_filler
        and other.intervention == own.intervention
        and np.array_equal(places[other.name], places[main])
    ]


def _peaks(view: View, table: HeadTable) -> Finding:
    layer, run = view.first, view.run
    places = [run.peak_at(name, view.queries)[:, layer] for name in (view.condition, BASELINE)]
    same = float((places[0] == places[1]).mean())
    ratio = _mean_peak(table, layer)
    text = (
        f"Peaks in layer {layer + 1}, {view.condition}: the highest value of a head is {ratio:.3f} of that under "
        f"{BASELINE} on average over heads{view.twins_text(lambda twin: _mean_peak(_head_table(twin), layer))}. The "
        f"peak stays on the same token in {same:.0%} of cases."
    )
    return Finding("peaks", text, "summaries", condition=view.condition, facts={"ratio": ratio, "same_token": same})


def _mean_peak(table: HeadTable, layer: int) -> float:
    return float(np.exp(np.nanmean(np.log(table.columns["peak"].value[layer]))))


def _spread(view: View) -> Finding:
    estimate = _spread_ratio(view)
    text = (
        f"Variability in layer {view.first + 1}, {view.condition}: the standard deviation over original tokens is "
        f"{estimate.ratio} of its value {compared_with(view.run, view.condition)}"
        f"{view.twins_text(lambda twin: _spread_ratio(twin).value)}."
    )
    return Finding("spread", text, "summaries", condition=view.condition, estimates={"value": estimate})


def _spread_ratio(view: View) -> Estimate:
    return Estimate.ratio_of(*(values[:, view.first].mean(-1) for values in view.pair("spread")))


def _reliability(table: HeadTable) -> Finding | None:
    value = table.reliability("drop")
    if not np.isfinite(value):
        return None
    words = "repeats itself" if value >= 0.8 else "repeats itself in part" if value >= 0.4 else "is mostly noise"
    text = f"The ranking of heads by drop {words}: rank correlation of random halves of the problems is {value:.2f}."
    return Finding("reliability", text, "summaries", condition=table.condition, facts={"split_half": value})
