"""All findings on one model, in the order in which they are shown, and what is missing from a run.

Works on a run that is not finished: what is missing yet is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.findings.placement import placement_findings
from fillerscope.analysis.noise import Noise, noise_floor
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.errors import StoreError
from fillerscope.store.schema import Columns, ProblemRecord

T = TypeVar("T")


def findings_of(run: Run, model: str | None = None, compared: Sequence[Accuracy] | None = None) -> list[Finding]:
    """All findings on one model; p is adjusted over `compared`, or over all answers that are available."""
    name = run.model(model)
    table = available_comparison(run) if compared is None else compared
    attention = available(lambda: _attention(run, name)) or []
    mechanism = available(lambda: mechanism_findings(run, model=name) + control_findings(run, model=name)) or []
    return attention + mechanism + answer_findings(run, name, table, available_noise(run, name))


def _attention(run: Run, model: str) -> list[Finding]:
    return attention_findings(run, model=model) + placement_findings(run, model) if run.has_attention else []


def available(read: Callable[[], T]) -> T | None:
    """The result of reading from a run that may still be written; None where a part is missing or damaged."""
    try:
        return read()
    except StoreError:
        return None


def available_comparison(run: Run) -> list[Accuracy]:
    """The comparison of all models that have answered; empty for a run without answers."""
    if not run.has_answers:
        return []
    done = [model for model in run.models if available_answers(run, model)]
    return compare(run, done) if done else []  # an empty list of models would stand for all of them


def available_noise(run: Run, model: str) -> list[Noise]:
    """The noise floor of a model; empty where its answers are missing."""
    return available(lambda: noise_floor(run, model)) or []


def available_records(run: Run, model: str, queries: str = "original") -> list[ProblemRecord]:
    """The records of a model's problems; empty where they are missing."""
    return (available(lambda: run.records(model, queries)) or []) if run.has_attention else []


def available_answers(run: Run, model: str) -> Columns:
    """The answers of a model; empty where they are missing."""
    return (available(lambda: run.answer_columns(model)) or {}) if run.has_answers else {}


def missing_parts(run: Run, model: str | None = None) -> list[str]:
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


def _refusal(read: Callable[[], Any]) -> str:
    """Why something cannot be read; empty where it can."""
    try:
        read()
    except StoreError as error:
        return str(error)
    return ""
