"""Figures with their files, and which files are those that would be drawn now: nothing is drawn twice.

A folder of figures holds `drawn.json`: for each figure the stamp of what it was made from, and its files' checksums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

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
    read_limited,
    refuse_foreign,
    write_whole,
)

DRAWN = "drawn.json"
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
    if not isinstance(entry, dict) or entry.get("stamp") != stamp or not isinstance(entry.get("files"), dict):
        return None
    paths = {folder / Path(file).name: sha256 for file, sha256 in entry["files"].items()}  # never beside the folder
    try:
        is_whole = all(file_sha256(path) == sha256 for path, sha256 in paths.items())
    except OSError:
        return None
    return SavedFigure(list(paths)) if is_whole else None


def refuse_others(folder: Path, names: Iterable[str]) -> None:
    """Raise an error where figures would replace files that `drawn.json` in that folder does not name."""
    entries = [entry for entry in _entries(folder).values() if isinstance(entry, dict)]
    ours = {file for entry in entries if isinstance(entry.get("files"), dict) for file in entry["files"]}
    with disk_errors(FigureError, f"figures to {folder}", "choose another folder with --out, or --force"):
        refuse_foreign(folder, [f"{name}.{kind}" for name in names for kind in KINDS], ours)
        refuse_foreign(folder, [DRAWN], [DRAWN] if entries else [])


def save_stamped(drawn: Drawn, folder: Path, stamp: str) -> SavedFigure:
    """Write the files of a figure, and its stamp beside them. That they are ours is noted first: whoever is killed
    meanwhile may replace them later."""
    _note(folder, drawn.name, "", dict.fromkeys((f"{drawn.name}.{kind}" for kind in KINDS), ""))
    paths = save(drawn, folder)
    _note(folder, drawn.name, stamp, {path.name: file_sha256(path) for path in paths})
    return SavedFigure(paths, drawn)


def _note(folder: Path, name: str, stamp: str, sums: Mapping[str, str]) -> None:
    entries = _entries(folder) | {name: {"stamp": stamp, "files": sums}}
    with disk_errors(FigureError, f"figures to {folder}", "choose another folder with --out"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / DRAWN, [json_bytes(entries)], sync=False)


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
