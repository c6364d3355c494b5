"""Files of a run in which something failed, so that it can be tried again."""

from __future__ import annotations

from collections.abc import Iterable

from fillerscope.store.contents import ANSWERING, MEASURING, MEASURING_ANSWERS, measured_models, stage_files
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study

FAILED = "failed"


def files_with_failures(store: RunStore, study: Study, shards: Iterable[int]) -> list[str]:
    """The files of shards that hold a problem or an answer that failed, and what was measured of such answers."""
    found: list[str] = []
    numbers = list(shards)
    for model, asked in measured_models(study):
        stages = stage_files(asked)
        for stage, named in stages.items():
            failed = (
                [] if stage == MEASURING_ANSWERS else [n for n in numbers if _has_failed(store, stage, named(model, n))]
            )
            found += [named(model, number) for number in failed]
            if stage == ANSWERING and MEASURING_ANSWERS in stages:
                found += [stages[MEASURING_ANSWERS](model, number) for number in failed]
    return found


def _has_failed(store: RunStore, stage: str, name: str) -> bool:
    if not store.is_sound(name):
        return False
    if stage == MEASURING:
        return any(record["status"] == FAILED for record in store.get(name, []).records)
    return FAILED in store.get_table(name)["finish"]
