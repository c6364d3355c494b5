"""A run that is still being measured: what is there is right at every moment, and at the end it is the whole."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.answers import answers
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.flips import flips
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import Run, open_live_run, open_run
from fillerscope.errors import StoreError
from fillerscope.measure.run_study import run_study
from fillerscope.store import live
from fillerscope.store.array_file import Part
from fillerscope.store.live import LiveStore, StageProgress
from fillerscope.store.merge import Merger
from fillerscope.store.reading import stamp_of
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import (
    MANIFEST,
    PROBLEMS,
    STUDY,
    answer_attention_name,
    answers_name,
    merged_name,
    shard_name,
)
from support.answered import build, drawn_at_random
from support.grid import some_fast
from support.studies import CONDITIONS, save_model, study_of
from support.synthetic import Synthetic

MODEL = "tiny-a"
MERGED = merged_name(MODEL)
SHARDS = [shard_name(MODEL, index) for index in range(3)]
RECIPE = Synthetic(right={"none": 0.5, "mless": 0.75, "random": 0.25}, affine=True, activations=True, answering=True)
DRAW = drawn_at_random(5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve problems in shards of five, five and two, merged as an engine does. Never changed."""
    folder = tmp_path_factory.mktemp("growing") / "whole"
    store = RECIPE.build(folder).store
    store.put(MERGED, Merger(SHARDS, store.get).merged())
    return folder


class Landing:
    """A run folder in which the files of another one land, one after the other."""

    def __init__(self, source: Path, folder: Path, *names: str) -> None:
        self.source = RunStore.open(source)
        identity = self.source.manifest["identity"]
        self.store = RunStore.create(folder, identity, self.source.study)
        self.store.note("models", self.source.manifest.get("models", {}))
        self.land(*names)

    def land(self, *names: str) -> None:
        for name in names:
            (self.store.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.source.path / name, self.store.path / name)
            self.store.manifest["files"][name] = self.source.manifest["files"][name]
        self.store._save_manifest()


def run_now(store: LiveStore) -> Run:
    return Run(store.snapshot(), partial=True)


def same(one: Part, other: Part) -> None:
    assert one.records == other.records
    assert one.arrays.keys() == other.arrays.keys()
    for key, array in one.arrays.items():
        assert array.dtype == other.arrays[key].dtype
        np.testing.assert_array_equal(array, other.arrays[key])


# Attention


@pytest.mark.parametrize("shards", some_fast([1, 2, 3], 2))
def test_the_first_shards_are_a_run_of_just_their_problems(whole: Path, tmp_path: Path, shards: int) -> None:
    problems = (5, 10, 12)[shards - 1]
    Landing(whole, tmp_path / "run", *SHARDS[:shards])
    few = Landing(whole, tmp_path / "few").store
    few.put(MERGED, RECIPE._part(range(problems)))  # as if they had been one shard
    run, expected = open_live_run(tmp_path / "run"), open_run(tmp_path / "few")
    assert len(run[None].measured()) == problems
    for name in run.conditions:
        for view in ("whole", "aligned") if name == "none" else ("whole", "aligned", "difference", "logratio"):
            one, other = (one.profile(name, view=view) for one in (run, expected))
            assert (one.problems, one.tokens) == (problems, other.tokens)
            np.testing.assert_array_equal(one.count, other.count)
            for part in ("mean", "m2", "m3"):
                found, wanted = (getattr(profile.moments, part) for profile in (one, other))
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-15)
        np.testing.assert_array_equal(run.summary("peak", name), expected.summary("peak", name))
        np.testing.assert_array_equal(run[None].peak_at(name), expected[None].peak_at(name))
    assert [one.text for one in attention_findings(run[None])] == [
        one.text for one in attention_findings(expected[None])
    ]
    assert len(head_table(run[None], "mless").columns["drop"].value) == 3
    told = [[one.name for one in mechanism_findings(each[None])] for each in (run, expected)]
    assert told[0] == told[1]


@pytest.mark.parametrize("head", [None, 2])
def test_one_head_is_cut_out_as_from_a_file(whole: Path, tmp_path: Path, head: int | None) -> None:
    Landing(whole, tmp_path / "run", *SHARDS)
    one, other = (
        run[None].head_profile("mless", 2, head) for run in (open_live_run(tmp_path / "run"), open_run(whole))
    )
    for part in ("count", "mean", "m2", "m3"):
        np.testing.assert_array_equal(getattr(one.moments, part), getattr(other.moments, part))


def test_shard_by_shard_it_grows_to_the_merged_file(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run")
    store = LiveStore.open(tmp_path / "run")
    assert not store.has(MERGED)
    for name, problems in zip(SHARDS, (5, 10, 12), strict=True):
        landing.land(name)
        assert store.refresh()
        assert not store.refresh()
        assert len(store.get(MERGED, []).records) == problems
    grown, stored = store.get(MERGED), landing.source.get(MERGED)
    same(grown, stored)
    landing.land(MERGED)
    assert store.refresh()
    assert MERGED not in store._parts.keys() | store._merges.keys(), "memory is let go"
    same(store.get(MERGED), stored)


def test_only_new_shards_are_read(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    get = RunStore.get
    monkeypatch.setattr(RunStore, "get", lambda self, name, keys=None: read.append(name) or get(self, name, keys))
    landing = Landing(whole, tmp_path / "run", *SHARDS[:2])
    store = LiveStore.open(tmp_path / "run")
    assert read == SHARDS[:2]
    landing.land(SHARDS[2])
    store.refresh()
    assert read == SHARDS


def test_where_nothing_landed_the_manifest_is_not_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Landing(whole, tmp_path / "run", *SHARDS[:2])
    store = LiveStore.open(tmp_path / "run")
    monkeypatch.setattr(RunStore, "open", lambda *_: pytest.fail("read again"))
    assert not store.refresh()


def test_a_manifest_that_cannot_be_read_is_told_at_the_second_time(whole: Path, tmp_path: Path) -> None:
    """At the first it may be being replaced; the numbers of before stay."""
    landing = Landing(whole, tmp_path / "run", *SHARDS)
    store = LiveStore.open(tmp_path / "run")
    file = tmp_path / "run" / MANIFEST
    for damaged in ("{", "[]"):
        sound = file.read_bytes()
        file.write_text(damaged)
        assert (store.refresh(), store.fault) == (False, "")
        assert not store.refresh()
        assert str(file) in store.fault or "its manifest.json is of another program" in store.fault
        assert len(run_now(store)[None].measured()) == 12
        file.write_bytes(sound)
        store.refresh()
        assert store.fault == ""
    landing.land(MERGED)
    assert store.refresh()


def test_a_file_that_was_vouched_for_is_compared_again_once_it_is_another(whole: Path, tmp_path: Path) -> None:
    """Others are checked by their sizes alone."""
    shutil.copytree(whole, tmp_path / "run")
    store, file = LiveStore.open(tmp_path / "run", checksums=False), tmp_path / "run" / MERGED
    sound = file.read_bytes()
    snapshot = store.snapshot()
    snapshot.vouch_for({MERGED: stamp_of(file)})
    for name in (MERGED, SHARDS[0]):
        data = bytearray((tmp_path / "run" / name).read_bytes())
        data[-1] ^= 1
        (tmp_path / "run" / name).write_bytes(data)
    store.get(SHARDS[0], [])
    for one in (store, snapshot):
        with pytest.raises(StoreError, match="the file is damaged"):
            one.get(MERGED, [])
    file.write_bytes(sound)
    assert len(store.get(MERGED, []).records) == 12


def test_shards_behind_a_gap_wait(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", SHARDS[0], SHARDS[2])
    store = LiveStore.open(tmp_path / "run")
    assert len(run_now(store)[None].records()) == 5
    landing.land(SHARDS[1])
    assert store.refresh()
    same(store.get(MERGED), landing.source.get(MERGED))


def test_a_run_keeps_its_numbers_while_its_store_grows(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", SHARDS[0], PROBLEMS, answers_name(MODEL, 0))
    store = LiveStore.open(tmp_path / "run")
    before = run_now(store)  # nothing of it was read yet
    landing.land(*SHARDS[1:], answers_name(MODEL, 1))
    store.refresh()
    after = run_now(store)
    for run, problems in ((before, 5), (after, 12)):
        assert len(run[None].measured()) == problems
        assert run.profile("mless").problems == problems
        assert run.profile("mless").count.max() == problems
        assert len(run.summary("entropy", "mless")) == problems
        assert len(run[None].affine("lambda_fit", "mless")) == problems
    assert (before[None].answered(), after[None].answered()) == (5, 10)
    landing.land(MERGED)
    store.refresh()
    assert len(before.summary("peak", "mless")) == 5


def test_a_run_can_be_followed_from_its_own_store(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", SHARDS[0])
    run = open_live_run(tmp_path / "run")
    landing.land(SHARDS[1])
    assert isinstance(run.store, LiveStore)
    assert run.store.refresh()
    assert len(run_now(run.store).summary("peak", "mless")) == 10


def test_problems_that_failed_are_kept_and_a_shard_of_them_shows_nothing(tmp_path: Path) -> None:
    recipe = Synthetic(failed=(0, 1, 2, 3, 4, 6))
    recipe.build(tmp_path / "whole")
    landing = Landing(tmp_path / "whole", tmp_path / "run", SHARDS[0])
    store = LiveStore.open(tmp_path / "run")
    run = run_now(store)
    assert not run[None].has_measured()
    with pytest.raises(StoreError, match="holds no attention of tiny-a yet; wait for its first shard"):
        run.profile("none")
    landing.land(SHARDS[1])
    store.refresh()
    run = run_now(store)
    assert (len(run[None].records()), len(run[None].measured()), run.profile("none").problems) == (10, 4, 4)
    np.testing.assert_allclose(run.summary("peak", "mless"), recipe.summary("peak", "mless")[:4, 1], rtol=1e-6)


def test_where_answers_attend_grows_too(tmp_path: Path) -> None:
    """The shards of a synthetic run's look back are cut from its merged file."""
    source = RECIPE.build(tmp_path / "whole").store
    (tmp_path / "whole" / answer_attention_name(MODEL)).unlink()
    for index, name in enumerate(SHARDS):
        part = source.get(name)
        arrays = {key: array for key, array in part.arrays.items() if key.rpartition("/")[2] in ("heads", "peak_at")}
        arrays |= {key: array for key, array in part.arrays.items() if "/whole/" in key or "/aligned/" in key}
        arrays = {key: array[:, :, 2:] if key.endswith("/heads") else array for key, array in arrays.items()}
        source.put(answer_attention_name(MODEL, index), Part(arrays, part.records))
    shards = [answer_attention_name(MODEL, index) for index in range(3)]
    landing = Landing(tmp_path / "whole", tmp_path / "run", *SHARDS, MERGED, shards[0])
    store = LiveStore.open(tmp_path / "run")
    assert lookback_table(run_now(store)[None], "mless").problems == 5
    landing.land(shards[1])
    store.refresh()
    assert lookback_table(run_now(store)[None], "mless").problems == 10
    assert run_now(store)[None].has_measured(queries="answer")


# Swaps and losses


@pytest.mark.parametrize("damage", ["cut", "removed", "other"])
def test_a_manifest_in_other_hands_is_looked_at_again(whole: Path, tmp_path: Path, damage: str) -> None:
    landing = Landing(whole, tmp_path / "run", SHARDS[0])
    store = LiveStore.open(tmp_path / "run")
    path = tmp_path / "run" / MANIFEST
    if damage == "removed":
        path.unlink()
    else:
        path.write_text(path.read_text()[:100] if damage == "cut" else "{}")
    assert not store.refresh()
    assert len(run_now(store).summary("peak", "none")) == 5
    landing.land(SHARDS[1])
    assert store.refresh()
    assert len(run_now(store).summary("peak", "none")) == 10


def test_a_manifest_that_is_swapped_all_the_time_is_always_read_whole(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", SHARDS[0])
    store, stop = LiveStore.open(tmp_path / "run"), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            landing.store.note("swaps", landing.store.manifest.get("swaps", 0) + 1)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 300  # ends a test that would hang, and nothing else
        seen = 0
        while seen < 30 and time.monotonic() < until:
            seen += store.refresh()
            assert len(store.get(MERGED, []).records) == 5
    finally:
        stop.set()
        thread.join()
    assert seen == 30


@pytest.mark.parametrize(("lost", "left"), [(2, 10), (1, 5), (0, 0)])
def test_a_shard_that_vanishes_takes_with_it_what_stands_behind(
    whole: Path, tmp_path: Path, lost: int, left: int
) -> None:
    landing = Landing(whole, tmp_path / "run", *SHARDS)
    store = LiveStore.open(tmp_path / "run")
    run = run_now(store)
    (tmp_path / "run" / SHARDS[lost]).unlink()
    with pytest.raises(StoreError, match="missing or truncated"):
        run.summary("peak", "none")
    assert store.refresh()
    run = run_now(store)
    assert run[None].has_measured() == (left > 0)
    if left:
        assert len(run.summary("peak", "none")) == run.profile("none").problems == left
    landing.land(SHARDS[lost])
    assert store.refresh()
    same(store.get(MERGED), landing.source.get(MERGED))


def test_a_shard_that_vanishes_between_two_looks_at_it(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Landing(whole, tmp_path / "run", *SHARDS)

    def vanish(*_: object) -> bool:
        raise FileNotFoundError("gone")

    store = LiveStore.open(tmp_path / "run")
    monkeypatch.setattr(RunStore, "has", vanish)
    monkeypatch.setattr(RunStore, "_check", vanish)
    monkeypatch.setattr(live, "stamp_of", lambda path: stamp_of(path) if path.name == MANIFEST else None)
    assert store.refresh()
    assert not store.has(MERGED)
    with pytest.raises(StoreError, match="was removed"):
        store.get_table(PROBLEMS)


def test_a_damaged_shard_ends_the_row(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", *SHARDS[:2])
    file = tmp_path / "run" / SHARDS[1]
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)
    store = LiveStore.open(tmp_path / "run")
    assert len(run_now(store)[None].records()) == 5
    landing.land(SHARDS[1])
    store.refresh()
    assert len(run_now(store)[None].records()) == 10


def test_a_shard_that_is_written_anew_is_merged_anew(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", *SHARDS[:2])
    store = LiveStore.open(tmp_path / "run")
    part = landing.source.get(SHARDS[1])
    records = [record | {"number": record["number"] + 100} for record in part.records]
    landing.store.put(SHARDS[0], Part(part.arrays, records))
    assert store.refresh()
    numbers = [record["number"] for record in run_now(store)[None].records()]
    assert numbers == [*range(105, 110), *range(5, 10)]
    landing.store.put(SHARDS[0], landing.source.get(SHARDS[0]))
    file = tmp_path / "run" / SHARDS[0]
    file.write_bytes(file.read_bytes()[:-5] + b"wrong")  # it was trusted, but not as what it is now
    store.refresh()
    assert not store.has(MERGED)


def test_it_writes_nothing(whole: Path, tmp_path: Path) -> None:
    Landing(whole, tmp_path / "run", SHARDS[0])
    store = LiveStore.open(tmp_path / "run")
    manifest = (tmp_path / "run" / MANIFEST).read_bytes()
    for write in (
        lambda: store.note("a", 1),
        lambda: store.put(MERGED, Part({}, [])),
        lambda: store.put_table(PROBLEMS, {"id": []}),
    ):
        with pytest.raises(StoreError, match="was opened for reading"):
            write()
    assert (tmp_path / "run" / MANIFEST).read_bytes() == manifest


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run at .*; `fillerscope run` makes one"):
        open_live_run(tmp_path)


# Answers


def told(run: Run, **options: Any) -> list[str]:
    """Rows with their NaN, which equals nothing."""
    return [repr(row) for row in compare(run, **options)]


@pytest.mark.parametrize("shards", some_fast([1, 2, 3], 2))
def test_the_first_answers_are_a_run_of_just_their_problems(tmp_path: Path, shards: int) -> None:
    problems = (4, 8, 11)[shards - 1]
    options: dict[str, Any] = {"temperature": [0, 0.7], "samples": [1, 3]}
    metas = [{"level": 1 + number // 6} for number in range(11)]  # the second level begins in the second shard
    build(tmp_path / "whole", DRAW, 11, metas=metas, **options)
    expected = build(tmp_path / "few", DRAW, problems, metas=metas[:problems], **options)
    Landing(tmp_path / "whole", tmp_path / "run", PROBLEMS, *(answers_name("a", index) for index in range(shards)))
    run = open_live_run(tmp_path / "run")
    assert run[None].answered() == answers(run[None]).problems == problems
    assert {row.n + row.failed for row in compare(run)} == {problems}
    assert told(run) == told(expected)
    assert told(run, by="level") == told(expected, by="level")
    for temperature in (0, 0.7):
        one, other = (flips(each[None], "mful", temperature=temperature) for each in (run, expected))
        assert [asdict(flip) for flip in one] == [asdict(flip) for flip in other]
    assert run["a"].answer_columns() == expected["a"].answer_columns()


def test_models_that_have_not_answered_are_left_out_unless_named(tmp_path: Path) -> None:
    build(tmp_path / "whole", DRAW, models=("a", "b"))
    landing = Landing(tmp_path / "whole", tmp_path / "run", PROBLEMS, answers_name("a", 0))
    store = LiveStore.open(tmp_path / "run")
    run = run_now(store)
    assert {row.model for row in compare(run)} == {"a"}
    assert (run["a"].has_begun(), run["b"].has_begun()) == (True, False)
    for ask in (lambda: compare(run, ["b"]), lambda: answers(run["b"]), lambda: run["b"].answer_columns()):
        with pytest.raises(StoreError, match="holds no answers of b yet; wait for its first shard, or run it again"):
            ask()
    landing.land(answers_name("a", 1), answers_name("b", 0))
    store.refresh()
    assert {(row.model, row.n + row.failed) for row in compare(run_now(store))} == {("a", 8), ("b", 4)}


def test_an_ordinary_run_is_finished_or_refused(tmp_path: Path) -> None:
    build(tmp_path / "whole", DRAW)
    landing = Landing(tmp_path / "whole", tmp_path / "run", PROBLEMS, answers_name("a", 0), answers_name("a", 2))
    assert open_live_run(tmp_path / "run")[None].answered() == 4, "what stands behind a gap waits"
    run = open_run(tmp_path / "run")
    for ask in (lambda: compare(run), lambda: answers(run[None]), lambda: flips(run[None], "mless")):
        with pytest.raises(StoreError, match="is not finished for a; run the study again, it resumes from there"):
            ask()
    landing.land(answers_name("a", 1))
    assert told(open_run(tmp_path / "run")) == told(open_run(tmp_path / "whole"))
    assert told(open_live_run(tmp_path / "run")) == told(open_run(tmp_path / "whole"))


def test_an_ordinary_comparison_leaves_no_model_out(tmp_path: Path) -> None:
    build(tmp_path / "whole", DRAW, models=("a", "b"))
    Landing(tmp_path / "whole", tmp_path / "run", PROBLEMS, *(answers_name("a", index) for index in range(3)))
    with pytest.raises(StoreError, match="is not finished for b; run the study again, it resumes from there"):
        compare(open_run(tmp_path / "run"))


@pytest.mark.parametrize("known", [True, False])
def test_attention_can_be_looked_at_before_the_first_answer(whole: Path, tmp_path: Path, known: bool) -> None:
    landing = Landing(whole, tmp_path / "run", *SHARDS[:2], *([PROBLEMS] if known else []))
    run = open_live_run(tmp_path / "run")
    assert (run[None].has_begun(), run[None].has_measured(), run[None].answered()) == (True, True, 0)
    assert not run[None].has_measured(queries="answer")
    assert attention_findings(run[None])
    assert compare(run) == []
    assert compare(run, by="level") == []
    with pytest.raises(StoreError, match="holds no answers of tiny-a yet"):
        answers(run[None])
    with pytest.raises(StoreError, match="holds no attention of answers of tiny-a yet"):
        run.summary("peak", "none", "answer")
    with pytest.raises(StoreError, match="is not finished for tiny-a"):
        open_run(tmp_path / "run").profile("none")
    assert landing.store.verify() == []


def test_a_model_of_which_nothing_is_there(tmp_path: Path) -> None:
    recipe = Synthetic(labels={"tiny-a": "A", "tiny-b": "B"})
    recipe.build(tmp_path / "whole")
    Landing(tmp_path / "whole", tmp_path / "run", *SHARDS)
    run = open_live_run(tmp_path / "run")
    assert [run[model].has_begun() for model in run.models] == [True, False]
    with pytest.raises(StoreError, match="holds no attention of tiny-b yet; wait for its first shard, or run it again"):
        run.profile("none", model="tiny-b")


# Progress


def test_progress_counts_what_is_there(whole: Path, tmp_path: Path) -> None:
    landing = Landing(whole, tmp_path / "run", PROBLEMS, *SHARDS)
    store = LiveStore.open(tmp_path / "run")
    assert store.progress() == [
        StageProgress(MODEL, "measuring", 3, 3, 12, 12, finished=False),  # not merged yet
        StageProgress(MODEL, "answering", 0, 3, 0, 12, finished=False),
        StageProgress(MODEL, "measuring answers", 0, 3, 0, 12, finished=False),
    ]
    landing.land(MERGED, *(answers_name(MODEL, index) for index in range(2)))
    store.refresh()
    assert store.progress() == [
        StageProgress(MODEL, "measuring", 3, 3, 12, 12, finished=True),
        StageProgress(MODEL, "answering", 2, 3, 10, 12, finished=False),
        StageProgress(MODEL, "measuring answers", 0, 3, 0, 12, finished=False),
    ]
    assert not store.finished
    landing.land(answers_name(MODEL, 2), answer_attention_name(MODEL))
    store.refresh()
    assert [(one.shards, one.problems, one.finished) for one in store.progress()] == [(3, 12, True)] * 3
    assert store.finished
    assert faults(run_now(store)) == []


def test_only_stages_that_the_study_asks_for(tmp_path: Path) -> None:
    Synthetic().build(tmp_path / "attention")
    build(tmp_path / "answers", DRAW, models=("a", "b"))
    stages = [
        [(one.model, one.stage) for one in LiveStore.open(tmp_path / name).progress()]
        for name in ("attention", "answers")
    ]
    assert stages == [[(MODEL, "measuring")], [("a", "answering"), ("b", "answering")]]


def test_how_many_problems_there_will_be(tmp_path: Path) -> None:
    """Noted; else unknown until the merged file tells: runs of attention alone kept no problems."""
    Synthetic().build(tmp_path / "whole")
    landing = Landing(tmp_path / "whole", tmp_path / "run", SHARDS[0])
    store = LiveStore.open(tmp_path / "run")
    assert store.progress() == [StageProgress(MODEL, "measuring", 1, None, 5, None, finished=False)]
    landing.store.note("problems", 12)
    assert store.refresh()
    assert store.progress() == [StageProgress(MODEL, "measuring", 1, 3, 5, 12, finished=False)]
    finished = LiveStore.open(tmp_path / "whole")
    assert finished.progress() == [StageProgress(MODEL, "measuring", 3, 3, 12, 12, finished=True)]
    assert finished.finished


def test_when_the_last_file_landed(whole: Path, tmp_path: Path) -> None:
    Landing(whole, tmp_path / "run", SHARDS[0])
    store = LiveStore.open(tmp_path / "run")
    os.utime(tmp_path / "run" / MANIFEST, (1_700_000_000, 1_700_000_000.5))
    assert store.last_written == 1_700_000_000.5
    assert not store.refresh(), "another time, the same content"
    (tmp_path / "run" / MANIFEST).unlink()
    assert store.last_written is None


def test_before_the_study_is_written_there_is_no_progress(whole: Path, tmp_path: Path) -> None:
    Landing(whole, tmp_path / "run")
    study = (tmp_path / "run" / STUDY).read_text()
    (tmp_path / "run" / STUDY).unlink()
    store = LiveStore.open(tmp_path / "run")
    assert (store.progress(), store.finished) == ([], False)
    (tmp_path / "run" / STUDY).write_text(study)
    assert [one.shards for one in store.progress()] == [0, 0, 0]


# A real one


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Whoever writes a file waits behind it until he is let go on."""
    turn = threading.Semaphore(0)
    keep = RunStore._write

    def wait(self: RunStore, name: str, pieces: Any) -> None:
        keep(self, name, pieces)
        assert turn.acquire(timeout=300)

    monkeypatch.setattr(RunStore, "_write", wait)
    yield turn
    turn.release(1000)


def test_a_study_is_watched_while_it_is_measured(
    tmp_path: Path, paused: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    model = str(save_model(tmp_path / "tiny-llama"))
    study = study_of(
        model, problems={"limit": 5}, conditions=CONDITIONS[:2], batch={"shard": 2, "tokens": 512},
        probes={"attention": {"positions": 110}, "answering": True}, generation={"max_tokens": 6, "recheck": 0},
    )  # fmt: skip
    folder = tmp_path / "run"
    broken: list[BaseException] = []

    def measure() -> None:
        try:
            run_study(study, folder)
        except BaseException as error:
            broken.append(error)

    thread = threading.Thread(target=measure)
    thread.start()
    moments = _watch(folder, thread, paused, model)
    thread.join()
    assert not broken
    final = open_run(folder)
    assert final.store.manifest["problems"] == 5
    assert faults(final) == []
    counts = [(len(run[None].measured()) if run[None].has_measured() else 0, run[None].answered()) for run in moments]
    finished = [(5, 5)] * 5
    assert counts == [(0, 0), (0, 0), (2, 0), (4, 0), (5, 0), (5, 0), (5, 2), (5, 4), *finished]
    looked = [
        len(run.summary("entropy", "mless", "answer")) for run in moments if run[None].has_measured(queries="answer")
    ]
    kept = [record["status"] == "ok" for record in final[None].records(queries="answer")]
    assert looked == [sum(kept[:problems]) for problems in (2, 4, 5, 5)]
    for run, (measured, answered) in zip(moments, counts, strict=True):
        if measured:
            np.testing.assert_array_equal(run.summary("peak", "mless"), final.summary("peak", "mless")[:measured])
            assert run.profile("mless").count.max() == measured
        assert {row.n + row.failed for row in compare(run)} == ({answered} if answered else set())
    same(moments[4].store.get(merged_name(model)), final.store.get(merged_name(model)))


def _watch(folder: Path, thread: threading.Thread, turn: threading.Semaphore, model: str) -> list[Run]:
    """A run for each file that landed, in their order."""
    while not (folder / MANIFEST).exists():
        assert thread.is_alive()
        time.sleep(0.01)
    store, moments, seen = LiveStore.open(folder), [], 0
    while thread.is_alive() or not moments:
        store.refresh()
        if len(store.manifest["files"]) > seen:
            seen = len(store.manifest["files"])
            moments.append(run_now(store))
            done = [(one.shards, one.problems) for one in store.progress()]
            assert all(problems == min(2 * shards, 5) for shards, problems in done)
            turn.release()
        time.sleep(0.005)
    store.refresh()
    assert store.finished
    assert {one.model for one in store.progress()} == {model}
    return moments
