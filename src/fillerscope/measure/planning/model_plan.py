"""The plan of one model of a study: its work shard by shard, and what that takes in time, memory and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from fillerscope.answers.local.engine import ONE_BY_ONE, prefill_size
from fillerscope.answers.request import Request
from fillerscope.capture.passes import Layout
from fillerscope.files import Json, digest_of
from fillerscope.measure.answer_attention import Answers
from fillerscope.measure.answer_shard import AnswerTask, answer_tasks, is_measured
from fillerscope.measure.planning.counting import CountingRunner, count_shard, file_bytes
from fillerscope.measure.planning.decoding import BatchWork, Generation
from fillerscope.measure.planning.model_size import ModelSize
from fillerscope.measure.planning.rates import Rates
from fillerscope.measure.prepare import Prepared, Shard, ShardPrompts
from fillerscope.store.array_file import Part
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS
from fillerscope.store.merge import Merger
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Probes, Study

LOADING, CHECKING, RECHECKING = "loading", "checks", "rechecking"
WAITING = 3  # shards that are being written, at most
HELD = 3  # shards whose sums are in memory: the one before, and the passes and the whole of the current one


@dataclass(frozen=True)
class Setup:
    """What work is done with: a model, which may be on no device, and how it is run."""

    model: nn.Module
    size: ModelSize
    rates: Rates
    pass_tokens: int
    rows: int  # answers at once
    device: str  # kind of device
    layout: Layout = "shared"
    cells: int | None = None  # tokens of answers that memory holds; None: as many as are asked for


@dataclass
class StagePlan:
    """One stage of a model."""

    seconds: list[float] = field(default_factory=list)  # of each shard
    bytes: int = 0
    passes: int = 0
    computed: int = 0  # tokens that the model computes
    merged: int = 0  # bytes of the merged file


@dataclass
class ModelPlan:
    """What a model takes, or an untrained twin of one."""

    name: str
    label: str
    size: ModelSize
    pass_tokens: int
    problems: int = 0
    failed: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    answers: int = 0
    answer_tokens: int = 0
    served: int = 0  # answers that a server writes
    stages: dict[str, StagePlan] = field(default_factory=dict)
    fixed: dict[str, float] = field(default_factory=dict)  # seconds that every job takes, by what for
    # The largest of what is in memory
    largest: int = 0  # tokens of a pass that measures
    positions: int = 0  # of a shard
    file: int = 0
    prefill: int = 0
    cells: int = 0
    shards: int = 0

    @property
    def seconds(self) -> float:
        return sum(self.fixed.values()) + sum(sum(stage.seconds) for stage in self.stages.values())

    def longest(self, jobs: int) -> float:
        """Seconds of the longest of so many jobs, to which shards are dealt in turn."""
        parts = [sum(sum(stage.seconds[n::jobs]) for stage in self.stages.values()) for n in range(jobs)]
        return sum(self.fixed.values()) + max(parts, default=0.0)

    @property
    def bytes(self) -> int:
        return sum(stage.bytes + stage.merged for stage in self.stages.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by what they are for."""
        size = self.size
        return {
            "weights": size.weights,
            "passes": size.pass_token * self.largest,
            "sums": min(HELD, self.shards + 1) * size.measured(self.positions),
            "files": self.file * (min(WAITING, self.shards) + 1),  # on the host: reduced, written and merged
            "prefill": size.pass_token * self.prefill,
            "slots": size.kv_token * self.cells,
        }

    def record(self) -> Json:
        """The same for programs."""
        return {
            "name": self.name, "label": self.label, "problems": self.problems, "failed": self.failed,
            "prompts": self.prompts, "prompt_tokens": self.prompt_tokens, "pass_tokens": self.pass_tokens,
            "answers": self.answers, "answer_tokens": self.answer_tokens, "answers_of_servers": self.served,
            "seconds": self.seconds, "fixed_seconds": self.fixed, "bytes": self.bytes,
            "stages": {
                name: {
                    "seconds": sum(one.seconds), "passes": one.passes, "computed_tokens": one.computed,
                    "bytes": one.bytes, "merged_bytes": one.merged,
                }
                for name, one in self.stages.items()
            },
        }  # fmt: skip


class Planner:
    """Plans the stages of one model, shard by shard."""

    def __init__(self, study: Study, prompts: ShardPrompts, setup: Setup, plan: ModelPlan) -> None:
        self.study, self.prompts, self.setup, self.plan = study, prompts, setup, plan
        rates, generation = setup.rates, study.generation
        self.counters = {  # nothing but attention is measured of answers
            name: CountingRunner(setup.model, setup.pass_tokens, probes, setup.size, setup.layout)
            for name, probes in ((MEASURING, study.probes), (MEASURING_ANSWERS, Probes()))
        }
        limit = generation.max_tokens if generation else 1
        prefill = prefill_size(setup.model, setup.device)
        whole = prefill if setup.device == "cuda" else ONE_BY_ONE
        self.form = Generation(setup.rows, prefill, whole, limit, prompts.context, setup.cells)
        plan.fixed = {LOADING: rates.load}

    def run(self, shards: Sequence[Shard], served: bool) -> ModelPlan:
        """Plan all shards. A server's answers are counted, and their time is not known."""
        plan, study = self.plan, self.study
        plan.shards = len(shards)
        mergers = {MEASURING: Merger([], _none), MEASURING_ANSWERS: Merger([], _none)}
        for shard in shards:
            items = self.prompts.of(shard)
            plan.problems += len(items)
            plan.failed += sum(bool(item.error) for item in items)
            plan.prompts += sum(len(item.prompts) for item in items)
            plan.prompt_tokens += sum(len(prompt) for item in items for prompt in item.prompts.values())
            if study.probes.attention is not None:
                self._measure(MEASURING, shard, items, mergers[MEASURING], None)
            if study.generation is not None:
                self._answer(shard, items, mergers[MEASURING_ANSWERS], served)
        for name, merger in mergers.items():
            if name in plan.stages and plan.failed < plan.problems:
                stage = plan.stages[name]
                stage.merged = file_bytes(merger.merged(), self.setup.size)
                stage.seconds[-1] += stage.merged * self.setup.rates.write
        self._fixed(served)
        return plan

    def _stage(self, name: str) -> StagePlan:
        return self.plan.stages.setdefault(name, StagePlan())

    def _measure(self, name: str, shard: Shard, items: list[Prepared], merger: Merger, answers: Answers | None) -> None:
        stage, plan, rates, size = self._stage(name), self.plan, self.setup.rates, self.setup.size
        work, part = count_shard(self.study, items, self.counters[name], answers)
        merger.append(f"{shard.index}", part)
        seconds = size.operations(work.work) * rates.operation
        seconds += work.positions * size.layers * size.heads * rates.reduce
        writing = work.bytes * rates.write
        # A GPU measures the next shard while one is written; elsewhere both take the same cores.
        stage.seconds.append(max(seconds, writing) if self.setup.device == "cuda" else seconds + writing)
        stage.bytes, stage.passes = stage.bytes + work.bytes, stage.passes + work.passes
        stage.computed += work.work.tokens
        plan.largest = max(plan.largest, self.counters[name].largest.tokens)
        plan.positions, plan.file = max(plan.positions, work.positions), max(plan.file, work.bytes)

    def _answer(self, shard: Shard, items: list[Prepared], merger: Merger, served: bool) -> None:
        tasks = [task for task in answer_tasks(self.study, items) if task.request is not None]
        assert self.study.generation is not None
        again = [task for task in tasks if task.condition == BASELINE] if self.study.generation.noise else []
        lengths = self.setup.rates.lengths.draw(len(tasks), _seed(self.study, shard)).tolist()
        self._write(ANSWERING, tasks, lengths, served)
        if again:
            self._write(ANSWERING_AGAIN, again, lengths[: len(again)], served)
        if self.study.probes.answering and not served:
            pairs = zip(tasks, lengths, strict=True)
            answers = {
                (task.item.number, task.condition): [0] * max(1, length - 1)
                for task, length in pairs
                if is_measured(self.study, task)
            }
            self._measure(MEASURING_ANSWERS, shard, items, merger, answers)

    def _write(self, name: str, tasks: Sequence[AnswerTask], lengths: Sequence[int], served: bool) -> None:
        """Plan the answers of a shard, temperature by temperature."""
        stage, plan, rates = self._stage(name), self.plan, self.setup.rates
        whole = BatchWork()
        for temperature in dict.fromkeys(task.temperature for task in tasks):
            chosen = [n for n, task in enumerate(tasks) if task.temperature == temperature]
            requests: list[Request] = [request for n in chosen if (request := tasks[n].request) is not None]
            whole.add(self.form.work(requests, [lengths[n] for n in chosen]))
        plan.answers, plan.answer_tokens = plan.answers + whole.answers, plan.answer_tokens + whole.tokens
        stage.bytes += rates.answer_bytes.of(whole.answers, whole.tokens)
        if served:
            plan.served += whole.answers
            stage.seconds.append(rates.grade * whole.answers)
            return
        stage.seconds.append(self._seconds(whole) + rates.grade * whole.answers)
        stage.passes += whole.passes + sum(one.count for one in whole.steps)
        stage.computed += whole.prefill.tokens + whole.tokens
        plan.prefill, plan.cells = max(plan.prefill, whole.largest), max(plan.cells, whole.cells)

    def _seconds(self, work: BatchWork) -> float:
        rates, size = self.setup.rates, self.setup.size
        steps = sum(one.count * rates.step(one.rows, one.width) for one in work.steps)
        return steps + size.operations(work.prefill) * rates.prefill

    def _fixed(self, served: bool) -> None:
        """Seconds that do not depend on how many problems there are."""
        plan, rates, generation = self.plan, self.setup.rates, self.study.generation
        checks = rates.measure_checks if self.study.probes.attention is not None else 0.0
        if generation is not None and not served:
            checks += rates.answer_checks
            if 0.0 in generation.temperature and generation.recheck and plan.answers:
                mean = plan.answer_tokens / plan.answers
                width = plan.prompt_tokens / max(1, plan.prompts) + mean / 2
                count = min(generation.recheck, plan.answers)
                plan.fixed[RECHECKING] = count * mean * rates.step(1, width)
        if served and self.study.probes.attention is None:
            plan.fixed[LOADING] = 0.0  # the tokenizer alone is loaded
        plan.fixed[CHECKING] = checks


def _none(name: str, _keys: list[str] | None) -> Part:
    raise AssertionError(f"{name} was never written")


def _seed(study: Study, shard: Shard) -> int:
    return int(digest_of([study.seed, "plan", shard.index])[:15], 16)
