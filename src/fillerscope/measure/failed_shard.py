"""A shard that could not be computed, as it is stored: every problem failed, with the reason. Needs no model."""

from __future__ import annotations

import numpy as np

from fillerscope.measure.answer_shard import failed_answers
from fillerscope.measure.prepare import Prepared, Shard
from fillerscope.measure.shard import PendingShard
from fillerscope.store.array_file import Part
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN
from fillerscope.store.schema import Columns
from fillerscope.study.study import Study


def failed_shard(stage: str, study: Study, shard: Shard, error: str) -> Part | Columns:
    """What a stage of `store.contents` stores for a shard that could not be computed."""
    items = [Prepared(shard.start + i, problem, {}, error) for i, problem in enumerate(shard.problems)]
    if stage in (ANSWERING, ANSWERING_AGAIN):
        return failed_answers(study, items, repeat=stage == ANSWERING_AGAIN)
    return PendingShard(items, [], None, lambda: np.ones(0, np.bool_)).reduced(study).part()
