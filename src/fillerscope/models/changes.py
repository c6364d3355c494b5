"""Whether the files of a model are still those that were converted or downloaded.

A conversion notes the sums of what it wrote, and the hub's cache names contents by their digest. A folder that the user
gives by its path says nothing of the kind: its digest is that of the bytes that are there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fillerscope.models.catalogue import cache_folder
from fillerscope.models.digests import digest_of_files
from fillerscope.models.gguf import RECORD, read_record
from fillerscope.problems.hub_listing import git_sha1


def changed_file(folder: Path, sums: Mapping[str, str]) -> Path | None:
    """The first file of a folder that is not what it should be, given the sums of all of them; None where all are."""
    if folder.parent == cache_folder() / "models":
        return _unlike_the_record(folder, sums)
    if folder.parent.name == "snapshots":
        return next((folder / name for name in sums if not _has_its_name(folder / name, sums[name])), None)
    return None


def _unlike_the_record(folder: Path, sums: Mapping[str, str]) -> Path | None:
    record = read_record(folder)
    if record is not None and record.digest == digest_of_files(sums) and record.files in ({}, sums):
        return None
    noted = record.files if record else {}
    names = sorted(name for name in noted.keys() | sums.keys() if noted.get(name) != sums.get(name))
    return folder / (names[0] if noted and names else RECORD if noted else "")


def _has_its_name(path: Path, sha256: str) -> bool:
    """Whether a file of the hub's cache has the digest that it is named by; files named otherwise have."""
    real = path.resolve()
    if real.parent.name != "blobs" or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", real.name):
        return True
    return real.name == (sha256 if len(real.name) == 64 else git_sha1(real))
