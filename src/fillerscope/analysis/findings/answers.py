"""Whether filler changes what a model gets right, in plain words: each sentence can come out either way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.findings.attention import Finding
from fillerscope.analysis.noise import NEIGHBOURS, SERVER, Noise, noise_floor
from fillerscope.analysis.run import Run

ALPHA = 0.05
MOST_TRUNCATED = 0.1  # share of answers, from which accuracy is not to be read without it


def answer_findings(
    run: Run,
    model: str | None = None,
    table: Sequence[Accuracy] | None = None,
    noise: Sequence[Noise] | None = None,
) -> list[Finding]:
    """What can be said of one model's answers; p is adjusted over a table at hand, or all comparisons of the run.
    `noise`: the model's noise floor, where it is at hand."""
    rows = [row for row in (compare(run) if table is None else table) if row.model == run.model(model)]
    baselines = {(row.temperature, row.samples): row for row in rows if row.against is None}
    found = []
    for row in rows:
        if row.against is not None:
            baseline = baselines[row.temperature, row.samples]
            plain = "without filler" if run.condition(row.condition).has_filler else "under none"
            limit = run.study.generation.max_tokens if run.study.generation else 0
            found += [_truncation(row, baseline, plain, limit)] if is_truncated(row, baseline) else []
            found += [_accuracy(row, baseline, plain), _form(row, baseline)]
    return found + _noise_findings(noise_floor(run, model) if noise is None else noise)


def _noise_findings(rows: Sequence[Noise]) -> list[Finding]:
    """Flips under each condition beside those by rounding; these alone where there is no condition."""
    floors = {(row.temperature, row.samples): row for row in rows if row.condition == "none"}
    conditions = [row for row in rows if row.condition != "none"]
    return [_noise(row, floors[row.temperature, row.samples]) for row in conditions or rows]


def _noise(row: Noise, floor: Noise) -> Finding:
    texts = f"{floor.texts} texts"
    told = f"{rounding(floor)} changes {_flipped(floor)}"
    if row is not floor:
        texts += f" and {row.condition} those of {row.texts}"
        told += f", {row.condition} {_flipped(row)}: {_more(row)}"
    text = f"Noise floor, {drawing(row)}: {told}. {rounding(floor)} changes {texts}."
    numbers = {
        "flips_rounding": floor.share, "flips_filler": row.share if row is not floor else math.nan,
        "difference": row.difference, "low": row.difference_low, "high": row.difference_high, "p": row.p,
        "adjusted": row.adjusted,
    }  # fmt: skip
    return Finding(_name("noise", row), text, numbers, "noise")


def _flipped(row: Noise) -> str:
    share = f" ({row.share:.1%})" if math.isfinite(row.share) else ""
    return f"{row.flips} of {row.answers} verdicts{share}"


def rounding(row: Noise) -> str:
    """What changed between the two answers to the same prompt."""
    if row.way == SERVER:
        return "The server alone, asked again,"
    return f"Rounding alone ({row.way if row.way == NEIGHBOURS else f'computed in {row.way}'})"


def beyond_rounding(row: Noise) -> str:
    """Whether a condition changes more verdicts than rounding does."""
    if not math.isfinite(row.adjusted):
        return "cannot be told"
    if row.adjusted >= ALPHA:
        return "not told apart from the noise floor"
    return f"{'more' if row.difference > 0 else 'fewer'} than the noise floor"


def _more(row: Noise) -> str:
    if not row.pairs:
        return "cannot be told, because no problem has all three answers"
    bounds = f" [{points(row.difference_low)}, {points(row.difference_high)}]"
    size = f"a difference of {points(row.difference)} percentage points"
    return (
        f"{size}{bounds if math.isfinite(row.difference_low) else ''} over {row.pairs} problems, p = {row.p:.3g}, "
        f"{row.adjusted:.3g} after Holm: {beyond_rounding(row)}"
    )


def is_truncated(row: Accuracy, baseline: Accuracy) -> bool:
    """Whether the token limit ended so many answers, or so many more under one condition, that it may be behind a
    difference."""
    change = row.against
    if change is None or not change.pairs:
        return False
    differs = change.truncated_p < ALPHA  # false for NaN
    return differs or max(row.cut_off, baseline.cut_off) > MOST_TRUNCATED


def truncation(row: Accuracy, baseline: Accuracy, plain: str, limit: int) -> str:
    """How many answers were truncated, what to do, and what the others say."""
    change = row.against
    assert change is not None
    more = f", a difference of its own (p = {change.truncated_p:.2g})" if change.truncated_p < ALPHA else ""
    told = (
        f"{row.cut_off:.0%} of the answers are truncated at {limit} tokens, against {baseline.cut_off:.0%} {plain}"
        f"{more}: set generation.max_tokens to {2 * limit} or more"
    )
    if not change.finished:
        return f"{told}; no problem was answered to the end under both"
    bounds = f" [{points(change.finished_low)}, {points(change.finished_high)}]"
    known = bounds if math.isfinite(change.finished_low) else ""
    return (
        f"{told}; over the {change.finished} problem{'s' * (change.finished != 1)} answered to the end under both the "
        f"difference is {points(change.finished_difference)} points{known}, p = {change.finished_p:.2g}"
    )


def _truncation(row: Accuracy, baseline: Accuracy, plain: str, limit: int) -> Finding:
    change = row.against
    assert change is not None
    text = f"Truncated answers, {row.condition}, {drawing(row)}: {truncation(row, baseline, plain, limit)}."
    numbers = {
        "truncated": row.cut_off, "truncated_none": baseline.cut_off, "p": change.truncated_p,
        "finished": change.finished, "difference": change.finished_difference, "low": change.finished_low,
        "high": change.finished_high, "finished_p": change.finished_p,
    }  # fmt: skip
    return Finding(_name("truncated", row), text, numbers, "accuracy")


def verdict(row: Accuracy) -> str:
    """Whether a change is beyond noise."""
    change = row.against
    if change is None or not math.isfinite(change.adjusted):
        return "cannot be told: no problem was answered under both"
    if change.adjusted >= ALPHA:
        return "not beyond noise" if change.p >= ALPHA else "not beyond noise once all comparisons are counted"
    return f"a {'gain' if change.difference > 0 else 'loss'} beyond noise"


def drawing(row: Accuracy | Noise) -> str:
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
        f"{baseline.cut_off:.1%} truncated; {row.unanswered:.1%} against {baseline.unanswered:.1%} ended without an "
        "answer"
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


def _name(kind: str, row: Accuracy | Noise) -> str:
    drawn = "" if row.temperature == 0 else f"_t{row.temperature:g}x{row.samples}"
    return f"{kind}_{row.condition}{drawn}"
