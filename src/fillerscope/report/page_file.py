"""Pages as files: where one may be written, and writing it whole."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from fillerscope.errors import FigureError
from fillerscope.files import disk_errors, replacing

PAGES = (".html", ".htm")
REMEDY = "choose another file"


def page_target(path: Path) -> Path:
    """The file to write, or an error before anything is drawn: never a run's own file, a device or a folder."""
    with _disk(path):
        target = path.parent.resolve() / path.name  # a link is replaced: a run from elsewhere may hold one
        if not path.name or target.is_dir():
            raise _unwritable(path, "it is a folder")
        if target.exists() and (target.suffix.lower() not in PAGES or not target.is_file()):
            raise _unwritable(path, "it is there already, and no HTML file")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target if target.exists() else target.parent, os.W_OK):
            raise _unwritable(path, "Permission denied")
    return target


def write_page(page: str, path: Path, target: Path) -> Path:
    """Write a page: whole, or what was there before stays."""
    with _disk(path), replacing(target, sync=False) as file:
        file.write(page.encode())
    return path


def _unwritable(path: Path, reason: str) -> FigureError:
    return FigureError(f"cannot write {path}: {reason}; {REMEDY}")


def _disk(path: Path) -> AbstractContextManager[None]:
    return disk_errors(FigureError, str(path), REMEDY)
