"""Files that a kill left half-written in a run folder. Nothing reads them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fillerscope.files import is_inside, is_temporary
from fillerscope.store.schema import FILES, FOLDERS, JOB


def leftovers_in(run: Path) -> list[Path]:
    """The temporary files of a run's own files. While a process writes the run, they may be its own."""
    return [path for path in run.rglob(".*.tmp") if _is_leftover(run, path)]


def remove_leftovers(run: Path) -> None:
    """Remove them. Only the holder of the run's lock may. Where that fails they are left for the next time."""
    with suppress(OSError):
        for file in leftovers_in(run):
            file.unlink()


def _is_leftover(run: Path, file: Path) -> bool:
    top, *below = file.relative_to(run).parts
    ours = top.startswith(FOLDERS) if below else any(is_temporary(top, name) for name in (*FILES, JOB))
    return ours and is_temporary(file.name) and is_inside(file.parent, run)
