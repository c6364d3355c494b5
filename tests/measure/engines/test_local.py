"""Shards on their way to the disk: in order, a few in memory at a time, and nothing lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fillerscope.capture.memory import PendingCopy
from fillerscope.errors import ModelError, StoreError
from fillerscope.measure.engines import local
from fillerscope.measure.engines.local import Writer, measure_model
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.prepare import StudyShards, refuse_missing_layers, shards_of
from fillerscope.measure.shard import ReducedShard
from fillerscope.models.resolve import resolve
from fillerscope.problems.sources import load_problems
from fillerscope.store.array_file import Part
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import shard_name
from support.studies import save_model, study_of

# Shards on their way to the disk


def reduced(shard: int) -> ReducedShard:
    return ReducedShard(
        PendingCopy({"none/heads": torch.full((1, 2), float(shard))}), [{"number": shard, "status": "ok"}]
    )


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path / "run", {"a": 1}, {"name": "x"})


def kept(store: RunStore) -> list[str]:
    """Parts that the disk holds and the manifest vouches for, in the order in which they were kept."""
    again = RunStore.open(store.path)
    assert again.verify() == []
    return [name for name in again.manifest["files"] if name != "study.json"]


def names(count: int) -> list[str]:
    return [shard_name("m", index) for index in range(count)]


def write(store: RunStore, count: int, error: BaseException | None = None) -> None:
    """So many shards, and then something that stops the measuring."""
    with Writer(store, lambda *_: None) as writer:
        for index, name in enumerate(names(count)):
            writer.put(name, reduced(index))
        if error is not None:
            raise error


def slowly(store: RunStore, monkeypatch: pytest.MonkeyPatch, delays: list[float]) -> list[str]:
    """Every write takes a while; what is written is noted when it is."""
    put, written = store.put, []

    def slow(name: str, part: Part) -> None:
        time.sleep(delays[len(written)])
        put(name, part)
        written.append(name)

    monkeypatch.setattr(store, "put", slow)
    return written


def test_shards_are_written_in_their_order(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = slowly(store, monkeypatch, [0.1, 0.0, 0.05, 0.0, 0.0])
    with Writer(store, lambda *_: None) as writer:
        for index, name in enumerate(names(5)):
            writer.put(name, reduced(index))
            assert len(writer.waiting) <= Writer.AHEAD
    assert written == names(5) == sorted(kept(store))
    for index, name in enumerate(names(5)):
        assert store.get(name).records == [{"number": index, "status": "ok"}]
        assert (store.get(name).arrays["none/heads"] == index).all()


def test_measuring_goes_on_while_a_shard_is_written(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And waits where too many of them would be held in memory."""
    put, released, written = store.put, threading.Event(), []

    def held(name: str, part: Part) -> None:
        assert released.wait(30)
        put(name, part)
        written.append(name)

    monkeypatch.setattr(store, "put", held)
    with Writer(store, lambda *_: None) as writer:
        for index in range(Writer.AHEAD):
            writer.put(names(9)[index], reduced(index))
        assert written == []
        threading.Timer(0.1, released.set).start()
        writer.put(names(9)[Writer.AHEAD], reduced(Writer.AHEAD))
        assert written[:1] == names(1)
    assert written == names(Writer.AHEAD + 1)


def test_a_shard_is_merged_while_it_is_written(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put, merged = store.put, threading.Event()

    def held(name: str, part: Part) -> None:
        assert merged.wait(30)
        put(name, part)

    monkeypatch.setattr(store, "put", held)
    with Writer(store, lambda *_: merged.set()) as writer:
        writer.put(names(1)[0], reduced(0))
    assert kept(store) == names(1)


@pytest.mark.parametrize("error", [RuntimeError("the model broke"), KeyboardInterrupt(), SystemExit(3)])
def test_what_was_measured_before_something_stopped_it_is_kept(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    slowly(store, monkeypatch, [0.05] * 3)
    with pytest.raises(type(error)) as caught:
        write(store, 2, error)
    assert caught.value is error
    assert kept(store) == names(2)


@pytest.mark.parametrize("shards", [1, 2, 6])
def test_a_write_that_fails_is_told(store: RunStore, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """After the last shard, too, and without waiting for many others to be measured."""
    put, tried = store.put, []

    def full(name: str, part: Part) -> None:
        tried.append(name)
        if name == names(1)[0]:
            raise StoreError("no space left on the disk")
        put(name, part)

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreError, match="no space left on the disk"):
        write(store, shards)
    assert tried == names(1)
    assert kept(store) == []


def test_a_write_that_fails_is_told_even_where_measuring_fails_too(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space left on the disk")

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreError) as caught:
        write(store, 1, RuntimeError("the model broke"))
    assert isinstance(caught.value.__context__, RuntimeError)


# The same with a model at work


class Silent:
    def stage(self, *_: object) -> None:
        pass

    say = stage


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


def measure(saved: Path, store: RunStore) -> list[str]:
    """Four shards of two problems; their names."""
    study = study_of(saved, batch={"shard": 2, "tokens": 512})
    shards = shards_of(load_problems(study.problems), 2)
    measure_model(ModelWork(study, study.models[0], resolve(str(saved)), store, Silent()), StudyShards(shards))
    return [shard_name(str(saved), shard.index) for shard in shards]


def test_a_shard_is_written_before_the_next_one_is_measured(
    saved: Path, store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, where nothing is computed meanwhile: a kill loses no more than the shard at work."""
    start_shard, put, begun = local.start_shard, Writer.put, []

    def starting(study: Any, prepared: Any, *rest: Any) -> Any:
        begun.append(("measured", prepared[0].number))
        return start_shard(study, prepared, *rest)

    def writing(writer: Writer, name: str, reduced: ReducedShard) -> None:
        begun.append(("written", reduced.records[0]["number"]))
        put(writer, name, reduced)

    monkeypatch.setattr(local, "start_shard", starting)
    monkeypatch.setattr(Writer, "put", writing)
    measure(saved, store)
    assert begun == [(what, number) for number in (0, 2, 4, 6) for what in ("measured", "written")]


@pytest.mark.parametrize("error", [RuntimeError("the model broke"), KeyboardInterrupt()])
def test_shards_before_the_one_that_breaks_are_on_the_disk(
    saved: Path, store: RunStore, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    start_shard, launched = local.start_shard, []

    def breaking(study: Any, prepared: Any, *rest: Any) -> Any:
        launched.append(prepared[0].number)
        if prepared[0].number == 4:
            raise error
        return start_shard(study, prepared, *rest)

    monkeypatch.setattr(local, "start_shard", breaking)
    with pytest.raises(type(error)) as caught:
        measure(saved, store)
    assert caught.value is error
    assert launched == [0, 2, 4]
    before = kept(store)
    assert len(before) == 2
    launched.clear()
    monkeypatch.setattr(local, "start_shard", start_shard)
    assert kept(store)[:2] == measure(saved, store)[:2] == before


def test_a_full_disk_stops_the_measuring(saved: Path, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put = store.put

    def full(name: str, part: Part) -> None:
        if part.records[0]["number"] == 2:
            raise StoreError("no space left on the disk")
        put(name, part)

    monkeypatch.setattr(store, "put", full)
    with pytest.raises(StoreError, match="no space left on the disk"):
        measure(saved, store)
    assert all(store.get(name).records[0]["number"] != 2 for name in kept(store))
    assert not [name for name in kept(store) if name.startswith("merged")]


# Interventions in layers that are not there


@pytest.mark.parametrize("kind", ["arm", "knockout"])
def test_an_intervention_in_a_layer_that_is_not_there_is_refused(kind: str) -> None:
    filler = {"kind": "repeat", "text": " /", "count": 6} if kind == "knockout" else {}
    study = study_of(
        "m", conditions=["none", {"name": "x", "intervention": {"kind": kind, "layers": [1, 4]}, **filler}]
    )
    with pytest.raises(ModelError, match="condition 'x' changes layer 4, and Tiny has 3 layers; choose from 1 to 3"):
        refuse_missing_layers(study, 3, "Tiny")
    refuse_missing_layers(study, 4, "Tiny")
