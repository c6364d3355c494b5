"""Which files in a folder of a user's choice are ours: a listing beside them has their checksums.

Files of others, and our own that were changed since, are neither replaced nor removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import Self

from fillerscope.files import (
    Json,
    file_sha256,
    json_bytes,
    parse_json,
    pinned,
    read_limited,
    replacing,
    write_whole,
)
from fillerscope.store.lock import alone_in

LISTING = "fillerscope-files.json"
WRITTEN, OF = "written by fillerscope", "tables of"  # its keys
Sums = Mapping[str, Collection[str]]  # by name, the checksums that our file may have


class OwnFiles:
    """The files that the listing of a folder calls ours, and what the tables among them are of."""

    def __init__(self, folder: Path, place: Path | None = None) -> None:
        """`place` leads to the folder whatever others put at its path meanwhile."""
        self.folder, self._place = folder, place or folder
        listing = _listing(self._place)
        self.of = listing.get(OF)
        self._sums = _sums_of(listing.get(WRITTEN))

    @classmethod
    @contextmanager
    def writing(cls, folder: Path) -> Iterator[Self]:
        """Let one process at a time write to a folder, which is made where it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        with pinned(folder) as place, alone_in(place):
            own = cls(folder, place)
            yield own
            own._list()

    def has(self, name: str) -> bool:
        """Whether a file is there as we wrote it."""
        return has_sum(self._place / name, self._sums.get(name, ()))

    def unproven(self) -> list[str]:
        """Names without a checksum: listings of earlier versions had none, so nothing tells whose the files are."""
        return [name for name, sums in self._sums.items() if not sums]

    def refuse_others(self, names: Iterable[str]) -> None:
        """Raise an OSError for a file that would be replaced and is not as we wrote it."""
        refuse_foreign(self._place, names, self._sums)

    @contextmanager
    def replacing(self, name: str) -> Iterator[BufferedWriter]:
        """Yield a new file, open for writing, that takes the place of a name when the block ends.

        Its checksum is listed first, beside that of what it replaces: a kill may come in between."""
        with replacing(self._place / name, sync=False) as file:
            yield file
            file.flush()
            digest = file_sha256(Path(file.name))
            self._sums[name] = [*self._sums.get(name, ()), digest]
            self._list()
        self._sums[name] = [digest]

    def remove(self, name: str) -> None:
        """Remove a file, if it is there, and its name from the listing."""
        (self._place / name).unlink(missing_ok=True)
        self.forget(name)

    def forget(self, name: str) -> None:
        self._sums.pop(name, None)

    def _list(self) -> None:
        write_whole(self._place / LISTING, [json_bytes({WRITTEN: self._sums, OF: self.of})], sync=False)


def refuse_foreign(folder: Path, names: Iterable[str], sums: Sums) -> None:
    """Raise an OSError for a file that would be replaced and has none of its checksums, such as a user's own."""
    for name in names:
        if os.path.lexists(folder / name) and not has_sum(folder / name, sums.get(name, ())):
            raise FileExistsError(
                errno.EEXIST, f"{name} is there already, and nothing shows that fillerscope wrote it as it is"
            )


def has_sum(path: Path, sums: Collection[str]) -> bool:
    """Whether a file has one of some checksums. One that cannot be read has none."""
    try:
        return bool(sums) and file_sha256(path) in sums
    except OSError:
        return False


def _listing(folder: Path) -> Json:
    try:
        listing = parse_json(read_limited(folder / LISTING))
    except (OSError, ValueError):
        return {}
    return listing if isinstance(listing, dict) else {}


def _sums_of(listed: object) -> dict[str, list[str]]:
    """The checksums of a listing; those of earlier versions are names alone."""
    if isinstance(listed, list):
        return {name: [] for name in listed if isinstance(name, str)}
    entries = listed.items() if isinstance(listed, dict) else ()
    return {name: [one for one in sums if isinstance(one, str)] for name, sums in entries if isinstance(sums, list)}
