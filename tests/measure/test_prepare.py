"""Prompts are kept between stages, and no longer than that."""

from __future__ import annotations

import pytest

from fillerscope.measure import prepare
from fillerscope.measure.prepare import ShardPrompts, shards_of
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.study import Study
from support.tiny import tiny_tokenizer


@pytest.mark.parametrize("answered", [True, False])
def test_prompts_are_kept_where_they_are_asked_for_again(answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study.model_validate(
        {"name": "tiny", "models": ["tiny"], "conditions": ["none"], "problems": {"limit": 4}, "batch": {"shard": 2}}
        | ({"generation": {"max_tokens": 4}} if answered else {})
    )
    first, second = shards_of(load_problems(study.problems), study.batch.shard)
    maker = PromptMaker.of(tiny_tokenizer(), study.prompt, "chat", study.seed, None)
    size = sum(len(item.prompts["none"]) for item in ShardPrompts(study, maker, None).of(first))
    monkeypatch.setattr(prepare, "CACHED_FIRST", size)
    prompts = ShardPrompts(study, maker, None)
    before = [prompts.of(shard) for shard in (first, second)]
    assert prompts.of(first) is before[0]
    assert (prompts.of(second) is before[1]) is answered
    assert prompts.of(second) == before[1]
