"""Findings on answers: whether a condition changes accuracy, and their length and form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fillerscope.analysis.accuracy import Accuracy, Difference
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.noise import noise_findings
from fillerscope.analysis.findings.significance import drawing, finding_name, significance
from fillerscope.analysis.findings.wording import compared_with, plural
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.noise import Noise, noise_floor
from fillerscope.analysis.stored_run import StoredRun

MOST_TRUNCATED = 0.1  # share of answers, from which accuracy is not to be read without it
SMALL = 0.02  # a change of accuracy that is surely within this is called none: published gains are about as large


@dataclass(frozen=True)
class Comparison:
    """A condition beside the baseline of the same model and way of drawing."""

    row: Accuracy
    baseline: Accuracy
    change: Difference
    without: str  # what the baseline is called beside this condition
    limit: int  # tokens of an answer

    @property
    def verdict(self) -> Verdict:
        """On the claim that accuracy changes. No evidence of a change is not evidence of none: for that, the whole
        interval must be small."""
        if not math.isfinite(self.change.adjusted):
            return Verdict.UNKNOWN
        if self.change.adjusted < ALPHA:
            return Verdict.HOLDS
        small = all(abs(bound) <= SMALL for bound in self.change.estimate.bounds)  # false for NaN
        return Verdict.FAILS if small else Verdict.UNKNOWN

    @property
    def is_truncated(self) -> bool:
        """Whether so many answers are truncated, or so many more under one condition, that it may explain a
        difference."""
        if not self.change.pairs:
            return False
        differs = self.change.truncated_p < ALPHA  # false for NaN
        return differs or max(self.change.paired_truncated, self.change.paired_truncated_baseline) > MOST_TRUNCATED

    @property
    def truncation(self) -> str:
        """How many answers were truncated, what to do, and the difference over the others."""
        change = self.change
        more = f", a significant difference (p = {change.truncated_p:.2g})" if change.truncated_p < ALPHA else ""
        cause, advice = self._cause
        text = (
            f"{change.paired_truncated:.0%} of the answers are truncated {cause}, against "
            f"{change.paired_truncated_baseline:.0%} {self.without}{more}; {advice}"
        )
        if not change.finished:
            return f"{text}. No problem was answered to the end under both"
        return (
            f"{text}. Over the {plural(change.finished, 'problem')} answered to the end under both the difference is "
            f"{change.finished_estimate.points()} percentage points (p = {change.finished_p:.2g})"
        )

    @property
    def _cause(self) -> tuple[str, str]:
        """Where truncated answers end, and what to do. Those that are shorter than `max_tokens` were ended by the
        model's context, or their server does not count its tokens."""
        sides = [side for side in (self.row, self.baseline) if side.cut_off > 0]
        shortest = min((side.shortest_truncated for side in sides), default=self.limit)
        longest = max((side.longest_truncated for side in sides), default=self.limit)
        raise_limit = f"set generation.max_tokens to {2 * self.limit} or more"
        if shortest >= self.limit:
            return f"at {self.limit} tokens", raise_limit
        lengths = f"{shortest:.0f} to {longest:.0f}" if longest > shortest else f"{shortest:.0f}"
        cause = f"after {lengths} tokens, by generation.max_tokens ({self.limit}) or by the model's context"
        make_room = "use less filler or a model with a longer context"
        return cause, make_room if longest < self.limit else f"{raise_limit}, and {make_room}"


def comparisons(run: StoredRun, rows: Sequence[Accuracy]) -> list[Comparison]:
    """Every row of one model but the baselines, with its baseline."""
    baselines = {(row.temperature, row.samples): row for row in rows if row.against is None}
    limit = run.study.generation.max_tokens if run.study.generation else 0
    return [
        Comparison(
            row, baselines[row.temperature, row.samples], row.against, compared_with(run, row.condition), limit
        )
        for row in rows if row.against is not None
    ]  # fmt: skip


def answer_findings(run: ModelRun, table: Sequence[Accuracy], noise: Sequence[Noise] | None = None) -> list[Finding]:
    """All findings on the answers of one model; `table` is the comparison of all models of the run.
    `noise` is the model's noise floor, where it is computed already."""
    rows = [row for row in table if row.model == run.name]
    findings: list[Finding] = []
    for one in comparisons(run, rows):
        findings += [_truncation(one)] if one.is_truncated else []
        findings += [_accuracy(one), _form(one)]
    return findings + noise_findings(noise_floor(run) if noise is None else noise)


def _truncation(one: Comparison) -> Finding:
    text = f"Truncated answers, {one.row.condition}, {drawing(one.row)}: {one.truncation}."
    return Finding(
        finding_name("truncated", one.row), text, "accuracy", condition=one.row.condition, main="difference",
        estimates={"difference": one.change.finished_estimate},
        facts={
            "truncated": one.change.paired_truncated, "truncated_none": one.change.paired_truncated_baseline,
            "p": one.change.truncated_p, "finished": one.change.finished, "finished_p": one.change.finished_p,
        },
    )  # fmt: skip


def _accuracy(one: Comparison) -> Finding:
    row, change = one.row, one.change
    shown = f"{_change(one)} {_power(row, change)}" if change.pairs else f"{significance(change)}."
    return Finding(
        finding_name("accuracy", row), f"Accuracy, {row.condition}, {drawing(row)}: {shown}", "accuracy",
        condition=row.condition, main="difference", verdict=one.verdict,
        estimates={"difference": change.estimate},
        facts={
            "accuracy": change.paired_accuracy, "baseline": change.paired_baseline, "p": change.p,
            "adjusted": change.adjusted,
        },
    )  # fmt: skip


def _change(one: Comparison) -> str:
    row, change = one.row, one.change
    test = "exact McNemar" if row.samples == 1 else "permutation test"
    missing = row.n + row.failed - change.pairs
    return (
        f"{change.estimate.points()} percentage points, {significance(change)}. {change.paired_accuracy:.1%} are "
        f"right, against {change.paired_baseline:.1%} {one.without}: {change.gained} better and {change.lost} worse of "
        f"{plural(change.pairs, 'problem')}{f' ({missing} more failed under one or the other)' if missing else ''}; "
        f"{test} p = {change.p:.3g}, {change.adjusted:.3g} after Holm."
    )


def _power(row: Accuracy, change: Difference) -> str:
    """What so many problems could have shown."""
    if row.samples > 1 and change.pairs > 1 and not math.isfinite(change.detectable):
        return "What so many problems could show is unknown: all of them changed alike."
    if not math.isfinite(change.detectable):
        could = "So few problems show no difference with 80% power"
    else:
        could = (
            f"So many problems show a difference of {100 * change.detectable:.1f} percentage points with 80% power, if "
            "it is the only one tested"
        )
    more = f"; one as large as was seen takes {change.needed:,.0f} problems" if math.isfinite(change.needed) else ""
    return f"{could}{more}."


def _form(one: Comparison) -> Finding:
    """A condition that only changes length or format must be seen to."""
    row, baseline = one.row, one.baseline
    shown = (
        f"{row.tokens:.0f} tokens on average against {baseline.tokens:.0f}; {row.cut_off:.1%} against "
        f"{baseline.cut_off:.1%} truncated; {row.unanswered:.1%} against {baseline.unanswered:.1%} ended without an "
        f"answer{'' if row.n == baseline.n else f' (over {row.n} and {baseline.n} problems)'}"
    )
    if not (row.n and baseline.n):
        shown = "cannot be told: all answers failed under one or the other"
    facts = {f"{key}{end}": float(getattr(side, key)) for key in FORM for end, side in (("", row), ("_none", baseline))}
    text = f"Form of the answers, {row.condition}, {drawing(row)}: {shown}."
    return Finding(finding_name("form", row), text, "accuracy", condition=row.condition, facts=facts)


FORM = ("tokens", "cut_off", "unanswered")
