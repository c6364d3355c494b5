"""The run that the library gives: one that a notebook shows as a page."""

from __future__ import annotations

from pathlib import Path

from fillerscope.analysis import run
from fillerscope.store.run_folder import RunStore


class Run(run.Run):
    """A finished run, opened for reading. `open_run` and `fillerscope.run` give one."""

    # Here and not in the class above, because the page is made of tables that are made of runs.
    def _repr_html_(self) -> str:
        from fillerscope.analysis.notebook import page  # when it is asked for: opening a run stays quick

        return page(self)


def open_run(path: str | Path) -> Run:
    """Open a run folder."""
    return Run(RunStore.open(Path(path)))
