"""The run folder that somebody means by a path, by the beginning of a name, or by `latest`."""

from __future__ import annotations

import os
from pathlib import Path

from fillerscope.errors import StoreError
from fillerscope.store.addresses import local_folder
from fillerscope.store.schema import MANIFEST, PARTS_FOLDER, STUDY

RUNS = Path("runs")  # where runs go, in the current folder
LATEST = "latest"
MOST_LISTED = 8  # names in an error


def find_run(text: str | Path) -> Path:
    """The run at a path or an address; else the one run whose name begins so; `latest` is the newest in `runs`.

    A name is looked for in `runs`, and a path such as `elsewhere/demo` in its own folder. What exists and is no run,
    such as a model's folder of the study's name, is returned only where no run is meant by that name."""
    path = Path(os.path.expanduser(local_folder(text)))
    if _is_run(path):
        return path
    try:
        return _by_name(path)
    except StoreError:
        if os.path.lexists(path) and not _named_so(path):
            return path  # whoever opens it says what it lacks
        raise


def _is_run(path: Path) -> bool:
    """Whether a folder is a run, or what is left of one."""
    return any(os.path.lexists(path / name) for name in (MANIFEST, STUDY, PARTS_FOLDER))


def _by_name(path: Path) -> Path:
    """The one run whose name begins like this one, in the folder that it names."""
    if str(path) == LATEST:
        return _latest()
    folder, names = _folder(path), _named_so(path)
    exact = [run for run in names if run.name == path.name]
    if len(exact or names) == 1:
        return (exact or names)[0]
    if not names:
        raise StoreError(
            f"no run at {path}, and none in {folder} begins with {path.name!r}; `fillerscope runs` lists them"
        )
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    listed = ", ".join(run.name for run in names[:MOST_LISTED])
    raise StoreError(f"{len(names)} runs in {folder} begin with {path.name!r}: {listed}{more}; give more of the name")


def _folder(path: Path) -> Path:
    return RUNS if len(path.parts) < 2 else path.parent


def _named_so(path: Path) -> list[Path]:
    """The runs whose names begin like this one; none for a path without a name, such as `.`"""
    return [run for run in runs_in(_folder(path)) if path.name and run.name.startswith(path.name)]


def runs_in(folder: Path) -> list[Path]:
    """The run folders in a folder, the newest first. A folder that cannot be read has none."""
    try:
        folders = [path for path in folder.iterdir() if (path / MANIFEST).is_file()]
        return sorted(folders, key=lambda path: (-changed(path), path.name))
    except OSError:
        return []


def changed(run: Path) -> float:
    """When a run was last written to, in seconds since 1970."""
    return (run / MANIFEST).stat().st_mtime


def _latest() -> Path:
    if not (runs := runs_in(RUNS)):
        raise StoreError(f"there is no latest run: {RUNS.resolve()} holds none; `fillerscope run` makes one")
    return runs[0]
