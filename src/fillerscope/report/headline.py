"""What a reader should remember of one model: a verdict in a few short lines, and a few numbers beside it.

The report begins with these lines, and the terminal ends with them.

Every sentence can come out either way. A change is claimed where it is significant, and no change where the whole
interval is small; whatever lies between cannot be told. Takes its numbers from findings and computes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Literal

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.findings.all import available_comparison, findings_of, missing_parts
from fillerscope.analysis.findings.answers import SMALL, Comparison, comparisons
from fillerscope.analysis.findings.attention_claims import sentences_like
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.repeated import REPEATED
from fillerscope.analysis.findings.significance import drawing, significance_words
from fillerscope.analysis.findings.wording import compared_with, plural
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import described
from fillerscope.report.headline_tiles import Fact, points, references, tiles
from fillerscope.study.conditions import BASELINE

Tone = Literal["change", "no change", "cannot be told"]
MOST_OTHERS = 3  # conditions that the verdict names beside the main one
TONES: dict[Verdict, Tone] = {
    Verdict.HOLDS: "change",
    Verdict.LITTLE: "change",
    Verdict.UNTESTED: "cannot be told",
    Verdict.FAILS: "no change",
    Verdict.UNKNOWN: "cannot be told",
}
EFFECTS = {  # what the verdict on attention comes to
    Verdict.HOLDS: "{way}",
    Verdict.LITTLE: "{way}, by little",
    Verdict.UNTESTED: "no effect is claimed, because untrained models were not measured",
    Verdict.FAILS: "no effect beyond length",
    Verdict.UNKNOWN: "whether filler has an effect cannot be told",
}


@dataclass(frozen=True)
class Headline:
    """`subject` names model and main condition, and each of `lines` says one thing about them; `verdict` is all of it
    in one text. `tone` is that of the main condition: of its accuracy where there are answers, else of attention in the
    first layer that has it."""

    model: str
    label: str
    subject: str
    lines: list[str]
    verdict: str
    tone: Tone
    facts: list[Fact]
    left_out: list[str]  # why parts of the run are missing from it


@dataclass(frozen=True)
class _Part:
    """What is told of one thing; `tone`, and what it is `about`, where it is the main condition."""

    lines: tuple[str, ...]
    tone: Tone | None = None
    about: str = ""


def headline(
    run: Run,
    model: str | None = None,
    compared: Sequence[Accuracy] | None = None,
    findings: Sequence[Finding] | None = None,
) -> Headline:
    """The headline of one model, the first unless one is named. `compared` and `findings` may be given where they are
    computed already."""
    name = run.model(model)
    table = available_comparison(run) if compared is None else compared
    known = findings_of(run[name], table) if findings is None else findings
    by_name = {finding.name: finding for finding in known}
    rows = [row for row in table if row.model == name]
    left_out = missing_parts(run[name])
    parts = _parts(run, by_name, comparisons(run, rows), _family(table))
    subject = f"{run.label(name)} under {run.main} ({_made_of(run)})" if parts else run.label(name)
    lines = [line for part in parts for line in part.lines] or [_nothing(run, left_out)]
    tone: Tone = next((part.tone for part in reversed(parts) if part.tone), "cannot be told")
    verdict, facts = f"{subject}: {' '.join(lines)}", tiles(run[name], by_name, rows)
    return Headline(name, run.label(name), subject, lines, verdict, tone, facts, left_out)


def tones(run: Run) -> dict[str, Tone]:
    """What the headline of the first model comes to, by what it is about: attention, accuracy."""
    name, table = run.model(None), available_comparison(run)
    findings = {finding.name: finding for finding in findings_of(run[name], table)}
    rows = [row for row in table if row.model == name]
    parts = _parts(run, findings, comparisons(run, rows), _family(table))
    return {part.about: part.tone for part in parts if part.tone}


def _family(table: Sequence[Accuracy]) -> int:
    """How many comparisons p is adjusted over."""
    return sum(row.against is not None and isfinite(row.against.p) for row in table)


def _parts(run: Run, findings: dict[str, Finding], answers: Sequence[Comparison], family: int) -> list[_Part]:
    """What can be told of the main condition, and then whether other conditions change anything."""
    main = [_attention(run, findings), _accuracy(run, answers, family)] if run.fillers else []
    parts = [part for part in main if part]
    others = _others(run, answers)
    repeated = (_Part((findings[REPEATED].text,)),) if REPEATED in findings else ()
    return [*repeated, *parts, *([_Part((others,))] if others else [])] if parts else []


def _nothing(run: Run, left_out: Sequence[str]) -> str:
    if not run.fillers:
        return f"Nothing to compare, because the study has no condition beside {BASELINE}."
    return f"Nothing can be told yet; {'; '.join(left_out) or 'nothing was measured that can be compared'}."


def _made_of(run: Run) -> str:
    """The main condition in words."""
    return described([run.condition(run.main)])


def _attention(run: Run, findings: dict[str, Finding]) -> _Part | None:
    """Of the first layer that has it. The finding decides what is claimed: any longer prompt gives a fall."""
    finding = findings.get("first_layer")
    if finding is None or finding.verdict is None:
        return None
    beside = f" ({', '.join(references(finding))})" if references(finding) else ""
    reason = f" ({finding.reason})" if finding.reason and finding.verdict in (Verdict.UNKNOWN, Verdict.FAILS) else ""
    effect = EFFECTS[finding.verdict].format(way=_way(finding)) + reason
    text = (
        f"Attention in layer {finding.facts['layer']:.0f}: {effect}. Original tokens receive "
        f"{finding.estimates['value'].ratio} of what they receive {compared_with(run, run.main)}{beside}."
    )
    return _Part((text, *_beside_sentence(run, findings)), TONES[finding.verdict], "attention")


def _way(finding: Finding) -> str:
    beyond = finding.numbers.get("beyond", nan)
    return f"filler draws {'less' if beyond > 1 else 'more'} attention than as many average tokens"


def _beside_sentence(run: Run, findings: dict[str, Finding]) -> list[str]:
    """What a sentence of the same length does, where one was measured."""
    other = next(iter(sentences_like(run, run.main)), None)
    finding, effect = findings.get(f"{other}_against_{run.main}"), findings["first_layer"].verdict
    if finding is None or effect not in (Verdict.HOLDS, Verdict.LITTLE):
        return []
    ratio = finding.estimates["value"].ratio
    return [f"Under {other}, of the same length, they receive {ratio} times as much as under {run.main}."]


def _accuracy(run: Run, answers: Sequence[Comparison], family: int) -> _Part | None:
    one = _main(run, answers)
    if one is None:
        return None
    row, change, tone = one.row, one.change, TONES[one.verdict]
    drawn = "" if row.temperature == 0 else f" ({drawing(row)})"
    if not change.pairs:
        return _Part((f"Accuracy{drawn}: whether it changes {significance_words(change)}.",), tone, "accuracy")
    truncated = (f"Truncated answers: {one.truncation}.",) if one.is_truncated else ()
    small = f", and no change of more than {100 * SMALL:g} percentage points" if one.verdict is Verdict.FAILS else ""
    text = (
        f"Accuracy{drawn}: {significance_words(change)}{small}. {change.paired_accuracy:.1%} against "
        f"{change.paired_baseline:.1%} {one.without}, {points(change)} (p = {change.adjusted:.2g} after Holm over "
        f"{plural(family, 'comparison')}; paired over {plural(change.pairs, 'problem')})."
    )
    return _Part((*truncated, text), tone, "accuracy")


def _main(run: Run, answers: Sequence[Comparison]) -> Comparison | None:
    """The main condition by the study's first way of drawing answers."""
    return next((one for one in answers if one.row.condition == run.main and _is_first(run, one.row)), None)


def _is_first(run: Run, row: Accuracy) -> bool:
    return run.study.generation is not None and (row.temperature, row.samples) == run.study.generation.cells()[0]


def _others(run: Run, answers: Sequence[Comparison]) -> str:
    """What all other comparisons of this model came to."""
    main = _main(run, answers) if run.fillers else None
    others = [one for one in answers if one is not main]
    sure = [one for one in others if one.verdict is Verdict.HOLDS]
    if not others:
        return ""
    if not sure and len(others) == 1:
        return f"The other comparison, {_named(run, others[0])}, is not significant."
    if not sure:
        return f"Of {len(others)} other comparisons none is significant."
    named = "; ".join(_named(run, one) for one in sure[:MOST_OTHERS])
    more = f"; and {len(sure) - MOST_OTHERS} more" if len(sure) > MOST_OTHERS else ""
    return f"Significant: {named}{more}."


def _named(run: Run, one: Comparison) -> str:
    drawn = "" if _is_first(run, one.row) else f", {drawing(one.row)}"
    return f"{one.row.condition}{drawn}, {points(one.change)}"
