"""Which shards are answered together: each by itself, or on a GPU as many as fill it."""

from __future__ import annotations

from fillerscope.measure.plan import samples
from fillerscope.study.study import Study

AT_ONCE = 1024  # answers on a GPU: two for each that can be in progress, since a group waits for its longest ones


def shards_together(study: Study, device: str, repeat: bool = False) -> int:
    """How many shards of a job are answered together; `repeat` answers the baseline alone."""
    if device.partition(":")[0] != "cuda":
        return 1
    assert study.generation is not None
    each = (1 if repeat else len(study.conditions)) * samples(study.generation) * study.batch.shard
    return max(1, AT_ONCE // each)
