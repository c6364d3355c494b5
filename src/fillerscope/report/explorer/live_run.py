"""A run that somebody looks at: refreshed when it has grown, its files checked in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from fillerscope.analysis.run import Run
from fillerscope.errors import FillerscopeError
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
        self._is_stale = False  # whether the run is not that of the store yet
        self._answers: dict[tuple[object, ...], Any] = {}
        self._overview: Record = {}  # the last one that could be made

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def run(self) -> Run:
        return self._now()[0]

    def _now(self) -> tuple[Run, int]:
        """The run, and how often it has grown: both of the same moment."""
        with self._lock:
            self._is_stale |= self._store.refresh()
            if self._is_stale:  # until its run could be made: what it says may be impossible
                self._run, self._version, self._is_stale = self._snapshot(), self._version + 1, False
                self._answers.clear()
                self._files.renew(self._store_of(self._run), self._store.finished)
            return self._run, self._version

    def _snapshot(self) -> Run:
        return Run(self._store.snapshot(), partial=True)

    @staticmethod
    def _store_of(run: Run) -> LiveStore:
        """The store of a run, which later refreshes do not change."""
        assert isinstance(run.store, LiveStore)
        return run.store

    def check(self) -> None:
        """Begin to compare every file with its checksum, where that was not done yet; an error where the run as it is
        now cannot be shown."""
        self.remember(("overview",), overview)
        self._files.begin(self._store_of(self.run))

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
        """What the page must know first, with how far the run is. What is wrong with its files is a part of it; an
        error only where nothing was ever known."""
        fault = ""
        try:
            self._overview = self._made_overview()
        except FillerscopeError as error:
            fault = str(error)
            if not self._overview:
                raise
        finished = bool(self._overview["progress"]["finished"])
        return self._overview | self._checked(fault or self._store.fault, finished)

    def _made_overview(self) -> Record:
        known: Record = self.remember(("overview",), overview)
        stages = [
            {"model": run.model, "stage": run.stage, "done": run.problems, "total": run.problems_total}
            for run in self._store.progress()
        ]
        progress = {"finished": self._store.finished, "stages": stages, "landed": self._store.last_written or 0}
        return known | {"version": str(self._version), "progress": progress}

    def _checked(self, fault: str, finished: bool) -> Record:
        """What came of the check of the files, or else what is wrong with the run as a whole."""
        if not (self.path / MANIFEST).exists():
            return {"checked": "The folder of this run has gone.", "damaged": True}
        checked = self._files.record(self._store_of(self._run), finished)
        return {"checked": fault, "damaged": True} if fault and not checked["damaged"] else checked
