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
        return next((folder / name for name, sha256 in sums.items() if not _is_of_hub(folder, name, sha256)), None)
    return None


def _is_of_hub(folder: Path, name: str, sha256: str) -> bool:
    """Whether a file of the hub's cache is what was downloaded: a link to the blob of the repository that has its
    digest as its name. Where the system has no links there are no blobs."""
    path, blobs = folder / name, folder.parent.parent / "blobs"
    if not path.is_symlink():
        return not blobs.is_dir() or not any(blobs.iterdir())
    blob = path.resolve()
    if blob.parent != blobs.resolve() or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob.name):
        return False
    return blob.name == (sha256 if len(blob.name) == 64 else git_sha1(blob))


def _unlike_the_record(folder: Path, sums: Mapping[str, str]) -> Path | None:
    record = read_record(folder)
    if record is not None and record.digest == digest_of_files(sums) and record.files in ({}, sums):
        return None
    noted = record.files if record else {}
    names = sorted(name for name in noted.keys() | sums.keys() if noted.get(name) != sums.get(name))
    return folder / (names[0] if noted and names else RECORD if noted else "")
