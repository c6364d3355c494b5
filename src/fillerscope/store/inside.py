"""Folders of a run to write to, which may not lead out of it: a run comes from anybody."""

from __future__ import annotations

from pathlib import Path

from fillerscope.errors import StoreError
from fillerscope.files import is_inside


def inside(folder: Path, run: Path) -> Path:
    """A folder of a run. A link that leads out of the run is an error."""
    if not is_inside(folder, run):
        raise StoreError(f"{folder} would be written outside the run: a link leads there; remove it")
    return folder
