"""The few numbers beside a headline, each in a tile. Takes them from findings and computes none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from fillerscope.analysis.accuracy import Accuracy, Difference
from fillerscope.analysis.findings.all import available_answers, available_records
from fillerscope.analysis.findings.answers import Comparison, comparisons
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.significance import significance, significance_words
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.condition_text import name_of

MOST_ACCURACIES = 4
CLAIMS = {  # by the names of findings that decide one
    "collapse": "collapse",
    "scaling": "scaling",
    "later": "near 1 later",
    "deeper": "nothing affine deeper",
    "direction": "one direction",
    "near_zero": "fewer near zero",
    "variance": "more variance",
}
COUNTED = {  # verdicts that the tile counts beside those that hold
    Verdict.LITTLE: "by little",
    Verdict.UNTESTED: "not tested",
    Verdict.UNKNOWN: "cannot be told",
}


class Fact(NamedTuple):
    """A tile: what it is about, the number, and a word on it."""

    label: str
    value: str
    note: str


def tiles(run: ModelRun, findings: Mapping[str, Finding], rows: Sequence[Accuracy]) -> list[Fact]:
    """All tiles of one model, from its findings by name and its accuracies."""
    facts = [_problems(run, rows)]
    if run.fillers:
        answers = list(_shown(run, comparisons(run, rows)))
        facts += [_accuracy(run, one) for one in answers[:MOST_ACCURACIES]]
        facts += [_form(run, answers), _first_layer(run, findings), _claims(run, findings), _lookback(run, findings)]
    return [fact for fact in facts if fact is not None]


def points(change: Difference) -> str:
    """A difference of accuracies as tiles and headlines write it."""
    return f"{change.estimate.points()} percentage points" if change.estimate.is_known else "no difference known"


def references(finding: Finding) -> list[str]:
    """What length alone would do to the first layer, and untrained twins do, where that is known."""
    facts = finding.facts
    length = facts.get("odds", facts.get("uniform"))
    parts = [] if length is None else [f"length alone would give {length:.3f}"]
    if "twin_low" in facts:
        parts.append(f"untrained twins give {facts['twin_low']:.3f} to {facts['twin_high']:.3f}")
    return parts


def _problems(run: ModelRun, rows: Sequence[Accuracy]) -> Fact | None:
    notes, total = [], 0
    if records := available_records(run):
        total, measured = len(records), len(run.measured())
        notes.append(f"{measured} measured" + (f", {total - measured} failed" if total > measured else ""))
    if rows:
        total = max(total, rows[0].n + rows[0].failed)
        failed = available_answers(run)["verdict"].count("failed")
        notes.append(f"{failed} answers failed" if failed else "all answers judged")
    return Fact("Problems", f"{total:,}", "; ".join(notes)) if notes else None


def _shown(run: StoredRun, answers: Sequence[Comparison]) -> Iterator[Comparison]:
    """By the study's first way of drawing, the main condition first; cells of sweeps are left to figures."""
    cell = run.study.generation.cells()[0] if run.study.generation else None
    first = [one for one in answers if (one.row.temperature, one.row.samples) == cell]
    yield from (one for one in first if one.row.condition == run.main)
    yield from (one for one in first if one.row.condition != run.main and not run.condition(one.row.condition).sweep)


def _accuracy(run: StoredRun, one: Comparison) -> Fact:
    change, label = one.change, f"Accuracy, {name_of(run, one.row.condition)}"
    if not isfinite(change.adjusted):
        return Fact(label, points(change), significance_words(change))
    note = significance(change)
    if one.verdict is Verdict.UNKNOWN and isfinite(change.detectable):
        note += f"; {change.pairs} problems show {100 * change.detectable:.1f} percentage points with 80% power"
    return Fact(label, points(change), note)


def _form(run: StoredRun, answers: Sequence[Comparison]) -> Fact | None:
    """A condition that only truncates answers must be seen to."""
    one = next((one for one in answers if one.row.condition == run.main), None)
    if one is None or not one.change.pairs:
        return None
    row, baseline, change = one.row, one.baseline, one.change
    note = (
        f"{row.tokens:.0f} against {baseline.tokens:.0f} tokens; ended without an answer: {row.unanswered:.0%} against "
        f"{baseline.unanswered:.0%}"
    )
    value = f"{change.paired_truncated:.0%} against {change.paired_truncated_baseline:.0%}"
    return Fact(f"Truncated answers, {name_of(run, run.main)}", value, note)


def _first_layer(run: StoredRun, findings: Mapping[str, Finding]) -> Fact | None:
    finding = findings.get("first_layer")
    if finding is None or finding.verdict is None:
        return None
    note = "; ".join(filter(None, [", ".join(references(finding)), f"effect: {finding.verdict}"]))
    label = f"Attention in layer {finding.facts['layer']:.0f}, {name_of(run, run.main)}"
    return Fact(label, finding.estimates["value"].ratio, note)


def _claims(run: StoredRun, findings: Mapping[str, Finding]) -> Fact | None:
    """The published claims are about filler: an intervention alone cannot decide them."""
    if not run.condition(run.main).has_filler:
        return None
    verdicts = {
        label: verdict for name, label in CLAIMS.items() if name in findings and (verdict := findings[name].verdict)
    }
    note = "; ".join(f"{label}: {verdict}" for label, verdict in verdicts.items())
    return Fact("Published claims", _counted(list(verdicts.values())), note) if verdicts else None


def _counted(verdicts: Sequence[Verdict]) -> str:
    """How many hold, and how many were not decided."""
    others = [f"{count} {words}" for verdict, words in COUNTED.items() if (count := verdicts.count(verdict))]
    return ", ".join([f"{verdicts.count(Verdict.HOLDS)} of {len(verdicts)} hold", *others])


def _lookback(run: StoredRun, findings: Mapping[str, Finding]) -> Fact | None:
    finding = findings.get("lookback")
    if finding is None or not finding.estimates:
        return None
    share, factor = (finding.estimates[name].ratio for name in ("answer", "factor"))
    note = f"of the answer's attention; a filler token receives {factor} times what an original one does"
    return Fact(f"Answer on the filler, {name_of(run, run.main)}", share, note)
