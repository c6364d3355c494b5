"""Whether the files of a model are still those that were converted or downloaded.

A conversion notes the sums of what it wrote, and the hub's cache names contents by their digest. A folder that the user
gives by its path says nothing of the kind: its digest is that of the bytes that are there.
"""

from __future__ import annotations

import os
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
    digest as its name, or a copy of one where the disk has no links. The blob may be a link itself, to one that several
    repositories share. huggingface_hub leaves no blobs where there are no links."""
    path, blobs = folder / name, folder.parent.parent / "blobs"
    if not path.is_symlink():
        known = set(os.listdir(blobs)) if blobs.is_dir() else set()
        return not known or not known.isdisjoint((sha256, git_sha1(path)))
    blob = Path(os.path.normpath(path.parent.resolve() / path.readlink()))
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
