"""Findings on MLP activations: filler leaves fewer of them near 0 and raises their variance, or does not."""

from __future__ import annotations

import numpy as np

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.affine import gaps_of_twins
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.mechanism_claims import Measured, decide_near_zero, decide_variance
from fillerscope.analysis.findings.wording import untrained
from fillerscope.analysis.mechanism import ActivationTable, activation_table, near_zero_change
from fillerscope.analysis.stats import PATTERNS
from fillerscope.study.token_classes import ALL


def activation_findings(measured: Measured, others: list[str]) -> list[Finding]:
    """All claims about activations, then the condition against others of its length."""
    run = measured.run
    table = activation_table(run, measured.condition)
    compared = [_against(measured, table, activation_table(run, name)) for name in others]
    return [_near_zero(measured, table), _variance(measured, table), _classes(measured), *compared]


def _near_zero(measured: Measured, table: ActivationTable) -> Finding:
    decision, twins = decide_near_zero(measured)
    change, p = _change(table), float(table.adjusted["near_zero"][0])
    sure = table.adjusted["near_zero"] < ALPHA
    falls, rises = (int((sure & (sign * table.difference["near_zero"].value > 0)).sum()) for sign in (-1, 1))
    without, under = (float(values["near_zero"][0]) for values in (table.without, table.under))
    text = (
        f"Activations, {table.condition}: {decision.text}. Claim: fewer of layer 1's activations are near zero. The "
        f"share changes by {change.points(2)} percentage points{untrained(twins.values, _points)}, from "
        f"{without:.2%} to {under:.2%} (n = {change.n}; p {_p(p, table.layers)} after Holm over {table.layers} "
        f"layers). {_by_layer(table, falls, rises)}."
    )
    return Finding(
        "near_zero", text, "activations", condition=table.condition, estimates={"change": change},
        facts={"adjusted": p, "falls": falls, "rises": rises} | decision.numbers,
        verdict=decision.verdict, reason=decision.reason,
    )  # fmt: skip


def _change(table: ActivationTable) -> Estimate:
    """Of the share near zero in layer 1."""
    return table.difference["near_zero"].at(0, n=int(table.n[0]))


def _points(share: float) -> str:
    return Estimate(share).points(2)


def _by_layer(table: ActivationTable, falls: int, rises: int) -> str:
    """Below some number of problems no p can be small enough in any layer."""
    needs = next(n for n in range(1, 64) if 2 * table.layers / 2**n < ALPHA)
    if int(table.n.max(initial=0)) < needs:
        return f"To count layers in which the share changes takes {needs} problems"
    still = table.layers - falls - rises
    return f"Layers in which it falls: {falls}; rises: {rises}; not significant (p >= {ALPHA:g}): {still}"


def _variance(measured: Measured, table: ActivationTable) -> Finding:
    decision, twins = decide_variance(measured)
    ratio, values = table.ratio["variance"].at(0, n=int(table.n[0])), table.ratio["variance"].value
    above = int((values[np.isfinite(values)] > 1).sum())
    text = (
        f"Variance, {table.condition}: {decision.text}. Claim: the variance of layer 1's activations rises. It is "
        f"{ratio.ratio} times that without{untrained(twins.values, lambda log: f'{np.exp(log):.3f}')} (n = {ratio.n}), "
        f"and above 1 in {above} of {table.layers} layers."
    )
    return Finding(
        "variance", text, "activations", condition=table.condition, estimates={"variance": ratio},
        facts={"layers_above": above} | decision.numbers,
        verdict=decision.verdict, reason=decision.reason,
    )  # fmt: skip


def _classes(measured: Measured) -> Finding:
    changes = {cls: _class_change(measured, cls) for cls in measured.run.classes if cls != ALL}
    shown = [f"{cls} {change.points(2)} (n = {change.n})" for cls, change in changes.items() if change.is_known]
    missing = [cls for cls, change in changes.items() if not change.is_known]
    rest = f" No problem has tokens of {' or '.join(missing)}." if missing else ""
    text = (
        f"Activations near zero by class of token, layer 1, {measured.condition}, percentage points: "
        f"{'; '.join(shown) or 'missing'}.{rest}"
    )
    return Finding("near_zero_classes", text, "activations", condition=measured.condition, estimates=changes, main="")


def _class_change(measured: Measured, cls: str) -> Estimate:
    change, n = near_zero_change(measured.run, measured.condition, cls)
    return change.at(0, n=int(n[0]))


def _against(measured: Measured, main: ActivationTable, other: ActivationTable) -> Finding:
    share, logs = (
        Estimate.of(main.samples[name][:, 0] - other.samples[name][:, 0]) for name in ("near_zero", "log_variance")
    )
    apart = untrained(gaps_of_twins(measured, other.condition, "near_zero", 0).values, _points)
    text = (
        f"{main.condition} against {other.condition}, layer 1, activations: the share near zero moves by "
        f"{_change(main).points(2)} against {_change(other).points(2)} percentage points, difference "
        f"{share.points(2)}{apart} (n = {main.n[0]}). The variance is {logs.exp().ratio} times that under "
        f"{other.condition}."
    )
    return Finding(
        f"activations_{main.condition}_against_{other.condition}", text, "activations", condition=main.condition,
        estimates={"near_zero": share, "variance": logs.exp()},
    )  # fmt: skip


def _p(p: float, family: int) -> str:
    """No p is smaller than one in all patterns that were drawn, times the family's size."""
    if not np.isfinite(p):
        return "unknown"
    return f"{'at most' if p <= 1.01 * family / PATTERNS else '='} {p:.3g}"
