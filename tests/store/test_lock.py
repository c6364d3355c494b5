"""The lock of a run folder."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from fillerscope.errors import StoreError
from fillerscope.store.lock import alone_in, is_being_written, locked


def test_one_who_only_looks_does_not_stop_a_writer(tmp_path: Path) -> None:
    """Whoever looks has the lock for a moment."""
    looking = FileLock(tmp_path / "lock", thread_local=False)
    looking.acquire()
    timer = threading.Timer(0.2, looking.release)
    timer.start()
    with locked(tmp_path):
        assert is_being_written(tmp_path)
    timer.join()
    assert not is_being_written(tmp_path)


@pytest.mark.parametrize(("folder", "lock"), [(0o755, 0o600), (0o775, 0o660), (0o777, 0o666)])
@pytest.mark.parametrize("before", [None, 0o644])
def test_only_those_who_may_write_to_a_folder_can_open_its_lock(
    tmp_path: Path, folder: int, lock: int, before: int | None
) -> None:
    """Whoever can open a file can lock it, and keep its owner out."""
    tmp_path.chmod(folder)
    if before is not None:
        (tmp_path / "lock").touch()
        (tmp_path / "lock").chmod(before)
    with locked(tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == lock


def test_who_looks_closes_the_lock_of_an_older_run(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(mode=0o644)
    assert not is_being_written(tmp_path)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["hard link", "link", "content"])
def test_a_file_that_is_no_lock_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir(mode=0o777)
    victim.write_text("mine" if kind == "content" else "")
    victim.chmod(0o640)
    if kind == "content":
        victim = victim.rename(run / "lock")
    elif kind == "link":
        (run / "lock").symlink_to(victim)
    else:
        (run / "lock").hardlink_to(victim)
    is_being_written(run)
    assert victim.stat().st_mode & 0o777 == 0o640


def test_a_hard_link_at_the_lock_is_not_emptied(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text("mine")
    (run / "lock").hardlink_to(victim)
    with locked(run):
        assert victim.read_text() == "mine"


def test_another_writer_is_told(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreError, match=f"another process is writing {tmp_path}"), locked(tmp_path):
        pass


def test_results_are_written_by_one_after_the_other(tmp_path: Path) -> None:
    """Those who wait have opened a lock that is removed when it is released."""
    steps: list[int] = []

    def write() -> None:
        with alone_in(tmp_path):
            steps.append(len(list(tmp_path.glob("inside"))))
            (tmp_path / "inside").touch()
            time.sleep(0.02)
            (tmp_path / "inside").unlink()

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps == [0] * 6
    assert not list(tmp_path.iterdir())
