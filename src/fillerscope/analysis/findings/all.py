"""All that a run says of one model, in the order in which it is told, for whoever shows it.

Decides nothing itself, and can speak of a run that is not finished: what is not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.attention import Finding, findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.findings.placement import place_findings
from fillerscope.analysis.noise import Noise, noise_floor
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.errors import StoreError
from fillerscope.store.schema import Columns, ProblemRecord

T = TypeVar("T")


def findings_of(run: Run, model: str | None = None, compared: Sequence[Accuracy] | None = None) -> list[Finding]:
    """All findings on one model; p is adjusted over `compared`, or over all answers that are there."""
    name = run.model(model)
    table = compared_so_far(run) if compared is None else compared
    attention = there(lambda: findings(run, model=name) + place_findings(run, name)) if run.has_attention else []
    inside = there(lambda: mechanism_findings(run, model=name) + control_findings(run, model=name))
    return (attention or []) + (inside or []) + answer_findings(run, name, table, noise_there(run, name))


def compared_so_far(run: Run) -> list[Accuracy]:
    """The comparison of all models that have answered; of a run without answers, none."""
    if not run.has_answers:
        return []
    done = [model for model in run.models if answers_there(run, model)]
    return compare(run, done) if done else []  # an empty list of models would stand for all of them


def noise_there(run: Run, model: str) -> list[Noise]:
    """As `noise_floor`, empty where its answers are not there."""
    return there(lambda: noise_floor(run, model)) or []


def missing_from(run: Run, model: str | None = None) -> list[str]:
    """Why parts of a model are left out, a line each: they are not measured yet, or damaged."""
    name = run.model(model)
    reads: list[Callable[[], Any]] = []
    reads += [lambda: run.records(name)] if run.has_attention else []
    reads += [lambda: run.records(name, ANSWER)] if run.study.probes.answering else []
    reads += [lambda: run.answer_columns(name)] if run.has_answers else []
    reads += [lambda: run.again_columns(name)] if run.noise is not None else []
    reads += [lambda: run.twins(name)]
    growing = run.partial and run.study.references.twin and not run.twins(name)
    waiting = [f"the untrained twins of {run.label(name)} are not all measured yet"] if growing else []
    return list(dict.fromkeys([*filter(None, map(_refusal, reads)), *waiting]))


def records_there(run: Run, model: str, queries: str = "original") -> list[ProblemRecord]:
    """As `Run.records`, empty where they are not there."""
    return (there(lambda: run.records(model, queries)) or []) if run.has_attention else []


def answers_there(run: Run, model: str) -> Columns:
    """As `Run.answer_columns`, empty where they are not there."""
    return (there(lambda: run.answer_columns(model)) or {}) if run.has_answers else {}


def there(read: Callable[[], T]) -> T | None:
    """What can be read of a run that may still be written."""
    try:
        return read()
    except StoreError:
        return None


def _refusal(read: Callable[[], Any]) -> str:
    try:
        read()
    except StoreError as error:
        return str(error)
    return ""
