"""How far a run or its parts are, who writes them, and which have stopped. Reads names and sizes, no numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import StoreError, StudyError, UnreadableError
from fillerscope.files import Json
from fillerscope.store.contents import measured_models, merged_files, stage_files
from fillerscope.store.job_part import JobPart, is_part
from fillerscope.store.job_record import JobRecord
from fillerscope.store.lock import is_being_written
from fillerscope.store.manifest import read_manifest
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import JOB, MANIFEST, PARTS_FOLDER
from fillerscope.study.study import Study

FINISHED, RUNNING, STOPPED, FAILED = "finished", "running", "stopped", "failed"
ABSENT, DAMAGED, UNREADABLE = "not started", "damaged", "unreadable"
MOST_ABSENT = 1000  # parts that are told of one by one: a manifest may say that there are any number


@dataclass(frozen=True)
class PartStatus:
    """A run, or a part of one: how far it is, and who is at it. Times are in seconds since 1970."""

    path: str
    part: str  # empty for a run that is measured by one process, or was merged
    state: str
    problems: int = 0  # done in every stage of every model
    problems_total: int | None = None  # None where it was stopped before they were counted
    stage: str = ""  # what is being done or comes next
    last_written: float | None = None
    host: str = ""
    pid: int | None = None
    alive: bool | None = None  # None where it cannot be told from here
    scheduled: str = ""
    error: str = ""

    def record(self) -> Json:
        return asdict(self)


def status_of(path: Path) -> list[PartStatus]:
    """The status of a run folder: of the run itself where it is there, then of its parts, missing ones among them."""
    found = [_status(path)] if (path / MANIFEST).exists() else []
    parts = [_status(file.parent) for file in (path / PARTS_FOLDER).glob(f"*/{MANIFEST}")]
    if not found and not parts:
        read_manifest(path)  # raises, and says what is missing
    return found + sorted([*parts, *_absent(path, parts)], key=lambda one: _order(one.part))


def _absent(run: Path, parts: Sequence[PartStatus]) -> Iterator[PartStatus]:
    """The parts of the run that are not there, where most of those that are have one number of parts."""
    there = {one.part for one in parts if one.part}
    for count, _ in Counter(JobPart.parse(part).count for part in there).most_common(1):
        absent = [number for number in range(1, count + 1) if f"{number}/{count}" not in there]
        for part in (JobPart(number, count) for number in absent[:MOST_ABSENT]):
            yield PartStatus(str(part.folder(run)), str(part), ABSENT)
        if len(absent) > MOST_ABSENT:
            told = f"{len(absent) - MOST_ABSENT:,} parts more are not there"
            yield PartStatus(str(run), f"{count}/{count}", ABSENT, error=told)


def _order(part: str) -> tuple[int, int]:
    one = JobPart.parse(part) if part else JobPart(1, 1)
    return one.count, one.number


@dataclass(frozen=True)
class _Work:
    """The problems of a run or a part, by shard, and the files of every stage. Looks at the shards of which there are
    files alone: a manifest may say anything of how many there will be."""

    store: RunStore
    study: Study
    problems: int  # of the whole study

    @cached_property
    def shards(self) -> range:
        """Those that belong here."""
        return (self.store.part or JobPart(1, 1)).shards(-(-self.problems // self.study.batch.shard))

    @cached_property
    def begun(self) -> set[int]:
        """The shards of which there is a file."""
        numbers = (re.search(r"/([0-9]{5,12})\.", name) for name in self.store.manifest["files"])
        return {shard for number in numbers if number and (shard := int(number[1])) in self.shards}

    def problems_of(self, shards: Collection[int]) -> int:
        """How many problems some shards have: the last one of the study may have fewer than the others."""
        size = self.study.batch.shard
        last, missing = divmod(self.problems - 1, size)
        return len(shards) * size - (size - 1 - missing if last in shards else 0)

    def stages(self) -> Iterator[tuple[str, set[int]]]:
        """Every stage of every model in the order of the work, with the shards that are done."""
        for model, asked in measured_models(self.study):
            for stage, named in stage_files(asked).items():
                name = partial(named, model)
                yield f"{stage} {model}", {shard for shard in self.begun if self.store.has(name(shard))}

    def is_merged(self) -> bool:
        models = measured_models(self.study)
        return all(self.store.has(name) for model, asked in models for name in merged_files(asked, model))


def _status(path: Path) -> PartStatus:
    """The status of one folder; of one that is damaged, why it cannot be read."""
    try:
        return _status_of(RunStore.open(path))
    except (StoreError, StudyError, ValueError) as error:
        part, state = path.name.replace("-of-", "/"), UNREADABLE if isinstance(error, UnreadableError) else DAMAGED
        return PartStatus(str(path), part if is_part(part) else "", state, error=first_line(error))


def _status_of(store: RunStore) -> PartStatus:
    record = JobRecord.read(store.path)
    alive = is_being_written(store.path) or (record.is_alive() if record and record.ended is None else None)
    status = PartStatus(str(store.path), str(store.part or ""), RUNNING if alive else STOPPED)
    facts = asdict(status) | {"last_written": _last_written(store.path), "alive": alive}
    if record is not None:
        facts |= {"host": record.host, "pid": record.pid, "scheduled": record.scheduled, "error": record.error}
        facts |= {"state": FAILED} if record.error and not alive else {}
    return PartStatus(**facts | _progress(store))


def _progress(store: RunStore) -> Json:
    """How far the work is; nothing where it was stopped before the problems were counted."""
    problems = store.manifest.get("problems")
    if problems is None:
        return {}
    work = _Work(store, Study.stored(store.study), problems)
    stages = dict(work.stages())
    done = set.intersection(*stages.values())
    counts = {"problems": work.problems_of(done), "problems_total": work.problems_of(work.shards)}
    next_one = next(((stage, shards) for stage, shards in stages.items() if len(shards) < len(work.shards)), None)
    if next_one is not None:
        stage, shards = next_one
        return counts | {"stage": f"{stage}: {work.problems_of(shards)} of {counts['problems_total']}"}
    if store.part is None and not work.is_merged():
        return counts | {"stage": "merging"}
    return counts | {"state": FINISHED, "error": ""}


def _last_written(path: Path) -> float | None:
    times = []
    for name in (MANIFEST, JOB):
        with suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(times, default=None)
