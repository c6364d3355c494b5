"""Resolve a model's name to a folder of safetensors: from the catalogue, the disk, a GGUF file or the hub.

Loads no weights, and needs torch only where a GGUF has to be converted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fillerscope.errors import ModelError
from fillerscope.models import hub
from fillerscope.models.cache import locked
from fillerscope.models.catalogue import CATALOGUE, Entry
from fillerscope.models.checks import check_folder, check_gguf
from fillerscope.models.digests import cached_sha256, folder_digest, remembered_digest, remembered_sha256
from fillerscope.models.fetch import fetch
from fillerscope.models.gguf import convert, converted_folder, read_record
from fillerscope.progress import SILENT, Progress

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LOOKS_LIKE_A_PATH = re.compile(r"^[./~\\]|\\|^[A-Za-z]:|/.*/|/$|\.(gguf|safetensors|bin|pt|pth|ckpt)$", re.IGNORECASE)


# On this machine, to be fetched from the package index, a GGUF file to be converted, or to be fetched from the hub.
Place = Literal["here", "catalogue", "file", "hub"]


@dataclass(frozen=True)
class ModelFolder:
    """Weights, config and tokenizer in one place, and the digest that says exactly which."""

    path: Path
    name: str  # as the study says it
    label: str  # as figures say it
    digest: str
    untrained: int | None = None  # where weights are not to be read but drawn anew: the seed

    def twin(self, name: str, seed: int) -> ModelFolder:
        """The same configuration and tokenizer with weights drawn from a seed."""
        digest = f"{self.digest} untrained {seed}"
        return replace(self, name=name, label=f"{self.label}, untrained twin {seed}", digest=digest, untrained=seed)


def resolve(name: str, progress: Progress = SILENT, accept_licence: bool = False) -> ModelFolder:
    """Find a model; a catalogue model or a hub id is downloaded the first time."""
    if name in CATALOGUE:
        return _from_catalogue(CATALOGUE[name], progress, accept_licence)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path, name, path.resolve().name, progress)
    if path.is_file():
        return _from_gguf(path, name, progress)
    if not _HUB_ID.fullmatch(name) or _LOOKS_LIKE_A_PATH.search(name):
        raise ModelError(_unknown(name))
    return _from_folder(hub.snapshot(name, progress), name, name.partition("/")[2], progress)


def find(name: str) -> ModelFolder:
    """Find a model that is on this machine, at once: nothing is fetched, converted or read, and a model that needs that
    is an error. The digest is empty where files would have to be read for it; `resolve_here` does that."""
    if name in CATALOGUE:
        entry = CATALOGUE[name]
        return _converted_before(converted_folder(name, entry.sha256), name, entry.label)
    path = Path(name).expanduser()
    if path.is_file():
        sha256 = remembered_sha256(path)  # a file that was converted was read before
        return _converted_before(converted_folder(path.stem, sha256 or "unread"), name, path.stem)
    folder = path if path.is_dir() else _from_hub_cache(name)
    check_folder(folder, name)
    label = path.resolve().name if path.is_dir() else name.partition("/")[2]
    return ModelFolder(folder, name, label, remembered_digest(folder))


def place_of(name: str) -> Place:
    """Where a model is, without fetching or reading it; an error where it can be nowhere."""
    path = Path(name).expanduser()
    try:
        find(name)
        return "here"
    except ModelError:
        if name in CATALOGUE:
            return "catalogue"
        if path.is_file() and path.suffix.lower() == ".gguf":
            return "file"
        if path.exists():
            raise
    if not _HUB_ID.fullmatch(name) or _LOOKS_LIKE_A_PATH.search(name):
        raise ModelError(_unknown(name))
    return "hub"


def resolve_here(name: str, progress: Progress = SILENT) -> ModelFolder:
    """The same as `resolve` gives, for a model that `find` finds."""
    folder = find(name)
    return folder if folder.digest else replace(folder, digest=folder_digest(folder.path, progress))


def _converted_before(folder: Path, name: str, label: str) -> ModelFolder:
    if (digest := _digest_if_whole(folder)) is None:
        raise ModelError(f"{name} is not on this machine, or not converted yet: fillerscope models get {name}")
    return ModelFolder(folder, name, label, digest)


def _from_hub_cache(name: str) -> Path:
    if not _HUB_ID.fullmatch(name) or _LOOKS_LIKE_A_PATH.search(name):
        raise ModelError(f"there is no folder or GGUF file {name} on this machine: put it there")
    if (folder := hub.cached(name)) is None:
        raise ModelError(f"{name} is not on this machine: fillerscope models get {name}")
    return folder


def _from_catalogue(entry: Entry, progress: Progress, accept_licence: bool) -> ModelFolder:
    def make() -> None:
        gguf = fetch(entry, accept_licence, progress)
        convert(gguf, entry.name, entry.sha256, progress)
        gguf.unlink()  # the folder holds the same numbers, and loads faster

    folder = converted_folder(entry.name, entry.sha256)
    return ModelFolder(folder, entry.name, entry.label, _made_once(folder, make, progress))


def _from_gguf(path: Path, name: str, progress: Progress) -> ModelFolder:
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{name} is a file; give the folder of a model, or a file that ends in .gguf")
    check_gguf(path)
    sha256 = cached_sha256(path, progress)
    folder = converted_folder(path.stem, sha256)
    digest = _made_once(folder, lambda: convert(path, path.stem, sha256, progress), progress)
    return ModelFolder(folder, name, path.stem, digest)


def _made_once(folder: Path, make: Callable[[], object], progress: Progress) -> str:
    """The digest of a folder in our cache, which is made first where it is missing or damaged."""
    if (digest := _digest_if_whole(folder)) is None:
        with locked(folder.name, progress):
            if (digest := _digest_if_whole(folder)) is None:  # nobody made it while we waited
                make()
                digest = _digest_if_whole(folder)
    if digest is None:
        raise ModelError(f"{folder} disappeared or was damaged while it was made; check the disk and try again")
    return digest


def _digest_if_whole(folder: Path) -> str | None:
    """The digest recorded when the folder was made, or None where the folder is not complete."""
    record = read_record(folder)
    try:
        check_folder(folder, folder.name)
    except ModelError:
        return None
    return record["digest"] if record else None


def _from_folder(path: Path, name: str, label: str, progress: Progress) -> ModelFolder:
    check_folder(path, name)
    return ModelFolder(path, name, label, folder_digest(path, progress))


def _unknown(name: str) -> str:
    known = ", ".join(CATALOGUE)
    if _LOOKS_LIKE_A_PATH.search(name):
        return f"there is no folder or GGUF file {name}; check the path, or use one of: {known}"
    close = difflib.get_close_matches(name.lower(), CATALOGUE, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"choose one of: {known}"
    return f"model {name!r} is not known; {hint} (a folder, a .gguf file or a hub id, owner/name, works too)"
