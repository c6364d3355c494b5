"""Folders to fill by path that other users cannot exchange for one of their own meanwhile."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from fillerscope.files import OPEN_FILES, pinned, replacing

OURS = 0o755  # the mode of folders that only we can write to


def exchangeable(folder: Path) -> Path | None:
    """The first folder, on the way to this one and itself included, whose entries users other than this one and root
    can rename; None where there is none, and on systems without such users."""
    if not hasattr(os, "getuid"):
        return None
    real = folder.resolve()
    for place in (*reversed(real.parents), real):
        status = place.stat()
        if _others_can_rename_in(status):
            return place
        if not status.st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return None  # nobody else gets further
    return None


def _others_can_rename_in(status: os.stat_result) -> bool:
    if status.st_uid not in (os.getuid(), 0):
        return True
    if status.st_mode & stat.S_ISVTX:  # as in /tmp: each renames their own
        return False
    by_group = 0 if _is_group_of_one(status.st_gid) else stat.S_IWGRP
    return bool(status.st_mode & (stat.S_IWOTH | by_group))


def _is_group_of_one(gid: int) -> bool:
    """Whether this user alone is in a group: many systems give each user one, and let it write to what they make."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}


def refuse_exchangeable(folder: Path) -> None:
    """Raise an OSError where others can exchange a folder, or what is in it."""
    if place := exchangeable(folder):
        reason = f"other users can write to {place}, and exchange what is in it: `chmod go-w {place}` if it is yours"
        raise PermissionError(errno.EACCES, reason, str(folder))


@contextmanager
def private_folder(near: Path, prefix: str) -> Iterator[Path]:
    """Yield a temporary folder in another one; where others could exchange it there, where temporary files go."""
    place = Path(gettempdir()) if exchangeable(near) else near
    refuse_exchangeable(place)
    with TemporaryDirectory(prefix=prefix, dir=place) as made:
        yield Path(made)


def move(file: Path, target: Path) -> None:
    """Move a file of a private folder, to another disk as well."""
    try:
        file.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with replacing(target) as copy, file.open("rb") as content:
            shutil.copyfileobj(content, copy)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield the path of a new, empty folder. It becomes `target`, where nothing is, when the block ends, and is removed
    if it fails. The caller holds a lock of `target`: what a process that was killed has left is removed.

    The path leads to the folder itself, which may be large, wherever others move it; where the system has no such
    paths, a place where they could is refused."""
    for leftover in target.parent.glob(f".{target.name}.*converting"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.converting")
    draft.mkdir(mode=OURS)
    try:
        with _held(draft) as path:
            yield path
            if not path.samefile(draft) or draft.is_symlink():
                raise OSError(errno.ESTALE, "it was replaced while it was written", str(draft))
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """Open a new folder, and yield a path that leads to it whatever is at its own."""
    if not OPEN_FILES.is_dir():
        refuse_exchangeable(folder)
        yield folder
        return
    with pinned(folder.parent, folder.name) as path:
        status = path.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & ~OURS or os.listdir(path):
            raise OSError(errno.ESTALE, "it was replaced when it was made", str(folder))
        yield path
