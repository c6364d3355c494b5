"""Of two tries, what did not fail stays, whichever process made the second one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.store.array_file import Part
from fillerscope.store.failures import NO_ANSWER, best_table, files_with_failures, put_best
from fillerscope.store.memory_store import MemoryStore
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import ANSWER_COLUMNS, Columns, answer_attention_name, answers_name, shard_name
from fillerscope.study.study import Study
from support.studies import settings

ANSWERS, SHARD, LOOKBACK = answers_name("m", 0), shard_name("m", 0), answer_attention_name("m", 0)


def table(*texts: str, first: int = 0) -> Columns:
    """Answers, of which the empty ones failed."""
    rows = range(len(texts))
    columns: Columns = {name: ["" for _ in rows] for name in ANSWER_COLUMNS}
    numbers = {"number": [first + row for row in rows], "condition": ["none" for _ in rows], "text": list(texts)}
    zeros = {name: [0 for _ in rows] for name in ("sample", "prompt_tokens", "tokens")}
    finish = ["stop" if text else "failed" for text in texts]
    return columns | numbers | zeros | {"temperature": [0.8 for _ in rows], "finish": finish, "ids": [[] for _ in rows]}


def part(*failed: bool) -> Part:
    records = [{"number": n, "id": f"p{n}", "status": "failed" if bad else "ok"} for n, bad in enumerate(failed)]
    return Part({"none.x": np.array([float(sum(failed))])}, records)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore.create(tmp_path / "run", {"a": 1}, {})
    made.put_table(ANSWERS, table("a", "", "c", ""))
    made.put(SHARD, part(False, True, False))
    return made


def as_bytes(name: str, contents: Columns | Part) -> bytes:
    """As another process writes it."""
    memory = MemoryStore()
    memory.begin({}, {})
    memory.put(name, contents) if isinstance(contents, Part) else memory.put_table(name, contents)
    return memory.contents[name]


@pytest.mark.parametrize(
    ("error", "again"), [(f"{NO_ANSWER} under none to look back from", False), ("memory runs out", True)]
)
def test_answers_that_could_not_be_measured_are_measured_again(tmp_path: Path, error: str, again: bool) -> None:
    """Those that were not given cannot be."""
    study = Study.model_validate(settings("m", probes={"answering": True}, generation={"max_tokens": 6}))
    store = RunStore.create(tmp_path / "run", {"a": 1}, {})
    store.put_table(ANSWERS, table("a", "b"))
    failed = part(False, True)
    failed.records[1]["error"] = error
    store.put(LOOKBACK, failed)
    assert files_with_failures(store, study, [0]) == ([LOOKBACK] if again else [])


def test_answers_that_fail_again_stay_as_they_were(store: RunStore) -> None:
    store.repeat([ANSWERS])
    assert best_table(store, ANSWERS, table("", "B", "C", ""))["text"] == ["a", "B", "C", ""]
    put_best(store, ANSWERS, as_bytes(ANSWERS, table("", "B", "C", "")))
    assert store.get_table(ANSWERS)["text"] == ["a", "B", "C", ""]
    assert store.get_table(ANSWERS)["finish"] == ["stop", "stop", "stop", "failed"]


@pytest.mark.parametrize(
    ("second", "kept"), [((True, False, False), True), ((False, False, False), False), ((False, True, False), False)]
)
def test_a_shard_in_which_another_problem_fails_stays(store: RunStore, second: tuple[bool, ...], kept: bool) -> None:
    store.repeat([SHARD])
    put_best(store, SHARD, as_bytes(SHARD, part(*second)))
    statuses = [record["status"] == "failed" for record in store.get(SHARD).records]
    assert tuple(statuses) == ((False, True, False) if kept else second)
    assert store.is_sound(SHARD)


def test_files_that_are_not_tried_again_are_written_as_they_come(store: RunStore) -> None:
    put_best(store, ANSWERS, as_bytes(ANSWERS, table("", "", "", "")))
    assert store.get_table(ANSWERS)["text"] == [""] * 4
    put_best(store, SHARD, as_bytes(SHARD, part(True, True, True)))
    assert all(record["status"] == "failed" for record in store.get(SHARD).records)


def test_a_damaged_first_try_is_replaced(store: RunStore) -> None:
    store.repeat([ANSWERS])
    (store.path / ANSWERS).write_bytes(b"damaged")
    put_best(store, ANSWERS, as_bytes(ANSWERS, table("", "B", "", "")))
    assert store.get_table(ANSWERS)["text"] == ["", "B", "", ""]


def test_answers_to_others_are_not_mixed(store: RunStore) -> None:
    store.repeat([ANSWERS])
    other = table("", "B", "C", "D", first=1)
    assert best_table(store, ANSWERS, other) == other
