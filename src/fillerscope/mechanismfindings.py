"""What a run says of the published mechanism, in plain words: each claim is decided by numbers, either way.

The claims: filler scales the first layer's outputs, adds a bias in one direction, and leaves fewer activations near 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.mechanism import (
    ActivationTable,
    AffineTable,
    Estimate,
    activation_table,
    affine_table,
    mean_over,
    near_zero_change,
)
from fillerscope.analysis.runs import Run
from fillerscope.answerfindings import ALPHA, points
from fillerscope.findings import Finding, span, with_interval
from fillerscope.interventions import Shift
from fillerscope.stats import PATTERNS, sample_interval
from fillerscope.tokenclasses import ALL

Floats = NDArray[np.float64]
HOLDS, FAILS, UNKNOWN = "holds on this model", "does not hold on this model", "cannot be told on this model"
NEAR = 0.05  # a lambda within this of 1 is called near 1
FEW = 0.1  # of the deeper layers may be far from 1 where they are called near 1
HALF = 0.5  # directions and explained shares above this are called strong
SMALL = 0.005  # a change of a share that is surely within this is called none


def mechanism_findings(run: Run, condition: str | None = None, model: str | None = None) -> list[Finding]:
    """The claims for one condition, the main one unless another is named, and the same for a sentence beside it."""
    if not run.fillers:
        return []
    main = condition or run.main
    others = sentences_like(run, main)
    found: list[Finding] = []
    if run.study.probes.affine:
        table = affine_table(run, main, model)
        found += [_scaling(table), _direction(table, _moved(run, main, model))]
        found += [_affine_against(table, affine_table(run, name, model)) for name in others]
    if run.study.probes.activations:
        activity = activation_table(run, main, model=model)
        found += [_near_zero(activity), _classes(run, main, model)]
        found += [_activity_against(activity, activation_table(run, name, model=model)) for name in others]
    return found


def sentences_like(run: Run, main: str) -> list[str]:
    """Sentences of the same length at the same place, and nothing done inside the model."""
    wanted = run.condition(main)
    found = [run.condition(name) for name in run.fillers if name != main]
    return [
        one.name for one in found
        if one.kind == "sentence" and not one.intervention and wanted.has_filler
        and (one.count, one.position) == (wanted.count, wanted.position)
    ]  # fmt: skip


def _scaling(table: AffineTable) -> Finding:
    one, *deep = table.attending
    if not np.isfinite(table.values["lambda_fit"][0][one]):
        return _untold("scaling", table.condition)
    first = at(table.values["lambda_fit"], one)
    later = _over(table.samples["lambda_fit"][:, deep])
    _, low, high = (bound[deep] for bound in table.values["lambda_fit"])
    below, above = int((high < 1 - NEAR).sum()), int((low > 1 + NEAR).sum())
    mass = [at(table.values["lambda_mass"], one), _over(table.samples["lambda_mass"][:, deep])]
    explained = [at(table.values["explained"], one), _over(table.samples["explained"][:, deep])]
    centred = at(table.values["lambda_centred"], one)[0], _over(table.samples["lambda_centred"][:, deep])[0]
    fitted = table.samples["lambda_fit"]
    gap = _over(fitted[:, deep] - fitted[:, [one]])
    verdict = _scaling_verdict(first, gap, below + above, len(deep))
    deeper = (
        f"{with_interval(*later)} on average over {span(deep)}, with the whole interval "
        f"below {1 - NEAR:g} in {below} and above {1 + NEAR:g} in {above} of these {len(deep)}"
        if deep else "there is no deeper layer"
    )  # fmt: skip
    text = (
        f"Scaling, {table.condition}: that lambda is below 1 in layer {one + 1} and near 1 later {verdict}: it is "
        f"{with_interval(*first)} in layer {one + 1} and {deeper}; fitted with an intercept it is {centred[0]:.3f} and "
        f"{centred[1]:.3f}; {_from_mass(mass)}; {_explained(explained, one)} "
        f"(n = {table.problems})."
    )
    numbers = three("first", first) | three("later", later) | {"layers_below": below, "layers_above": above}
    numbers |= {"mass_first": mass[0][0], "mass_later": mass[1][0], "centred_first": centred[0]}
    return Finding("scaling", text, numbers | {"explained_first": explained[0][0]}, "affine")


def _untold(name: str, condition: str) -> Finding:
    text = f"{name.capitalize()}, {condition}: {UNKNOWN}: no attention output moves, or no original token comes after."
    return Finding(name, text, {}, "affine")


def _scaling_verdict(first: Sequence[float], gap: Sequence[float], far: int, deeper: int) -> str:
    """Surely below 1 in layer 1, surely nearer to 1 behind it, by the `gap`, and few deeper layers not near 1."""
    if not np.isfinite([*first, *gap]).all() or first[1] < 1 <= first[2]:
        return UNKNOWN
    nearer = gap[1] > 0 and abs(1 - first[0] - gap[0]) < abs(1 - first[0])
    return HOLDS if first[2] < 1 and nearer and far <= FEW * deeper else FAILS


def _from_mass(mass: Sequence[Sequence[float]]) -> str:
    if not np.isfinite(mass[0][0]):
        return "there is no filler whose share of attention could be set against it"
    return f"1 less the share of attention on the filler is {mass[0][0]:.3f} and {mass[1][0]:.3f}"


def _explained(explained: Sequence[Sequence[float]], layer: int) -> str:
    first, later = (_percent(found[0]) for found in explained)
    little = "" if explained[0][0] >= HALF else ", so little that lambda says little"
    return (
        f"lambda and a bias explain {first} of the variation of outputs in layer {layer + 1} and {later} in deeper "
        f"layers{little}"
    )


def _moved(run: Run, main: str, model: str | None) -> AffineTable | None:
    """What positions alone do, where that was measured for filler of this length."""
    wanted = run.condition(main)
    found = [run.condition(name) for name in run.fillers if name != main]
    like = [one.name for one in found if isinstance(one.intervention, Shift) and one.intervention.by == wanted.count]
    return affine_table(run, like[0], model) if like else None


def _direction(table: AffineTable, moved: AffineTable | None) -> Finding:
    layer = table.attending[0]
    if not np.isfinite(table.values["direction"][0][layer]):
        return _untold("direction", table.condition)
    within, across = at(table.values["direction"], layer), float(table.consistency[layer])
    middle = float(np.nanmedian(table.values["direction"][0]))
    size = at(table.values["relative_bias"], layer)
    text = (
        f"Direction, {table.condition}: that a bias in one direction is added "
        f"{_direction_verdict(table, moved)}: in layer {layer + 1} the shift of a problem's tokens has "
        f"{with_interval(*within)} of its length in common (1: all point one way; median layer {middle:.3f}), and "
        f"the biases of different problems {across:.3f} of theirs, where unrelated ones would have about "
        f"{table.chance:.2f}; the bias is {with_interval(*size)} times as long as an output; {_beside_moved(moved)} "
        f"(n = {table.problems}; above {HALF:g} counts as one direction)."
    )
    numbers = three("within", within) | {"median_layer": middle, "across": across, "chance": table.chance}
    return Finding("direction", text, numbers | {"relative_bias": size[0]}, "affine")


def _beside_moved(moved: AffineTable | None) -> str:
    if moved is None:
        return "what positions alone would do was not measured (condition `positions`)"
    layer = moved.attending[0]
    within, size = at(moved.values["direction"], layer)[0], at(moved.values["relative_bias"], layer)[0]
    across = float(moved.consistency[layer])
    return f"where positions alone are moved these are {within:.3f}, {across:.3f} and {size:.3f}"


def _direction_verdict(table: AffineTable, moved: AffineTable | None) -> str:
    """Prompts have much in common, so that a bias must also be more of one direction than positions alone make it."""
    layer = table.attending[0]
    within, across = at(table.values["direction"], layer), float(table.consistency[layer])
    if not np.isfinite([*within, across]).all() or table.chance >= HALF:
        return UNKNOWN
    if within[2] < HALF or across < HALF:
        return FAILS
    if moved is not None:
        more = interval(table.samples["direction"][:, layer] - moved.samples["direction"][:, layer])
        if not more[1] > 0 or across <= moved.consistency[layer]:
            return f"{FAILS} (no more than by moved positions)"
    return HOLDS if within[1] > HALF else UNKNOWN


def _affine_against(main: AffineTable, other: AffineTable) -> Finding:
    """Whether the affine picture is special to the main filler."""
    layer = main.attending[0]
    scale, turn = (
        interval(main.samples[name][:, layer] - other.samples[name][:, layer]) for name in ("lambda_fit", "direction")
    )
    lambdas, turns = (
        [at(table.values[name], layer)[0] for table in (main, other)] for name in ("lambda_fit", "direction")
    )
    text = (
        f"{main.condition} against {other.condition}, layer {layer + 1}, the affine picture: lambda "
        f"{lambdas[0]:.3f} against {lambdas[1]:.3f}, difference {with_interval(*scale)}; direction within problems "
        f"{turns[0]:.3f} against {turns[1]:.3f}, difference {with_interval(*turn)}; across problems "
        f"{main.consistency[layer]:.3f} against {other.consistency[layer]:.3f}: one direction "
        f"{_special(turn, main.condition)} (n = {main.problems})."
    )
    numbers = three("lambda", scale) | three("direction", turn)
    return Finding(f"affine_{main.condition}_against_{other.condition}", text, numbers, "affine")


def _special(turn: Sequence[float], name: str) -> str:
    if not np.isfinite(turn).all() or turn[1] <= 0 <= turn[2]:
        return f"cannot be told to be special to {name}"
    return f"is {'more' if turn[0] > 0 else 'less'} marked under {name}"


def _near_zero(table: ActivationTable) -> Finding:
    change, p = at(table.difference["near_zero"], 0), float(table.adjusted["near_zero"][0])
    ratio = at(table.ratio["variance"], 0)
    sure = table.adjusted["near_zero"] < ALPHA
    falls, rises = (int((sure & (sign * table.difference["near_zero"][0] > 0)).sum()) for sign in (-1, 1))
    without, under = (float(values["near_zero"][0]) for values in (table.without, table.under))
    text = (
        f"Activations, {table.condition}: that fewer of layer 1's are near zero {_near_zero_verdict(change, p)}: "
        f"{without:.2%} without and {under:.2%} with, {signed(change)} points, p {_p(p, table.layers)} after Holm over "
        f"{table.layers} layers; the share falls in {falls}, rises in {rises} and does not change beyond noise in "
        f"{table.layers - falls - rises} of them; the variance of layer 1 is {with_interval(*ratio)} times that "
        f"without (n = {table.n[0]})."
    )
    numbers = three("change", change) | three("variance", ratio) | {"adjusted": p, "falls": falls, "rises": rises}
    return Finding("near_zero", text, numbers, "activations")


def _near_zero_verdict(change: Sequence[float], p: float) -> str:
    if not np.isfinite([*change, p]).all():
        return UNKNOWN
    if p < ALPHA:
        return HOLDS if change[0] < 0 else f"{FAILS} (more are)"
    unchanged = max(abs(change[1]), abs(change[2])) < SMALL
    return f"{FAILS} (no change as large as {100 * SMALL:g} points)" if unchanged else UNKNOWN


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


def _activity_against(main: ActivationTable, other: ActivationTable) -> Finding:
    share = interval(main.samples["near_zero"][:, 0] - other.samples["near_zero"][:, 0])
    logs = interval(main.samples["log_variance"][:, 0] - other.samples["log_variance"][:, 0])
    ratio = [float(np.exp(value)) for value in logs]
    unsure = not np.isfinite(share).all() or share[1] <= 0 <= share[2]
    word = "cannot be told apart" if unsure else f"is {'lower' if share[0] < 0 else 'higher'} under {main.condition}"
    text = (
        f"{main.condition} against {other.condition}, layer 1, activations: the share near zero {word}: it moves by "
        f"{signed(at(main.difference['near_zero'], 0))} against {signed(at(other.difference['near_zero'], 0))} points, "
        f"difference {signed(share)}; the variance is {with_interval(*ratio)} times that under {other.condition} "
        f"(n = {main.n[0]})."
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
