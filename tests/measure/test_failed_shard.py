"""A shard that could not be computed is stored as one whose problems have no prompts."""

from __future__ import annotations

from typing import Any

import pytest

from fillerscope.measure.failed_shard import failed_shard
from fillerscope.measure.prepare import Shard
from fillerscope.problems.problem import Problem
from fillerscope.store.array_file import Part
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS
from support.studies import CONDITIONS, study_of

SHARD = Shard(1, 2, (Problem("c", "What is 1 + 1?", "2"), Problem("d", "What is 2 + 2?", "4")))
STUDY = study_of(
    "any", conditions=list(CONDITIONS[:2]), probes={"attention": {"positions": 110}, "answering": True},
    generation={"max_tokens": 4, "temperature": [0, 1], "samples": 3, "noise": True},
)  # fmt: skip


@pytest.mark.parametrize("stage", [MEASURING, MEASURING_ANSWERS])
def test_every_problem_of_a_failed_measurement_has_the_reason(stage: str) -> None:
    part = failed_shard(stage, STUDY, SHARD, "a worker died")
    assert isinstance(part, Part)
    assert part.arrays == {}
    assert part.records == [
        {"number": 2, "id": "c", "status": "failed", "error": "a worker died"},
        {"number": 3, "id": "d", "status": "failed", "error": "a worker died"},
    ]


@pytest.mark.parametrize(("stage", "conditions"), [(ANSWERING, ["none", "mless"]), (ANSWERING_AGAIN, ["none"])])
def test_every_answer_of_a_failed_shard_is_there_and_counts_as_failed(stage: str, conditions: list[str]) -> None:
    table: Any = failed_shard(stage, STUDY, SHARD, "a worker died")
    answers = 1 + 3  # one greedy, three samples
    assert len(table["number"]) == len(SHARD.problems) * len(conditions) * answers
    assert sorted(set(table["number"])) == [2, 3]
    assert sorted(set(table["condition"])) == sorted(conditions)
    assert set(table["verdict"]) == set(table["finish"]) == {"failed"}
    assert set(table["note"]) == {"a worker died"}
    assert set(table["ids"] and map(tuple, table["ids"])) == {()}
