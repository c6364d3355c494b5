"""Runs a study: finds its models, names the run folder, and has every model measured.

Computes nothing itself: `engines` measure and answer, `store` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.answers.endpoint.allowed import read_key
from fillerscope.errors import ProblemError, StoreError, StudyError
from fillerscope.files import Json, digest_of
from fillerscope.measure.engines.ray.cluster import RayOptions, require_ray
from fillerscope.measure.environment import environment
from fillerscope.measure.identity import identify
from fillerscope.measure.plan import stages
from fillerscope.measure.planning.noted_plan import noted_plan
from fillerscope.measure.prepare import StudyShards, shards_of
from fillerscope.measure.reuse import has_more_conditions, holds
from fillerscope.measure.shared_model import create_store, refuse_unshared
from fillerscope.measure.tasks import Task, tasks_of
from fillerscope.models.resolve import resolve
from fillerscope.problems.problem import repeated_problems
from fillerscope.problems.sources import Problem, read_problems, skipped_rows
from fillerscope.progress import SILENT, PlannedStage, Progress, announce
from fillerscope.store.addresses import local_folder, remote_of
from fillerscope.store.contents import merged_files, shard_files
from fillerscope.store.failures import files_with_failures
from fillerscope.store.inside import inside
from fillerscope.store.job_part import JobPart
from fillerscope.store.job_record import recording
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST, PROBLEMS, Columns, merged_name, slug
from fillerscope.study.generation import VLLM
from fillerscope.study.study import ModelSpec, Study

if TYPE_CHECKING:
    from fillerscope.measure.engines.model_work import ModelWork
    from fillerscope.models.in_memory import ModelInMemory, ModelSource

RUNS = Path("runs")  # where runs go that are given no folder


@dataclass(frozen=True)
class RunChoices:
    """How a study is run, where not as usual."""

    accept_licence: bool = False  # of models that ask for it
    on_measured: Callable[[RunStore], None] = lambda _: None  # called when the prompts of a model have been measured
    in_memory: ModelInMemory | None = None  # the one model of the study, where it is not to be found by its name
    reuse: bool = False  # a finished run that holds all of it is returned as it is, whatever its study is called
    part: JobPart | None = None  # what this job measures, where several share the work; its folder is one of its own
    retry_failed: bool = False  # shards in which something failed are measured and answered again
    ray: RayOptions | None = None  # where shards are measured by Ray's workers, not by this process


USUAL = RunChoices()


def run_study(
    study: Study, out: Path | None = None, progress: Progress = SILENT, choices: RunChoices = USUAL
) -> RunStore:
    """Measure and answer what is missing from the run of a study, and return its folder."""
    if not study.models:
        raise StudyError(f"study {study.name!r} names no model: give it `models`")
    out = local_folder(out) if out else None
    data = read_problems(study.problems, progress, graded=study.generation is not None)
    problems = data.problems
    if data.recognised is not None and data.recognised.form != "whole":
        progress.say(f"{study.problems.source}: the reference answer is {data.recognised.answers}")
    if data.recognised is not None and data.recognised.not_asked:
        progress.say(f"{study.problems.source}: {data.recognised.not_asked}")
    if data.skipped:
        progress.say(skipped_rows(data.rows, len(data.skipped), str(data.skipped[0])))
    if data.repeated:
        progress.say(repeated_problems(data.repeated, len(problems)))
    if study.generation is not None:
        _refuse_unanswered(problems, study.problems.source)
    folders: dict[str, ModelSource] = {
        spec.name: choices.in_memory or resolve(spec.name, progress, choices.accept_licence) for spec in study.models
    }
    _refuse_engine(study, choices)
    identity = identify(study, problems, folders)
    shards = StudyShards(shards_of(problems, study.batch.shard), choices.part)
    tasks = [task for spec in study.models for task in tasks_of(study, spec, folders[spec.name])]
    _refuse_shared_files([task.spec.name for task in tasks])
    grouped = problems if study.generation is not None else None
    if choices.reuse and (before := _measured_before(_runs(out), identity, tasks, shards, grouped)):
        progress.say(f"using {before.path}, measured before{_elsewhere(before, study)}{_rounded(before, identity)}")
        return before
    run = out or RUNS / f"{study.name}-{digest_of(identity)[:10]}"
    path = _part_folder(run, choices.part) if choices.part else run
    refuse_unshared(study, choices.ray is not None)
    store = create_store(path, identity, study.model_dump(mode="json"), choices.part)
    if choices.retry_failed:
        _repeat_failures(store, study, shards, progress)
    todo = [task for task in tasks if not is_complete(store, task.study, task.spec, shards)]
    if choices.part and not shards.own:
        progress.say(_nothing_to_do(choices.part, shards, len(problems)))
    is_outdated = study.generation is not None and not _has_problems(store, problems)
    is_outdated = is_outdated or "problems" not in store.manifest
    if not todo and not is_outdated:
        store.tidy()
        progress.say(f"{path} is complete already: nothing to measure")
        return store
    _refuse_servers(study, todo)
    if choices.ray is not None:
        require_ray()
    from fillerscope.measure.engines.model_work import ModelWork  # needs torch, which a complete run does not

    with store.writing(), recording(store.path) if choices.part else nullcontext():
        store.note("environment", environment(study.device))
        store.note("problems", len(problems))  # how many there will be, for progress
        if data.recognised is not None:
            store.note("data", data.record())
        if study.generation is not None and is_outdated:
            store.put_table(PROBLEMS, problem_table(problems))
        announce(progress, _plan(study, tasks, shards, store))
        works = [ModelWork(task.study, task.spec, task.folder, store, progress) for task in todo]
        _measure(works, shards, choices, partial(choices.on_measured, store))
    return store


def _measure(
    works: Sequence[ModelWork], shards: StudyShards, choices: RunChoices, on_measured: Callable[[], None]
) -> None:
    """Measure models by this process, or by the workers of a Ray cluster."""
    if choices.ray is not None and works:
        from fillerscope.measure.engines.ray.driver import measure_on_ray

        measure_on_ray(works, shards.all, choices.ray, choices.accept_licence, on_measured)
        return
    from fillerscope.measure.engines.local import measure_model

    for work in works:
        measure_model(work, shards, on_measured if work.folder.untrained is None else None)


def _repeat_failures(store: RunStore, study: Study, shards: StudyShards, progress: Progress) -> None:
    progress.stage("looking for failures", 0, None)
    if found := files_with_failures(store, study, [shard.index for shard in shards.own]):
        progress.say(f"{len(found)} files with failures: their shards are measured again")
        store.repeat(found)
    else:
        progress.say("nothing failed")


def _part_folder(run: Path, part: JobPart) -> Path:
    """The folder of a part. Parts of another number beside it are refused: a job may have been told a wrong one."""
    folder = inside(part.folder(run), run)
    begun = [path for path in folder.parent.glob("*-of-*") if remote_of(path) is None or (path / MANIFEST).exists()]
    others = {path.name.partition("-of-")[2] for path in begun} - {str(part.count)}
    if others:
        other = min(others)
        raise StoreError(
            f"{folder.parent} holds parts of {other}, and {part} is one of {part.count}; give --shard as one of "
            f"{other}, or choose another folder with --out"
        )
    return folder


def _nothing_to_do(part: JobPart, shards: StudyShards, problems: int) -> str:
    size = max(1, problems // part.count)
    return (
        f"part {part} has nothing to do: {problems} problems are {len(shards.all)} shards; smaller ones give every job "
        f"some, such as --set batch.shard={size}"
    )


def _refuse_shared_files(names: Sequence[str]) -> None:
    """Refuse models whose numbers would be stored in the same files, also where file systems know no capitals."""
    stored: dict[str, str] = {}
    for name in names:
        if (other := stored.get(slug(name).casefold())) is not None:
            raise StudyError(f"models {other!r} and {name!r} would be stored in the same files; rename one's folder")
        stored[slug(name).casefold()] = name


def _refuse_servers(study: Study, tasks: Sequence[Task]) -> None:
    """Refuse servers that may not have the questions or the key, before anything is measured."""
    for task in tasks if study.generation is not None else ():
        if task.spec.endpoint is not None:
            read_key(task.spec.endpoint)


def _refuse_engine(study: Study, choices: RunChoices) -> None:
    """Refuse an engine of answers that is not here, or not for such a run."""
    if study.generation is None or study.generation.engine != VLLM:
        return
    if choices.ray is not None or choices.in_memory is not None:
        other = "on Ray's workers" if choices.ray is not None else "with a model in memory"
        raise StudyError(f"vLLM does not answer {other}: leave generation.engine out")
    from fillerscope.answers.vllm.generator import require_vllm
    from fillerscope.models.loading import choose_device

    require_vllm(choose_device(study.device))


def _plan(study: Study, tasks: Sequence[Task], shards: StudyShards, store: RunStore) -> dict[str, PlannedStage]:
    """All stages of all models, with what is done already."""
    plan: dict[str, PlannedStage] = {}
    planned = noted_plan(study)
    for task in tasks:
        name = task.spec.name
        plan |= stages(task.study, name, task.folder.label, shards, store, planned.get(name, {}))
    return plan


def _runs(out: Path | None) -> list[RunStore]:
    """The runs that may hold what is asked for: the one in the folder given, or all in the usual place."""
    stores = []
    for folder in [out] if out else sorted(RUNS.glob("*/")):
        with suppress(StoreError):  # no run, a damaged one, or one of another version
            stores.append(RunStore.open(folder))
    return stores


def _measured_before(
    stores: list[RunStore], identity: Json, tasks: list[Task], shards: StudyShards, grouped: list[Problem] | None
) -> RunStore | None:
    """The first finished run that holds what is asked for; one of just this identity before others. Answers are
    compared by groups, which no identity holds: `grouped` are the problems as they are now."""
    for store in sorted(stores, key=lambda one: one.manifest["identity"] != identity):
        stored = store.manifest["identity"]
        if not holds(stored, identity) or not all(is_complete(store, task.study, task.spec, shards) for task in tasks):
            continue
        if grouped is not None and not _has_problems(store, grouped):
            continue
        if not has_more_conditions(stored, identity) or not any(_has_failed(store, task) for task in tasks):
            return store
    return None


def _elsewhere(before: RunStore, study: Study) -> str:
    """Where the problems of a run came from, if that is not where this study has the same ones from."""
    source = str(before.study["problems"]["source"])
    return "" if source == study.problems.source else f" from {source}, the same problems"


def _rounded(before: RunStore, identity: Json) -> str:
    """How the numbers of a run with other conditions beside differ from those that would be measured."""
    differs = has_more_conditions(before.manifest["identity"], identity)
    return ", with other conditions: its numbers are the same up to rounding" if differs else ""


def _has_failed(store: RunStore, task: Task) -> bool:
    """Whether any problem could not be measured."""
    if task.study.probes.attention is None:
        return False
    return any(record["status"] != "ok" for record in store.get(merged_name(task.spec.name), []).records)


def is_complete(store: RunStore, study: Study, spec: ModelSpec, shards: StudyShards) -> bool:
    """Whether all files of a model are stored and undamaged; in a part nothing is merged."""
    names = [] if shards.part else list(merged_files(study, spec.name))
    names += [name for shard in shards.own for name in shard_files(study, spec.name, shard.index)]
    return all(store.is_sound(name) for name in names)


def _refuse_unanswered(problems: list[Problem], source: str) -> None:
    blank = [problem.id for problem in problems if not problem.answer.strip()]
    if blank:
        raise ProblemError(
            f"{source}: {len(blank)} of {len(problems)} problems have no answer to grade by, first {blank[0]!r}; "
            "name the column in `problems.fields`, or leave `generation` out of the study"
        )


def _has_problems(store: RunStore, problems: list[Problem]) -> bool:
    """Whether the table of problems is stored as it would be written now: a data set may give more fields."""
    return store.is_sound(PROBLEMS) and store.get_table(PROBLEMS) == problem_table(problems)


def problem_table(problems: list[Problem]) -> Columns:
    return {
        "id": [problem.id for problem in problems],
        "question": [problem.question for problem in problems],
        "answer": [problem.answer for problem in problems],
        "meta": [json.dumps(dict(problem.meta), sort_keys=True) for problem in problems],
    }
