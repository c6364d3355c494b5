"""Links to files that are open: they lead to the same file until it is closed, whatever is at its path meanwhile."""

from __future__ import annotations

import os
import shutil
from io import BufferedReader
from pathlib import Path

from fillerscope.files import OPEN_FILES, real_path


def open_path(file: BufferedReader, path: Path) -> Path:
    """A path of an open file itself; that by which it was opened where the system has none."""
    return OPEN_FILES / str(file.fileno()) if OPEN_FILES.is_dir() else real_path(file, path)


def link_to(source: Path, target: Path) -> None:
    """A symbolic link; a hard one or a copy where the system does not let us make any."""
    target.parent.mkdir(exist_ok=True)
    try:
        os.symlink(source, target)
    except (OSError, NotImplementedError):
        try:
            os.link(source, target)
        except (OSError, NotImplementedError):
            shutil.copyfile(source, target)
