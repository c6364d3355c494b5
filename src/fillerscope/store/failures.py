"""Files of a run in which something failed, so that it can be tried again, and what is stored after the second try.

A second try may fail where the first did not: a server that has gone, memory that is short. Nothing that did not fail
is replaced by a failure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from fillerscope.store.array_file import Part, read_part
from fillerscope.store.contents import ANSWERING, MEASURING, MEASURING_ANSWERS, measured_models, stage_files
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import Columns
from fillerscope.store.tables import FREE, RATIO, read_table
from fillerscope.study.study import Study

FAILED = "failed"
NO_ANSWER = "there is no answer"  # so the error of a problem begins that has none to measure: no other try changes it
ANSWER_KEYS = ("number", "condition", "temperature", "sample")


def files_with_failures(store: RunStore, study: Study, shards: Iterable[int]) -> list[str]:
    """The files of shards that hold a problem or an answer that failed, and what was measured of such answers."""
    found: list[str] = []
    numbers = list(shards)
    for model, asked in measured_models(study):
        stages = stage_files(asked)
        for stage, named in stages.items():
            failed = [n for n in numbers if _has_failed(store, stage, named(model, n))]
            found += [named(model, number) for number in failed]
            if stage == ANSWERING and MEASURING_ANSWERS in stages:
                found += [stages[MEASURING_ANSWERS](model, number) for number in failed]
    return list(dict.fromkeys(found))


def best_part(store: RunStore, name: str, part: Part) -> Part:
    """What to store of a shard that is measured: the first try where a problem failed at the second alone."""
    if not store.is_repeated(name):
        return part
    earlier = store.get(name)
    return earlier if _failed(part) - _failed(earlier) else part


def best_table(store: RunStore, name: str, table: Columns) -> Columns:
    """What to store of answers: those of the second try, and of the first one where the second failed."""
    if not store.is_repeated(name):
        return table
    earlier = store.get_table(name)
    if any(earlier[key] != table[key] for key in ANSWER_KEYS):
        return table
    kept = [finish == FAILED for finish in table["finish"]]
    return {key: [earlier[key][row] if keep else values[row] for row, keep in enumerate(kept)]
            for key, values in table.items()}  # fmt: skip


def put_best(store: RunStore, name: str, data: bytes) -> None:
    """Store a file that another process made for this run, or what of the first try is better."""
    if not store.is_repeated(name):
        store.put_bytes(name, data)
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new"
        path.write_bytes(data)
        if name.endswith(".parquet"):
            store.put_table(name, best_table(store, name, read_table(path, FREE + RATIO * len(data))[0]))
        else:
            store.put(name, best_part(store, name, read_part(path)))


def _failed(part: Part) -> set[int]:
    return {record["number"] for record in part.records if record["status"] == FAILED}


def _has_failed(store: RunStore, stage: str, name: str) -> bool:
    if not store.is_sound(name):
        return False
    if stage in (MEASURING, MEASURING_ANSWERS):
        records = store.get(name, []).records
        return any(one["status"] == FAILED and not one.get("error", "").startswith(NO_ANSWER) for one in records)
    return FAILED in store.get_table(name)["finish"]
