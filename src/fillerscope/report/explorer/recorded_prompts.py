"""The prompts of a problem as a run recorded them, and whether a model can take them. Loads no torch by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fillerscope.analysis.model_run import ModelRun
from fillerscope.errors import CaptureError, FigureError
from fillerscope.problems.problem import Problem
from fillerscope.prompts.prompt import QUESTION, Prompt
from fillerscope.store.schema import ProblemRecord

if TYPE_CHECKING:
    from fillerscope.measure.prepare import Prepared
    from fillerscope.models.loading import LoadedModel


def recorded(run: ModelRun, number: int) -> ProblemRecord:
    """What the run recorded of a problem that it measured."""
    records = run.records()
    found = next((record for record in records if record["number"] == number), None)
    if found is None:
        raise FigureError(f"this run has problems 0 to {len(records) - 1}, not {number}")
    if found["status"] != "ok":
        raise CaptureError(f"problem {found['id']} was not measured: {found.get('error', 'no reason is recorded')}")
    return found


def prepared(record: ProblemRecord) -> Prepared:
    """A problem as it was prepared then. Its question is what its tokens read, and its answer is not asked for."""
    from fillerscope.measure.prepare import Prepared

    prompts = {
        name: Prompt(tuple(kept["ids"]), tuple(kept["spans"]), kept.get("gap", 0))
        for name, kept in record["prompts"].items()
    }
    texts = zip(record["tokens"], prompts["none"].spans, strict=True)
    question = "".join(text for text, span in texts if span == QUESTION)
    return Prepared(record["number"], Problem(record["id"], question, ""), prompts, tokens=tuple(record["tokens"]))


def refuse_unfit(record: ProblemRecord, loaded: LoadedModel) -> None:
    """Raise for prompts that the model cannot have measured: a run may come from anybody, and long ones take hours."""
    from fillerscope.models.structure import context_length, vocabulary_of

    prompts = prepared(record).prompts.values()
    longest, context = max(prompt.position_count for prompt in prompts), context_length(loaded.model)
    if context is not None and longest > context:
        raise CaptureError(
            f"problem {record['id']} is recorded with {longest} tokens, and {loaded.label} takes {context}: run the "
            "study again"
        )
    vocabulary = vocabulary_of(loaded.model)
    beyond = next((id for prompt in prompts for id in prompt.ids if not 0 <= id < vocabulary), None)
    if beyond is not None:
        raise CaptureError(
            f"problem {record['id']} is recorded with token {beyond}, and {loaded.label} has tokens 0 to "
            f"{vocabulary - 1}: run the study again"
        )
