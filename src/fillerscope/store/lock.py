"""The lock of a run folder: one process writes, the others are told. In a folder of results they wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from fillerscope.errors import StoreError
from fillerscope.files import disk_errors, file_lock, lock_at

RESULTS_LOCK = ".fillerscope.lock"  # in a folder of tables or figures, while they are written
WAIT = 1.0  # seconds: whoever looks whether a run is being written has its lock for a moment


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a folder for writing, or say who has it. The lock of a process that was killed is free."""
    from filelock import Timeout

    with writing_to(path):
        lock = lock_at(path / "lock", timeout=WAIT)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(f"another process is writing {path}; wait for it, or stop it") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time into the block for a folder of results. The lock does not stay among them."""
    path = folder / RESULTS_LOCK
    with file_lock(path, lambda _: None):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes it when it is released
                path.unlink()  # while it is held: whoever waits for it sees that it is gone, and makes another


def is_being_written(path: Path) -> bool:
    """Whether a process holds the lock of a run folder at this moment."""
    from filelock import Timeout

    if not (path / "lock").exists():
        return False
    try:
        with lock_at(path / "lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # somebody else's folder: whether they are writing cannot be told
        return False


def writing_to(path: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one line, while a run folder is written."""
    full = f"no space left at {path}; free some and run again, it resumes from here"
    return disk_errors(StoreError, f"to {path}", "choose another folder with --out", full)
