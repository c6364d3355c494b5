"""The folder of downloaded and converted models: locks, disk space, and files that appear whole or not at all."""

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
    """Let one process at a time into the block for a key; a process that died holds no lock."""
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
    """Raise ModelError unless a folder's disk has so many bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{purpose} needs {readable(needed)} of disk space in {folder}, where {readable(free)} is free; "
            "make room, or set FILLERSCOPE_CACHE to a folder on a larger disk"
        )


@contextmanager
def explained_disk_errors() -> Iterator[None]:
    """Inside the block a full or read-only disk becomes a ModelError."""
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
    """Force a file to disk, so that it is not empty after a power cut."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
