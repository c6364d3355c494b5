"""Writing into the cache without surprises: locks, disk space, files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fillerscope.display import first_line, readable
from fillerscope.errors import ModelError
from fillerscope.models.catalogue import cache_folder
from fillerscope.progress import Progress


def cache_subfolder(*parts: str) -> Path:
    """A folder in the cache that exists and can be written to."""
    folder = cache_folder().joinpath(*parts)
    with explained_disk_errors():
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(key: str, progress: Progress) -> Iterator[None]:
    """One process at a time for a key; the lock of a process that died is free."""
    lock = FileLock(cache_subfolder("locks") / f"{key}.lock")
    with explained_disk_errors():
        try:
            lock.acquire(blocking=False)
        except Timeout:
            progress.stage(f"waiting for another process that prepares {key}", 0, None)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def require_space(folder: Path, needed: int, purpose: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{purpose} needs {readable(needed)} of disk space in {folder}, where {readable(free)} is free; "
            "make room, or set FILLERSCOPE_CACHE to a folder on a larger disk"
        )


@contextmanager
def explained_disk_errors() -> Iterator[None]:
    """A full or read-only disk, said in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = "is full"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            problem = f"cannot be written to ({first_line(error)})"
        else:
            raise
        raise ModelError(
            f"the cache folder {cache_folder()} {problem}; set FILLERSCOPE_CACHE to another folder"
        ) from error


def flush_to_disk(path: Path) -> None:
    """After a power cut a renamed file must not turn out empty."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
