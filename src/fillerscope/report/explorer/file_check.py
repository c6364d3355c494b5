"""Compares the files of a run that is shown with their checksums, beside everything else.

Numbers are shown at once: reading a large run from end to end takes longer than anybody waits.
"""

from __future__ import annotations

from threading import Lock, Thread

from fillerscope.errors import StoreError
from fillerscope.files import Json
from fillerscope.store.live import LiveStore
from fillerscope.store.reading import Stamp, stamp_of

_NOT_YET: Json = {"checked": "", "damaged": False}


class FileCheck:
    """What came of the comparison of the files as they are now. A store that is given does not change."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stamps: dict[str, Stamp | None] = {}  # of the files that are or were compared
        self._record = _NOT_YET

    def begin(self, store: LiveStore) -> None:
        """Begin to compare all files, unless that was done or is being done with the same ones."""
        stamps = {name: stamp_of(store.path / name) for name in store.manifest["files"]}
        with self._lock:
            if stamps == self._stamps:
                return
            self._stamps, self._record = stamps, _NOT_YET
        Thread(target=self._compare, args=(store, stamps), daemon=True).start()

    def renew(self, store: LiveStore, finished: bool) -> None:
        """Compare all files again where one was changed since, or once a run that grew is finished."""
        is_changed = any(stamp_of(store.path / name) != stamp for name, stamp in self._stamps.items())
        if is_changed or (finished and self._stamps and self._stamps.keys() != store.manifest["files"].keys()):
            self.begin(store)

    def record(self, store: LiveStore, finished: bool) -> Json:
        """The result in words, for the page, of the files as they are now."""
        self.renew(store, finished)
        return self._record

    def _compare(self, store: LiveStore, stamps: dict[str, Stamp | None]) -> None:
        try:
            faults = store.verify()
            record = _told(faults, len(stamps))
            if not faults:
                store.vouch_for(stamps)
        except (StoreError, OSError) as error:  # an error of the disk or network, which is no damage
            record = {"checked": f"Not all files could be checked: {error}", "damaged": True}
        with self._lock:
            if stamps is self._stamps:
                self._record = record


def _told(faults: list[str], files: int) -> Json:
    one = "The one file there is as it was written: it has its checksum."
    fine = one if files == 1 else f"All {files} files are as they were written: all have their checksums."
    damage = f"{len(faults)} files are damaged: {'; '.join(faults[:3])}"
    return {"checked": damage if faults else fine, "damaged": bool(faults)}
