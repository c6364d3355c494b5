"""The cache of models: its folders, who else can write to them, locks, disk space and disk errors."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from fillerscope.display import readable
from fillerscope.errors import ModelError
from fillerscope.files import REFUSED, disk_errors, file_lock, others_can_write
from fillerscope.models.catalogue import cache_folder
from fillerscope.models.folders import OURS
from fillerscope.progress import Progress


def cache_subfolder(*parts: str) -> Path:
    """A folder in the cache that exists and can be written to."""
    with cache_errors():
        return make_folders(*parts)


def make_folders(*parts: str) -> Path:
    """Make a folder in the cache. Others cannot write to it, unless they can write to a cache that is there already."""
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=OURS, exist_ok=True)
    mode = 0o777 if others_can_write(folder) else OURS  # a group that shares a cache goes on to
    for part in parts:
        folder = folder / part
        folder.mkdir(mode=mode, exist_ok=True)
        if folder.is_symlink():  # a cache may come from somebody else, and what is behind a link may be anything
            raise PermissionError(errno.EACCES, f"{folder} is a link; remove it", str(folder))
    return folder


def own_folder(kind: str) -> Path:
    """A folder of the cache for each user: a cache may be shared, what was found out with it is not."""
    return cache_folder() / f"{kind}-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def make_own_folder(kind: str) -> Path:
    """The same, made so that nobody else can look into it."""
    make_folders()
    folder = own_folder(kind)
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_own(folder):
        raise PermissionError(errno.EACCES, f"{folder} is a link, or others can write to it", str(folder))
    return folder


def is_own(folder: Path) -> bool:
    """Whether a folder is no link, and nobody else can write to it."""
    return not folder.is_symlink() and folder.is_dir() and not others_can_write(folder)


def written_by_others(folder: Path) -> list[Path]:
    """What other users than this one and root can write to, on the way to a folder of the cache and in it."""
    found, real = [], folder.resolve()
    for place in [*reversed(real.parents), real, *(sorted(real.iterdir()) if real.is_dir() else [])]:
        if place.exists() and others_can_write(place) and not (place in real.parents and _is_sticky(place)):
            found.append(place)
        if place.is_dir() and not place.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            break  # nobody else gets further
    return found


def open_cache_warning(folder: Path, variable: str = "FILLERSCOPE_CACHE") -> str:
    """A line that says that other users can change a folder of the cache which a variable names; empty where they
    cannot."""
    if not (found := written_by_others(folder)):
        return ""
    more = f" and {len(found) - 1} more in the cache" if len(found) > 1 else ""
    below = "-R " if found[0].is_relative_to(cache_folder().resolve()) else ""  # what else is above is not ours
    return (
        f"other users can write to {found[0]}{more}, and change what is measured: "
        f"`chmod {below}go-w {shlex.quote(str(found[0]))}` if it is yours, or set {variable} to one of your own"
    )


def _is_sticky(folder: Path) -> bool:
    """Whether only the owner of a file in a folder can move it, as in /tmp."""
    return bool(folder.stat().st_mode & stat.S_ISVTX)


@contextmanager
def locked(key: str, progress: Progress) -> Iterator[None]:
    """Let one process at a time into the block for a key; a process that died holds no lock."""
    path = cache_subfolder("locks") / f"{key}.lock"
    waiting = f"waiting for another process that prepares {key}"
    with ExitStack() as stack:
        with cache_errors():
            stack.enter_context(file_lock(path, lambda held: progress.stage(waiting + held, 0, None)))
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
