"""One shard on its own, as the stages of a run see it."""

from __future__ import annotations

from collections.abc import Callable

from fillerscope.capture.passes import PassRunner
from fillerscope.measure.prepare import Prepared, Shard, ShardPrompts
from fillerscope.measure.shard import start_shard
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.array_file import Part
from fillerscope.study.study import Study


def prepare_shard(study: Study, shard: Shard, maker: PromptMaker, context: int | None) -> list[Prepared]:
    return ShardPrompts(study, maker, context).of(shard)


def run_shard(
    study: Study, shard: Shard, gauge: PassRunner, maker: PromptMaker, context: int | None, tick: Callable[[int], None]
) -> Part:
    """Measure a shard inside `capturing`. `tick` is told the number of prompts done as they are."""
    return start_shard(study, prepare_shard(study, shard, maker, context), gauge, tick).reduced(study).part()
