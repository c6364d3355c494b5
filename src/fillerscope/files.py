"""Files that appear whole or not at all, their checksums, and what a disk can do to us in one line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Json = dict[str, Any]  # a JSON object, as Python reads one
Pieces = Iterable[bytes | memoryview]
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, pieces: Pieces, sync: bool = True) -> tuple[int, str]:
    """Write a file under a temporary name, sync and rename it, and sync its folder. Its size and SHA-256.

    A kill at any moment leaves the old file or the new one. `sync=False` for what can be written again."""
    size, digest = 0, hashlib.sha256()
    with replacing(path, sync) as temporary, temporary.open("wb") as file, ThreadPoolExecutor(1) as beside:
        for piece in pieces:
            beside.submit(digest.update, piece)  # in their order, while they are written
            file.write(piece)
            size += len(piece)
    return size, digest.hexdigest()


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """A temporary name to write to; the file takes the place of `path` when the block ends, and goes if it fails."""
    temporary = temporary_name(path)
    try:
        yield temporary
        if sync:
            flush(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()  # on a full disk, half a file is in the way of everything else
        raise
    if sync:
        _flush_folder(path.parent)


def temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def flush(path: Path) -> None:
    """After a power cut a renamed file must not turn out empty."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_bytes(value: object) -> bytes:
    """JSON as files hold it: indented, keys in order, the same bytes for the same value."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


@contextmanager
def disk_errors(error: Callable[[str], Exception], place: Path, remedy: str) -> Iterator[None]:
    """Raise what a disk refuses as an error of our own, in one line: full, read-only, not permitted, not a folder."""
    try:
        yield
    except OSError as problem:
        if problem.errno in FULL:
            raise error(f"no space left at {place}; free some and run again, it resumes from here") from None
        reason = problem.strerror or str(problem) or type(problem).__name__
        raise error(f"cannot write to {place}: {reason}; {remedy}") from None
