"""How many shards are answered together."""

from __future__ import annotations

from typing import Any

import pytest

from fillerscope.measure.answer_groups import AT_ONCE, shards_together
from fillerscope.study.study import Study
from support.studies import study_of

CONDITIONS = ["none", "mless"]


def study(**generation: Any) -> Study:
    return study_of("tiny", conditions=CONDITIONS, batch={"shard": 32}, generation=generation)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_processor_answers_shard_by_shard(device: str) -> None:
    assert shards_together(study(), device) == 1


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cuda:all"])
def test_a_gpu_gets_as_many_answers_as_fill_it(device: str) -> None:
    assert shards_together(study(), device) == AT_ONCE // (32 * len(CONDITIONS))
    assert shards_together(study(temperature=[0.7], samples=4), device) == AT_ONCE // (32 * len(CONDITIONS) * 4)
    assert shards_together(study(temperature=[0.7], samples=64), device) == 1


def test_the_baseline_alone_is_answered_again_in_larger_groups() -> None:
    assert shards_together(study(), "cuda", repeat=True) == AT_ONCE // 32
