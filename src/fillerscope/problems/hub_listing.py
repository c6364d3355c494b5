"""What the hub says about a repository: its newest commit, and names, sizes and digests of its files.

All of it becomes paths in the cache, so a name that leads elsewhere and a digest that is none are refused.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Literal
from urllib.parse import quote

from fillerscope.files import open_file
from fillerscope.problems.hub_http import Connection, HubError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NO_NAME = re.compile(r"[\x00-\x1f\x7f\\\\]|(^|/)\.{0,2}(/|$)")  # control characters, backslashes, `..`, an empty part
_LONGEST = 1000  # characters of a name
MOST_FILES = 200_000  # of a repository
MOST_NAMES = 1 << 26  # bytes of memory that their names may take: 335 for each of so many files


@dataclass(frozen=True)
class Repo:
    """A repository on the hub."""

    name: str  # owner/name
    kind: Literal["model", "dataset"] = "model"

    @property
    def page(self) -> str:
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"

    @property
    def shown(self) -> str:
        """The name as a study has it."""
        return f"hub:{self.name}" if self.kind == "dataset" else self.name

    def address(self, commit: str, path: str) -> str:
        """The address of a file."""
        from huggingface_hub import hf_hub_url

        return hf_hub_url(self.name, path, repo_type=self.kind, revision=commit)

    def api(self, what: str) -> str:
        """The address of a description."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/api/{self.kind}s/{quote(self.name)}/{what}"


@dataclass(frozen=True)
class HubFile:
    """A file of a repository, whose name stays inside a folder and whose digest is one."""

    path: str
    size: int
    digest: str  # the SHA-256 of a large file, git's SHA-1 of a small one: the hub's cache names contents by them

    def __post_init__(self) -> None:
        if _NO_NAME.search(self.path) or PureWindowsPath(self.path).drive or len(self.path) > _LONGEST:
            raise HubError(f"it names a file {self.path[:60]!r}, which no folder can hold")
        if not _DIGEST.fullmatch(self.digest):
            raise HubError(f"it gives {self.digest[:60]!r} as the digest of {self.path}")
        if self.size < 0:
            raise HubError(f"it gives {self.path} a size of {self.size}")


@dataclass(frozen=True)
class Listing:
    """The files of a repository at one commit, as the hub describes them."""

    commit: str
    entries: Mapping[str, tuple[int, str] | None]  # sizes and digests by name; checked when a file is asked for

    @property
    def names(self) -> list[str]:
        return list(self.entries)

    def file(self, name: str) -> HubFile:
        entry = self.entries[name]
        if entry is None:
            raise HubError(f"it gives {name} no size and digest")
        return HubFile(name, *entry)


def read_listing(hub: Connection, repo: Repo) -> Listing:
    """The files of the newest commit."""
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    validate_repo_id(repo.name)
    described = hub.json(repo.api("revision/main"))
    commit = described.get("sha") if isinstance(described, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError(f"it gives {str(commit)[:60]!r} as the newest commit")
    return Listing(commit, _entries(hub.pages(repo.api(f"tree/{commit}?recursive=true"))))


def _entries(pages: Iterable[object]) -> dict[str, tuple[int, str] | None]:
    """What is needed of the files on some pages. The rest is let go page by page: it may be most of it."""
    entries: dict[str, tuple[int, str] | None] = {}
    memory = 0  # of their names: one character beyond the first 65,536 makes all of a name take four bytes each
    for page in pages:
        for name, entry in _files_on(page):
            memory += sys.getsizeof(name)
            entries[name] = entry
        if len(entries) > MOST_FILES:
            raise HubError(f"it lists more than {MOST_FILES:,} files")
        if memory > MOST_NAMES:
            raise HubError(f"the names of its files take more than {MOST_NAMES >> 20} MiB of memory")
    return entries


def _files_on(page: object) -> Iterator[tuple[str, tuple[int, str] | None]]:
    """The names of the files on a page, cut where they are longer than any, and their sizes and digests."""
    if not isinstance(page, list):
        raise HubError("it lists no files")
    for entry in page:
        match entry:
            case {"type": "file", "path": str(path)}:
                yield path[: _LONGEST + 1], _size_and_digest(entry)


def _size_and_digest(entry: object) -> tuple[int, str] | None:
    """What the hub says about a file, cut where it is longer than any size or digest; None where it says neither."""
    match entry:
        case {"lfs": {"oid": str(digest)}, "size": int(size)} | {"oid": str(digest), "size": int(size)}:
            return min(size, 1 << 63), digest[:65]
    return None


def git_sha1(path: Path) -> str:
    """The SHA-1 by which git, and the hub's cache, names the contents of a small file."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
