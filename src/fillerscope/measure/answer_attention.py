"""The attention of answers: a prefill of prompt and answer, with the tokens of the answer as query rows.

Gives the same arrays as `shard` does, profiles and head summaries, for one group of query rows. Touches no disk and
knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fillerscope.capture.packing import GROUPS, Text
from fillerscope.capture.passes import PassRunner
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.shard import start_shard, texts_of
from fillerscope.store.array_file import Part
from fillerscope.store.failures import NO_ANSWER
from fillerscope.store.schema import Array, ArrayName, Columns
from fillerscope.study.study import Study

ANSWER_ROWS = GROUPS.index("original")  # the group that holds the query rows of the answer here
Answers = Mapping[tuple[int, str], Sequence[int]]  # token ids by number of the problem and condition


def answer_ids(study: Study, table: Columns) -> Answers:
    """The token ids of the first answer to each prompt, without the stop token: no decode step followed it."""
    assert study.generation is not None
    first = study.generation.temperature[0]
    rows = zip(*(table[key] for key in ("number", "condition", "temperature", "sample", "finish", "ids")), strict=True)
    return {
        (number, condition): ids[: -1 if finish == "stop" else None]
        for number, condition, temperature, sample, finish, ids in rows
        if (temperature, sample) == (first, 0) and finish != "failed"
    }


def measure_answers(
    study: Study, prepared: Sequence[Prepared], answers: Answers, gauge: PassRunner, tick: Callable[[int], None]
) -> Part:
    """Measure a shard inside `capturing`. A problem without an answer under some condition fails."""

    def texts(items: Sequence[Prepared]) -> list[Text]:
        ids = [answers[item.number, condition.name] for item in items for condition in study.conditions]
        return [_with_answer(*pair) for pair in zip(texts_of(study, items), ids, strict=True)]

    items = [_answered(study, item, answers) for item in prepared]
    part = start_shard(study, items, gauge, tick, texts).reduced(study).part()
    return Part({name: _answer_rows_only(name, array) for name, array in part.arrays.items()}, part.records)


def _answered(study: Study, item: Prepared, answers: Answers) -> Prepared:
    missing = [c.name for c in study.conditions if not len(answers.get((item.number, c.name), ()))]
    if item.error or not missing:
        return item
    return Prepared(item.number, item.problem, {}, f"{NO_ANSWER} under {missing[0]} to look back from")


def _with_answer(text: Text, answer: Sequence[int]) -> Text:
    written = np.ones(len(answer), np.bool_)
    return replace(
        text,
        ids=(*text.ids, *answer),
        original=np.concatenate([text.original, written]),
        query_rows=np.concatenate([np.zeros(len(text), np.bool_), written]),
        generated=len(answer),
        problem=-1,  # nothing is compared here
        row_weights=None,
    )


def _answer_rows_only(name: str, array: Array) -> Array:
    """The array of the one group of query rows, with the axis kept."""
    return np.take(array, [ANSWER_ROWS], ArrayName.parse(name).quantity.axes.index("query"))
