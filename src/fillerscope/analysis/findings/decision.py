"""The rule that decides claims about filler.

An untrained model shows a fall of attention, a scaled output and a bias in one direction too, and its filler differs
from every control: what is claimed of a model must lie beyond what its untrained twins show. Knows numbers only, no
run. docs/method.md states the rule, docs/verdicts.md shows by simulation how often it errs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

from fillerscope.analysis.findings.claim import Evidence
from fillerscope.analysis.findings.finding import Verdict
from fillerscope.analysis.findings.twin_reach import beyond_twins, needed_problems, needed_twins, twin_reach

TWINS = 3  # untrained models that a study should measure
MEASURE_TWINS = f"references: {{twin: {TWINS}}}"
WEAKEST_FIRST = (Verdict.FAILS, Verdict.UNKNOWN, Verdict.UNTESTED, Verdict.LITTLE, Verdict.HOLDS)


@dataclass(frozen=True)
class Decision:
    """The verdict on a claim, why, and the numbers that the reason names."""

    verdict: Verdict
    reason: str = ""  # in a few words, empty where the verdict says it all
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.verdict} ({self.reason})" if self.reason else str(self.verdict)


def decide(evidence: Evidence) -> Decision:
    """The verdict: too few problems, then the claim against no change, against controls, and against twins."""
    claim = evidence.claim
    if not evidence.estimate.is_known:
        return Decision(Verdict.UNKNOWN, "nothing to measure it by")
    if evidence.n < claim.needs or not evidence.estimate.has_interval:
        return Decision(Verdict.UNKNOWN, f"needs {claim.needs} problems", {"needs": float(claim.needs)})
    if decision := _whether_near(evidence) if claim.within else _against_none(evidence):
        return decision
    if missed := [one for one in (_against_controls(evidence), _against_twins(evidence)) if one]:
        return weakest(*missed)
    if not claim.within and _excess(evidence) < claim.small:
        return Decision(Verdict.LITTLE, f"beyond its references by less than {claim.size}", twin_numbers(evidence))
    return Decision(Verdict.HOLDS, "", twin_numbers(evidence))


def weakest(*decisions: Decision) -> Decision:
    """Of a claim with several parts, all of which must hold: the first with the weakest verdict."""
    return min(decisions, key=lambda one: WEAKEST_FIRST.index(one.verdict))


def _against_none(evidence: Evidence) -> Decision | None:
    claim, change = evidence.claim, evidence.change
    if change.is_within(0.0, claim.small):
        return Decision(Verdict.FAILS, f"no change as large as {claim.size}")
    if change.side(0.0) * claim.side < 0:
        return Decision(Verdict.FAILS, "the other way")
    if change.side(0.0):
        return None
    problems = _more_problems(evidence, 2 * claim.small, _reach_below(evidence, 2 * claim.small))
    return _needs(evidence, problems, "", f" to show a change of twice {claim.size}")


def _reach_below(evidence: Evidence, change: float) -> float:
    """The reach of twins where such a change would go beyond it; 0 where it would not, or there are none."""
    reach = twin_reach(evidence.claim, evidence.twins) if len(evidence.twins.values) > 1 else 0.0
    return reach if reach < change else 0.0


def _whether_near(evidence: Evidence) -> Decision | None:
    claim, change = evidence.claim, evidence.change
    if change.is_within(0.0, claim.small):
        return None
    if change.low > claim.small or change.high < -claim.small:
        return Decision(Verdict.FAILS, f"farther from {claim.none:g} than {claim.size}")
    problems = _more_problems(evidence, abs(claim.small - abs(change.value)))
    return _needs(evidence, problems, f"not wholly within {claim.size} of {claim.none:g}, ")


def _more_problems(evidence: Evidence, change: float, reach: float = 0.0) -> float:
    """How many problems would show such a change, if they spread as these do."""
    return max(needed_problems(evidence.claim, change, evidence.deviation, reach), evidence.n + 1)


def _needs(evidence: Evidence, problems: float, before: str = "", after: str = "") -> Decision:
    reason = f"{before}needs about {problems:,.0f} problems{after}"
    return Decision(Verdict.UNKNOWN, reason, twin_numbers(evidence) | {"needs": problems})


def _against_controls(evidence: Evidence) -> Decision | None:
    side = 0 if evidence.claim.within else evidence.direction
    for name, paired in evidence.controls.items():
        low, high = sorted(side * bound for bound in (paired.low, paired.high))
        if not paired.has_interval:
            return Decision(Verdict.UNKNOWN, f"cannot be compared with {name}")
        if low <= 0:
            if high < evidence.claim.small:
                return Decision(Verdict.FAILS, f"no more than under {name}")
            return Decision(Verdict.UNKNOWN, f"not significantly different from {name}")
    return None


def _against_twins(evidence: Evidence) -> Decision | None:
    """An untrained model dilutes too, and shows more of it than any control: twins are needed for every claim."""
    claim, twins = evidence.claim, evidence.twins
    if len(twins.values) < 2:
        controls = f"beyond {' and '.join(evidence.controls)}; " if evidence.controls and not claim.within else ""
        return Decision(Verdict.UNTESTED, f"{controls}not compared with untrained models: measure {MEASURE_TWINS}")
    side = evidence.direction
    if side * evidence.estimate.value <= max(side * value for value in twins.values):
        words = f"no nearer to {claim.none:g}" if claim.within else "no more"
        return Decision(Verdict.FAILS, f"{words} than in an untrained model", twin_numbers(evidence))
    if beyond_twins(evidence) > 0:
        return None
    return _near_twins(evidence, f"beyond {len(twins.values)} untrained models")


def _near_twins(evidence: Evidence, before: str) -> Decision:
    """Beyond all twins and not beyond one more: how many problems, or twins, would decide, if they spread as these."""
    ahead = evidence.direction * (evidence.estimate.value - evidence.twins.mean)
    claim, reach = evidence.claim, twin_reach(evidence.claim, evidence.twins)
    problems = _more_problems(evidence, ahead, reach)
    if isfinite(problems):
        return _needs(evidence, problems, f"{before}, ")
    count = needed_twins(evidence, ahead)
    near = f"by {claim.words(ahead)}, but one more may be {claim.words(reach)} away, as they spread over all layers"
    words = f", needs about {count} of them" if count else f" {near}"
    return Decision(Verdict.UNKNOWN, f"{before}{words}", twin_numbers(evidence))


def _excess(evidence: Evidence) -> float:
    """How far the estimate is beyond the nearest of its references."""
    side, value = evidence.direction, evidence.estimate.value
    controls = [side * paired.value for paired in evidence.controls.values()]
    return min(side * (value - evidence.claim.none), side * (value - evidence.twins.mean), *controls, inf)


def twin_numbers(evidence: Evidence) -> dict[str, float]:
    """What the twins show: their mean and range, and how far one more of them might lie."""
    twins = evidence.twins
    if not twins.values:
        return {}
    numbers = {"twins": len(twins.values), "twin_mean": twins.mean}
    numbers |= {"twin_low": min(twins.values), "twin_high": max(twins.values)}
    return numbers | ({"twin_reach": twin_reach(evidence.claim, twins)} if len(twins.values) > 1 else {})
