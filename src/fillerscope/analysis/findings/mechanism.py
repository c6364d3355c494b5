"""What a run says of the published mechanism, in plain words: each claim is decided by numbers, either way.

The claims: filler scales the first layer's outputs (and later ones not), adds a bias in one direction, leaves no affine
relation in deeper layers, leaves fewer activations near 0 and raises their variance. `mechanismclaims` decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings import mechanism_claims as claims
from fillerscope.analysis.findings.answers import ALPHA, points
from fillerscope.analysis.findings.attention import Finding, span, with_interval
from fillerscope.analysis.findings.attention_claims import sentences_like
from fillerscope.analysis.findings.mechanism_claims import HALF, NEAR, Measured
from fillerscope.analysis.findings.verdict import Decision, Degree, Twins
from fillerscope.analysis.mechanism import (
    ActivationTable,
    AffineTable,
    Estimate,
    activation_table,
    affine_table,
    mean_over,
    near_zero_change,
)
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import PATTERNS, sample_interval
from fillerscope.study.token_classes import ALL

Floats = NDArray[np.float64]


def mechanism_findings(run: Run, condition: str | None = None, model: str | None = None) -> list[Finding]:
    """The claims for one condition, the main one unless another is named, and the same for a sentence beside it."""
    if not run.fillers:
        return []
    main = condition or run.main
    measured, others, found = Measured(run, main, model), sentences_like(run, main), []
    if run.study.probes.affine:
        table = affine_table(run, main, model)
        found += [_scaling(measured, table), _later(measured, table), _deeper(measured, table)]
        found += [_direction(measured, table)]
        found += [_affine_against(measured, table, affine_table(run, name, model)) for name in others]
    if run.study.probes.activations:
        activity = activation_table(run, main, model=model)
        found += [_near_zero(measured, activity), _variance(measured, activity), _classes(run, main, model)]
        found += [_activity_against(measured, activity, activation_table(run, name, model=model)) for name in others]
    return found


def _scaling(measured: Measured, table: AffineTable) -> Finding:
    layer = table.attending[0]
    if not np.isfinite(table.values["lambda_fit"][0][layer]):
        return _untold("scaling", table.condition)
    decision, twins = claims.scaling(measured, layer)
    first, mass, explained = (at(table.values[name], layer) for name in ("lambda_fit", "lambda_mass", "explained"))
    centred = at(table.values["lambda_centred"], layer)[0]
    text = (
        f"Scaling, {table.condition}: that lambda is below 1 in layer {layer + 1} {decision.told}: it is "
        f"{with_interval(*first)}{_beside(twins)}; fitted with an intercept it is {centred:.3f}; "
        f"{_from_mass(mass[0])}; lambda and a bias explain {_percent(explained[0])} of the variation of outputs"
        f"{'' if explained[0] >= HALF else ', so little that lambda says little'} (n = {table.problems})."
    )
    numbers = three("first", first) | {"mass_first": mass[0], "centred_first": centred, "explained_first": explained[0]}
    return Finding("scaling", text, numbers | decision.numbers, "affine", decision.degree)


def _untold(name: str, condition: str) -> Finding:
    decision = Decision(Degree.UNKNOWN, "no attention output moves, or no original token comes after")
    return Finding(name, f"{name.capitalize()}, {condition}: {decision.told}.", {}, "affine", decision.degree)


def _from_mass(mass: float) -> str:
    if not np.isfinite(mass):
        return "there is no filler whose share of attention could be set against it"
    return f"1 less the share of attention on the filler is {mass:.3f}"


def _beside(twins: Twins, show: Callable[[float], str] = "{:.3f}".format) -> str:
    """The same in untrained models, where they were measured."""
    if not twins.values:
        return ""
    return f" (in {len(twins.values)} untrained models: {show(min(twins.values))} to {show(max(twins.values))})"


def _later(measured: Measured, table: AffineTable) -> Finding:
    deep = table.attending[1:]
    decision, twins = claims.later(measured, deep)
    value = _over(table.samples["lambda_fit"][:, deep])
    _, low, high = (bound[deep] for bound in table.values["lambda_fit"])
    below, above = int((high < 1 - NEAR).sum()), int((low > 1 + NEAR).sum())
    mass = _over(table.samples["lambda_mass"][:, deep])[0]
    shown = (
        f": it is {with_interval(*value)} on average over {span(deep)}{_beside(twins)}, with the whole interval below "
        f"{1 - NEAR:g} in {below} and above {1 + NEAR:g} in {above} of these {len(deep)}; {_from_mass(mass)}"
        if deep else ""
    )  # fmt: skip
    text = f"Later, {table.condition}: that lambda is within {NEAR:g} of 1 in deeper layers {decision.told}{shown}"
    numbers = three("later", value) | {"layers_below": below, "layers_above": above, "mass_later": mass}
    text = f"{text} (n = {table.problems})."
    return Finding("later", text, numbers | decision.numbers, "affine", decision.degree)


def _deeper(measured: Measured, table: AffineTable) -> Finding:
    """Whether deeper layers have an affine relation at all, and how far it is the same one in all problems."""
    deep = table.attending[1:]
    decision, twins = claims.deeper(measured, deep)
    value = _over(table.samples["explained"][:, deep])
    lambdas = table.samples["lambda_fit"][:, deep]
    alike = float(np.nanmean(table.consistency[deep])) if np.isfinite(table.consistency[deep]).any() else float("nan")
    spread = float(np.nanmean(lambdas.std(axis=0, ddof=1))) if deep and len(lambdas) > 1 else float("nan")
    shown = (
        f": lambda and a bias explain {with_interval(*value)} of the variation of outputs on average over "
        f"{span(deep)}{_beside(twins)}; over problems lambda has a standard deviation of {spread:.3f}, and biases have "
        f"{alike:.3f} of their length in common"
        if deep and np.isfinite([value[0], spread, alike]).all() else ""
    )  # fmt: skip
    text = (
        f"Deeper, {table.condition}: that deeper layers show no affine relation (less than {HALF:g} explained) "
        f"{decision.told}{shown} (n = {table.problems})."
    )
    numbers = three("explained", value) | {"lambda_spread": spread, "across": alike}
    return Finding("deeper", text, numbers | decision.numbers, "affine", decision.degree)


def _direction(measured: Measured, table: AffineTable) -> Finding:
    layer = table.attending[0]
    if not np.isfinite(table.values["direction"][0][layer]):
        return _untold("direction", table.condition)
    decision, twins = claims.direction(measured, table)
    within, across = at(table.values["direction"], layer), float(table.consistency[layer])
    middle = float(np.nanmedian(table.values["direction"][0]))
    size = at(table.values["relative_bias"], layer)
    text = (
        f"Direction, {table.condition}: that a bias in one direction is added {decision.told}: in layer {layer + 1} "
        f"the shift of a problem's tokens has {with_interval(*within)}{_beside(twins)} of its length in common (1: all "
        f"point one way; median layer {middle:.3f}), and the biases of different problems {across:.3f} of theirs, "
        f"where unrelated ones would have about {table.chance:.2f}; the bias is {with_interval(*size)} times as long "
        f"as an output; {_beside_moved(measured)} (n = {table.problems}; above {HALF:g} counts as one direction)."
    )
    numbers = three("within", within) | {"median_layer": middle, "across": across, "chance": table.chance}
    numbers |= {"relative_bias": size[0]} | decision.numbers
    return Finding("direction", text, numbers, "affine", decision.degree)


def _beside_moved(measured: Measured) -> str:
    names = claims.moved_like(measured)
    if not names:
        return "what positions moved by as many tokens would do was not measured (condition `positions`)"
    moved = affine_table(measured.run, names[0], measured.model)
    layer = moved.attending[0]
    within, size = at(moved.values["direction"], layer)[0], at(moved.values["relative_bias"], layer)[0]
    across = float(moved.consistency[layer])
    return f"where positions alone are moved these are {within:.3f}, {across:.3f} and {size:.3f}"


def _affine_against(measured: Measured, main: AffineTable, other: AffineTable) -> Finding:
    """The main filler beside another, and how far the two are apart in untrained models."""
    layer, names = main.attending[0], ("lambda_fit", "direction")
    scale, turn = (interval(main.samples[name][:, layer] - other.samples[name][:, layer]) for name in names)
    lambdas, turns = ([at(table.values[name], layer)[0] for table in (main, other)] for name in names)
    apart = [_beside(_gaps(measured, other.condition, name, layer)) for name in names]
    text = (
        f"{main.condition} against {other.condition}, layer {layer + 1}, the affine picture: lambda "
        f"{lambdas[0]:.3f} against {lambdas[1]:.3f}, difference {with_interval(*scale)}{apart[0]}; direction within "
        f"problems {turns[0]:.3f} against {turns[1]:.3f}, difference {with_interval(*turn)}{apart[1]}; across problems "
        f"{main.consistency[layer]:.3f} against {other.consistency[layer]:.3f} (n = {main.problems})."
    )
    numbers = three("lambda", scale) | three("direction", turn)
    return Finding(f"affine_{main.condition}_against_{other.condition}", text, numbers, "affine")


def _gaps(measured: Measured, other: str, measure: str, layer: int) -> Twins:
    """By how much a measure of one layer differs between two conditions, in every untrained twin."""
    own, theirs = (replace(measured, condition=name).twins(measure, layer) for name in (measured.condition, other))
    return Twins(tuple(one - two for one, two in zip(own.values, theirs.values, strict=True)))


def _near_zero(measured: Measured, table: ActivationTable) -> Finding:
    decision, twins = claims.near_zero(measured)
    change, p = at(table.difference["near_zero"], 0), float(table.adjusted["near_zero"][0])
    sure = table.adjusted["near_zero"] < ALPHA
    falls, rises = (int((sure & (sign * table.difference["near_zero"][0] > 0)).sum()) for sign in (-1, 1))
    without, under = (float(values["near_zero"][0]) for values in (table.without, table.under))
    text = (
        f"Activations, {table.condition}: that fewer of layer 1's are near zero {decision.told}: {without:.2%} without "
        f"and {under:.2%} with, {signed(change)} points{_beside(twins, lambda share: points(share, digits=2))}, "
        f"p {_p(p, table.layers)} after Holm over {table.layers} layers; {_by_layer(table, falls, rises)} "
        f"(n = {table.n[0]})."
    )
    numbers = three("change", change) | {"adjusted": p, "falls": falls, "rises": rises} | decision.numbers
    return Finding("near_zero", text, numbers, "activations", decision.degree)


def _by_layer(table: ActivationTable, falls: int, rises: int) -> str:
    """Below some number of problems no p can be small enough in any layer."""
    needs = next(n for n in range(1, 64) if 2 * table.layers / 2**n < ALPHA)
    if int(table.n.max(initial=0)) < needs:
        return f"to count layers in which the share changes takes {needs} problems"
    still = table.layers - falls - rises
    return f"the share falls in {falls}, rises in {rises} and does not change beyond noise in {still} of them"


def _variance(measured: Measured, table: ActivationTable) -> Finding:
    decision, twins = claims.variance(measured)
    ratio = at(table.ratio["variance"], 0)
    values = table.ratio["variance"][0]
    above = int((values[np.isfinite(values)] > 1).sum())
    text = (
        f"Variance, {table.condition}: that the variance of layer 1's activations rises {decision.told}: it is "
        f"{with_interval(*ratio)} times that without{_beside(twins, lambda value: f'{np.exp(value):.3f}')}, and "
        f"above 1 in {above} of {table.layers} layers (n = {table.n[0]})."
    )
    numbers = three("variance", ratio) | {"layers_above": above} | decision.numbers
    return Finding("variance", text, numbers, "activations", decision.degree)


def _classes(run: Run, condition: str, model: str | None) -> Finding:
    told, numbers = [], {}
    for cls in run.classes:
        if cls != ALL:
            found, n = near_zero_change(run, condition, cls, model)
            change = at(found, 0)
            shown = f"{signed(change)} points" if np.isfinite(change[0]) else "none in any problem"
            told.append(f"{cls} {shown} (n = {n[0]})")
            numbers[cls] = change[0]
    text = f"Activations near zero by class of token, layer 1, {condition}: {'; '.join(told)}."
    return Finding("near_zero_classes", text, numbers, "activations")


def _activity_against(measured: Measured, main: ActivationTable, other: ActivationTable) -> Finding:
    share = interval(main.samples["near_zero"][:, 0] - other.samples["near_zero"][:, 0])
    logs = interval(main.samples["log_variance"][:, 0] - other.samples["log_variance"][:, 0])
    ratio = [float(np.exp(value)) for value in logs]
    apart = _beside(_gaps(measured, other.condition, "near_zero", 0), lambda value: points(value, digits=2))
    text = (
        f"{main.condition} against {other.condition}, layer 1, activations: the share near zero moves by "
        f"{signed(at(main.difference['near_zero'], 0))} against {signed(at(other.difference['near_zero'], 0))} points, "
        f"difference {signed(share)}{apart}; the variance is {with_interval(*ratio)} times that under "
        f"{other.condition} (n = {main.n[0]})."
    )
    numbers = three("near_zero", share) | three("variance", ratio)
    return Finding(f"activations_{main.condition}_against_{other.condition}", text, numbers, "activations")


def at(found: Estimate, layer: int) -> list[float]:
    """Value, low and high in one layer."""
    return [float(bound[layer]) for bound in found]


def _over(samples: Floats) -> list[float]:
    """Of each problem's mean over some layers."""
    if not samples.shape[1]:
        return [float("nan")] * 3
    return interval(mean_over(samples))


def interval(samples: Floats) -> list[float]:
    return [float(bound) for bound in sample_interval(samples)]


def three(name: str, found: Sequence[float]) -> dict[str, float]:
    return {name: found[0], f"{name}_low": found[1], f"{name}_high": found[2]}


def signed(found: Sequence[float]) -> str:
    """A small difference of shares in per cent points, with its interval."""
    value, low, high = (points(bound, digits=2) for bound in found)
    return f"{value} [{low}, {high}]" if np.isfinite(found).all() else value


def _percent(share: float) -> str:
    return f"{share:.0%}" if np.isfinite(share) else "an unknown share"


def _p(p: float, family: int) -> str:
    """No p is smaller than one in all patterns that were drawn, times the family's size."""
    if not np.isfinite(p):
        return "unknown"
    return f"{'at most' if p <= 1.01 * family / PATTERNS else '='} {p:.3g}"
