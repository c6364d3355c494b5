"""Figures with their files, and which files are those that would be drawn now: nothing is drawn twice.

A folder of figures holds `drawn.json`: for each figure the stamp of what it was made from, and its files' checksums,
under a seal that only this user can make. What somebody else has sent is drawn again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from platformdirs import user_config_path

from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.style import KINDS, Drawn, save
from fillerscope.files import (
    Json,
    digest_of,
    disk_errors,
    file_sha256,
    json_bytes,
    parse_json,
    pinned,
    read_limited,
    write_whole,
)
from fillerscope.store.lock import alone_in
from fillerscope.store.own_files import has_sum, refuse_foreign

DRAWN = "drawn.json"
BEFORE = "before"  # of a figure there: checksums of files that were not replaced yet, as a kill may leave them
SECRET, SECRET_BYTES = "figures.key", 32
CODE = (".py", ".j2", ".js", ".css")  # what can change a figure or a report


@dataclass(frozen=True)
class SavedFigure:
    """The files of a figure; `drawn` is None where they were there already."""

    paths: list[Path]
    drawn: Drawn | None = None


def stamp_of(run: Run, asked: object = None) -> str:
    """A digest of everything that a figure or report is made from: the run, the code, and what was asked for."""
    return digest_of([_code(), version("matplotlib"), run.store.manifest, run.store.study, repr(asked)])


def saved_before(folder: Path, name: str, stamp: str) -> SavedFigure | None:
    """The figure in a folder, if it has this stamp and its files are as they were written."""
    entry = _entries(folder).get(name)
    if not isinstance(entry, dict) or not isinstance(entry.get("files"), dict):
        return None
    if not hmac.compare_digest(str(entry.get("seal")).encode(), _seal(stamp, entry["files"]).encode()):
        return None
    paths = {folder / Path(file).name: sha256 for file, sha256 in entry["files"].items()}  # never beside the folder
    try:
        is_whole = all(file_sha256(path) == sha256 for path, sha256 in paths.items())
    except OSError:
        return None
    return SavedFigure(list(paths)) if is_whole else None


def refuse_others(folder: Path, names: Iterable[str]) -> None:
    """Raise an error where figures would replace files that are not as `drawn.json` in that folder has them."""
    ours = {file: sums for entry in _entries(folder).values() for file, sums in _sums(entry).items()}
    with disk_errors(FigureError, f"figures to {folder}", "choose another folder with --out, or --force"):
        refuse_foreign(folder, [f"{name}.{kind}" for name in names for kind in KINDS], ours)
        refuse_foreign(folder, [] if ours else [DRAWN], {})


def save_stamped(drawn: Drawn, folder: Path, stamp: str) -> SavedFigure:
    """Write the files of a figure, and its stamp beside them. They are noted first: whoever is killed meanwhile may
    replace them later."""
    with disk_errors(FigureError, f"figures to {folder}", "choose another folder with --out"):
        folder.mkdir(parents=True, exist_ok=True)
        with pinned(folder) as place, alone_in(place):
            paths = save(drawn, place, partial(_note, place, drawn.name, stamp))
            _note(place, drawn.name, stamp, {path.name: path for path in paths})
    return SavedFigure([folder / path.name for path in paths], drawn)


def _seal(stamp: str, sums: Mapping[str, str]) -> str:
    return hmac.new(_secret(user_config_path("fillerscope") / SECRET), json_bytes([stamp, sums]), "sha256").hexdigest()


@cache
def _secret(path: Path) -> bytes:
    """This user's own; one for this process alone where none can be kept."""
    made = secrets.token_bytes(SECRET_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError), open(path, "xb", opener=partial(os.open, mode=0o600)) as file:
            file.write(made)
        kept = read_limited(path)
    except OSError:
        return made
    return kept if len(kept) == SECRET_BYTES else made


def _note(folder: Path, name: str, stamp: str, paths: Mapping[str, Path]) -> None:
    """Note the files of a figure, and those of before as long as they are in their places."""
    new, entries = {file: file_sha256(path) for file, path in paths.items()}, _entries(folder)
    listed = [(file, digest) for file, sums in _sums(entries.get(name)).items() for digest in sums]
    others = [(file, digest) for file, digest in listed if digest != new.get(file)]
    before = {file: digest for file, digest in others if has_sum(folder / Path(file).name, [digest])}
    entry: Json = {"seal": _seal(stamp, new), "files": new} | ({BEFORE: before} if before else {})
    write_whole(folder / DRAWN, [json_bytes(entries | {name: entry})], sync=False)


def _sums(entry: object) -> dict[str, list[str]]:
    """The checksums that the files of a figure may have: as they were noted last, and before."""
    parts = [entry.get(key) for key in ("files", BEFORE)] if isinstance(entry, dict) else []
    pairs = [pair for part in parts if isinstance(part, dict) for pair in part.items()]
    return {file: [digest for other, digest in pairs if other == file] for file, _ in pairs}


def _entries(folder: Path) -> Json:
    try:
        entries = parse_json(read_limited(folder / DRAWN))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


@cache
def _code() -> str:
    """The digest of the package's code."""
    digest = hashlib.sha256()
    for name, content in sorted(_sources(files("fillerscope"), "")):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(CODE):
            yield f"{name}/{entry.name}", entry.read_bytes()
