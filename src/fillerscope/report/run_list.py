"""The runs of a folder, each in a row: what was asked, how far it got, and the verdict of its report.

A verdict takes a second or more, so it is remembered in the cache for as long as the run and the code stay the same.
What is no run, or a damaged one, has a row that says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from fillerscope.analysis.findings.all import missing_parts
from fillerscope.analysis.run import Run, open_run
from fillerscope.display import command
from fillerscope.errors import FillerscopeError, StoreError, UnreadableError
from fillerscope.files import Json, others_can_write, parse_json, read_limited, replacing
from fillerscope.models.cache import make_own_folder, own_folder
from fillerscope.progress import SILENT, Progress
from fillerscope.report.headline import tones
from fillerscope.store.live import LiveStore
from fillerscope.store.lock import is_being_written
from fillerscope.store.manifest import read_manifest
from fillerscope.store.reading import stamp_of
from fillerscope.store.schema import MANIFEST, PARTS_FOLDER
from fillerscope.study.study import Study

FINISHED, IN_PROGRESS, INTERRUPTED = "finished", "in progress", "interrupted"
NO_RUN, DAMAGED, UNREADABLE, IN_PARTS = "not a run", "damaged", "unreadable", "in parts"
DEPTH = 4  # of folders in a run whose files count for its size
KIND = "verdicts"
PATIENCE = 3.0  # seconds for verdicts that are not remembered


@dataclass(frozen=True)
class RunEntry:
    """A row of the list. `changed` is in seconds since 1970; `note` says what is wrong."""

    name: str
    path: str
    state: str
    bytes: int = 0
    changed: float = 0.0
    models: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    problems: int | None = None
    verdict: str = ""  # empty where it is not known
    note: str = ""

    def record(self) -> Json:
        return asdict(self)


def list_runs(folder: Path, patience: float = PATIENCE, progress: Progress = SILENT) -> list[RunEntry]:
    """All folders in a folder, the newest first. New verdicts are worked out for `patience` seconds, newest first."""
    try:
        folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except FileNotFoundError:
        raise StoreError(f"no runs: there is no folder {folder}; `fillerscope demo` makes a first run") from None
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"cannot list the runs in {folder}: {reason}; name their folder with --out") from None
    entries = sorted(map(_entry, folders), key=lambda entry: (-entry.changed, entry.name))
    stop = time.monotonic() + patience
    return [_with_verdict(entry, stop, progress) for entry in entries]


def _entry(path: Path) -> RunEntry:
    is_run, is_in_parts = (path / MANIFEST).exists(), (path / PARTS_FOLDER).is_dir()
    entry = RunEntry(path.name, str(path), NO_RUN, _bytes(path, DEPTH if is_run or is_in_parts else 0), _changed(path))
    if not is_run:
        if is_in_parts:
            return replace(entry, state=IN_PARTS, note=f"`{command('status', path)}` tells how far its parts are")
        return replace(entry, note=f"it has no {MANIFEST}")
    try:
        store = LiveStore.glance(path)
        study = Study.stored(store.study)
    except (FillerscopeError, OSError) as error:
        return _refused(entry, error)
    except ValueError:
        return replace(entry, state=DAMAGED, note="study.json does not hold a study")
    unfinished = IN_PROGRESS if is_being_written(path) else INTERRUPTED
    facts = store.manifest.get("models", {})
    return replace(
        entry,
        state=FINISHED if store.finished else unfinished,
        models=[str(facts.get(spec.name, {}).get("label") or spec.name) for spec in study.models],
        conditions=[condition.name for condition in study.conditions],
        problems=store.problems,
    )


def _refused(entry: RunEntry, error: Exception) -> RunEntry:
    """The entry of a run that cannot be opened: what cannot be read now may be sound."""
    state = UNREADABLE if isinstance(error, UnreadableError | OSError) else DAMAGED
    return replace(entry, state=state, note=str(error))


def _bytes(path: Path, depth: int) -> int:
    """The size of all files below a folder; those that cannot be read, or vanish meanwhile, count nothing.

    Folders within folders count up to a depth: what is no run may be a whole disk."""
    total = 0
    for folder, folders, names in os.walk(path):
        if len(Path(folder).relative_to(path).parts) >= depth:
            folders.clear()
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _changed(path: Path) -> float:
    for place in (path / MANIFEST, path):
        with contextlib.suppress(OSError):
            return place.stat().st_mtime
    return 0.0


def _with_verdict(entry: RunEntry, stop: float, progress: Progress) -> RunEntry:
    """The entry with the verdict of its first model, where it is remembered or there is time to work it out."""
    if entry.state != FINISHED:
        return entry
    try:
        note = _note(Path(entry.path))
    except (FillerscopeError, OSError) as error:
        return _refused(entry, error)
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        if not others_can_write(note.parent) and not others_can_write(note):
            return replace(entry, verdict=str(parse_json(read_limited(note))["verdict"]))
    if time.monotonic() >= stop:
        return entry
    progress.stage(f"reading {entry.name}", 0, None)
    try:
        verdict = _verdict(open_run(entry.path))
    except (FillerscopeError, OSError) as error:
        return _refused(entry, error)
    with contextlib.suppress(OSError):  # a cache that cannot be written to costs time, nothing else
        make_own_folder(KIND)
        with replacing(note, sync=False, mode=0o600) as draft:
            draft.write(json.dumps({"verdict": verdict}).encode())
    return replace(entry, verdict=verdict)


def _verdict(run: Run) -> str:
    """What the headline comes to, by what it is about; an error where a part of the run cannot be read."""
    if not run.fillers:
        return "nothing to compare"
    if left_out := missing_parts(run[None]):
        raise StoreError(left_out[0])
    told = [f"{about}: {tone}" for about, tone in sorted(tones(run).items())]
    return f"{'; '.join(told) or 'cannot be told'} ({run.main})"


def _note(path: Path) -> Path:
    """Where the verdict of a run is remembered: another place when a file of the run or the code that decides has
    changed. No file is read for it but the manifest."""
    names = [MANIFEST, *sorted(read_manifest(path)["files"])]
    state = [(path.stat().st_dev, *(stamp_of(path / name) or ())) for name in names]
    key = json.dumps([str(path.resolve()), state, _deciding_code()])
    return own_folder(KIND) / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


@cache
def _deciding_code() -> str:
    """A digest of the code that a verdict comes from."""
    digest, root = hashlib.sha256(), files("fillerscope")
    folders = [root.joinpath(name) for name in ("analysis", "analysis/findings", "report", "store", "study")]
    for file in (file for folder in folders for file in folder.iterdir() if file.name.endswith(".py")):
        digest.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
