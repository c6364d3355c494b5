"""Whether filler changes what a model gets right, in plain words: each sentence can come out either way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.runs import Run
from fillerscope.findings import Finding

ALPHA = 0.05


def answer_findings(run: Run, model: str | None = None, table: Sequence[Accuracy] | None = None) -> list[Finding]:
    """What can be said of one model's answers; p is adjusted over a table at hand, or all comparisons of the run."""
    rows = [row for row in (compare(run) if table is None else table) if row.model == run.model(model)]
    baselines = {(row.temperature, row.samples): row for row in rows if row.against is None}
    found = []
    for row in rows:
        if row.against is not None:
            baseline = baselines[row.temperature, row.samples]
            plain = "without filler" if run.condition(row.condition).has_filler else "under none"
            found += [_accuracy(row, baseline, plain), _form(row, baseline)]
    return found


def verdict(row: Accuracy) -> str:
    """Whether a change is beyond noise."""
    change = row.against
    if change is None or not math.isfinite(change.adjusted):
        return "cannot be told: no problem was answered under both"
    if change.adjusted >= ALPHA:
        return "not beyond noise" if change.p >= ALPHA else "not beyond noise once all comparisons are counted"
    return f"a {'gain' if change.difference > 0 else 'loss'} beyond noise"


def drawing(row: Accuracy) -> str:
    """How the answers were drawn."""
    if row.temperature == 0:
        return "greedy"
    return f"temperature {row.temperature:g}, {row.samples} sample{'s' * (row.samples > 1)} a problem"


def _accuracy(row: Accuracy, baseline: Accuracy, plain: str) -> Finding:
    """`plain`: what the baseline is called beside this condition."""
    change = row.against
    assert change is not None
    told = _change(row, baseline, plain) if change.pairs else verdict(row)
    text = f"Accuracy, {row.condition}, {drawing(row)}: {told}."
    numbers = {
        "accuracy": row.accuracy, "baseline": baseline.accuracy, "difference": change.difference,
        "low": change.difference_low, "high": change.difference_high, "p": change.p, "adjusted": change.adjusted,
    }  # fmt: skip
    return Finding(_name("accuracy", row), f"{text} {_power(row)}".strip(), numbers, "accuracy")


def _change(row: Accuracy, baseline: Accuracy, plain: str) -> str:
    change = row.against
    assert change is not None
    test = "exact McNemar" if row.samples == 1 else "permutation test"
    bounds = f" [{points(change.difference_low)}, {points(change.difference_high)}]"
    missing = row.n + row.failed - change.pairs
    return (
        f"{row.accuracy:.1%} against {baseline.accuracy:.1%} {plain}, {points(change.difference)} points"
        f"{bounds if math.isfinite(change.difference_low) else ''} over {change.pairs} problems"
        f"{f' ({missing} more failed under one or the other)' if missing else ''}, {change.gained} better and "
        f"{change.lost} worse, {test} p = {change.p:.3g}, {change.adjusted:.3g} after Holm: {verdict(row)}"
    )


def _power(row: Accuracy) -> str:
    """What so many problems could have shown."""
    change = row.against
    assert change is not None
    if not change.pairs:
        return ""
    if row.samples > 1 and change.pairs > 1 and not math.isfinite(change.detectable):
        return "What so many problems could show cannot be told: all of them changed alike."
    if math.isfinite(change.detectable):
        size = f"{100 * change.detectable:.1f} points"
        could = f"So many problems show a difference of {size} with 80% power, if it is the only one looked for"
    else:
        could = "So few problems show no difference with 80% power"
    if not math.isfinite(change.needed):
        return f"{could}."
    return f"{could}; one as large as was seen takes {change.needed:,.0f} problems."


def _form(row: Accuracy, baseline: Accuracy) -> Finding:
    """A condition that only changes length or format must be seen to."""
    pairs = {
        "tokens": (row.tokens, baseline.tokens),
        "cut_off": (row.cut_off, baseline.cut_off),
        "unanswered": (row.unanswered, baseline.unanswered),
    }
    text = (
        f"{row.tokens:.0f} tokens on average against {baseline.tokens:.0f}; {row.cut_off:.1%} against "
        f"{baseline.cut_off:.1%} cut off by the token limit; no answer found in {row.unanswered:.1%} against "
        f"{baseline.unanswered:.1%}"
    )
    if not (row.n and baseline.n):
        text = "cannot be told: all answers failed under one or the other"
    text = f"Form of the answers, {row.condition}, {drawing(row)}: {text}."
    numbers = {
        f"{key}{part}": value for key, pair in pairs.items() for part, value in zip(("", "_none"), pair, strict=True)
    }
    return Finding(_name("form", row), text, numbers, "accuracy")


def points(share: float, digits: int = 1) -> str:
    """A difference of shares in per cent points, with its sign."""
    return f"{100 * share:+z.{digits}f}"


def _name(kind: str, row: Accuracy) -> str:
    drawn = "" if row.temperature == 0 else f"_t{row.temperature:g}x{row.samples}"
    return f"{kind}_{row.condition}{drawn}"
