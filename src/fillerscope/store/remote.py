"""A run in an object store: a copy in the user's cache, whose files are published as they are written.

Everything else reads and writes the copy. Its manifest is published last, so what a manifest lists is there whole.
Object stores have no locks. Whoever begins to write a run publishes a manifest with a mark of its own, and a writer
that finds another manifest than its last one is stopped before it replaces a file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.display import first_line, holds_key
from fillerscope.errors import StoreError
from fillerscope.files import LARGEST_JSON, Json, is_temporary, open_file, read_limited, write_whole
from fillerscope.problems.proxies import passwords
from fillerscope.store.inside import inside, is_link
from fillerscope.store.remote_facts import ManifestFacts, is_part_name, parts_among
from fillerscope.store.schema import JOB, LARGEST_JOB, MANIFEST, PARTS_FOLDER, STUDY

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

EXTRAS = {"s3": "s3", "gs": "gcs"}  # what of fillerscope's has to be installed, by the beginning of an address
# How files are read as they are stored. What has a content encoding is unpacked by Google for whoever does not accept
# gzip, and by gcsfs for whoever does: a range of it may fill memory then. s3fs unpacks nothing.
AS_STORED: dict[str, Json] = {
    "gs": {"session_kwargs": {"auto_decompress": False, "headers": {"Accept-Encoding": "gzip"}}}
}
SECRET = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
LONGEST = 4000  # characters of what it says that are told
PIECE = 1 << 24  # bytes that are read at once
TIME_KEYS = ("LastModified", "mtime")  # when it was written
MOST_AT_ONCE = 1 << 30  # bytes that are stored by one request, which S3 compares versions for
TRIES = 5  # a manifest that is replaced while it is read is read again
LARGEST_PARTS = 1 << 29  # bytes: the manifests, studies and records of all parts of a run are smaller
VERSION_KEYS = ("ETag", "generation", "etag")  # what tells the versions of an object apart

_md5 = partial(hashlib.md5, usedforsecurity=False)


@dataclass
class RemoteFolder:
    """A folder in an object store and its copy. `version` is that of the manifest which this object has seen."""

    address: str
    copy: Path
    version: str | None = field(default=None, init=False)
    _sizes: dict[str, int] | None = field(default=None, init=False)  # of what is there, as it was last listed

    @cached_property
    def _system(self) -> AbstractFileSystem:
        return _connected(self._kind, os.getpid(), frozenset(os.environ.items()))

    @cached_property
    def _reader(self) -> AbstractFileSystem:
        """What reads files alone: answers about them may be packed."""
        if self._kind not in AS_STORED:
            return self._system
        return _connected(self._kind, os.getpid(), frozenset(os.environ.items()), as_stored=True)

    @property
    def _kind(self) -> str:
        return self.address.partition("://")[0]

    def pull(self) -> int:
        """Fetch the manifest, the study and the record of the job, where the manifest is not the one seen before.

        An object store is right, whatever a copy says: what the copy has of another run, or of one that is gone, is
        removed. Returns how many bytes were fetched."""
        size = 0
        with self._reached():
            for _ in range(TRIES):
                version = self._version()
                if version is None:
                    self._empty()
                elif version != self.version or not (self.copy / MANIFEST).exists():
                    size = self._pull_files()
                if self._version() == version:
                    self._sizes = self._sizes if version == self.version else None
                    self.version = version
                    return size
        raise StoreError(f"{self.address}/{MANIFEST} changes all the time; try again")

    def _pull_files(self) -> int:
        """Fetch the manifest, and what it says is beside it: whoever owns a bucket may store any study of any size."""
        data = self._read(MANIFEST)
        facts = ManifestFacts.of(data)
        if facts.identity != ManifestFacts.of(self._manifest_here()).identity:
            self._empty()
        size = self._keep(MANIFEST, data)
        with suppress(FileNotFoundError):
            size += self._keep(STUDY, self._first(STUDY, facts.study_bytes)) if facts.study_bytes > 0 else 0
        with suppress(FileNotFoundError):
            size += self._keep(JOB, self._read(JOB))
        return size

    def _manifest_here(self) -> bytes:
        try:
            return read_limited(self.copy / MANIFEST)
        except OSError:
            return b""

    def _empty(self) -> None:
        """Remove the files of the copy, but its lock, which a process may hold that is about to publish its first."""
        there = list(self.copy.iterdir()) if self.copy.exists() else []
        for path in [path for path in there if path.name not in ("lock", PARTS_FOLDER)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def pull_all(self) -> None:
        """Fetch what tells how far a run and its parts are."""
        self.pull()
        with self._reached():
            parts = parts_among(self._listed(PARTS_FOLDER), f"{self.address}/{PARTS_FOLDER}")
        for name in parts:
            (self.copy / PARTS_FOLDER / name).mkdir(parents=True, exist_ok=True)
        left = LARGEST_PARTS
        for path in sorted((self.copy / PARTS_FOLDER).glob("*-of-*")):
            part = RemoteFolder(f"{self.address}/{PARTS_FOLDER}/{path.name}", path)
            if is_part_name(path.name):
                left -= part.pull()
            else:
                part._empty()
            if left < 0:
                raise StoreError(f"what {self.address} says of its parts takes more than {LARGEST_PARTS >> 20} MiB")

    def has(self, name: str, size: int) -> bool:
        """Whether a file of this size is there, as far as the manifest of now tells."""
        if self._sizes is None:
            with self._reached():
                self._system.invalidate_cache()
                found = self._system.find(self.address, detail=True)
            start = len(self.address.partition("://")[2]) + 1
            self._sizes = {path[start:]: int(info["size"]) for path, info in found.items()}
        return self._sizes.get(name) == size

    def fetch(self, name: str, size: int) -> None:
        """Bring a file of this size into the copy."""
        path = self.copy / name
        with self._reached():
            inside(path.parent, self.copy).mkdir(parents=True, exist_ok=True)
            write_whole(path, self._pieces(name, size))

    def sha256(self, name: str, size: int) -> str:
        """The SHA-256 of a file of this size as it is there."""
        digest = hashlib.sha256()
        with self._reached():
            for piece in self._pieces(name, size):
                digest.update(piece)
        return digest.hexdigest()

    def is_like_copy(self, name: str) -> bool:
        """Whether a file is known to be there as it is in the copy, without reading it: S3 tells the MD5 of most."""
        with self._reached(), open_file(self.copy / name) as file:
            return self._tag(name) == f'"{hashlib.file_digest(file, _md5).hexdigest()}"'

    def _pieces(self, name: str, size: int) -> Iterator[bytes]:
        """The first bytes of a file; whoever owns the bucket may exchange it for a longer one at any time."""
        for start in range(0, size, PIECE):
            yield self._range(name, start, min(start + PIECE, size))

    def publish(self, name: str) -> None:
        """Store a file of the copy, unless another process has begun to write. It appears whole, or not at all."""
        with self._reached():
            self._refuse_another()
            try:
                self._put(name, {"mode": "create"})
            except FileExistsError:  # of an earlier writer that was killed, or damaged
                tag = self._tag(name)
                self._refuse_another()
                self._put(name, {"IfMatch": tag})
        if self._sizes is not None:
            self._sizes[name] = (self.copy / name).stat().st_size

    def publish_freely(self, name: str) -> None:
        """Store a file on which no number depends."""
        with self._reached():
            self._put(name, {})

    def _put(self, name: str, condition: Json) -> None:
        path = self.copy / name
        if condition and self._kind == "s3" and path.stat().st_size < MOST_AT_ONCE:
            self._system.pipe_file(self._path(name), path.read_bytes(), chunksize=MOST_AT_ONCE, **condition)
        else:
            self._system.put_file(str(path), self._path(name))

    def _refuse_another(self) -> None:
        if self._version() != self.version:
            raise StoreError(
                f"another process is writing {self.address}; wait for it, or stop it and run again: it goes on from "
                "there"
            )

    def publish_manifest(self, data: bytes) -> None:
        """Store a manifest in place of the one that was seen last; an error where another one is there."""
        with self._reached():
            replaced = self._version() == self.version and self._replace_manifest(data)
            if not replaced and self._read(MANIFEST) != data:  # else only the answer was lost
                self._refuse_another()
            self.version = replaced or self._version()

    def publish_others(self, listed: Collection[str]) -> None:
        """Store what lies in the copy beside the files that are listed: figures, tables, the report."""
        for path in sorted(path for path in self.copy.rglob("*") if path.is_file() and not is_link(path)):
            name = path.relative_to(self.copy).as_posix()
            known = name in listed or name in (MANIFEST, "lock") or name.startswith(f"{PARTS_FOLDER}/")
            if not known and not is_temporary(path.name):
                self.publish_freely(name)

    def _replace_manifest(self, data: bytes) -> str | None:
        """Replace the manifest of the version that was seen last, and return the new version; None where another came
        between. S3 compares versions itself; elsewhere another may come in the moment since they were compared."""
        path, seen = self._path(MANIFEST), self.version
        try:
            if self._kind != "s3":
                self._system.pipe_file(path, data)
                return self._version()
            condition = {"mode": "create"} if seen is None else {"IfMatch": seen}
            return str(self._system.pipe_file(path, data, chunksize=MOST_AT_ONCE, **condition)["ETag"])
        except OSError:
            if self._version() == seen:
                raise  # for another reason
            return None

    def _version(self) -> str | None:
        """What tells the manifest of now from an earlier one; None where there is none."""
        try:
            return self._tag(MANIFEST)
        except FileNotFoundError:
            return None

    def _tag(self, name: str) -> str:
        """What tells an object from another of the same name."""
        info = self._info(name)
        return str(next(info[key] for key in VERSION_KEYS if info.get(key)))

    def _info(self, name: str) -> Json:
        self._system.invalidate_cache()
        info: Json = self._system.info(self._path(name))
        if info["type"] != "file":
            raise FileNotFoundError(name)
        return info

    def _listed(self, name: str) -> list[str]:
        self._system.invalidate_cache()
        try:
            return [Path(str(one["name"])).name for one in self._system.ls(self._path(name), detail=True)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _keep(self, name: str, data: bytes) -> int:
        """Write a file of the copy, with the time at which it was stored, and return its size."""
        info = self._info(name)
        write_whole(self.copy / name, [data])
        written = next((info[key].timestamp() for key in TIME_KEYS if isinstance(info.get(key), datetime)), None)
        if written is not None:
            os.utime(self.copy / name, (written, written))  # `status` tells when it was
        return len(data)

    def _read(self, name: str) -> bytes:
        most = LARGEST_JOB if name == JOB else LARGEST_JSON
        data = self._first(name, most + 1)
        if len(data) > most:
            raise StoreError(f"{self.address}/{name} is larger than {most >> 10:,} KiB; it is not of a run")
        return data

    def _first(self, name: str, size: int) -> bytes:
        """The first bytes of a file; of an empty one no range can be asked for."""
        return self._range(name, 0, size) if self._info(name)["size"] else b""

    def _range(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a file as it is stored, and no more of them than were asked for."""
        data: bytes = self._reader.cat_file(self._path(name), start=start, end=end)
        if len(data) > end - start:
            raise StoreError(f"{self.address}/{name}: the object store sent more bytes than were asked for; try again")
        return data

    def _path(self, name: str) -> str:
        return f"{self.address}/{name}"

    def _told(self, error: Exception) -> str:
        """What an object store says, unless it repeats a key."""
        line = first_line(error)
        return "it says your key" if holds_key(f"{error}\n{line}", self._keys()) else line[:LONGEST]

    def _keys(self) -> list[str]:
        """The keys that it has, and what a proxy has: of the environment, and whatever else its client has found."""
        keys = [os.environ.get(name, "") for name in SECRET] + passwords()
        if "_system" not in vars(self):
            return keys
        with suppress(Exception):  # other kinds of object stores have no session, and not all have keys
            from fsspec.asyn import sync

            credentials = sync(self._system.loop, self._system.session.get_credentials)
            found = sync(self._system.loop, credentials.get_frozen_credentials)
            keys += [found.secret_key, found.token or ""]
        return keys

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Whatever keeps an object store from answering, in one line: each has errors of its own."""
        try:
            yield
        except StoreError:
            raise
        except ImportError:
            told = f"pip install 'fillerscope[{EXTRAS[self._kind]}]'"
            raise StoreError(f"{self.address} cannot be reached without a library: {told}") from None
        except PermissionError as error:
            raise StoreError(f"no permission for {self.address}: {self._told(error)}") from None
        except Exception as error:
            told = self._told(error) or type(error).__name__
            _connected.cache_clear()  # keys are read once: those of a file may be set by the next attempt
            raise StoreError(f"cannot reach {self.address}: {told}; nothing was lost: try again") from None


@lru_cache(maxsize=4)
def _connected(
    kind: str, _process: int, _environment: frozenset[tuple[str, str]], as_stored: bool = False
) -> AbstractFileSystem:
    """What reaches the object stores of a kind, with the keys and the server that a process's environment names.

    fsspec's own cache would keep those of the first use: a notebook that set a missing key could not go on."""
    import fsspec

    settings = AS_STORED[kind] if as_stored else {}
    return fsspec.filesystem(kind, use_listings_cache=False, skip_instance_cache=True, **settings)
