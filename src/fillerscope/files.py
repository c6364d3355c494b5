"""Writing files so that they appear whole or not at all, their checksums, and disk errors in one line."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from filelock import BaseFileLock

Json = dict[str, Any]  # a JSON object, as Python reads one
Pieces = Iterable[bytes | memoryview]
LARGEST_JSON = 1 << 28  # bytes: a JSON file of a model or a run is smaller
MOST_WAITING = 1 << 26  # bytes of pieces that are written and not yet hashed
PATIENCE = 60.0  # seconds of waiting for a lock, before it is said which file it is
MOST_MEMORY = 1 << 31  # bytes that the values of a JSON text may take
FULL = (errno.ENOSPC, errno.EDQUOT)
OPEN_FILES = Path("/proc/self/fd")  # the files that a process has open, on Linux
REFUSED = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ESTALE)


def write_whole(
    path: Path, pieces: Pieces, sync: bool = True, announce: Callable[[int, str], None] | None = None
) -> tuple[int, str]:
    """Write a file under a temporary name, sync and rename it, and sync its folder. Returns its size and SHA-256.

    A kill at any moment leaves the old file or the new one. `sync=False` for what can be written again. `announce` is
    called with size and SHA-256 before the file gets its name."""
    with replacing(path, sync=False) as file, _Hashing() as hashing:
        size = 0
        for piece in pieces:
            hashing.add(piece)
            file.write(piece)
            size += len(piece)
        if sync:
            file.flush()
            os.fsync(file.fileno())  # while the last pieces are still hashed
        digest = hashing.hexdigest()
        if announce is not None:
            announce(size, digest)
    if sync:
        _flush_folder(path.parent)
    return size, digest


class _Hashing:
    """The SHA-256 of pieces that are written meanwhile: it is computed in a thread of its own."""

    def __init__(self) -> None:
        self.digest, self.thread = hashlib.sha256(), ThreadPoolExecutor(1)
        self.waiting: deque[tuple[Future[None], int]] = deque()  # pieces in order, with their sizes
        self.held = 0  # bytes of those

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.shutdown()

    def add(self, piece: bytes | memoryview) -> None:
        """Hash one more piece. Waits where those that are not hashed yet would fill memory."""
        self.waiting.append((self.thread.submit(self.digest.update, piece), len(piece)))
        self.held += len(piece)
        while self.waiting and (self.held > MOST_WAITING or self.waiting[0][0].done()):
            self._wait()

    def hexdigest(self) -> str:
        while self.waiting:
            self._wait()
        return self.digest.hexdigest()

    def _wait(self) -> None:
        """Wait for the first piece, and raise what went wrong with it."""
        hashed, length = self.waiting.popleft()
        hashed.result()
        self.held -= length


@contextmanager
def replacing(path: Path, sync: bool = True, mode: int = 0o666) -> Iterator[BufferedWriter]:
    """Yield a new, empty file, open for writing. It replaces `path` when the block ends, and is removed if it fails.

    A symbolic link at `path` is replaced, never followed. The file is never opened again by its name: whoever can write
    to the folder could put a link there meanwhile."""
    file = _new_file(path, mode)
    temporary = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            _refuse_other(file, temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()  # half a file would fill a full disk
        raise
    if sync:
        _flush_folder(path.parent)


def _new_file(path: Path, mode: int) -> BufferedWriter:
    """Make a file beside `path` whose name cannot be guessed: a folder from elsewhere may hold links to our files.

    What is at `path` may be a file or a link; a device, a pipe or a folder is nobody's to replace."""
    if path.exists() and not path.is_symlink() and not path.is_file():
        raise OSError(errno.EEXIST, "it is there already, and no file")
    name = path.name.encode(errors="surrogateescape")[:100].decode(errors="ignore")
    temporary = path.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return open(temporary, "wb", opener=lambda name, _: os.open(name, flags, mode))


def _refuse_other(file: BufferedWriter, path: Path) -> None:
    """Raise an OSError where something else than an open file is at its path by now."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), os.lstat(path)):
            return
    raise OSError(errno.ESTALE, "it was removed or replaced while it was written", str(path))


@contextmanager
def pinned(folder: Path, *below: str) -> Iterator[Path]:
    """Yield a path that leads to a folder whatever others put in its place meanwhile. Folders below it are made where
    they are missing, and may be no links. Where the system has no such paths, it is the folder's own."""
    if not OPEN_FILES.is_dir():
        folder.joinpath(*below).mkdir(parents=True, exist_ok=True)
        yield folder.joinpath(*below)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in below:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=descriptor)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield OPEN_FILES / str(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(name: str, of: str = "") -> bool:
    """Whether a file's name is one that `replacing` gives, to replace the file `of` where that is given."""
    return name.startswith(f".{of}") and re.search(r"\.[0-9a-f]{16}\.tmp$", name) is not None


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path stays in a folder when links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


def others_can_write(path: Path) -> bool:
    """Whether users other than this one and root can write to a file or folder. False on systems without such users."""
    if not hasattr(os, "getuid"):
        return False
    status = path.stat()
    return status.st_uid not in (os.getuid(), 0) or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def flush(path: Path) -> None:
    """Sync a file to disk, so that it is not empty after a power cut once it is renamed."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def file_lock(path: Path, wait: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time into the block. The dead hold no lock. `wait` is called if another one is in it, and
    after some time again, with what says which file it holds."""
    from filelock import Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_at(path)
    for patience, held in ((0.0, ""), (PATIENCE, f", which holds {path}"), (-1.0, "")):
        try:
            lock.acquire(timeout=patience)
            break
        except Timeout:
            wait(held)
    try:
        yield
    finally:
        lock.release()


def lock_at(path: Path, timeout: float = -1) -> BaseFileLock:
    """A lock for those who may write to its folder: whoever can open a file can lock it, and never let go."""
    from filelock import FileLock

    shared = path.parent.stat().st_mode
    mode = 0o600 | (0o060 if shared & stat.S_IWGRP else 0) | (0o006 if shared & stat.S_IWOTH else 0)
    if hasattr(os, "getuid"):
        with suppress(OSError):
            _correct_mode(path, mode)
    return FileLock(path, timeout=timeout, mode=mode)


def _correct_mode(path: Path, mode: int) -> None:
    """Give a lock of this user's its mode. A file that is not empty, or has another name as well, is no lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        is_lock = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not status.st_size
        if is_lock and status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file. A pipe or a device, which may never end, is an OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_limited(path: Path, most: int = LARGEST_JSON) -> bytes:
    """The bytes of a file from elsewhere. One that is larger than `most`, a pipe or a device is an OSError."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return content


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. A pipe or a device, which may never end, is an OSError, without waiting for it."""
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def real_path(file: BufferedReader, path: Path) -> Path:
    """Where a file is that was opened by its path, without links. An OSError where the system does not tell, and other
    things are at the path by now."""
    if OPEN_FILES.is_dir():
        return Path(os.readlink(OPEN_FILES / str(file.fileno())).removesuffix(" (deleted)"))
    real = path.resolve()
    if os.path.samestat(os.fstat(file.fileno()), os.lstat(real)):
        return real
    raise OSError(errno.ESTALE, "it was replaced while it was opened", str(path))


def parse_json(text: str | bytes, most: int | None = None) -> Any:
    """The value of a JSON text from elsewhere. Whatever is wrong with it is a ValueError, brackets without end too,
    and values that would take more than `most` bytes of memory."""
    refuse_large_json(text, most)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def refuse_large_json(text: str | bytes, most: int | None = None) -> None:
    """Raise a ValueError where the values of a JSON text would fill memory: `[],` is three bytes of text and eighty of
    memory."""
    most = MOST_MEMORY if most is None else most
    if _json_memory(text) > most:
        raise ValueError(f"its values take more than {most >> 20} MiB of memory")


def _json_memory(text: str | bytes) -> int:
    """About how many bytes of memory the values of a JSON text take, marks inside its texts counted with them.

    One character beyond the first 65,536 makes all of its text take four bytes each, and those of the file too."""
    marks = (b"[", b"{", b",", b":", b"\\u") if isinstance(text, bytes) else ("[", "{", ",", ":", "\\u")
    lists, objects, commas, colons, escapes = (text.count(mark) for mark in marks)  # type: ignore[arg-type]
    each = 8 if not text.isascii() else 4 if escapes else 1
    return each * len(text) + 80 * lists + 160 * objects + 56 * commas + 40 * colons


def json_bytes(value: object) -> bytes:
    """JSON as it is written to files: indented, with sorted keys, so that equal values give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def digest_of(value: object) -> str:
    """The sha256 of a JSON value in canonical form."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def digest_of_list(values: Iterable[object]) -> str:
    """The same of a list whose values are made one by one: its JSON may be larger than they are."""
    digest = hashlib.sha256(b"[")
    for number, value in enumerate(values):
        digest.update(b"," if number else b"")
        digest.update(_canonical(value))
    digest.update(b"]")
    return digest.hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@contextmanager
def disk_errors(
    error: Callable[[str], Exception], target: str, remedy: str, full: str = "", only: Collection[int] | None = None
) -> Iterator[None]:
    """Raise an OSError as `error` in one line: cannot write `target`: reason; `remedy`.

    `full` is the line for a full disk, where that has one of its own. Errors whose numbers are not in `only`, where it
    is given, pass through."""
    try:
        yield
    except OSError as problem:
        if only is not None and problem.errno not in only:
            raise
        if full and problem.errno in FULL:
            raise error(full) from None
        reason = problem.strerror or str(problem) or type(problem).__name__
        raise error(f"cannot write {target}: {reason}; {remedy}") from None
