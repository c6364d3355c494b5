"""The run folder: shards, a manifest with checksums, a lock. `schema` names what is in it.

Every file is written under a temporary name, synced and renamed, so that a kill at any moment leaves either the old
file or the new one. Where a listed file is replaced, the manifest first lists both, and the one that is there counts.
Does not know what the arrays mean, and needs no torch.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import cast

from fillerscope.errors import StoreError
from fillerscope.files import Json, Pieces, digest_of, json_bytes, pinned, write_whole
from fillerscope.store.addresses import remote_of
from fillerscope.store.array_file import Part, file_pieces, read_layouts, read_part, read_slices
from fillerscope.store.inside import inside, place_of, refuse_exchanged
from fillerscope.store.job_part import JobPart
from fillerscope.store.layouts import Layouts
from fillerscope.store.leftovers import leftovers_in, remove_leftovers
from fillerscope.store.lock import locked, writing_to
from fillerscope.store.manifest import make_folder, read_manifest, read_study, write_manifest
from fillerscope.store.reading import Stamp, sha256_of, size_of, stamp_of, unusable
from fillerscope.store.remote import RemoteFolder
from fillerscope.store.schema import FORMAT, MANIFEST, STUDY, Array, Columns, FileEntry, Manifest, made_of, upgraded
from fillerscope.store.tables import FREE, RATIO, read_table, table_bytes

COPIED = 1 << 24  # bytes at a time
TRIES = 5  # files that are written again while they are compared are compared again
SHARE = 500  # a manifest of so many files is written at every second file, one of twice as many at every third


class RunStore:
    """A run folder. `create` or `open` makes one."""

    def __init__(self, path: Path, manifest: Manifest, remote: RemoteFolder | None = None) -> None:
        """`remote` is the object store that the folder is a copy of."""
        self.path, self.manifest, self.remote = path, manifest, remote
        self._tables: dict[str, int] = {}  # bytes of memory of those that were read, beyond what is usual
        self._place: Path | None = None  # while it is written: that leads to the folder which is locked
        self._unlisted = 0  # files written since the manifest was
        self._repeated: set[str] = set()  # files that are to be written again
        self._checked: dict[str, Stamp | None] = {}  # files that were compared with their checksums, as they were then

    @classmethod
    def create(cls, path: Path, identity: Json, study: Json, part: JobPart | None = None) -> RunStore:
        """Open the folder of this identity, or of a part of its run, which is made where it is missing."""
        if (remote := remote_of(path)) is not None:
            remote.pull()
        if not os.path.exists(path / MANIFEST):  # no error where the name is too long
            empty: Manifest = {"format": FORMAT, "identity": identity, "files": {}}
            make_folder(path, empty if part is None else empty | {"part": str(part)}, remote)
        store = cls.open(path)
        if store.part != part:
            held, asked = (f"part {one} of a run" if one else "a whole run" for one in (store.part, part))
            raise StoreError(f"{path} holds {held}, not {asked}; choose another folder with --out")
        if store.manifest["identity"] != identity:
            other = sorted(key for key in identity if store.manifest["identity"].get(key) != identity[key])
            differs = f" (it differs in: {', '.join(other)})"
            raise StoreError(f"{path} holds another study's run{differs}; choose another folder with --out")
        if not store._has_study(study):  # new, killed before it was written, or other figures are asked for
            with store.writing():
                store._write(STUDY, [json_bytes(study)])
        return store

    @classmethod
    def open(cls, path: Path) -> RunStore:
        if (remote := remote_of(path)) is not None:
            remote.pull()
        store = cls(path, read_manifest(path), remote)
        store._settle()
        return store

    def _settle(self) -> None:
        """List of a file that was being replaced the one that is there: a kill may have come before or after."""
        for name, entry in self.manifest.pop("replacing", {}).items():
            new = RunStore(self.path, self.manifest | {"files": {name: entry}}, self.remote)
            if new.has(name) and not (new._remote_fault(name) or new._fault(name)):
                self._list({name: entry})

    @property
    def part(self) -> JobPart | None:
        """The part of a run that this folder is for; None where it is a run."""
        text = self.manifest.get("part")
        return None if text is None else JobPart.parse(text)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the folder for writing. The lock of a process that was killed is free."""
        with locked(self.path), pinned(self.path) as place, ExitStack() as at_end:
            now = RunStore.open(self.path)
            refuse_exchanged(self.path, place)
            if now.manifest["identity"] != self.manifest["identity"]:
                raise StoreError(f"{self.path} was replaced by the run of another study; choose another folder")
            self.manifest, self.remote = now.manifest, now.remote
            remove_leftovers(place)
            self._place = place
            at_end.callback(setattr, self, "_place", None)
            if self.remote is not None:
                self.note("writer", secrets.token_hex(8))  # from now on no other process writes there
            try:
                yield
            finally:
                if self.manifest.pop("writer", "") or self._unlisted:
                    self._save_manifest()

    def tidy(self) -> None:
        """Remove what a kill has left in a finished run, unless a process writes it or nobody may."""
        with suppress(StoreError, OSError):
            if "replacing" in read_manifest(self.path) or leftovers_in(self.path):
                with self.writing():
                    self._save_manifest()

    @property
    def study(self) -> Json:
        return read_study(self.path, self.manifest)

    def _has_study(self, study: Json) -> bool:
        try:
            return self.is_sound(STUDY) and self.study == study
        except StoreError:
            return False

    def note(self, key: str, value: object) -> None:
        """Store a fact about the run that does not change its numbers: versions, hardware, self-check."""
        if self.manifest.get(key) != value:
            self.manifest = cast(Manifest, self.manifest | {key: value})
            self._save_manifest()

    def has(self, name: str) -> bool:
        """Whether a file is listed in the manifest and has the listed size."""
        entry = self.manifest["files"].get(name)
        if entry is None or self.remote is None:
            return entry is not None and size_of(self.path / name) == entry["bytes"]
        return self.remote.has(name, entry["bytes"])

    def is_sound(self, name: str) -> bool:
        """Whether a file has the listed checksum, and is not to be written again. Reads all of it."""
        if name in self._repeated or name not in self.manifest["files"] or self._fault(name):
            return False
        return self.remote is None or self.remote.is_like_copy(name) or not self._remote_fault(name)

    def put(self, name: str, part: Part) -> None:
        """Write a file of arrays and records."""
        self._write(name, file_pieces(part))

    def put_table(self, name: str, columns: Columns) -> None:
        """Write a table whose columns have the types of the schema."""
        self._write(name, [table_bytes(columns)])

    def put_bytes(self, name: str, data: bytes) -> None:
        """Write a file that another process made for this run, in a `MemoryStore`."""
        self._write(name, [data])

    def _write(self, name: str, pieces: Pieces) -> None:
        with writing_to(self.path), place_of(self._place or self.path, name) as path:
            size, digest = write_whole(path, pieces, announce=partial(self._announce, name))
            self._publish(name)
            self._list({name: {"bytes": size, "sha256": digest}})
            self._unlisted += 1
            if self._unlisted > len(self.manifest["files"]) // SHARE:  # else all manifests together grow as a square
                self._save_manifest()

    def _announce(self, name: str, size: int, digest: str) -> None:
        """List what is about to replace a listed file beside that: after a kill either of them counts."""
        entry: FileEntry = {"bytes": size, "sha256": digest}
        if self.manifest["files"].get(name, entry) != entry:
            self.manifest.setdefault("replacing", {})[name] = entry
            self._save_manifest()

    def _publish(self, name: str) -> None:
        if self.remote is not None:
            self.remote.publish(name)

    def publish_others(self) -> None:
        """Store figures, tables and the report as well, where the run is in an object store."""
        if self.remote is not None:
            self.remote.publish_others(self.manifest["files"])

    def adopt(self, files: Mapping[str, RunStore]) -> bool:
        """Copy files from other run folders that this one lacks or has otherwise; whether there were any.

        They are listed together at the end: the manifest of a large run is not written once for each of them."""
        entries = {name: other.manifest["files"][name] for name, other in files.items()}
        wanted = [
            name for name, entry in entries.items() if self.manifest["files"].get(name) != entry or self._fault(name)
        ]
        for name in wanted:
            source = files[name].path / name
            with writing_to(self.path), place_of(self._place or self.path, name) as path, source.open("rb") as file:
                written = write_whole(path, iter(partial(file.read, COPIED), b""))
            if written != (entries[name]["bytes"], entries[name]["sha256"]):
                raise StoreError(f"{source} changed while it was copied; try again")
            self._publish(name)
        if wanted:
            self._list({name: entries[name] for name in wanted}, entries)
            self._save_manifest()
        return bool(wanted)

    def _list(self, written: Mapping[str, FileEntry], sound: Collection[str] = ()) -> None:
        """List files that were just written, and no longer those that were made of what they replace: a kill may come
        before these are made anew. Those in `sound` were made of the new ones."""
        listed = self.manifest["files"]
        for name, entry in written.items():
            for other in made_of(name) if listed.get(name) != entry else ():
                if other not in sound:
                    listed.pop(other, None)
            listed[name] = entry
            self._checked[name] = stamp_of(self.path / name)
            self._repeated.discard(name)
        replacing = self.manifest.pop("replacing", {})  # those that failed halfway stay
        if left := {name: entry for name, entry in replacing.items() if name not in written}:
            self.manifest["replacing"] = left

    def repeat(self, names: Iterable[str]) -> None:
        """Take some files for unsound until they were written again: until then they stay, since that may fail."""
        self._repeated.update(names)

    def is_repeated(self, name: str) -> bool:
        """Whether a file is to be written again and is sound as it is."""
        return name in self._repeated and name in self.manifest["files"] and not self._fault(name)

    def get(self, name: str, keys: list[str] | None = None) -> Part:
        """The contents of a file, or only some of its arrays: the others are not read."""
        self._check(name)
        return read_part(self.path / name, keys)

    def layouts(self, name: str, problems: int) -> Layouts:
        """Where spans stand in the prompts of a file with so many problems that did not fail."""
        self._check(name)
        return read_layouts(self.path / name, problems)

    def cut(self, name: str, keys: list[str], index: tuple[int | slice, ...]) -> list[Array]:
        """Slices of some arrays of a file; the rest is not read. An axis of size 1 is broadcast."""
        self._check(name)
        return read_slices(self.path / name, keys, index)

    def get_table(self, name: str) -> Columns:
        """The columns of a table. All tables together take no more memory than tables of their sizes do."""
        from pyarrow import ArrowException

        self._check(name)
        self._tables.pop(name, None)
        usual = RATIO * self.manifest["files"][name]["bytes"]
        try:
            columns, size = read_table(self.path / name, FREE + usual - sum(self._tables.values()))
            self._tables[name] = size - usual
            return upgraded(columns)
        except (ArrowException, OSError, ValueError) as error:
            raise unusable(self.path / name, error) from None

    def get_bytes(self, name: str) -> bytes:
        """A file as it is."""
        self._check(name)
        return (self.path / name).read_bytes()

    def folder(self, name: str) -> Path:
        """A folder in the run to write to."""
        return inside(self.path / name, self.path)

    def _check(self, name: str) -> None:
        """Compare a file with its checksum before it is first used, and again where it was changed since."""
        for refusal in self._wrong([name], self._refusal).values():
            raise StoreError(refusal)

    def _refusal(self, name: str) -> str:
        """Why a file cannot be used; empty where it can."""
        if not self.has(name):
            return f"{self.path / name} is missing or truncated; run the study again to restore it"
        stamp = stamp_of(self.path / name)
        if stamp is not None and self._checked.get(name) == stamp:
            return ""
        if fault := self._fault(name):
            return f"{self.path}: {fault}; the file is damaged; run the study again to restore it"
        self._checked[name] = stamp if self.remote is None else stamp_of(self.path / name)  # it may have been fetched
        return ""

    def _wrong(self, names: Iterable[str], fault: Callable[[str], str]) -> dict[str, str]:
        """What is wrong with some files, by what the manifest says now: another process may have written them again."""
        wrong = dict.fromkeys(names, "")
        for _ in range(TRIES):
            wrong = {name: line for name in wrong if (line := fault(name))}
            if not wrong or not self._reread(wrong):
                return wrong
        raise StoreError(f"{self.path} is being written by another process; wait for it, then try again")

    def _reread(self, names: Iterable[str]) -> bool:
        """Take over what the manifest says of some files by now; whether that is something else."""
        files = self.manifest["files"]
        if self._place is not None or files.keys().isdisjoint(names):
            return False
        if (now := RunStore.open(self.path).manifest)["identity"] != self.manifest["identity"]:
            return False
        changed = [name for name in names if now["files"].get(name) != files.get(name)]
        newer = {name: now["files"][name] for name in changed if name in now["files"]}
        self.manifest = self.manifest | {"files": files | newer}
        return bool(changed)

    def refuse_damaged(self) -> None:
        """Raise where any file is missing or damaged, whether it will be read or not."""
        for name in sorted(self.manifest["files"]):
            self._check(name)

    def verify(self) -> list[str]:
        """A line for each file that is missing or damaged, and for a folder that has the name of another run."""
        names = sorted(self.manifest["files"])
        files = list(self._wrong(names, lambda name: self._fault(name) or self._remote_fault(name)).values())
        named = re.fullmatch(r".*-([0-9a-f]{10})", self.path.resolve().name)
        if named and named[1] != (expected := digest_of(self.manifest["identity"])[:10]):
            files.append(f"{MANIFEST}: what was measured has the digest {expected}, the folder's name says {named[1]}")
        return files

    def _fault(self, name: str) -> str:
        """What is wrong with a file; empty where nothing is. One that a copy has not, or otherwise, is fetched."""
        fault = self._fault_here(name)
        if self.remote is None:
            return fault
        if not self.remote.has(name, size := self.manifest["files"][name]["bytes"]):
            return f"{name}: missing at {self.remote.address}, or not of {size} bytes"
        if fault:
            self.remote.fetch(name, size)
        return self._fault_here(name) if fault else ""

    def _remote_fault(self, name: str) -> str:
        """What is wrong with a file in an object store, whatever the copy has."""
        entry = self.manifest["files"][name]
        if self.remote is None or (sha256 := self.remote.sha256(name, entry["bytes"])) == entry["sha256"]:
            return ""
        return f"{name}: sha256 {sha256[:12]} at {self.remote.address}; the copy at {self.path} is sound"

    def _fault_here(self, name: str) -> str:
        path, entry = self.path / name, self.manifest["files"][name]
        if (size := size_of(path)) is None:
            return f"{name}: missing"
        if size != entry["bytes"]:
            return f"{name}: {size} bytes, expected {entry['bytes']}"
        sha256 = sha256_of(path)
        return "" if sha256 == entry["sha256"] else f"{name}: sha256 {sha256[:12]}, expected {entry['sha256'][:12]}"

    def _save_manifest(self) -> None:
        with writing_to(self.path):
            write_manifest(self._place or self.path, self.manifest, self.remote)
            self._unlisted = 0
        refuse_exchanged(self.path, self._place or self.path)
