"""Folders of a run to write to, which may not lead out of it: a run comes from anybody."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fillerscope.errors import StoreError
from fillerscope.files import is_inside, pinned

MOST_FILES = 1 << 20  # that are looked at


def inside(folder: Path, run: Path) -> Path:
    """A folder of a run. A link that leads out of the run is an error."""
    if not is_inside(folder, run):
        raise StoreError(f"{folder} would be written outside the run: a link leads there; remove it")
    return folder


@contextmanager
def place_of(run: Path, name: str) -> Iterator[Path]:
    """The path to write a file of a run to, whose folder is made where it is missing. No link below the run is
    followed, also where others put one there meanwhile."""
    folder = Path(name).parent
    inside(run / folder, run)
    with pinned(run, *folder.parts) as place:
        yield place / Path(name).name


def refuse_exchanged(run: Path, place: Path) -> None:
    """Raise where another folder is at the path of a run than the one that is open."""
    with suppress(OSError):
        if run.samefile(place):
            return
    raise StoreError(
        f"{run} was replaced by another folder while it was written; put it back, then run again to resume"
    )


def is_link(path: Path | os.DirEntry[str]) -> bool:
    """Whether a symbolic link is at a path, or a file that has another name as well and may be anybody's."""
    return path.is_symlink() or (path.is_file() and path.stat(follow_symlinks=False).st_nlink > 1)


def find_link(folder: Path) -> str | None:
    """The first link anywhere below a folder, None where there is none. What cannot be looked at is an OSError."""
    folders, seen = [os.fspath(folder)], 0
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if (seen := seen + 1) > MOST_FILES:
                    raise OSError(errno.EFBIG, f"it has over {MOST_FILES:,} files, more than any run")
                with suppress(FileNotFoundError):  # of another process, which has renamed it
                    if is_link(entry):
                        return entry.path
                    if entry.is_dir():
                        folders.append(entry.path)
    return None
