"""Resolve a model's name to a folder of safetensors: from the catalogue, the disk, a GGUF file or the hub.

Loads no weights, and needs torch only where a GGUF has to be converted.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fillerscope.display import command
from fillerscope.errors import ModelError
from fillerscope.models import hub
from fillerscope.models.cache import locked, open_cache_warning
from fillerscope.models.catalogue import CATALOGUE, Entry, cache_folder
from fillerscope.models.changes import changed_file
from fillerscope.models.checks import check_folder, check_gguf
from fillerscope.models.digests import (
    cached_sha256,
    digest_of_files,
    file_sums,
    remembered_digest,
    remembered_sha256,
)
from fillerscope.models.fetch import fetch
from fillerscope.models.gguf import VERSION, convert, converted_folder, read_record
from fillerscope.progress import SILENT, Progress
from fillerscope.study.arguments import check_arguments

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


def resolve(name: str, progress: Progress = SILENT, accept_licence: bool = False, repair: bool = False) -> ModelFolder:
    """Find a model; a catalogue model or a hub id is downloaded the first time.

    Files that are not those that were converted or downloaded are refused. To `repair` reads every byte, and makes or
    downloads such files again."""
    if name in CATALOGUE:
        return _from_catalogue(CATALOGUE[name], progress, accept_licence, repair)
    path = _path_of(name)
    if path.is_dir():
        return _checked(_from_folder(path, name, path.resolve().name), progress, repair)
    if path.is_file():
        return _from_gguf(path, name, progress, repair)
    if not _HUB_ID.fullmatch(name) or _LOOKS_LIKE_A_PATH.search(name):
        raise ModelError(_unknown(name))
    return _from_hub(name, progress, repair)


def find(name: str) -> ModelFolder:
    """Find a model that is on this machine, at once: nothing is fetched, converted or read, and a model that needs that
    is an error. The digest is empty where files would have to be read for it; `resolve_here` does that."""
    if name in CATALOGUE:
        entry = CATALOGUE[name]
        return _converted_before(converted_folder(name, entry.sha256), name, entry.label)
    path = _path_of(name)
    if path.is_file():
        if sha256 := remembered_sha256(path):
            return _converted_before(converted_folder(path.stem, sha256), name, path.stem)
        return replace(_converted_before(_last_converted(path), name, path.stem), digest="")
    folder = path if path.is_dir() else _from_hub_cache(name)
    label = path.resolve().name if path.is_dir() else name.partition("/")[2]
    return replace(_from_folder(folder, name, label), digest=remembered_digest(folder))


def place_of(name: str) -> Place:
    """Where a model is, without fetching or reading it; an error where it can be nowhere."""
    path = _path_of(name)
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


def resolve_here(name: str, progress: Progress = SILENT, fresh: bool = False) -> ModelFolder:
    """The same as `resolve` gives, for a model that `find` finds; `fresh` reads every byte of it."""
    found, path = find(name), _path_of(name)
    if name not in CATALOGUE and path.is_file():  # it may have changed since it was converted
        sha256 = cached_sha256(path, progress, fresh)
        found = _converted_before(converted_folder(path.stem, sha256), name, path.stem)
    return _checked(found, progress, fresh)


def _path_of(name: str) -> Path:
    check_arguments({"path": name})
    return Path(os.path.expanduser(name))  # which leaves an unknown user as it is


def _checked(found: ModelFolder, progress: Progress, fresh: bool = False) -> ModelFolder:
    """A model with the digest of its bytes; an error where they are not those that were converted or downloaded."""
    sums = file_sums(found.path, progress, fresh)
    if (changed := changed_file(found.path, sums)) is not None:
        raise ModelError(f"{changed} {_CHANGED}; {_remedy(found.name, changed)}")
    if found.path.parent == cache_folder() / "models":
        _warn_once(open_cache_warning(found.path), progress)
    elif found.path.parent.name == "snapshots":
        repository, hub = found.path.parents[1], found.path.parents[2]
        for folder in (found.path, repository / "blobs", hub / "blobs"):
            _warn_once(open_cache_warning(folder, "HF_HUB_CACHE"), progress)
    return replace(found, digest=digest_of_files(sums))


_CHANGED = "is not what was converted or downloaded: its bytes have changed since"
_WARNED: set[str] = set()


def _warn_once(warning: str, progress: Progress) -> None:
    if warning and warning not in _WARNED:
        _WARNED.add(warning)
        progress.say(warning)


def _remedy(name: str, changed: Path) -> str:
    if os.path.isdir(os.path.expanduser(name)):
        return f"remove {changed.resolve()} and download or convert the model again"
    return f"make it again with `fillerscope models get {shlex.quote(name)}`"


def _converted_before(folder: Path, name: str, label: str) -> ModelFolder:
    if not _is_whole(folder):
        raise ModelError(f"{name} is not on this machine, or not converted yet: {command('models', 'get', name)}")
    return ModelFolder(folder, name, label, remembered_digest(folder))


def _last_converted(gguf: Path) -> Path:
    """Where the last file of this name was converted to, if any was since this one was changed."""
    folders = converted_folder(gguf.stem, "[0-9a-f]" * 64)
    made = {one: one.stat().st_mtime for one in folders.parent.glob(folders.name)}
    later = [one for one, when in made.items() if when >= gguf.stat().st_ctime]
    return max(later, key=made.__getitem__, default=converted_folder(gguf.stem, "unread"))


def _from_hub_cache(name: str) -> Path:
    if not _HUB_ID.fullmatch(name) or _LOOKS_LIKE_A_PATH.search(name):
        raise ModelError(f"there is no folder or GGUF file {name} on this machine: put it there")
    if (folder := hub.cached(name)) is None:
        raise ModelError(f"{name} is not on this machine: fillerscope models get {name}")
    return folder


def _from_catalogue(entry: Entry, progress: Progress, accept_licence: bool, repair: bool) -> ModelFolder:
    def make() -> None:
        gguf = fetch(entry, accept_licence, progress)
        convert(gguf, entry.name, entry.sha256, progress)
        gguf.unlink()  # the folder holds the same numbers, and loads faster

    found = ModelFolder(converted_folder(entry.name, entry.sha256), entry.name, entry.label, "")
    return _made_once(found, make, progress, repair)


def _from_gguf(path: Path, name: str, progress: Progress, repair: bool) -> ModelFolder:
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{name} is a file; give the folder of a model, or a file that ends in .gguf")
    check_gguf(path)
    sha256 = cached_sha256(path, progress, repair)
    found = ModelFolder(converted_folder(path.stem, sha256), name, path.stem, "")
    return _made_once(found, lambda: convert(path, path.stem, sha256, progress), progress, repair)


def _from_hub(name: str, progress: Progress, repair: bool) -> ModelFolder:
    label = name.partition("/")[2]
    found, repaired = _from_folder(hub.snapshot(name, progress), name, label), set[str]()
    while repair and (damaged := changed_file(found.path, file_sums(found.path, progress, fresh=True))):
        if damaged.name in repaired:  # the disk, or whoever writes to it, damages it again
            break
        repaired.add(damaged.name)
        progress.say(f"{damaged.name} {_CHANGED}; it is downloaded again")
        found = _from_folder(hub.snapshot(name, progress, damaged), name, label)
    return _checked(found, progress)


def _made_once(found: ModelFolder, make: Callable[[], object], progress: Progress, repair: bool) -> ModelFolder:
    """A folder in our cache, which is made first where it is missing or incomplete, or has changed and is repaired."""

    def is_ready(fresh: bool) -> bool:
        if not _is_whole(found.path):
            return False
        return not repair or changed_file(found.path, file_sums(found.path, progress, fresh)) is None

    if not is_ready(fresh=repair):
        with locked(found.path.name, progress):
            if not is_ready(fresh=False):  # nobody made it while we waited
                if found.path.exists():
                    progress.say(f"{found.path} is damaged, was changed, or is of an earlier version; it is made again")
                make()
    if not _is_whole(found.path):
        raise ModelError(f"{found.path} disappeared or was damaged while it was made; check the disk and try again")
    return _checked(found, progress)


def _is_whole(folder: Path) -> bool:
    """Whether a folder in our cache holds all that a conversion of its GGUF writes; nothing large is read."""
    try:
        check_folder(folder, folder.name)
    except ModelError:
        return False
    record = read_record(folder)
    return record is not None and folder.name.endswith(record.gguf_sha256) and record.version == VERSION


def _from_folder(path: Path, name: str, label: str) -> ModelFolder:
    check_folder(path, name)
    return ModelFolder(path, name, label, "")


def _unknown(name: str) -> str:
    known = ", ".join(CATALOGUE)
    if _LOOKS_LIKE_A_PATH.search(name):
        return f"there is no folder or GGUF file {name}; check the path, or use one of: {known}"
    close = difflib.get_close_matches(name.lower(), CATALOGUE, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"choose one of: {known}"
    return f"model {name!r} is not known; {hint} (a folder, a .gguf file or a hub id, owner/name, works too)"
