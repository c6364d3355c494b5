"""The plan of a study: what it will take, before anything runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.answers.local.engine import CHOSEN_SHARE, ROWS, SLOTS_SHARE
from fillerscope.capture.memory import MOST, tokens_in
from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.planning.calibrate import Calibrated, Calibration
from fillerscope.measure.planning.decoding import Lengths
from fillerscope.measure.planning.model_plan import ModelPlan, Setup
from fillerscope.measure.planning.model_size import ModelSize
from fillerscope.measure.planning.noted_plan import note_plan
from fillerscope.measure.planning.planner import Planner
from fillerscope.measure.planning.rates import DEVICES, Device, Rates, device_named
from fillerscope.measure.prepare import ShardPrompts, StudyShards, shards_of
from fillerscope.measure.run_study import problem_table
from fillerscope.measure.tasks import Task, tasks_of
from fillerscope.models.checks import check_description, has_weights
from fillerscope.models.description import load_tokenizer, stated_context
from fillerscope.models.loading import choose_device, choose_dtype, without_weights
from fillerscope.models.resolve import ModelFolder, find, resolve_here
from fillerscope.models.structure import vocabulary_of
from fillerscope.problems.sources import read_problems
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import PROBLEMS
from fillerscope.study.study import ALL_GPUS, ModelSpec, Study

if TYPE_CHECKING:
    from transformers import PreTrainedModel

THIS_MACHINE = ("auto", "cpu", "mps", "cuda")
RECORDS = 4096  # bytes of manifest and study, besides
ENTRY = 150  # bytes of a file in the manifest
EMPTY_PROCESS = 700 * 10**6  # bytes of a process with torch and transformers, before a model is loaded


@dataclass(frozen=True)
class PlanOptions:
    """Where a study is planned to run, and by how many jobs."""

    device: str = "auto"  # of this machine, or one of the table of peak rates
    calibrate: bool = True
    jobs: int = 1


@dataclass(frozen=True)
class Memory:
    """Bytes that a model takes at its peak, in all and by what they are for."""

    process: int  # of the process that runs the study
    device: int | None  # on a GPU
    parts: Mapping[str, int]

    def record(self) -> Json:
        return {"process": self.process, "device": self.device, "parts": dict(self.parts)}


@dataclass(frozen=True)
class StudyPlan:
    """What a study takes."""

    study: Study
    device: str
    models: tuple[ModelPlan, ...]
    memory: tuple[Memory, ...]  # of each model
    calibrated: bool  # whether rates were measured here, and not taken from a table
    other_bytes: int  # of problems, manifest and study
    jobs: int
    notes: tuple[str, ...]  # what was assumed, and what is left out

    @property
    def seconds(self) -> float:
        return sum(model.seconds for model in self.models)

    @property
    def longest_job(self) -> float:
        """Seconds of the longest of the jobs."""
        return sum(model.longest(self.jobs) for model in self.models)

    @property
    def bytes(self) -> int:
        return self.other_bytes + sum(model.bytes for model in self.models)

    @property
    def process_memory(self) -> int:
        return max(one.process for one in self.memory)

    @property
    def device_memory(self) -> int | None:
        return max((one.device for one in self.memory if one.device is not None), default=None)

    def record(self) -> Json:
        """The same for programs."""
        return {
            "study": self.study.name, "device": self.device, "calibrated": self.calibrated, "seconds": self.seconds,
            "hours": self.seconds / 3600, "jobs": self.jobs, "longest_job_seconds": self.longest_job,
            "bytes": self.bytes, "process_memory": self.process_memory, "device_memory": self.device_memory,
            "models": [
                model.record() | {"memory": memory.record()}
                for model, memory in zip(self.models, self.memory, strict=True)
            ],
            "notes": list(self.notes),
        }  # fmt: skip


USUAL = PlanOptions()


def plan_study(study: Study, options: PlanOptions = USUAL, progress: Progress = SILENT) -> StudyPlan:
    """Plan a study: from a short calibration on this machine, or from peak rates."""
    problems = read_problems(study.problems, progress, graded=study.generation is not None).problems
    shards = StudyShards(shards_of(problems, study.batch.shard))
    here = options.device.partition(":")[0] in THIS_MACHINE
    device = choose_device(options.device) if here else options.device
    peak = None if here and options.calibrate else device_named(_peak_of(device))
    planning = _Planning(study, shards, device, progress, peak, options.jobs)
    with tempfile.TemporaryDirectory(prefix="fillerscope-plan-") as folder:
        planned = [one for spec in study.models for one in planning.model(spec, Path(folder))]
        files = sum(len(one.stages) * (len(shards.all) + 1) for one, _ in planned)
        other = planning.problems_bytes(Path(folder)) + RECORDS + ENTRY * files
    models, memory = zip(*planned, strict=True)
    if planning.calibrated:
        note_plan(study, {one.name: {name: sum(stage.seconds) for name, stage in one.stages.items()} for one in models})
    return StudyPlan(
        study, device, models, memory, bool(planning.calibrated), other, options.jobs, tuple(planning.notes())
    )


def _peak_of(device: str) -> str:
    """The name in the table of peak rates of a device of this machine."""
    kind = device.partition(":")[0]
    if kind not in ("cuda", "mps"):
        return kind
    if kind == "cuda":
        import torch

        called = torch.cuda.get_device_name(kind if device == ALL_GPUS else device).lower().replace(" ", "-")
        found = next((name for name in sorted(DEVICES, key=len, reverse=True) if name in called), None)
        if found is not None:
            return found
    raise ModelError(f"no peak rates are known of {device} of this machine; leave --no-calibrate out")


class _Planning:
    """Plans models one after another."""

    def __init__(
        self, study: Study, shards: StudyShards, device: str, progress: Progress, peak: Device | None, jobs: int
    ) -> None:
        self.study, self.shards, self.device, self.progress, self.peak = study, shards, device, progress, peak
        self.jobs = jobs
        self.calibrated: list[str] = []
        self.lengths: list[Lengths] = []
        self.served = False

    def model(self, spec: ModelSpec, folder: Path) -> Iterator[tuple[ModelPlan, Memory]]:
        """A model, and its twins, which are as fast as it is."""
        described = _described(spec.name)
        served = self.study.is_served(spec)
        kind = self.peak.kind if self.peak else self.device.partition(":")[0]
        dtype = choose_dtype(spec.dtype, kind)
        model = without_weights(described.folder, dtype)
        calibrated = self._calibrated(spec, described, folder, served)
        setup = self._setup(model, calibrated, kind)
        self.lengths.append(setup.rates.lengths)
        self.served |= served
        for task in tasks_of(self.study, spec, described.folder):
            prompts = self._prompts(task, described.folder, model)
            plan = ModelPlan(task.spec.name, task.folder.label, setup.size, setup.pass_tokens)
            self.progress.stage(f"counting the work of {task.folder.label}", 0, None)
            Planner(task.study, prompts, setup, plan).run(self.shards.all, served and not task.is_twin, self.jobs)
            yield plan, self._memory(plan, calibrated, kind)

    def _calibrated(self, spec: ModelSpec, described: _Described, folder: Path, served: bool) -> Calibrated | None:
        if self.peak is not None or (served and self.study.probes.attention is None):
            return None
        if not described.has_weights:
            raise ModelError(
                f"{spec.name} has no weights here to calibrate with: name a device of the table, such as --device h100"
            )
        source = resolve_here(spec.name, self.progress)  # its digest is noted, and the run need not read it again
        study = self.study.model_copy(update={"device": self.device})
        store = RunStore.create(folder / str(len(self.calibrated)), {"plan": spec.name}, {})
        done = Calibration(ModelWork(study, spec, source, store, self.progress), self.shards).run()
        self.calibrated.append(spec.name)
        return done

    def _setup(self, model: PreTrainedModel, calibrated: Calibrated | None, kind: str) -> Setup:
        generation = self.study.generation
        if calibrated is not None:
            one = calibrated
            return Setup(model, one.size, one.rates, one.pass_tokens, one.rows, kind, one.layout, one.most_cells)
        size = ModelSize.of(model)
        device = self.peak or device_named("cpu")
        rates = Rates.peak(device, size, generation.max_tokens if generation else 1)
        free = max(0, device.memory - size.weights)
        tokens = self.study.batch.tokens or tokens_in(free, model, MOST[kind])
        chosen = generation and generation.rows
        cells = int((CHOSEN_SHARE if chosen else SLOTS_SHARE) * free / size.kv_token)
        return Setup(model, size, rates, tokens, chosen or ROWS[kind], kind, cells=cells)

    def _prompts(self, task: Task, folder: ModelFolder, model: PreTrainedModel) -> ShardPrompts:
        known = None if task.spec.endpoint else vocabulary_of(model)
        template = task.study.template_of(task.spec)
        maker = PromptMaker.of(load_tokenizer(folder), task.study.prompt, template, task.study.seed, known)
        return ShardPrompts(task.study, maker, stated_context(folder))

    def _memory(self, plan: ModelPlan, calibrated: Calibrated | None, kind: str) -> Memory:
        """Peak memory. Attention and answers come one after the other, so that the larger of them counts."""
        parts = plan.memory
        need = max(parts["passes"] + parts["sums"], parts["prefill"] + parts["slots"])
        if kind == "cuda":
            host, checks = (calibrated.peak.process, calibrated.peak.device) if calibrated else (EMPTY_PROCESS, 0)
            # Checks take more, in float32, where there is room for it.
            return Memory(host + parts["files"], max(parts["weights"] + need, checks), parts)
        need = max(parts["passes"] + parts["sums"] + parts["files"], parts["prefill"] + parts["slots"])
        if calibrated is None:
            return Memory(EMPTY_PROCESS + parts["weights"] + need, None, parts)
        size = plan.size
        sample = max(
            parts["passes"]
            + 2 * size.measured(calibrated.positions) + 2 * calibrated.bytes,
            size.pass_token * calibrated.prefill + size.kv_token * calibrated.cells,
        )  # fmt: skip
        return Memory(calibrated.peak.process + max(0, need - sample), None, parts)

    def problems_bytes(self, folder: Path) -> int:
        """The table of problems as a run with answers writes it."""
        if self.study.generation is None:
            return 0
        store = RunStore.create(folder / "problems", {"plan": self.study.name}, {})
        store.put_table(PROBLEMS, problem_table([one for shard in self.shards.all for one in shard.problems]))
        return store.manifest["files"][PROBLEMS]["bytes"]

    def notes(self) -> Iterator[str]:
        if self.peak is not None:
            yield (
                f"rates are those of a data sheet ({self.peak.name}), of which a part is reached: expect twice or half"
            )
        for one in self.lengths if self.study.generation is not None else ():
            if not one.sampled:
                yield f"every answer is taken to have {one.limit} tokens, the most that the study allows"
            elif not one.is_known:
                yield f"{len(one.watched)} of {one.sampled} sampled answers did not end while they were watched"
            else:
                yield f"answers are taken to be as long as {one.sampled} sampled ones"
        if self.served:
            yield "the time that servers or vLLM take for answers is not known and not counted"
        yield "the start of the program, figures and report are not counted"


@dataclass(frozen=True)
class _Described:
    """A model of which tokenizer and config are here, and perhaps its weights."""

    folder: ModelFolder
    has_weights: bool


def _described(name: str) -> _Described:
    path = Path(os.path.expanduser(name))
    if not (path / "config.json").is_file() or has_weights(path):
        return _Described(find(name), True)
    check_description(path, name)
    return _Described(ModelFolder(path, name, path.resolve().name, ""), False)
