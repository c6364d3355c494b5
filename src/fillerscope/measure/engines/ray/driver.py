"""The driver of a run on Ray: hands shards to workers, and writes what they make in the order of the local engine.

It alone writes to the run folder. A worker that dies or fails is replaced, and its shard run again; a shard that has
failed three times is stored as failed, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from fillerscope.errors import ModelError, StudyError
from fillerscope.files import Json
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.engines.ray.cluster import RayOptions, cluster
from fillerscope.measure.engines.ray.pool import Pool
from fillerscope.measure.engines.ray.queue import Group, Queue, Unit
from fillerscope.measure.engines.ray.worker import Call, Job, ModelTask, Outcome, Worker, versions
from fillerscope.measure.failed_shard import failed_shard
from fillerscope.measure.plan import StageWork, stage_works
from fillerscope.measure.prepare import Shard
from fillerscope.models.loading import choose_device
from fillerscope.models.resolve import ModelFolder
from fillerscope.store.array_file import Part
from fillerscope.store.contents import ANSWERING, MEASURING, MEASURING_ANSWERS, merged_files, stage_files
from fillerscope.store.failures import best_part, best_table, put_best
from fillerscope.store.merge import Merger
from fillerscope.store.schema import ModelFacts, answers_name
from fillerscope.study.study import ALL_GPUS


@dataclass
class StageGroup(Group[Outcome]):
    """A stage of a model, with what says and stores how far it is."""

    work: ModelWork = field(kw_only=True)
    stage: StageWork = field(kw_only=True)
    done: int = 0  # problems

    @property
    def named(self) -> Callable[[str, int], str]:
        return stage_files(self.work.study)[self.stage.stage]

    def file(self, shard: int) -> str:
        return self.named(self.work.spec.name, shard)


Doing = tuple[StageGroup, Unit]


def measure_on_ray(
    works: Sequence[ModelWork], shards: Sequence[Shard], options: RayOptions, accept_licence: bool,
    on_measured: Callable[[], None],
) -> None:  # fmt: skip
    """Compute the missing shards of all models of a study on a Ray cluster, and merge them.

    `on_measured` is called when the prompts of a model have been measured, if that was still to be done."""
    import torch

    job = Job(_tasks(works), shards, versions(works[0].study), torch.get_num_threads(), accept_licence)
    driver = Driver(works, job, on_measured)
    driver.write()
    if missing := sum(len(group.missing) for group in driver.groups):
        works[0].progress.stage("starting Ray", 0, None)
        device = choose_device(works[0].study.device)
        with cluster(options, device, job.threads, missing) as needs, Pool[Doing](needs, job, Worker) as pool:
            driver.run(pool)


def _tasks(works: Sequence[ModelWork]) -> list[ModelTask]:
    """The models as workers are told of them: on the device that Ray gives them, found by their own names."""
    tasks = []
    for work in works:
        if not isinstance(work.folder, ModelFolder):
            raise StudyError("a model in memory cannot be sent to Ray's workers: save it, and name its folder")
        device = choose_device(work.study.device)
        device = device if device == ALL_GPUS else device.partition(":")[0]
        study = work.study.model_copy(update={"device": device})
        trained = {twin: spec.name for spec in study.models for twin in study.twins(spec.name)}
        folder = replace(work.folder, path=work.folder.path.absolute())  # workers are started in another folder
        tasks.append(ModelTask(study, work.spec, folder, trained.get(work.spec.name, work.spec.name)))
    return tasks


class Driver:
    """One run: its queue, its workers, and the run folder."""

    def __init__(self, works: Sequence[ModelWork], job: Job, on_measured: Callable[[], None]) -> None:
        self.job, self.on_measured = job, on_measured
        self.store, self.progress = works[0].store, works[0].progress
        self.groups = [self._group(number, work, stage) for number, work in enumerate(works) for stage in _stages(work)]
        self.queue = Queue(self.groups)
        self.said: set[str] = set()

    def _group(self, number: int, work: ModelWork, stage: StageWork) -> StageGroup:
        named = stage_files(work.study)[stage.stage]
        missing = [shard.index for shard, _ in work.missing(self.job.shards, named)]
        if stage.stage != MEASURING_ANSWERS:
            return StageGroup(number, missing, work=work, stage=stage)
        unanswered = {shard.index for shard, _ in work.missing(self.job.shards, answers_name)}
        missing = sorted({*missing, *unanswered})  # which will have other answers
        return StageGroup(number, missing, lambda shard: self._is_answered(number, shard), work=work, stage=stage)

    def _is_answered(self, model: int, shard: int) -> bool:
        """Whether the answers of a shard are written. Those that are damaged will be, however large their file is."""
        answering = (group for group in self.groups if (group.model, group.stage.stage) == (model, ANSWERING))
        return all(shard not in group.unwritten for group in answering)

    def run(self, pool: Pool[Doing]) -> None:
        while not all(group.is_closed for group in self.groups):
            for doing, outcome in pool.answers():
                self._receive(*doing, outcome)
            for slot in pool.idle:
                if taken := self.queue.take(slot.loaded, len(pool.slots)):
                    doing = cast(Doing, taken)
                    slot.ask(self._call(*doing), doing)
            self.write()
            if pool.finds_no_room:
                needs = pool.needs
                gpus = f" and {needs.gpus:g} GPUs" if needs.gpus else ""
                self._say(f"waiting for room in the Ray cluster: a worker needs {needs.cpus:g} CPUs{gpus}")

    def _receive(self, group: StageGroup, unit: Unit, outcome: Outcome) -> None:
        for line in outcome.said:
            self._say(line)
        if outcome.failure:
            self._fail(group, unit, outcome.failure)
        else:
            self._accept(group, unit, outcome)

    def _accept(self, group: StageGroup, unit: Unit, outcome: Outcome) -> None:
        facts = cast(ModelFacts, {key: value for key, value in outcome.facts.items() if key != "recheck"})
        group.work.note(**_with_worst(facts, group.work.facts()))
        if unit.shard is None:
            group.is_prepared = True
        else:
            group.arrived[unit.shard] = outcome
            group.done += len(self.job.shards[unit.shard].problems)
        self._report(group)

    def _report(self, group: StageGroup) -> None:
        total = sum(len(self.job.shards[shard].problems) for shard in group.missing)
        self.progress.stage(group.stage.text, group.done * group.stage.each, total * group.stage.each)

    def _fail(self, group: StageGroup, unit: Unit, failure: str) -> None:
        unit.failures.append(failure)
        what = group.stage.text if unit.shard is None else f"{group.stage.text}, shard {unit.shard + 1}"
        if not unit.has_failed:
            self._say(f"{what}: runs again, as {failure}")
            group.put_back(unit)
        elif unit.shard is None:
            raise ModelError(f"{what}: failed on {len(unit.failures)} workers, the last time because {failure}")
        else:
            self._say(f"{what}: stored as failed, after {len(unit.failures)} times; {failure}")
            group.arrived[unit.shard] = Outcome(failure=failure)
            group.done += len(self.job.shards[unit.shard].problems)

    def _call(self, group: StageGroup, unit: Unit) -> Call:
        facts: Mapping[str, ModelFacts] = self.store.manifest.get("models", {})
        if unit.shard is None:
            self.progress.stage(f"loading {group.work.folder.label}", 0, None)
            return Call(group.model, group.stage.stage, facts)
        needs = {}
        if group.stage.stage == MEASURING_ANSWERS:
            name = answers_name(group.work.spec.name, unit.shard)
            needs[name] = self.store.get_bytes(name)
        return Call(group.model, group.stage.stage, facts, unit.shard, group.file(unit.shard), needs)

    def write(self) -> None:
        """Write what has come, in the order of shards, and merge stages that are complete."""
        for group in self.groups:
            if group.is_closed:
                continue
            for shard, outcome in group.in_order():
                self._write_shard(group, shard, outcome)
            if not group.unwritten:
                self._close(group)

    def _write_shard(self, group: StageGroup, shard: int, outcome: Outcome) -> None:
        if outcome.failure:
            failed = failed_shard(group.stage.stage, group.work.study, self.job.shards[shard], outcome.failure)
            name = group.file(shard)
            if isinstance(failed, Part):
                self.store.put(name, best_part(self.store, name, failed))
            else:
                self.store.put_table(name, best_table(self.store, name, failed))
            return
        for name, data in outcome.files.items():
            put_best(self.store, name, data)
        if "recheck" in outcome.facts and "recheck" not in group.work.facts():
            group.work.note(recheck=outcome.facts["recheck"])  # that of the first shard which has one

    def _close(self, group: StageGroup) -> None:
        group.is_closed = True
        work = group.work
        for whole, named in merged_files(work.study, work.spec.name).items():
            if named is group.named:
                names = [named(work.spec.name, shard.index) for shard in self.job.shards]
                self.store.put(whole, Merger.of(whole, names, self.store.get, work.spec.name).merged())
        if group.stage.stage == MEASURING and group.missing and work.folder.untrained is None:
            self.on_measured()

    def _say(self, line: str) -> None:
        """Say something once, whichever workers say it."""
        if line not in self.said:
            self.said.add(line)
            self.progress.say(line)


def _stages(work: ModelWork) -> list[StageWork]:
    return list(stage_works(work.study, work.folder.label))


def _with_worst(facts: ModelFacts, known: ModelFacts) -> ModelFacts:
    """Facts of a worker, with the worst self-check of all workers: each makes its own."""
    checks: list[Json] = [one["selfcheck"] for one in (known, facts) if "selfcheck" in one]
    if checks:
        worst = max(checks, key=lambda check: check["difference"] / check["tolerance"])
        return facts | {"selfcheck": worst}
    return facts
