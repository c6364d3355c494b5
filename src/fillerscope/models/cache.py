"""Writing into the cache of models: folders, locks, disk space and disk errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from fillerscope.display import readable
from fillerscope.errors import ModelError
from fillerscope.files import REFUSED, disk_errors, file_lock
from fillerscope.models.catalogue import cache_folder
from fillerscope.progress import Progress


def cache_subfolder(*parts: str) -> Path:
    """A folder in the cache that exists and can be written to."""
    folder = cache_folder().joinpath(*parts)
    with cache_errors():
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(key: str, progress: Progress) -> Iterator[None]:
    """Let one process at a time into the block for a key; a process that died holds no lock."""
    path = cache_subfolder("locks") / f"{key}.lock"
    waiting = f"waiting for another process that prepares {key}"
    with ExitStack() as stack:
        with cache_errors():
            stack.enter_context(file_lock(path, lambda: progress.stage(waiting, 0, None)))
        yield


def require_space(folder: Path, needed: int, purpose: str) -> None:
    """Raise ModelError unless a folder's disk has so many bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{purpose} needs {readable(needed)} of disk space in {folder}, where {readable(free)} is free; "
            "make room, or set FILLERSCOPE_CACHE to a folder on a larger disk"
        )


def cache_errors() -> AbstractContextManager[None]:
    """Raise a full disk, or one that cannot be written to, as a ModelError in one line."""
    remedy = "set FILLERSCOPE_CACHE to another folder"
    return disk_errors(ModelError, f"to the cache folder {cache_folder()}", remedy, only=REFUSED)
