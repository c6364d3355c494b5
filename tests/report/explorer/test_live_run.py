"""A run that is looked at: answers are remembered until it grows, progress is told, damage is found beside."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fillerscope.analysis.run import Run
from fillerscope.errors import StoreError
from fillerscope.report.explorer.live_run import KEPT, Watched
from fillerscope.store.live import LiveStore
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST, answers_name, merged_name, shard_name
from support.synthetic import Synthetic

MODEL = "tiny-a"
PATIENCE = 60  # seconds, for a machine that has much else to do
RECIPE = Synthetic(problems=6, shard=2, layers=2, heads=2, right={"none": 0.5, "mless": 0.75})
SHARDS = [shard_name(MODEL, index) for index in range(3)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RECIPE.build(tmp_path_factory.mktemp("watched") / "whole").path


def land(source: Path, folder: Path, *names: str) -> Path:
    """Files of a finished run appear in another folder, as if they were measured now."""
    finished = RunStore.open(source)
    if not (folder / "manifest.json").exists():
        RunStore.create(folder, finished.manifest["identity"], finished.study).note("problems", 6)
    store = RunStore.open(folder)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, folder / name)
        store.manifest["files"][name] = finished.manifest["files"][name]
    store.manifest["models"] = finished.manifest["models"]
    store._save_manifest()
    return folder


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "this has not come about"
        time.sleep(0.01)
    return found


def measured(run: Run) -> int:
    return len(run[None].measured())


def test_answers_are_made_once_and_again_when_the_run_has_grown(whole: Path, tmp_path: Path) -> None:
    watched = Watched(land(whole, tmp_path / "run", SHARDS[0]))
    made: list[int] = []

    def make(run: Run) -> int:
        made.append(measured(run))
        return made[-1]

    assert [watched.remember(("a",), make) for _ in range(3)] == [2, 2, 2]
    assert watched.remember(("b",), make) == 2
    assert made == [2, 2]
    land(whole, tmp_path / "run", SHARDS[1])
    assert [watched.remember((key,), make) for key in "abab"] == [4] * 4
    assert made == [2, 2, 4, 4]
    assert [key[0] for key in watched._answers] == [1, 1], "what was known before is forgotten"


def test_nothing_and_false_are_remembered_too(whole: Path) -> None:
    watched = Watched(whole)
    made: list[int] = []
    for found in (None, [], 0):
        for _ in range(2):
            assert watched.remember((str(found),), lambda _, found=found: made.append(1) or found) is found  # type: ignore[misc]
    assert len(made) == 3


def test_so_many_answers_are_kept_and_the_oldest_go(whole: Path) -> None:
    watched = Watched(whole)
    for number in range(KEPT + 5):
        assert watched.remember((number,), lambda _, number=number: number) == number  # type: ignore[misc]
    assert [key[1] for key in watched._answers] == list(range(5, KEPT + 5))


def test_an_answer_that_fails_is_not_remembered(whole: Path) -> None:
    watched = Watched(whole)

    def broken(_: Run) -> None:
        raise StoreError("not yet")

    with pytest.raises(StoreError):
        watched.remember(("a",), broken)
    assert watched.remember(("a",), lambda _: 7) == 7


def test_an_answer_of_before_is_never_given_for_the_run_of_after(whole: Path, tmp_path: Path) -> None:
    """One thread works on an answer while another sees that the run has grown."""
    watched = Watched(land(whole, tmp_path / "run", SHARDS[0]))
    begun, go_on = threading.Event(), threading.Event()
    found: list[int] = []

    def slow(run: Run) -> int:
        begun.set()
        assert go_on.wait(PATIENCE)
        return measured(run)

    thread = threading.Thread(target=lambda: found.append(watched.remember(("a",), slow)))
    thread.start()
    assert begun.wait(PATIENCE)
    land(whole, tmp_path / "run", SHARDS[1])
    assert measured(watched.run) == 4
    go_on.set()
    thread.join(PATIENCE)
    assert found == [2]
    assert watched.remember(("a",), measured) == 4


def test_run_and_version_belong_together(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run grows behind the back of whoever has just been given it."""
    watched = Watched(land(whole, tmp_path / "run", SHARDS[0]))
    now, grown = Watched._now, []

    def late(self: Watched) -> tuple[Run, int]:
        found = now(self)
        if not grown:
            grown.append(land(whole, tmp_path / "run", SHARDS[1]))
            now(self)
        return found

    monkeypatch.setattr(Watched, "_now", late)
    assert watched.remember(("a",), measured) == 2
    assert watched.remember(("a",), measured) == 4


def test_many_may_ask_at_once_while_it_grows(whole: Path, tmp_path: Path) -> None:
    watched = Watched(land(whole, tmp_path / "run", SHARDS[0]))
    faults: list[BaseException] = []
    over = threading.Event()
    asked = [0] * 4

    def ask(number: int) -> None:
        try:
            while not over.is_set():
                assert watched.remember((number % 3,), measured) in (2, 4, 6)
                watched.overview()
                asked[number] += 1
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for name in SHARDS[1:]:
        before = list(asked)
        until(lambda before=before: faults or all(now > then for now, then in zip(asked, before, strict=True)))
        land(whole, tmp_path / "run", name)
    until(lambda: watched.remember((0,), measured) == 6)
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert faults == []


def test_progress(whole: Path, tmp_path: Path) -> None:
    watched = Watched(land(whole, tmp_path / "run", SHARDS[0]))
    first = watched.overview()
    assert (first["version"], first["progress"]["finished"], first["models"][0]["measured"]) == ("0", False, 2)
    assert first["progress"]["stages"] == [
        {"model": MODEL, "stage": "measuring", "done": 2, "total": 6},
        {"model": MODEL, "stage": "answering", "done": 0, "total": 6},
    ]
    assert abs(first["progress"]["landed"] - time.time()) < 3600
    land(
        whole,
        tmp_path / "run",
        *SHARDS,
        merged_name(MODEL),
        "problems.parquet",
        *(answers_name(MODEL, i) for i in range(3)),
    )
    last = watched.overview()
    assert (last["version"], last["progress"]["finished"], last["models"][0]["measured"]) == ("1", True, 6)
    assert [stage["done"] for stage in last["progress"]["stages"]] == [6, 6]
    assert watched.overview()["version"] == "1"


def test_files_are_checked_once_beside_everything_else(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(whole)
    begun: list[int] = []
    verify = LiveStore.verify
    monkeypatch.setattr(LiveStore, "verify", lambda self: begun.append(1) or verify(self))
    assert watched.overview()["checked"] == ""
    for _ in range(3):
        watched.check()
    files = len(RunStore.open(whole).manifest["files"])
    assert until(lambda: watched.overview()["checked"]).startswith(f"All {files} files are as they were written")
    assert not watched.overview()["damaged"]
    assert begun == [1]


@pytest.mark.parametrize("name", [SHARDS[1], merged_name(MODEL), answers_name(MODEL, 0)])
def test_one_byte_that_is_another_is_reported(whole: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    watched = Watched(folder)
    watched.check()
    assert until(lambda: watched.overview()["checked"]).startswith(f"1 files are damaged: {name}: sha256 ")
    assert watched.overview()["damaged"]


def test_files_that_change_while_they_are_shown_are_checked_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    watched.check()
    assert until(lambda: watched.overview()["checked"]).startswith("All")
    data = bytearray((folder / SHARDS[1]).read_bytes())
    data[-1] ^= 1
    (folder / SHARDS[1]).write_bytes(data)
    assert until(lambda: watched.overview()["damaged"])
    assert watched.overview()["checked"].startswith(f"1 files are damaged: {SHARDS[1]}: sha256 ")


def halve(file: Path) -> None:
    """Other bytes of the same number."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_numbers_of_a_file_that_changes_once_it_was_checked_are_refused_and_told(whole: Path, tmp_path: Path) -> None:
    """Whatever is asked for first."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    watched.check()
    sound = until(lambda: (found := watched.overview())["checked"] and found)
    halve(folder / merged_name(MODEL))
    with pytest.raises(StoreError, match=r"merged/tiny-a\.safetensors: sha256 .*; the file is damaged"):
        watched.remember(("a",), measured)
    assert watched.overview()["version"] != sound["version"]
    assert until(lambda: watched.overview()["damaged"])


def test_the_check_begins_anew_whatever_is_asked_for(whole: Path, tmp_path: Path) -> None:
    """Not only when the page asks how the run is."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    watched.check()
    assert until(lambda: watched._files._record["checked"]).startswith("All")
    halve(folder / SHARDS[1])
    _ = watched.run
    assert until(lambda: watched._files._record["damaged"])


def damage_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"bytes": ', '"bytes": 1', 1))


def damage_study(folder: Path) -> None:
    (folder / "study.json").write_text("{")


def make_part(folder: Path) -> None:
    RunStore.open(folder).note("part", "1/2")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damage_manifest, r"manifest\.json is damaged"),
        (damage_study, r"study\.json is damaged"),
        (make_part, "is part 1/2 of a run"),
    ],
)
def test_a_manifest_that_no_longer_makes_a_run_is_told_until_it_is_mended(
    whole: Path, tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    sound = watched.overview()
    spoil(folder)
    watched.overview()  # it may have been written at that moment
    for _ in range(2):
        told = watched.overview()
        assert re.search(reason, told["checked"])
        assert told["damaged"]
    assert (told["models"], told["progress"]["finished"]) == (sound["models"], True)
    for name in (MANIFEST, "study.json"):
        shutil.copy(whole / name, folder / name)
    assert not watched.overview()["damaged"]
    assert measured(watched.run) == 6


def test_numbers_of_damaged_bytes_go_once_the_file_is_mended(whole: Path, tmp_path: Path) -> None:
    """The manifest is the same before and after, and so are size and time of the file."""
    folder, name = tmp_path / "run", merged_name(MODEL)
    shutil.copytree(whole, folder)
    sound, times = (folder / name).read_bytes(), (folder / name).stat()

    def write(data: bytes) -> None:
        (folder / name).write_bytes(data)
        os.utime(folder / name, ns=(times.st_atime_ns, times.st_mtime_ns))

    damaged = [bytearray(sound) for _ in range(2)]
    for number, data in enumerate(damaged):
        data[len(data) // 2] ^= 1 + number
    write(damaged[0])
    watched = Watched(folder)
    watched.check()
    assert until(lambda: watched.overview()["damaged"])
    made: list[str] = []
    for data in (sound, sound, damaged[1]):
        version = watched.overview()["version"]
        write(data)
        watched.remember(("made",), lambda run: made.append(str(run)))
        assert watched.overview()["version"] != version
        expected = "All" if data == sound else "1 files are damaged"
        assert until(lambda expected=expected: watched.overview()["checked"].startswith(expected))
    assert len(made) == 3


def test_a_run_that_grew_is_checked_again_once_it_is_finished(whole: Path, tmp_path: Path) -> None:
    folder = land(whole, tmp_path / "run", SHARDS[0])
    watched = Watched(folder)
    watched.check()
    early = until(lambda: watched.overview()["checked"])
    shutil.rmtree(folder)
    shutil.copytree(whole, folder)
    files = len(RunStore.open(whole).manifest["files"])
    assert until(lambda: watched.overview()["checked"].startswith(f"All {files} files"))
    assert not early.startswith(f"All {files} ")


def test_another_run_in_its_place_is_checked_and_counted_anew(whole: Path, tmp_path: Path) -> None:
    """Its files are fewer, and so are its problems."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    watched.check()
    assert until(lambda: watched.overview()["checked"]).startswith("All")
    shutil.rmtree(folder)
    shutil.copytree(Synthetic(problems=4, shard=2, layers=2, heads=2).build(tmp_path / "other").path, folder)
    files = len(RunStore.open(folder).manifest["files"])
    assert until(lambda: watched.overview()["checked"].startswith(f"All {files} files"))
    assert [stage["total"] for stage in watched.overview()["progress"]["stages"]] == [4]


def test_a_manifest_that_loses_names_meanwhile_does_not_end_the_check(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ready = tmp_path / "run", threading.Event()
    shutil.copytree(whole, folder)
    fault_here = LiveStore._fault_here
    monkeypatch.setattr(LiveStore, "_fault_here", lambda self, name: ready.wait(30) and fault_here(self, name))
    watched = Watched(folder)
    watched.check()
    store = RunStore.open(folder)
    store.manifest["files"].pop(answers_name(MODEL, 0))
    store._save_manifest()
    _ = watched.run
    ready.set()
    assert until(lambda: watched.overview()["checked"]).startswith("All")


def test_files_that_cannot_be_read_are_told(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fillerscope.store.reading.file_sha256", fail)
    watched = Watched(whole)
    watched.check()
    assert until(lambda: watched.overview()["checked"]).startswith("Not all files could be checked: no permission to")
    assert watched.overview()["damaged"]


def test_a_name_is_that_of_the_folder(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    assert Watched(Path(".")).name == "whole"
    with pytest.raises(StoreError, match="no run at nowhere"):
        Watched(Path("nowhere"))


def test_a_run_without_a_study_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "study.json").write_text("{")
    with pytest.raises(StoreError, match=r"study\.json is damaged"):
        Watched(folder)


def test_a_folder_that_has_gone_is_told(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    watched = Watched(folder)
    assert not watched.overview()["damaged"]
    shutil.rmtree(folder)
    found = watched.overview()
    assert (found["checked"], found["damaged"]) == ("The folder of this run has gone.", True)
