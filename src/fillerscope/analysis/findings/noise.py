"""Findings on the noise floor: verdicts that a condition changes, beside those that rounding alone changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.significance import drawing, finding_name
from fillerscope.analysis.findings.wording import plural
from fillerscope.analysis.noise import NEIGHBOURS, SERVER, Noise
from fillerscope.study.conditions import BASELINE


def noise_findings(rows: Sequence[Noise]) -> list[Finding]:
    """Flips under each condition beside those by rounding; these alone where there is no condition."""
    floors = {(row.temperature, row.samples): row for row in rows if row.condition == BASELINE}
    conditions = [row for row in rows if row.condition != BASELINE]
    return [_finding(row, floors[row.temperature, row.samples]) for row in conditions or rows]


def _finding(row: Noise, floor: Noise) -> Finding:
    shown, verdict, filler = f"{rounding(floor)} changes {_flipped(floor)}", None, Estimate()
    if row is not floor:
        shown = f"{_compared(row)}. {row.condition} changes {_flipped(row)}; {shown}"
        verdict, filler = noise_verdict(row), row.estimate
    return Finding(
        finding_name("noise", row), f"Noise floor, {drawing(row)}: {shown}.", "noise",
        condition=row.condition, verdict=verdict, main="difference",
        estimates={
            "difference": row.difference_estimate, "flips_rounding": floor.estimate, "flips_filler": filler,
        },
        facts={"p": row.p, "adjusted": row.adjusted},
    )  # fmt: skip


def _flipped(row: Noise) -> str:
    share = f" ({row.share:.1%})" if math.isfinite(row.share) else ""
    return f"{row.flips} of {row.answers} verdicts{share} and {plural(row.texts, 'text')}"


def _compared(row: Noise) -> str:
    if not row.pairs:
        return f"{Verdict.UNKNOWN}: no problem has all three answers"
    return (
        f"{row.condition} changes {row.difference_estimate.points()} percentage points of verdicts beyond rounding, "
        f"{beyond_rounding(row)}, over {plural(row.pairs, 'problem')}"
    )


def rounding(row: Noise) -> str:
    """What changed between the two answers to the same prompt."""
    if row.way == SERVER:
        return "the server alone, asked again,"
    return f"rounding alone ({row.way if row.way == NEIGHBOURS else f'computed in {row.way}'})"


def noise_verdict(row: Noise) -> Verdict:
    """On the claim that a condition changes more verdicts than rounding does."""
    if not row.adjusted < ALPHA:
        return Verdict.UNKNOWN
    return Verdict.HOLDS if row.difference > 0 else Verdict.FAILS


def beyond_rounding(row: Noise) -> str:
    """Whether a condition changes more verdicts than rounding does, with p after Holm."""
    if not math.isfinite(row.adjusted):
        return Verdict.UNKNOWN
    if row.adjusted >= ALPHA:
        return f"not significant (p = {row.adjusted:.3g})"
    return f"significantly {'more' if row.difference > 0 else 'fewer'} than the noise floor (p = {row.adjusted:.3g})"
