"""What a reader should remember of one model: a verdict in one or two sentences, and a few numbers beside it.

Every sentence can come out either way. A change is claimed where it is beyond noise, and no change where the whole
interval is small; whatever lies between cannot be told. Takes its numbers from findings and computes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.findings.all import answers_there, compared_so_far, findings_of, missing_from, records_there
from fillerscope.analysis.findings.answers import ALPHA, drawing, is_truncated, points, truncation, verdict
from fillerscope.analysis.findings.attention import Finding, with_interval
from fillerscope.analysis.findings.attention_claims import sentences_like
from fillerscope.analysis.findings.verdict import Degree
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import described

Tone = Literal["change", "no change", "cannot be told"]
SMALL = 0.02  # a change of accuracy that is surely within this is called none: published gains are about as large
MOST_ACCURACIES = 4
MOST_OTHERS = 3  # conditions that the verdict names beside the main one
CLAIMS = {  # by the names of findings that decide one
    "collapse": "collapse",
    "scaling": "scaling",
    "later": "near 1 later",
    "deeper": "nothing affine deeper",
    "direction": "one direction",
    "near_zero": "fewer near zero",
    "variance": "more variance",
}
COUNTED = {  # degrees that the tile counts beside those that hold
    Degree.LITTLE: "by little",
    Degree.UNTESTED: "not tested",
    Degree.UNKNOWN: "cannot be told",
}


class Fact(NamedTuple):
    """A tile: what it is about, the number, and a word on it."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """`tone` is that of the main condition: of its accuracy where there are answers, else of attention in the first
    layer that has it."""

    model: str
    label: str
    verdict: str
    tone: Tone
    facts: list[Fact]
    left_out: list[str]  # why parts of the run are not in it


@dataclass(frozen=True)
class _Part:
    sentence: str
    tone: Tone


@dataclass(frozen=True)
class _Known:
    """What there is to speak of: one model, its main condition, its findings by name and its accuracies."""

    run: Run
    model: str
    found: dict[str, Finding]
    rows: list[Accuracy]  # of this model
    family: int  # comparisons that p is adjusted over, of all models

    @property
    def main(self) -> str:
        return self.run.main

    @property
    def plain(self) -> str:
        return "without filler" if self.run.condition(self.main).has_filler else "under none"

    @property
    def first(self) -> list[Accuracy]:
        """The rows of the study's first way of drawing answers."""
        assert self.run.study.generation is not None
        cell = self.run.study.generation.cells()[0]
        return [row for row in self.rows if (row.temperature, row.samples) == cell]

    def row(self, condition: str) -> Accuracy | None:
        return next((row for row in self.first if row.condition == condition), None) if self.rows else None


def headline(
    run: Run,
    model: str | None = None,
    compared: Sequence[Accuracy] | None = None,
    told: Sequence[Finding] | None = None,
) -> Headline:
    """Of one model, the first unless one is named. `compared` and `told` may be at hand already."""
    name = run.model(model)
    table = compared_so_far(run) if compared is None else compared
    found = {one.name: one for one in (findings_of(run, name, table) if told is None else told)}
    family = sum(row.against is not None and isfinite(row.against.p) for row in table)
    known = _Known(run, name, found, [row for row in table if row.model == name], family)
    left_out = missing_from(run, name)
    parts = [part for part in (_attention(known), _accuracy(known)) if part] if run.fillers else []
    said = _joined(known, parts) or _nothing(run, left_out)
    under = f" under {run.main} ({_made_of(run)})" if parts else ""
    tone: Tone = parts[-1].tone if parts else "cannot be told"
    return Headline(name, run.label(name), f"{run.label(name)}{under}: {said}", tone, _facts(known), left_out)


def _nothing(run: Run, left_out: Sequence[str]) -> str:
    if not run.fillers:
        return "nothing to compare, because the study has no condition beside none."
    return f"nothing can be told yet; {'; '.join(left_out) or 'nothing was measured that can be compared'}."


def _joined(known: _Known, parts: Sequence[_Part]) -> str:
    """The main condition in one sentence, and in a second one whether others have more to say."""
    said = "; ".join(part.sentence for part in parts)
    return f"{said}. {_others(known)}".strip() if said else ""


def _made_of(run: Run) -> str:
    """The main condition in words."""
    return described([run.condition(run.main)])


def _attention(known: _Known) -> _Part | None:
    """Of the first layer that has it. What is claimed is decided in the finding: a fall alone is what any longer
    prompt gives."""
    finding = known.found.get("first_layer")
    if finding is None or finding.verdict is None:
        return None
    value, low, high = (finding.numbers[key] for key in ("value", "low", "high"))
    ratio = f"original tokens receive {with_interval(value, low, high)} of what they receive {known.plain}"
    there = f"in layer {finding.numbers['layer']:.0f} {ratio}{_references(finding)}"
    said, tone = EFFECTS[finding.verdict]
    return _Part(f"{there}: {said.format(way=_way(finding))}{_beside_sentence(known)}", tone)


# What the verdict on attention comes to, and its tone.
EFFECTS: dict[Degree, tuple[str, Tone]] = {
    Degree.HOLDS: ("{way}", "change"),
    Degree.LITTLE: ("{way}, by little", "change"),
    Degree.UNTESTED: ("no effect is claimed, because untrained models were not measured", "cannot be told"),
    Degree.FAILS: ("no effect beyond what its references show", "no change"),
    Degree.UNKNOWN: ("whether that is an effect cannot be told", "cannot be told"),
}


def _way(finding: Finding) -> str:
    beyond = finding.numbers.get("beyond", float("nan"))
    return f"filler draws {'less' if beyond > 1 else 'more'} attention than as many average tokens"


def _beside_sentence(known: _Known) -> str:
    """What a sentence of the same length does, where one was measured."""
    other = next(iter(sentences_like(known.run, known.main)), None)
    finding, effect = known.found.get(f"{other}_against_{known.main}"), known.found["first_layer"].verdict
    if finding is None or effect not in (Degree.HOLDS, Degree.LITTLE):
        return ""
    ratio = with_interval(*(finding.numbers[key] for key in ("value", "low", "high")))
    return f" (under {other}, of the same length, they receive {ratio} times as much as under {known.main})"


def _references(finding: Finding) -> str:
    """What length alone would do, and untrained twins do, where that is known."""
    numbers = finding.numbers
    parts = [f"length alone would give {numbers['odds']:.3f}"] if "odds" in numbers else []
    if not parts and "uniform" in numbers:
        parts = [f"length alone would give {numbers['uniform']:.3f}"]
    if "twin_low" in numbers:
        parts.append(f"untrained twins give {numbers['twin_low']:.3f} to {numbers['twin_high']:.3f}")
    return f" ({', '.join(parts)})" if parts else ""


def _accuracy(known: _Known) -> _Part | None:
    row, baseline = known.row(known.main), known.row("none")
    if row is None or baseline is None or row.against is None:
        return None
    change, tone = row.against, _tone(row)
    if not change.pairs:
        return _Part(f"whether accuracy changes {verdict(row)}", tone)
    drawn = "" if row.temperature == 0 else f" ({drawing(row)})"
    text = (
        f"{_truncated(known, row, baseline)}accuracy{drawn} is {row.accuracy:.1%} against {baseline.accuracy:.1%} "
        f"{known.plain}, {_points(row)}, {_judged(row, tone)} (p = {change.adjusted:.2g} after Holm over "
        f"{known.family} comparison{'s' * (known.family != 1)}; {change.pairs} problems answered under both)"
    )
    return _Part(text, tone)


def _truncated(known: _Known, row: Accuracy, baseline: Accuracy) -> str:
    """Where the token limit ended many answers, that comes first: accuracy says little."""
    if not is_truncated(row, baseline):
        return ""
    assert known.run.study.generation is not None
    return f"{truncation(row, baseline, known.plain, known.run.study.generation.max_tokens)}; over all answers "


def _tone(row: Accuracy) -> Tone:
    """No evidence of a change is not evidence of none: for that, the whole interval must be small."""
    change = row.against
    if change is None or not isfinite(change.adjusted):
        return "cannot be told"
    if change.adjusted < ALPHA:
        return "change"
    within = max(abs(change.difference_low), abs(change.difference_high)) <= SMALL  # false for NaN
    return "no change" if within else "cannot be told"


def _judged(row: Accuracy, tone: Tone) -> str:
    small = f", and no change of more than {100 * SMALL:g} points" if tone == "no change" else ""
    return f"{verdict(row)}{small}"


def _others(known: _Known) -> str:
    """What all other comparisons of this model came to."""
    others = [row for row in known.rows if row.against is not None and row is not known.row(known.main)]
    sure = [row for row in others if _tone(row) == "change"]
    if not others:
        return ""
    if not sure and len(others) == 1:
        return f"The other comparison, {_named(known, others[0])}, is not beyond noise."
    if not sure:
        return f"Of {len(others)} other comparisons none is beyond noise."
    named = "; ".join(_named(known, row) for row in sure[:MOST_OTHERS])
    more = f"; and {len(sure) - MOST_OTHERS} more" if len(sure) > MOST_OTHERS else ""
    return f"Beyond noise: {named}{more}."


def _named(known: _Known, row: Accuracy) -> str:
    drawn = "" if row in known.first else f", {drawing(row)}"
    return f"{row.condition}{drawn}, {_points(row)}"


def _points(row: Accuracy) -> str:
    change = row.against
    if change is None or not isfinite(change.difference):
        return "no difference known"
    bounds = f" [{points(change.difference_low)}, {points(change.difference_high)}]"
    return f"{points(change.difference)} points{bounds if isfinite(change.difference_low) else ''}"


def _facts(known: _Known) -> list[Fact]:
    found = [_problems(known)]
    if known.run.fillers:
        found += _accuracies(known)
        found += [_form(known), _layer(known), _claims(known), _lookback(known)]
    return [fact for fact in found if fact is not None]


def _problems(known: _Known) -> Fact | None:
    run, notes, total = known.run, [], 0
    records = records_there(run, known.model)
    if records:
        total, measured = len(records), len(run.measured(known.model))
        notes.append(f"{measured} measured" + (f", {total - measured} failed" if total > measured else ""))
    if known.rows:
        total = max(total, known.rows[0].n + known.rows[0].failed)
        failed = answers_there(run, known.model)["verdict"].count("failed")
        notes.append(f"{failed} answers failed" if failed else "all answers judged")
    return Fact("Problems", f"{total:,}", "; ".join(notes)) if notes else None


def _accuracies(known: _Known) -> list[Fact]:
    """The main condition first; cells of sweeps are left to figures."""
    if not known.rows:
        return []
    rows = [row for row in known.first if row.against is not None]
    shown = [row for row in rows if row.condition == known.main or not known.run.condition(row.condition).sweep]
    shown.sort(key=lambda row: row.condition != known.main)
    return [Fact(f"Accuracy, {row.condition}", _points(row), _noted(row)) for row in shown[:MOST_ACCURACIES]]


def _noted(row: Accuracy) -> str:
    change = row.against
    assert change is not None
    if not isfinite(change.adjusted):
        return verdict(row)
    note = f"{verdict(row)}, p Holm {change.adjusted:.2g}"
    if _tone(row) == "cannot be told" and isfinite(change.detectable):
        note += f"; {change.pairs} problems show {100 * change.detectable:.1f} points with 80% power"
    return note


def _form(known: _Known) -> Fact | None:
    """A condition that only cuts answers short must be seen to."""
    row, baseline = known.row(known.main), known.row("none")
    if row is None or baseline is None or not (row.n and baseline.n):
        return None
    note = (
        f"{row.tokens:.0f} against {baseline.tokens:.0f} tokens; ended without an answer: {row.unanswered:.0%} against "
    )
    value = f"{row.cut_off:.0%} against {baseline.cut_off:.0%}"
    return Fact(f"Truncated answers, {known.main}", value, f"{note}{baseline.unanswered:.0%}")


def _layer(known: _Known) -> Fact | None:
    finding = known.found.get("first_layer")
    if finding is None or finding.verdict is None:
        return None
    value, low, high = (finding.numbers[key] for key in ("value", "low", "high"))
    beside = _references(finding).strip(" ()")
    note = "; ".join(filter(None, [beside, f"effect: {finding.verdict}"]))
    return Fact(
        f"Attention in layer {finding.numbers['layer']:.0f}, {known.main}", with_interval(value, low, high), note
    )


def _claims(known: _Known) -> Fact | None:
    """The published claims are about filler: an intervention alone cannot decide them."""
    if not known.run.condition(known.main).has_filler:
        return None
    found = {label: known.found[name].verdict for name, label in CLAIMS.items() if name in known.found}
    said = {label: degree for label, degree in found.items() if degree is not None}
    note = "; ".join(f"{label}: {degree}" for label, degree in said.items())
    return Fact("Published claims", _counted(list(said.values())), note) if said else None


def _counted(degrees: Sequence[Degree]) -> str:
    """How many hold, and how many were not decided."""
    others = [f"{count} {word}" for degree, word in COUNTED.items() if (count := degrees.count(degree))]
    return ", ".join([f"{degrees.count(Degree.HOLDS)} of {len(degrees)} hold", *others])


def _lookback(known: _Known) -> Fact | None:
    finding = known.found.get("lookback")
    if finding is None:
        return None
    share, factor = (
        with_interval(*(finding.numbers[f"{name}{part}"] for part in ("", "_low", "_high")))
        for name in ("answer", "factor")
    )
    note = f"of the answer's attention; a filler token receives {factor} times what an original one does"
    return Fact(f"Answer on the filler, {known.main}", share, note)
