"""A run folder read while it is still being written: the shards written so far are merged in memory, in shard order.

    store = LiveStore.open(path)
    now = store.snapshot()         # a store that never changes its numbers
    if store.refresh():            # more files have been written
        now = store.snapshot()     # another one

Writes nothing and needs no lock: a file appears in a run folder whole, and is listed in the manifest only then. Does
not know whether another process is still measuring.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from threading import RLock
from typing import NoReturn, Self

import numpy as np

from fillerscope.errors import StoreError
from fillerscope.store.addresses import remote_of
from fillerscope.store.array_file import Part, fitted
from fillerscope.store.contents import MEASURING, MEASURING_ANSWERS, measured_models, merged_files, stage_files
from fillerscope.store.layouts import Layouts
from fillerscope.store.merge import Merger
from fillerscope.store.reading import Stamp, stamp_of
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST, PROBLEMS, Array, Manifest, answer_attention_name, merged_name
from fillerscope.study.study import Study


@dataclass(frozen=True)
class StageProgress:
    """How far one model is in one stage. Counts shards from the first to the first missing one, as the numbers do."""

    model: str
    stage: str
    shards: int
    shards_total: int | None  # None where the number of problems is not known yet
    problems: int  # in that case a last shard that is not full counts as full
    problems_total: int | None
    finished: bool


class LiveStore(RunStore):
    """A store that offers the merged files of a model before they are written. `open` makes one."""

    def __init__(self, path: Path, manifest: Manifest, checksums: bool = True) -> None:
        """`checksums=False` checks only the sizes of files before they are read, until `vouch_for` is called after a
        `verify` in the background."""
        super().__init__(path, manifest, remote_of(path))
        self.checksums = checksums or self.remote is not None  # a copy may have files of before
        self.problems: int | None = None  # how many there will be, where that is known
        self._seen: tuple[object, dict[str, Stamp | None]] | None = None  # the manifest and the files, as they were
        self.fault = ""  # what is wrong with the manifest as it is now; the numbers are then those of before
        self._refused: Stamp | None = None  # the manifest that could not be read last
        self._parts: dict[str, Part] = {}  # by the name of the file that is not written yet
        self._merges: dict[str, _PartialMerge] = {}
        self._lock = RLock()

    @classmethod
    def open(cls, path: Path, checksums: bool = True) -> LiveStore:
        store = cls(path, RunStore.open(path).manifest, checksums)
        store.refresh()
        return store

    @classmethod
    def glance(cls, path: Path) -> Self:
        """A store that can say how far a run is, at once: nothing is merged, so it holds no numbers of its own."""
        store = cls(path, RunStore.open(path).manifest, checksums=False)
        store.problems = store._count_problems()
        return store

    def snapshot(self) -> Self:
        """The store as it is now: later refreshes of this one do not change its numbers."""
        with self._lock:
            snapshot = copy.copy(self)
        snapshot._merges, snapshot._lock = {}, RLock()
        return snapshot

    def refresh(self) -> bool:
        """Merge the shards written since the last call, and return whether anything changed. A manifest that can twice
        not be read is told in `fault`."""
        with self._lock:
            if self.remote is not None:
                self.remote.pull()
            stamp = stamp_of(self.path / MANIFEST)
            if stamp is None or (stamp, self._existing()) == self._seen:
                self.fault = ""
                return False
            try:
                manifest = RunStore.open(self.path).manifest
            except StoreError as error:  # it may be being replaced at this moment: then the next one is another
                self.fault = str(error) if self._refused == stamp else ""
                self._refused = stamp
                return False
            self.fault, self._refused = "", None
            before = self._seen and self._seen[1], self.manifest
            self._forget_checked(manifest)
            self.manifest = manifest
            self._seen = stamp, self._existing()
            self._parts = dict(self._unwritten_merges())
            self.problems = self._count_problems() or self.problems  # another run may be in its place
            return before != (self._seen[1], manifest)

    def vouch_for(self, stamps: Mapping[str, Stamp | None]) -> None:
        """Note that files had their checksums as they were at these stamps: from now on they are compared again before
        they are read where they are others, whether `checksums` or not. All snapshots share this."""
        self._checked.update(stamps)

    def has(self, name: str) -> bool:
        return name in self._parts or self._written(name)

    def get(self, name: str, keys: list[str] | None = None) -> Part:
        part = self._parts.get(name)
        if part is None:
            return super().get(name, keys)
        wanted = list(part.arrays) if keys is None else keys
        return Part({key: self._array(name, part, key) for key in wanted}, [] if keys else part.records)

    def layouts(self, name: str, problems: int) -> Layouts:
        part = self._parts.get(name)
        return super().layouts(name, problems) if part is None else part.layouts

    def cut(self, name: str, keys: list[str], index: tuple[int | slice, ...]) -> list[Array]:
        part = self._parts.get(name)
        if part is None:
            return super().cut(name, keys, index)
        arrays = [self._array(name, part, key) for key in keys]
        return [array[fitted(index, array.shape)] for array in arrays]

    def progress(self) -> list[StageProgress]:
        """How far every model is in every stage that the study asks for, in the order of the work."""
        study = self._known_study()
        if study is None:
            return []
        tasks = [
            (model, stage, partial(named, model))
            for model, asked in measured_models(study)
            for stage, named in stage_files(asked).items()
        ]
        return [self._progress(study, *task) for task in tasks]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        stages = self.progress()
        return bool(stages) and all(stage.finished for stage in stages)

    @property
    def last_written(self) -> float | None:
        """When a file was last written, in seconds since 1970: the time of the manifest."""
        try:
            return (self.path / MANIFEST).stat().st_mtime
        except OSError:
            return None

    def note(self, key: str, value: object) -> NoReturn:  # noqa: ARG002
        raise StoreError(f"{self.path} was opened for reading; open it with RunStore to write")

    def _write(self, name: str, pieces: Iterable[bytes | memoryview]) -> NoReturn:  # noqa: ARG002
        self.note(name, None)

    def _progress(self, study: Study, model: str, stage: str, named: Callable[[int], str]) -> StageProgress:
        size = study.batch.shard
        whole = {MEASURING: merged_name(model), MEASURING_ANSWERS: answer_attention_name(model)}.get(stage)
        written = len(self._first_shards(named))
        total = None if self.problems is None else -(-self.problems // size)
        finished = self._written(whole) if whole else written == total
        shards = total if finished and total is not None else written
        problems = shards * size if self.problems is None else min(shards * size, self.problems)
        return StageProgress(model, stage, shards, total, problems, self.problems, finished)

    def _unwritten_merges(self) -> Iterator[tuple[str, Part]]:
        """The merged files that are not written yet, made of the shards that are."""
        study = self._known_study()
        if study is None:
            return
        for model in [spec.name for spec in study.models]:
            for whole, named in merged_files(study, model).items():
                if self._written(whole):
                    self._merges.pop(whole, None)  # read from disk from now on
                elif part := self._merge(whole, self._first_shards(partial(named, model))):
                    yield whole, part

    def _merge(self, whole: str, names: list[str]) -> Part | None:
        """The merged shards of one file. Shards that an earlier call has merged are not read again."""
        stamps = self._existing()
        shards = [(name, (self.manifest["files"][name]["sha256"], stamps.get(name))) for name in names]
        merge = self._merges.get(whole)
        if merge is None or merge.shards != shards[: len(merge.shards)]:
            merge = _PartialMerge(Merger([], partial(RunStore.get, self)))  # a shard has gone or changed: start afresh
            self._merges[whole] = merge
        for shard in shards[len(merge.shards) :]:
            try:
                merge.append(shard, super().get(shard[0]))
            except StoreError:
                break  # removed since it was listed, or damaged: the shards before it count
        return merge.part()

    def _array(self, name: str, part: Part, key: str) -> Array:
        if key not in part.arrays:
            raise StoreError(f"the shards of {self.path / name} hold no {key}; run the study again")
        array = part.arrays[key]
        return np.asarray(array)[: array.shape[0]]  # rows of shards that were merged later come after these

    def _first_shards(self, named: Callable[[int], str]) -> list[str]:
        """The shards from the first to the first missing one."""
        return list(takewhile(self._written, map(named, count())))

    def _written(self, name: str) -> bool:
        try:
            return super().has(name)
        except OSError:
            return False  # removed at this moment

    def _check(self, name: str) -> None:
        if not self.checksums and name not in self._checked and self._written(name):
            return
        try:
            super()._check(name)
        except OSError as error:
            raise StoreError(f"{self.path / name} was removed ({error}); open the run again") from None

    def _existing(self) -> dict[str, Stamp | None]:
        """The listed files that exist: one may be removed or changed without the manifest being written. A copy of an
        object store has files that were fetched since, and checks each before it is read."""
        listed = self.manifest["files"]
        if self.remote is not None:
            return {name: None for name in listed if self._written(name)}
        stamps = {name: stamp_of(self.path / name) for name in listed}
        return {name: stamp for name, stamp in stamps.items() if stamp and stamp[1] == listed[name]["bytes"]}

    def _forget_checked(self, manifest: Manifest) -> None:
        """Check the checksums of files that were written again before they are read."""
        old, new = self.manifest["files"], manifest["files"]
        for name in [name for name in old if old[name] != new.get(name)]:
            self._checked.pop(name, None)

    def _count_problems(self) -> int | None:
        """How many problems the run has: as noted, else as in the table of problems or in a merged file."""
        noted = self.manifest.get("problems")
        if isinstance(noted, int):
            return noted
        try:
            if self._written(PROBLEMS):
                return len(self.get_table(PROBLEMS)["id"])
            study = self._known_study()
            wholes = [merged_name(spec.name) for spec in study.models] if study else []
            merged = next((name for name in wholes if self._written(name)), None)
            return len(super().get(merged, []).records) if merged else None
        except (StoreError, KeyError):
            return None

    def _known_study(self) -> Study | None:
        """The study; None between the writing of the first manifest and that of the study."""
        try:
            return Study.stored(self.study)
        except (StoreError, ValueError):
            return None


@dataclass
class _PartialMerge:
    """The merger of one file's shards so far."""

    merger: Merger
    shards: list[tuple[str, object]] = field(default_factory=list)  # name, checksum and stamp of each that was merged
    measured: bool = False  # whether any problem was: a shard in which all failed has no arrays

    def append(self, shard: tuple[str, object], part: Part) -> None:
        self.merger.append(shard[0], part)
        self.shards.append(shard)
        self.measured = self.measured or bool(part.arrays)

    def part(self) -> Part | None:
        """All shards so far merged; None where no problem could be measured yet."""
        if not self.measured:
            return None
        merged = self.merger.merged()
        return Part(merged.arrays, list(merged.records), merged.joined)  # the merger adds to its own list
