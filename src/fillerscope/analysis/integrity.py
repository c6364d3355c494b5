"""Whether a run adds up: every problem there once, measured under all conditions or failed, and answered as asked."""

from __future__ import annotations

from collections.abc import Iterator
from operator import eq

from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.errors import StoreError, UnreadableError
from fillerscope.store.schema import Columns, merged_name


def faults(run: Run) -> list[str]:
    """What does not add up, a line each."""
    try:
        _ = run.study
    except UnreadableError:
        raise
    except StoreError as error:
        return [str(error)]
    found = _unaccounted(run)
    for model in run.models:
        for one in (model, *run.study.twins(model)) if run.has_attention else ():
            there = run.store.has(merged_name(one))
            found += _unmeasured(run[one]) if there else [f"{one}: it is not finished; run the study again"]
        found += _unanswered(run[model]) if run.has_answers else []
        found += _not_again(run[model]) if run.noise is not None else []
    return found


def _unaccounted(run: StoredRun) -> list[str]:
    """Every row of the data must be a problem or skipped."""
    data, problems = run.store.manifest.get("data", {}), run.store.manifest.get("problems")
    rows, skipped = data.get("rows"), data.get("skipped", 0)
    if rows is None or problems is None or rows == problems + skipped:
        return []
    return [f"{rows} rows of data were read, and there are {problems} problems and {skipped} rows skipped"]


def _unanswered(run: ModelRun) -> list[str]:
    """Every problem must be answered, or have failed, under every condition as often as was asked."""
    return _compared(run, run.answer_columns(), run.conditions, "answers")


def _not_again(run: ModelRun) -> list[str]:
    return _compared(run, run.again_columns(), ["none"], "answers of the noise floor")


def _compared(run: ModelRun, columns: Columns, conditions: list[str], what: str) -> list[str]:
    """Whether answers are those that were asked for. Those are counted first: a study can ask for any number."""
    keys = list(zip(*(columns[key] for key in ("number", "temperature", "condition", "sample")), strict=True))
    spec = run.study.generation
    assert spec is not None
    wanted = len(run.problems()) * len(conditions) * sum(map(spec.drawn, spec.temperature))
    if len(keys) == wanted and all(map(eq, keys, _asked(run, conditions))):
        return []
    return [f"{run.name}: {len(keys)} {what}, {wanted} were asked for, or out of order"]


def _asked(run: ModelRun, conditions: list[str]) -> Iterator[tuple[object, ...]]:
    spec = run.study.generation
    assert spec is not None
    return (
        (number, temperature, condition, sample)
        for number in range(len(run.problems()))
        for temperature in spec.temperature
        for condition in conditions
        for sample in range(spec.drawn(temperature))
    )


def _unmeasured(run: ModelRun) -> list[str]:
    found = []
    records = run.records()
    if [record["number"] for record in records] != list(range(len(records))):
        found.append(f"{run.name}: problems are missing or out of order")
    measured = len(run.measured())
    for condition in run.conditions:
        for kept in _kept(run, condition):
            if kept != measured:
                found.append(f"{run.name}: {kept} problems under {condition}, {measured} were measured")
    if run.study.probes.answering:
        answered = len(run.measured(ANSWER))
        kept = min(len(run.summary("entropy", condition, ANSWER)) for condition in run.conditions)
        if kept != answered:
            found.append(f"{run.name}: {kept} answers were looked at, {answered} are recorded")
    return found


def _kept(run: ModelRun, condition: str) -> set[int]:
    """How many problems each table of a condition holds: one number where all is well."""
    found = {len(run.summary("entropy", condition))}
    if run.study.probes.affine and not run.condition(condition).is_baseline:
        found.add(len(run.affine("lambda_fit", condition)))
    if run.study.probes.activations is not None:
        found.add(len(run.activations("tokens", condition)))
    return found
