"""One question measured and answered under the conditions of a study, in memory: nothing is stored.

Prompts, passes and sums are those of a study with this problem alone, and so are the numbers. Checks are made on the
very prompts and answers, which costs less than the checks that a run makes for all of its problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.answers.local.answer_check import checked_answers
from fillerscope.answers.request import Reply, Request
from fillerscope.capture.attention import capturing
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.row_check import RowCheck, check_rows, check_texts
from fillerscope.capture.self_check import check_capture
from fillerscope.errors import CaptureError, PromptError
from fillerscope.measure.prepare import Prepared, prepare
from fillerscope.measure.shard import start_shard, texts_of
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length, vocabulary_of
from fillerscope.problems.problem import Problem
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import PromptMaker, token_texts
from fillerscope.store.schema import Array
from fillerscope.study.study import Study

WHOLE = 512  # tokens of a prompt whose whole matrices are compared


@dataclass(frozen=True)
class QuestionResult:
    """What was measured of one question, by condition, and its answers where the study asks for them."""

    item: Prepared  # with the prompts
    tokens: Mapping[str, tuple[str, ...]]  # texts of the prompt's tokens, filler included
    received: Mapping[str, NDArray[np.float64]]  # [query, layer, head, position]: means over query rows
    arrays: Mapping[str, Array]  # as in the shard of a run: head summaries, references
    check: RowCheck
    replies: Mapping[str, Reply]


def measure_question(study: Study, loaded: LoadedModel, question: str, progress: Progress = SILENT) -> QuestionResult:
    """Measure the attention of a question's prompts, and answer them greedily where the study has `generation`."""
    item = _prepared(study, loaded, question)
    texts = texts_of(study, [item])
    progress.stage(f"measuring with {loaded.label}", 0, None)
    check = _checked(loaded, texts)
    received, arrays = _measured(study, loaded, item, check)
    tokens = {name: tuple(token_texts(loaded.tokenizer, prompt.ids)) for name, prompt in item.prompts.items()}
    return QuestionResult(item, tokens, received, arrays, check, _replies(study, loaded, item, progress))


def _prepared(study: Study, loaded: LoadedModel, question: str) -> Prepared:
    template = study.template_of(study.models[0])
    maker = PromptMaker.of(loaded.tokenizer, study.prompt, template, study.seed, vocabulary_of(loaded.model))
    item = prepare(study, maker, context_length(loaded.model), 0, Problem("question", question, ""))
    if item.error:
        raise PromptError(item.error)
    return item


def _checked(loaded: LoadedModel, texts: list[Text]) -> RowCheck:
    """The check of these texts; in half precision or for long prompts, the checks that a run makes."""
    longest = max(map(len, texts))
    if loaded.dtype == "float32" and longest <= WHOLE:
        return check_texts(loaded, texts)
    check_capture(loaded)
    return check_rows(loaded, longest, sum(map(len, texts)))


def _measured(
    study: Study, loaded: LoadedModel, item: Prepared, check: RowCheck
) -> tuple[dict[str, NDArray[np.float64]], Mapping[str, Array]]:
    runner = PassRunner(loaded.model, pass_tokens(loaded.model), layout=check.layout)
    with capturing(loaded.model):
        pending = start_shard(study, [item], runner, lambda _: None)
        part = pending.reduced(study).part()
    record = part.records[0]
    if record["status"] != "ok" or pending.measured is None:
        raise CaptureError(f"the question could not be measured: {record.get('error', 'no reason is known')}")
    names = [condition.name for condition in study.conditions]
    measured = pending.measured
    return {name: measured.text(number).mean_received() for number, name in enumerate(names)}, part.arrays


def _replies(study: Study, loaded: LoadedModel, item: Prepared, progress: Progress) -> dict[str, Reply]:
    if study.generation is None:
        return {}
    text, total, done = f"answering with {loaded.label}", len(item.prompts), 0.0

    def tick(count: float) -> None:
        nonlocal done
        done += count
        progress.stage(text, round(done, 3), total)

    requests = [
        Request(prompt.ids, shared=len(prompt), filler=prompt.filler, room=item.room, heading=item.heading)
        for prompt in item.prompts.values()
    ]
    replies = checked_answers(loaded, requests, study.generation.decoding(0.0), tick)
    return dict(zip(item.prompts, replies, strict=True))
