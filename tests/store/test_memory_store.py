"""Files kept in memory have the bytes of those on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.errors import StoreError
from fillerscope.store.array_file import Part
from fillerscope.store.memory_store import MemoryStore
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import ANSWER_COLUMNS, Columns

PART = Part({"none/heads": np.arange(6.0).reshape(2, 3)}, [{"number": 0, "id": "a", "status": "failed", "error": "x"}])
VALUES = (0, "a", "none", 0.0, 0, 7, 3, "stop", "right", "5", "", "It is 5", [1, 2, 3])


def table() -> Columns:
    return {name: [value, value] for name, value in zip(ANSWER_COLUMNS, VALUES, strict=True)}


def test_what_a_worker_makes_is_stored_with_the_bytes_of_the_same_put(tmp_path: Path) -> None:
    memory = MemoryStore()
    here, there = (RunStore.create(tmp_path / name, {"a": 1}, {"name": "x"}) for name in ("here", "there"))
    for store in (memory, here):
        store.put("shards/m/00000.safetensors", PART)
        store.put_table("answers/m/00000.parquet", table())
    for name, data in memory.contents.items():
        there.put_bytes(name, data)
    assert len(memory.contents) == 2
    for name in (*memory.contents, "manifest.json"):
        assert (here.path / name).read_bytes() == (there.path / name).read_bytes()
    assert there.verify() == []


def test_tables_that_were_given_are_read_and_facts_are_those_given(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {"a": 1}, {"name": "x"})
    store.put_table("answers/m/00000.parquet", table())
    memory = MemoryStore()
    memory.put("left over", PART)
    memory.begin(
        {"m": {"label": "M"}}, {"answers/m/00000.parquet": (store.path / "answers/m/00000.parquet").read_bytes()}
    )
    assert memory.get_table("answers/m/00000.parquet") == store.get_table("answers/m/00000.parquet")
    assert memory.manifest["models"] == {"m": {"label": "M"}}
    assert not memory.is_sound("left over")
    memory.note("models", {"m": {"label": "N"}})
    assert memory.manifest["models"] == {"m": {"label": "N"}}


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = MemoryStore()
    memory.put("shards/m/00000.safetensors", PART)
    memory.note("models", {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="missing"):
        memory.get("shards/m/00001.safetensors")
