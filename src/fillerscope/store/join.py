"""One run made of the parts that several jobs have measured, with the bytes of a run that one process measured.

Shards depend on the study alone, so it does not matter who measured which, how often, or where. What does not belong
together is refused with the reason. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from fillerscope.display import command
from fillerscope.errors import StoreError
from fillerscope.files import Json
from fillerscope.store.addresses import local_folder
from fillerscope.store.contents import measured_models, merged_files, shard_files
from fillerscope.store.job_part import JobPart
from fillerscope.store.merge import Merger
from fillerscope.store.part_facts import joined_facts
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST, PARTS_FOLDER, PROBLEMS, STUDY
from fillerscope.study.study import Study

MOST_NAMED = 8  # parts or files in an error


def join(out: Path, parts: Sequence[Path], mixed: bool = False) -> RunStore:
    """Make the run `out` of its parts, or finish making it; those in `out/parts` where none are given.

    A path is the folder of a part, or one that holds parts. `mixed` accepts parts whose machines found different pass
    sizes or thresholds: their numbers are alike to rounding, not to the bit."""
    out, parts = local_folder(out), [local_folder(part) for part in parts]
    found = PartSet.of(part_folders(parts or [out]), out)
    files = found.files()
    facts = joined_facts(found.stores, found.study, mixed)
    store = RunStore.create(out, found.first.manifest["identity"], found.first.study)
    _refuse_other_results(store, files)
    with store.writing():
        for key, value in facts.items():
            store.note(key, value)
        changed = store.adopt(files)
        for model, asked in measured_models(found.study):
            for whole, named in merged_files(asked, model).items():
                if changed or not store.is_sound(whole):
                    names = [named(model, shard) for shard in range(found.shards)]
                    store.put(whole, Merger.of(whole, names, store.get, model).merged())
    return store


def _refuse_other_results(store: RunStore, files: Mapping[str, RunStore]) -> None:
    """Raise where the run has sound results of its own that are not those of its parts: answers of a server cannot be
    had again."""
    for name, holder in files.items():
        if store.has(name) and store.manifest["files"][name] != holder.manifest["files"][name] and store.is_sound(name):
            raise StoreError(
                f"{store.path} has a {name} of its own, which differs from that in {holder.path}: nobody can say which "
                "one counts; merge the parts into another folder"
            )


def part_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders of parts that are meant by paths, each once: a part itself, or all that lie in a run or a folder."""
    found: dict[Path, Path] = {}
    for path in paths:
        inside = [one for one in (path / PARTS_FOLDER, path) if parts_in(one)]
        for folder in [path] if _is_part(path) else parts_in(inside[0]) if inside else []:
            found[folder.resolve()] = folder
        if not _is_part(path) and not inside:
            raise StoreError(f"no parts at {path}; `fillerscope run STUDY --shard 1/4` makes the first of four")
    return list(found.values())


def parts_in(folder: Path) -> list[Path]:
    """The parts that lie in a folder; none where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if _is_part(path))
    except OSError:
        return []


def _is_part(path: Path) -> bool:
    """Whether a folder is the part of a run; one that is damaged is an error of its own."""
    return (path / MANIFEST).is_file() and RunStore.open(path).part is not None


@dataclass(frozen=True)
class PartSet:
    """Parts that belong to one run. The same part may be there twice, whole or not."""

    stores: Sequence[RunStore]  # by part, and by folder where a part is there twice
    out: Path

    @classmethod
    def of(cls, folders: Iterable[Path], out: Path) -> PartSet:
        stores = [RunStore.open(folder) for folder in folders]
        found = cls(sorted(stores, key=lambda one: (_part(one), str(one.path))), out)
        found._refuse_strangers()
        return found

    @property
    def first(self) -> RunStore:
        return self.stores[0]

    @property
    def count(self) -> int:
        return _part(self.first).count

    @cached_property
    def study(self) -> Study:
        try:
            return Study.stored(self.first.study)
        except ValueError:
            raise StoreError(f"{self.first.path / STUDY} does not hold a study; run this part again") from None

    @cached_property
    def _by_part(self) -> dict[JobPart, list[RunStore]]:
        return {part: list(stores) for part, stores in groupby(self.stores, _part)}

    @property
    def shards(self) -> int:
        problems = [one.manifest["problems"] for one in self.stores if "problems" in one.manifest]
        if not problems:
            raise StoreError(f"{self.first.path} was stopped before it began; {self._command(_part(self.first))}")
        return -(-problems[0] // self.study.batch.shard)

    def files(self) -> dict[str, RunStore]:
        """Every file that the run has before merging, with a part that holds it whole. Missing ones are an error."""
        files: dict[str, RunStore] = {}
        missing: list[JobPart] = []
        for part in (JobPart(number, self.count) for number in range(1, self.count + 1)):
            held = self._held(part)
            if held is None:
                missing.append(part)
            else:
                files |= held
        if missing:
            raise StoreError(self._told_missing(missing))
        return files | self._problem_table()

    def _held(self, part: JobPart) -> dict[str, RunStore] | None:
        """The files of a part, each with a folder that holds it whole; None where some are missing."""
        shards, stores = part.shards(self.shards), self._by_part.get(part, [])
        if len(shards) > sum(len(one.manifest["files"]) for one in stores):
            return None  # without a look at each: a manifest may say anything of how many there are
        held: dict[str, RunStore] = {}
        for shard in shards:
            for name in (
                one for model, asked in measured_models(self.study) for one in shard_files(asked, model, shard)
            ):
                holder = _holder(stores, name)
                if holder is None:
                    return None
                held[name] = holder
        return held

    def _problem_table(self) -> dict[str, RunStore]:
        if self.study.generation is None:
            return {}
        holders = [one for one in self.stores if one.is_sound(PROBLEMS)]
        if not holders:
            raise StoreError(f"no part has a sound {PROBLEMS}; {self._command(_part(self.first))}")
        other = next((one for one in holders if one.get_table(PROBLEMS) != holders[0].get_table(PROBLEMS)), None)
        if other is not None:
            raise StoreError(
                f"{holders[0].path} and {other.path} have different fields in {PROBLEMS}: run one of them again"
            )
        return {PROBLEMS: holders[0]}

    def _refuse_strangers(self) -> None:
        """Raise where a part is of another run, or of another number of parts."""
        for one in self.stores[1:]:
            if one.manifest["identity"] != self.first.manifest["identity"]:
                differs = _difference(self.first.manifest["identity"], one.manifest["identity"])
                raise StoreError(f"{one.path} is a part of another run than {self.first.path}: {differs}")
            if _part(one).count != self.count:
                raise StoreError(
                    f"{one.path} is part {_part(one)} and {self.first.path} part {_part(self.first)}: parts of one run "
                    "are of one number; give those of one number alone"
                )

    def _told_missing(self, missing: Sequence[JobPart]) -> str:
        there = {_part(one) for one in self.stores}
        told = [f"{part} ({'not finished' if part in there else 'not there'})" for part in missing]
        more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
        return (
            f"{len(told)} of {self.count} parts are missing: {', '.join(told[:MOST_NAMED])}{more}; "
            f"{self._command(missing[0])}"
        )

    def _command(self, part: JobPart) -> str:
        """What makes a part, from the study that lies in another one."""
        run = self.first.path.parent.parent if self.first.path.parent.name == PARTS_FOLDER else self.out
        return f"make it with: {command('run', self.first.path / STUDY, '--shard', part, '--out', run)}"


def _holder(stores: Iterable[RunStore], name: str) -> RunStore | None:
    """The first part that holds a file whole. Two that differ are an error: nobody can say which one counts."""
    holders = [one for one in stores if one.is_sound(name)]
    sums = {one.manifest["files"][name]["sha256"]: one for one in reversed(holders)}
    if len(sums) > 1:
        one, other = list(sums.values())[:2]
        raise StoreError(f"{one.path} and {other.path} hold different numbers in {name}: give one of them")
    return holders[0] if holders else None


def _part(store: RunStore) -> JobPart:
    part = store.part
    assert part is not None
    return part


def _difference(one: Json, other: Json) -> str:
    """What differs between two identities, in words: models and libraries by name."""
    keys = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
    return "; ".join(_differs(key, one.get(key), other.get(key)) for key in keys)


def _differs(key: str, one: object, other: object) -> str:
    if key == "models" and isinstance(one, list) and isinstance(other, list):
        pairs = [
            (a, b) for a, b in zip(one, other, strict=False) if a != b and isinstance(a, dict) and isinstance(b, dict)
        ]
        named = [f"{a.get('name')} ({_keys(a, b)})" for a, b in pairs]
        return f"models differ: {', '.join(named) or 'another number of them'}"
    if isinstance(one, dict) and isinstance(other, dict):
        inside = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
        if key == "libraries":
            return "libraries differ: " + ", ".join(f"{name} {other.get(name)}, not {one.get(name)}" for name in inside)
        return f"the {key} differs in {', '.join(inside)}"
    return f"{key} differs: {other}, not {one}"


def _keys(one: Json, other: Json) -> str:
    return ", ".join(key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key))
