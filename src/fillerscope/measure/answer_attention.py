"""Where answers attend: prompt and answer read once more, with the answer's tokens as the rows that vote.

Touches no disk and knows no engine, like `runner`, and gives the same arrays: profiles and head summaries, for one
group of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fillerscope.capture.packing import GROUPS, Text
from fillerscope.capture.passes import PassRunner
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.shard import launch, texts_of
from fillerscope.store.run_folder import Part
from fillerscope.store.schema import Array, ArrayName, Columns
from fillerscope.study.study import Study

VOTERS = GROUPS.index("original")  # the group whose rows are the answer's here
Answers = Mapping[tuple[int, str], Sequence[int]]  # by number of the problem and condition


def answers_in(study: Study, table: Columns) -> Answers:
    """What was written after each prompt, the token that ended it left out: nothing was asked of that one."""
    assert study.generation is not None
    first = study.generation.temperature[0]
    rows = zip(*(table[key] for key in ("number", "condition", "temperature", "sample", "finish", "ids")), strict=True)
    return {
        (number, condition): ids[: -1 if finish == "stop" else None]
        for number, condition, temperature, sample, finish, ids in rows
        if (temperature, sample) == (first, 0) and finish != "failed"
    }


def look_back(
    study: Study, prepared: Sequence[Prepared], answers: Answers, gauge: PassRunner, tick: Callable[[int], None]
) -> Part:
    """The problems of a shard inside `capturing`; those without an answer under some condition are left out."""

    def texts(items: Sequence[Prepared]) -> list[Text]:
        written = [answers[item.number, condition.name] for item in items for condition in study.conditions]
        return [_with_answer(*pair) for pair in zip(texts_of(study, items), written, strict=True)]

    items = [_answered(study, item, answers) for item in prepared]
    part = launch(study, items, gauge, tick, texts).reduced(study).part()
    return Part({name: _voters_only(name, array) for name, array in part.arrays.items()}, part.records)


def _answered(study: Study, item: Prepared, answers: Answers) -> Prepared:
    silent = [c.name for c in study.conditions if not len(answers.get((item.number, c.name), ()))]
    if item.error or not silent:
        return item
    return Prepared(item.number, item.problem, {}, f"there is no answer under {silent[0]} to look back from")


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


def _voters_only(name: str, array: Array) -> Array:
    """The one group of queries, still with an axis of its own."""
    return np.take(array, [VOTERS], ArrayName.parse(name).quantity.axes.index("query"))
