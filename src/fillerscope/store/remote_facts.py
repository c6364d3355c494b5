"""What names and manifests in an object store say, checked before anything is fetched on their word.

Whoever owns a bucket may store anything under any name. Reaches nothing itself: that is `remote.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from fillerscope.errors import StoreError
from fillerscope.files import LARGEST_JSON, Json, digest_of, parse_json
from fillerscope.store import schema

_PART = re.compile(r"([1-9][0-9]{0,4})-of-([1-9][0-9]{0,4})")  # as `JobPart` writes it: one name for each part


def is_part_name(name: str) -> bool:
    """Whether a folder of this name holds a part, numbered from 1 to the number of parts."""
    found = _PART.fullmatch(name)
    return found is not None and int(found[1]) <= int(found[2])


def parts_among(names: Iterable[str], place: str) -> list[str]:
    """The names of parts among those in a place. Parts of several numbers are not of one run, and an error."""
    parts = [name for name in names if is_part_name(name)]
    counts = sorted({int(name.partition("-of-")[2]) for name in parts})
    if len(counts) > 1:
        raise StoreError(f"{place} holds parts of {counts[0]} and of {counts[1]}: remove those that are of another run")
    return parts


@dataclass(frozen=True)
class ManifestFacts:
    """What a manifest says of the files beside it; nothing where it is none."""

    identity: str | None = None  # which run it is of: a digest, since the values of two manifests may fill memory
    study_bytes: int = 0  # of the study that it lists; 0 where it lists none, or is damaged

    @classmethod
    def of(cls, data: bytes) -> Self:
        try:
            manifest = parse_json(data)
            return cls(digest_of(manifest["identity"]), _study_bytes(manifest))
        except (ValueError, TypeError, LookupError):
            return cls()


def _study_bytes(manifest: Json) -> int:
    """The size of the study. Early formats had no digest, and did not always list it."""
    is_early = "digest" not in manifest and manifest.get("format") in range(schema.SEALED)
    if not is_early and manifest.get("digest") != _digest_of(manifest):
        return 0
    match manifest:
        case {"files": {schema.STUDY: {"bytes": int(size)}}}:
            return min(size, LARGEST_JSON)
    return LARGEST_JSON if is_early else 0


def _digest_of(manifest: Json) -> str:
    return digest_of({key: value for key, value in manifest.items() if key != "digest"})
