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
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]  # a JSON object, as Python reads one
Pieces = Iterable[bytes | memoryview]
LISTING = "fillerscope-files.json"  # in a folder of a user's choice: which files in it are ours
LARGEST_JSON = 1 << 28  # bytes: a JSON file of a model or a run is smaller
MOST_WAITING = 1 << 26  # bytes of pieces that are written and not yet hashed
MOST_MEMORY = 1 << 31  # bytes that the values of a JSON text may take
FULL = (errno.ENOSPC, errno.EDQUOT)
OPEN_FILES = Path("/proc/self/fd")  # the files that a process has open, on Linux
REFUSED = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


def write_whole(path: Path, pieces: Pieces, sync: bool = True) -> tuple[int, str]:
    """Write a file under a temporary name, sync and rename it, and sync its folder. Returns its size and SHA-256.

    A kill at any moment leaves the old file or the new one. `sync=False` for what can be written again."""
    with replacing(path, sync=False) as temporary, temporary.open("wb") as file, _Hashing() as hashing:
        size = 0
        for piece in pieces:
            hashing.add(piece)
            file.write(piece)
            size += len(piece)
        if sync:
            file.flush()
            os.fsync(file.fileno())  # while the last pieces are still hashed
        digest = hashing.hexdigest()
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
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a new, empty file to write to. It replaces `path` when the block ends, and is removed if it fails.

    A symbolic link at `path` is replaced, never followed."""
    temporary = _new_file(path)
    try:
        yield temporary
        if sync:
            flush(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()  # half a file would fill a full disk
        raise
    if sync:
        _flush_folder(path.parent)


def _new_file(path: Path) -> Path:
    """Make a file beside `path` whose name cannot be guessed: a folder from elsewhere may hold links to our files.

    What is at `path` may be a file or a link; a device, a pipe or a folder is nobody's to replace."""
    if path.exists() and not path.is_symlink() and not path.is_file():
        raise OSError(errno.EEXIST, "it is there already, and no file")
    name = path.name.encode(errors="surrogateescape")[:100].decode(errors="ignore")
    temporary = path.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o666))
    return temporary


def is_temporary(name: str, of: str = "") -> bool:
    """Whether a file's name is one that `replacing` gives, to replace the file `of` where that is given."""
    return name.startswith(f".{of}") and re.search(r"\.[0-9a-f]{16}\.tmp$", name) is not None


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path stays in a folder when links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


def written_before(folder: Path) -> list[str]:
    """Names of the files that the listing in a folder says we wrote there; nothing where there is no such listing."""
    names = _listing(folder).get("written by fillerscope")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def written_of(folder: Path) -> object:
    """What the tables in a folder are made of, as the listing says."""
    return _listing(folder).get("tables of")


def _listing(folder: Path) -> Json:
    try:
        listing = parse_json(read_limited(folder / LISTING))
    except (OSError, ValueError):
        return {}
    return listing if isinstance(listing, dict) else {}


def list_written(folder: Path, names: Iterable[str], of: str | None = None) -> None:
    """Write down beside our files which are ours, so that they can be replaced later, and what the tables are of."""
    known = sorted({*written_before(folder), *names})
    listing = {"written by fillerscope": known, "tables of": of or written_of(folder)}
    write_whole(folder / LISTING, [json_bytes(listing)], sync=False)


def refuse_foreign(folder: Path, names: Iterable[str], ours: Collection[str]) -> None:
    """Raise an OSError for a file that would be replaced and is not among ours, such as a user's own."""
    for name in names:
        if os.path.lexists(folder / name) and name not in ours:
            raise FileExistsError(errno.EEXIST, f"{name} is there already, and was not written by fillerscope")


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
def file_lock(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time into the block; `wait` is called if another one is in it. The dead hold no lock."""
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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
