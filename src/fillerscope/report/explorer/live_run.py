"""A run that somebody looks at: refreshed when it has grown, its files checked in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from fillerscope.analysis.run import Run
from fillerscope.files import Json
from fillerscope.report.explorer.file_check import FileCheck
from fillerscope.report.payload import overview
from fillerscope.store.live import LiveStore
from fillerscope.store.schema import MANIFEST

KEPT = 64  # answers that took some work
MISSING = object()
Record = Json


class Watched:
    """One run folder. `run` is always as it is on disk at this moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = LiveStore.open(path, checksums=False)
        self._run, self._version = self._snapshot(), 0
        assert self._run.study  # a run without one is refused before anything is served
        self._lock, self._files = Lock(), FileCheck()
        self._answers: dict[tuple[object, ...], Any] = {}

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def run(self) -> Run:
        return self._now()[0]

    def _now(self) -> tuple[Run, int]:
        """The run, and how often it has grown: both of the same moment."""
        with self._lock:
            if self._store.refresh():
                self._run, self._version = self._snapshot(), self._version + 1
                self._answers.clear()
            return self._run, self._version

    def _snapshot(self) -> Run:
        return Run(self._store.snapshot(), partial=True)

    def _own_store(self) -> LiveStore:
        """The store of the run as it is now, which later refreshes do not change."""
        store = self.run.store
        assert isinstance(store, LiveStore)
        return store

    def check(self) -> None:
        """Begin to compare every file with its checksum, where that was not done yet."""
        self._files.begin(self._own_store())

    def remember(self, key: tuple[object, ...], make: Callable[[Run], Any]) -> Any:
        """What takes some work is done once, until the run has grown."""
        run, version = self._now()
        own = (version, *key)
        found = self._answers.get(own, MISSING)  # asked once: another thread may clear them at any moment
        if found is not MISSING:
            return found
        found = self._answers[own] = make(run)
        for old in list(self._answers)[:-KEPT]:
            self._answers.pop(old, None)
        return found

    def overview(self) -> Record:
        """What the page must know first, with how far the run is."""
        known: Record = self.remember(("overview",), overview)
        stages = [
            {"model": run.model, "stage": run.stage, "done": run.problems, "total": run.problems_total}
            for run in self._store.progress()
        ]
        finished = self._store.finished
        progress = {"finished": finished, "stages": stages, "landed": self._store.last_written or 0}
        checked = self._files.record(self._own_store(), finished)
        if not (self.path / MANIFEST).exists():
            checked = {"checked": "The folder of this run has gone.", "damaged": True}
        return known | {"version": str(self._version), "progress": progress} | checked
