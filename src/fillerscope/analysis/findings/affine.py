"""Findings on attention outputs: filler scales those of the first layer, adds a bias in one direction, and leaves no
affine relation in deeper layers. `mechanism_claims` decides each claim, either way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.claim import Twins
from fillerscope.analysis.findings.decision import Decision
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.mechanism_claims import (
    HALF,
    NEAR,
    Measured,
    decide_deeper,
    decide_direction,
    decide_later,
    decide_scaling,
    moved_like,
)
from fillerscope.analysis.findings.wording import layer_span, untrained
from fillerscope.analysis.mechanism import AffineTable, affine_table, mean_over

Floats = NDArray[np.float64]


def affine_findings(measured: Measured, others: list[str]) -> list[Finding]:
    """All claims about outputs, then the condition against others of its length."""
    table = affine_table(measured.run, measured.condition)
    claims = [find(measured, table) for find in (_scaling, _later, _deeper, _direction)]
    compared = [_against(measured, table, affine_table(measured.run, name)) for name in others]
    return claims + compared


def _scaling(measured: Measured, table: AffineTable) -> Finding:
    layer = table.attending[0]
    first, mass, explained, centred = (
        _at(table, name, layer) for name in ("lambda_fit", "lambda_mass", "explained", "lambda_centred")
    )
    if not first.is_known:
        return _unmeasured("scaling", table.condition)
    decision, twins = decide_scaling(measured, layer)
    text = (
        f"Scaling, {table.condition}: {decision.text}. Claim: lambda is below 1 in layer {layer + 1}. It is "
        f"{first.ratio}{untrained(twins.values)}; fitted with an intercept it is {centred.value:.3f} "
        f"(n = {table.problems}). {_from_mass(mass.value)}. Lambda and a bias explain {_percent(explained.value)} of "
        f"the variation of outputs{'' if explained.value >= HALF else ', so little that lambda says little'}."
    )
    facts = {"mass_first": mass.value, "centred_first": centred.value, "explained_first": explained.value}
    return _claimed("scaling", text, table, decision, {"first": first}, facts)


def _claimed(
    name: str,
    text: str,
    table: AffineTable,
    decision: Decision,
    estimates: dict[str, Estimate],
    facts: dict[str, float],
) -> Finding:
    return Finding(
        name, text, "affine", condition=table.condition, estimates=estimates, facts=facts | decision.numbers,
        verdict=decision.verdict, reason=decision.reason,
    )  # fmt: skip


def _unmeasured(name: str, condition: str) -> Finding:
    decision = Decision(Verdict.UNKNOWN, "no attention output moves, or no original token comes after")
    text = f"{name.capitalize()}, {condition}: {decision.text}."
    return Finding(name, text, "affine", condition=condition, verdict=decision.verdict, reason=decision.reason)


def _from_mass(mass: float) -> str:
    if not np.isfinite(mass):
        return "There is no filler whose share of attention could be compared with it"
    return f"1 - filler mass is {mass:.3f}"


def _later(measured: Measured, table: AffineTable) -> Finding:
    deep = table.attending[1:]
    decision, twins = decide_later(measured, deep)
    later = _over(table.samples["lambda_fit"][:, deep])
    _, low, high = (bound[deep] for bound in table.values["lambda_fit"])
    below, above = int((high < 1 - NEAR).sum()), int((low > 1 + NEAR).sum())
    mass = _over(table.samples["lambda_mass"][:, deep]).value
    shown = (
        f" It is {later.ratio} on average over {layer_span(deep)}{untrained(twins.values)}; the whole interval lies "
        f"below {1 - NEAR:g} in {below} and above {1 + NEAR:g} in {above} of these {len(deep)} (n = {table.problems}). "
        f"{_from_mass(mass)}."
        if deep else ""
    )  # fmt: skip
    text = f"Later, {table.condition}: {decision.text}. Claim: lambda is within {NEAR:g} of 1 in deeper layers.{shown}"
    facts = {"layers_below": below, "layers_above": above, "mass_later": mass}
    return _claimed("later", text, table, decision, {"later": later}, facts)


def _deeper(measured: Measured, table: AffineTable) -> Finding:
    """Whether deeper layers have an affine relation at all, and how far it is the same one in all problems."""
    deep = table.attending[1:]
    decision, twins = decide_deeper(measured, deep)
    explained, lambdas = _over(table.samples["explained"][:, deep]), table.samples["lambda_fit"][:, deep]
    alike = float(np.nanmean(table.consistency[deep])) if np.isfinite(table.consistency[deep]).any() else float("nan")
    spread = float(np.nanmean(lambdas.std(axis=0, ddof=1))) if deep and len(lambdas) > 1 else float("nan")
    shown = (
        f" Lambda and a bias explain {explained.ratio} of it on average over {layer_span(deep)}"
        f"{untrained(twins.values)} (n = {table.problems}). Over problems lambda has a standard deviation of "
        f"{spread:.3f}, and biases have {alike:.3f} of their length in common."
        if deep and np.isfinite([explained.value, spread, alike]).all() else ""
    )  # fmt: skip
    text = (
        f"Deeper, {table.condition}: {decision.text}. Claim: deeper layers show no affine relation, with less than "
        f"{HALF:g} of the variation of outputs explained.{shown}"
    )
    return _claimed(
        "deeper", text, table, decision, {"explained": explained}, {"lambda_spread": spread, "across": alike}
    )


def _direction(measured: Measured, table: AffineTable) -> Finding:
    layer = table.attending[0]
    within, size = (_at(table, name, layer) for name in ("direction", "relative_bias"))
    if not within.is_known:
        return _unmeasured("direction", table.condition)
    decision, twins = decide_direction(measured, table)
    across, middle = float(table.consistency[layer]), float(np.nanmedian(table.values["direction"].value))
    text = (
        f"Direction, {table.condition}: {decision.text}. Claim: a bias in one direction is added, with more than "
        f"{HALF:g} of its length in common. In layer {layer + 1} the shifts of a problem's tokens have "
        f"{within.ratio}{untrained(twins.values)} in common (median layer {middle:.3f}), and the biases of different "
        f"problems {across:.3f}, where unrelated ones would have about {table.chance:.2f} (n = {table.problems}). The "
        f"bias is {size.ratio} times as long as an output. {_moved(measured)}."
    )
    facts = {"median_layer": middle, "across": across, "chance": table.chance}
    return _claimed("direction", text, table, decision, {"within": within, "relative_bias": size}, facts)


def _moved(measured: Measured) -> str:
    names = moved_like(measured)
    if not names:
        return "What positions moved by as many tokens would do was not measured (condition `positions`)"
    moved = affine_table(measured.run, names[0])
    layer = moved.attending[0]
    within, size = (_at(moved, name, layer).value for name in ("direction", "relative_bias"))
    return (
        f"Where positions alone are moved these are {within:.3f}, {float(moved.consistency[layer]):.3f} and {size:.3f}"
    )


def _against(measured: Measured, main: AffineTable, other: AffineTable) -> Finding:
    """The main filler beside another, and how far the two are apart in untrained models."""
    layer, names = main.attending[0], ("lambda_fit", "direction")
    scale, turn = (Estimate.of(main.samples[name][:, layer] - other.samples[name][:, layer]) for name in names)
    lambdas, turns = ([_at(table, name, layer).value for table in (main, other)] for name in names)
    apart = [untrained(gaps_of_twins(measured, other.condition, name, layer).values) for name in names]
    text = (
        f"{main.condition} against {other.condition}, layer {layer + 1}, the affine picture: lambda is "
        f"{lambdas[0]:.3f} against {lambdas[1]:.3f}, difference {scale.ratio}{apart[0]} (n = {main.problems}). "
        f"Direction within problems is {turns[0]:.3f} against {turns[1]:.3f}, difference {turn.ratio}{apart[1]}; "
        f"across problems {main.consistency[layer]:.3f} against {other.consistency[layer]:.3f}."
    )
    return Finding(
        f"affine_{main.condition}_against_{other.condition}", text, "affine", condition=main.condition,
        estimates={"lambda": scale, "direction": turn},
    )  # fmt: skip


def gaps_of_twins(measured: Measured, other: str, measure: str, layer: int) -> Twins:
    """By how much a measure of one layer differs between two conditions, in every untrained twin."""
    own, theirs = (replace(measured, condition=name).twin_means(measure) for name in (measured.condition, other))
    return Twins.of(own - theirs, layer) if own.size else Twins()


def _at(table: AffineTable, measure: str, layer: int) -> Estimate:
    return table.values[measure].at(layer, n=table.problems)


def _over(samples: Floats) -> Estimate:
    """Of each problem's mean over some layers."""
    return Estimate.of(mean_over(samples)) if samples.shape[1] else Estimate()


def _percent(share: float) -> str:
    return f"{share:.0%}" if np.isfinite(share) else "an unknown share"
