"""All findings on one model, in the order in which they are shown, and what is missing from a run.

Works on a run that is not finished: what is missing yet is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fillerscope.analysis.accuracy import Accuracy, compare
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.findings.placement import placement_findings
from fillerscope.analysis.findings.repeated import repeated_findings
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.noise import Noise, noise_floor
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.errors import StoreError
from fillerscope.store.schema import Columns, ProblemRecord

T = TypeVar("T")


def findings_of(run: ModelRun, compared: Sequence[Accuracy]) -> list[Finding]:
    """All findings on one model; p is adjusted over `compared`, the comparison of all models."""
    repeated = available(lambda: repeated_findings(run)) or []
    attention = available(lambda: _attention(run)) or []
    mechanism = available(lambda: mechanism_findings(run) + control_findings(run)) or []
    return repeated + attention + mechanism + answer_findings(run, compared, available_noise(run))


def _attention(run: ModelRun) -> list[Finding]:
    return attention_findings(run) + placement_findings(run) if run.has_attention else []


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
    done = [model for model in run.models if available_answers(run[model])]
    return compare(run, done) if done else []  # an empty list of models would stand for all of them


def available_noise(run: ModelRun) -> list[Noise]:
    """The noise floor of a model; empty where its answers are missing."""
    return available(lambda: noise_floor(run)) or []


def available_records(run: ModelRun, queries: str = "original") -> list[ProblemRecord]:
    """The records of a model's problems; empty where they are missing."""
    return (available(lambda: run.records(queries)) or []) if run.has_attention else []


def available_answers(run: ModelRun) -> Columns:
    """The answers of a model; empty where they are missing."""
    return (available(run.answer_columns) or {}) if run.has_answers else {}


def missing_parts(run: ModelRun) -> list[str]:
    """Why parts of a model are left out, a line each: they are not measured yet, or damaged."""
    reads: list[Callable[[], object]] = []
    reads += [run.records] if run.has_attention else []
    reads += [lambda: run.records(ANSWER)] if run.study.probes.answering else []
    reads += [run.answer_columns] if run.has_answers else []
    reads += [run.again_columns] if run.noise is not None else []
    reads += [run.twins]
    growing = run.partial and run.study.references.twin and not run.twins()
    waiting = [f"the untrained twins of {run.label} are not all measured yet"] if growing else []
    return list(dict.fromkeys([*filter(None, map(_refusal, reads)), *waiting]))


def _refusal(read: Callable[[], object]) -> str:
    """Why something cannot be read; empty where it can."""
    try:
        read()
    except StoreError as error:
        return str(error)
    return ""
