"""Reading files of a run folder. An error of the disk or the network is tried again, and is never called damage."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from fillerscope.errors import StoreError, UnreadableError
from fillerscope.files import file_sha256, read_limited
from fillerscope.store.schema import Array

Value = TypeVar("Value")
Stamp = tuple[int, int, int, int]
WAITS = (0.05, 0.2, 0.5)  # seconds before a file is read again
MOST_HOLLOW = 1 << 26  # cells that an array would have were no axis of it empty
TRANSIENT = (errno.EIO, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE, errno.EBUSY, errno.ENOMEM)


def read_steadily(path: Path) -> str:
    """The text of a file. An OSError passes, once it has come again and again."""
    return _steadily(lambda: read_limited(path).decode())


def size_of(path: Path) -> int | None:
    """The size of a file in bytes; None where it is missing."""
    try:
        return _steadily(lambda: path.stat().st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from None


def stamp_of(file: Path | int) -> Stamp | None:
    """What tells one version of a file, or of an open one, from another, however its times were set; None where it is
    missing."""
    try:
        status = _steadily(lambda: os.stat(file))
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file that is there."""
    try:
        return _steadily(lambda: file_sha256(path))
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """The error for a file that is there and cannot be read. It never advises to remove what may be sound."""
    if isinstance(error, PermissionError):
        return UnreadableError(f"no permission to read {path}; ask its owner")
    reason = error.strerror or str(error)
    advice = "nothing was changed: check the disk or network, then try again"
    return UnreadableError(f"cannot read {path}: {reason}; {advice}")


def unusable(path: Path, error: Exception) -> StoreError:
    """The error for a file whose contents cannot be had: it cannot be read now, or it is damaged."""
    if isinstance(error, OSError) and error.errno:  # of a damaged table, pyarrow raises an OSError without a number
        return unreadable(path, error)
    return StoreError(f"{path} is damaged ({error}); `fillerscope verify` tells more")


def refuse_hollow(arrays: Iterable[Array]) -> None:
    """Raise a ValueError for arrays without a cell that have very long axes: they take no byte of a file, and tables
    are made as long as their axes."""
    for array in arrays:
        if not array.size and math.prod(filter(None, array.shape)) > MOST_HOLLOW:
            raise ValueError(f"it has an array of the shape {array.shape}")


def _steadily(read: Callable[[], Value]) -> Value:
    for wait in WAITS:
        try:
            return read()
        except OSError as error:
            if error.errno not in TRANSIENT:
                raise
            time.sleep(wait)
    return read()
