"""A run that may still be measured, opened for reading: what has landed so far is merged in memory, in shard order.

    store = Growing.open(path)
    run = store.run()          # as it is now
    if store.refresh():        # something has landed
        run = store.run()      # another one: a Run never changes its numbers

Writes nothing, waits for nobody, and needs no lock: files appear in a run folder whole, and are listed in its
manifest only then. Does not know whether anybody is still measuring.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

import numpy as np

from fillerscope.analysis.run import Run
from fillerscope.errors import StoreError
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import Part, RunStore, fitted
from fillerscope.store.schema import (
    MANIFEST,
    PROBLEMS,
    Array,
    Manifest,
    answer_attention_name,
    answers_name,
    merged_name,
    repeated_answers_name,
    shard_name,
)
from fillerscope.study.study import Study

MEASURING, ANSWERING, LOOKING_BACK = "measuring", "answering", "looking back"
AGAIN = "answering again"


@dataclass(frozen=True)
class StageProgress:
    """How far one model is in one stage. Only shards that follow each other from the first on are counted: those
    that the numbers are made of."""

    model: str
    stage: str
    shards: int
    shards_total: int | None  # None where nobody has noted how many problems there are
    problems: int  # where that is so, a last shard that is not full counts as full
    problems_total: int | None
    finished: bool


class Growing(RunStore):
    """A store that has the merged files of a model before they are written. `open` gives one."""

    def __init__(self, path: Path, manifest: Manifest, hasty: bool = False) -> None:
        """`hasty`: files are believed by their size; whoever asks for that checks them by `verify` beside."""
        super().__init__(path, manifest)
        self.hasty = hasty
        self.problems: int | None = None  # how many there will be, where that is known
        self._seen: tuple[object, list[str]] | None = None
        self._parts: dict[str, Part] = {}  # by the name of the file that is not written yet
        self._mergings: dict[str, _Merging] = {}
        self._lock = RLock()

    @classmethod
    def open(cls, path: Path, hasty: bool = False) -> Growing:
        store = cls(path, RunStore.open(path).manifest, hasty)
        store.refresh()
        return store

    def run(self) -> Run:
        """The run as it is now, and stays: later refreshes of this store change none of its numbers."""
        with self._lock:
            moment = copy.copy(self)
        moment._mergings, moment._lock = {}, RLock()
        return Run(moment, partial=True)

    def refresh(self) -> bool:
        """Take in what has landed, and say whether anything changed. Shards that were taken in are not read again."""
        with self._lock:
            stamp = _stamp(self.path / MANIFEST)
            if stamp is None or (stamp, self._standing()) == self._seen:
                return False
            try:
                manifest = RunStore.open(self.path).manifest
            except StoreError:
                return False  # in somebody's hands at this moment: the next look will tell
            before = self._seen and self._seen[1], self.manifest
            self._distrust(manifest)
            self.manifest = manifest
            self._seen = stamp, self._standing()
            self._parts = dict(self._merged())
            self.problems = self.problems or self._count_problems()
            return before != (self._seen[1], manifest)

    def has(self, name: str) -> bool:
        return name in self._parts or self._written(name)

    def get(self, name: str, keys: list[str] | None = None) -> Part:
        part = self._parts.get(name)
        if part is None:
            return super().get(name, keys)
        wanted = list(part.arrays) if keys is None else keys
        return Part({key: self._array(name, part, key) for key in wanted}, part.records)

    def cut(self, name: str, keys: list[str], index: tuple[int | slice, ...]) -> list[Array]:
        part = self._parts.get(name)
        if part is None:
            return super().cut(name, keys, index)
        arrays = [self._array(name, part, key) for key in keys]
        return [array[fitted(index, array.shape)] for array in arrays]

    def progress(self) -> list[StageProgress]:
        """Of every model in every stage that the study asks for, in the order in which they are done."""
        study = self._known_study()
        if study is None:
            return []
        asked = {
            MEASURING: study.probes.attention is not None,
            ANSWERING: study.generation is not None,
            LOOKING_BACK: study.probes.answering,
            AGAIN: study.generation is not None and study.generation.noise is not None,
        }
        stages = [stage for stage, wanted in asked.items() if wanted]
        works = [
            work
            for spec in study.models
            for work in (
                *((spec.name, stage) for stage in stages),
                *((twin, MEASURING) for twin in study.twins(spec.name)),
            )
        ]
        return [self._progress(study, model, stage) for model, stage in works]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        found = self.progress()
        return bool(found) and all(stage.finished for stage in found)

    @property
    def last_landed(self) -> float | None:
        """When something was last written, in seconds since 1970: the time of the manifest."""
        try:
            return (self.path / MANIFEST).stat().st_mtime
        except OSError:
            return None

    def note(self, key: str, value: Any) -> NoReturn:  # noqa: ARG002
        raise StoreError(f"{self.path} was opened to watch it; open it with RunStore to write")

    def _keep(self, name: str, pieces: Iterable[bytes | memoryview]) -> NoReturn:  # noqa: ARG002
        self.note(name, None)

    def _progress(self, study: Study, model: str, stage: str) -> StageProgress:
        size, noise = study.batch.shard, study.generation and study.generation.noise
        named: dict[str, Callable[[int], str]] = {
            MEASURING: partial(shard_name, model),
            ANSWERING: partial(answers_name, model),
            LOOKING_BACK: partial(answer_attention_name, model),
            AGAIN: partial(repeated_answers_name, model, dtype=noise.dtype if noise else None),
        }
        whole = {MEASURING: merged_name(model), LOOKING_BACK: answer_attention_name(model)}.get(stage)
        there = len(self._prefix(named[stage]))
        total = None if self.problems is None else -(-self.problems // size)
        finished = self._written(whole) if whole else there == total
        shards = total if finished and total is not None else there
        problems = shards * size if self.problems is None else min(shards * size, self.problems)
        return StageProgress(model, stage, shards, total, problems, self.problems, finished)

    def _merged(self) -> Iterator[tuple[str, Part]]:
        """The merged files that are not written yet, as far as there are shards; of those that are, none is held."""
        study = self._known_study()
        for model in [spec.name for spec in study.models] if study else []:
            for whole, named in (
                (merged_name(model), shard_name),
                (answer_attention_name(model), answer_attention_name),
            ):
                if self._written(whole):
                    self._mergings.pop(whole, None)
                elif part := self._take_in(whole, self._prefix(partial(named, model))):
                    yield whole, part

    def _take_in(self, whole: str, names: list[str]) -> Part | None:
        shards = [(name, self.manifest["files"][name]["sha256"]) for name in names]
        merging = self._mergings.get(whole)
        if merging is None or merging.taken != shards[: len(merging.taken)]:
            merging = _Merging(Merger([], partial(RunStore.get, self)))  # a shard is gone or another: begin again
            self._mergings[whole] = merging
        for shard in shards[len(merging.taken) :]:
            try:
                merging.take(shard, super().get(shard[0]))
            except StoreError:
                break  # gone since it was listed, or damaged: what stands before it counts
        return merging.part()

    def _array(self, name: str, part: Part, key: str) -> Array:
        if key not in part.arrays:
            raise StoreError(f"the shards of {self.path / name} hold no {key}; run the study again")
        array = part.arrays[key]
        return np.asarray(array)[: array.shape[0]]  # behind its rows stand those of shards that were taken in later

    def _prefix(self, named: Callable[[int], str]) -> list[str]:
        """The shards that are there, from the first on without a gap."""
        return list(takewhile(self._written, map(named, count())))

    def _written(self, name: str) -> bool:
        try:
            return super().has(name)
        except OSError:
            return False  # it went away in this moment

    def _trust(self, name: str) -> None:
        if self.hasty and self._written(name):
            return
        try:
            super()._trust(name)
        except OSError as error:
            raise StoreError(f"{self.path / name} went away ({error}); look again") from None

    def _standing(self) -> list[str]:
        """Files may go without the manifest being written."""
        return [name for name in self.manifest["files"] if self._written(name)]

    def _distrust(self, manifest: Manifest) -> None:
        """What was written again is read again before it is believed."""
        old, new = self.manifest["files"], manifest["files"]
        self._trusted.difference_update({name for name in old if old[name] != new.get(name)})

    def _count_problems(self) -> int | None:
        """As noted; else as many as were to be answered, or as a merged file holds."""
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
        """None in the moment between the first manifest and the study."""
        try:
            return Study.model_validate(self.study)
        except (StoreError, ValueError):
            return None


@dataclass
class _Merging:
    """The shards of one merged file that were taken in, by name and checksum."""

    merger: Merger
    taken: list[tuple[str, str]] = field(default_factory=list)
    measured: bool = False  # whether any problem was: a shard in which all failed has no arrays

    def take(self, shard: tuple[str, str], part: Part) -> None:
        self.merger.ahead.append(shard[0])
        self.merger.take(shard[0], part)
        self.taken.append(shard)
        self.measured = self.measured or bool(part.arrays)

    def part(self) -> Part | None:
        """All so far; nothing where no problem could be measured yet."""
        if not self.measured:
            return None
        merged = self.merger.merged()
        return Part(merged.arrays, list(merged.records))  # the merger adds to its own list


def open_growing(path: str | Path) -> Run:
    """Open a run folder that may still be measured, as it is now. Whoever follows it keeps a `Growing` instead."""
    return Growing.open(Path(path)).run()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
