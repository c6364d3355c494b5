"""The engine of one process: one model at a time, shards in order, each written as soon as it is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

from torch import nn

from fillerscope.capture.activations import Scale
from fillerscope.capture.attention import capturing
from fillerscope.capture.calibration import calibrate, first_texts, is_enough
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Layout, PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.capture.self_check import check_capture
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.measure.answer_attention import answer_ids, measure_answers
from fillerscope.measure.engines.answers import AnswerStage, RepeatStage
from fillerscope.measure.engines.model_work import MissingShards, ModelWork, OnReduced
from fillerscope.measure.plan import FileName, measuring, measuring_answers
from fillerscope.measure.prepare import Prepared, Shard, ShardPrompts, StudyShards
from fillerscope.measure.shard import PendingShard, ReducedShard, plain_texts, start_shard
from fillerscope.models.structure import device_of
from fillerscope.store.contents import ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS, merged_files, stage_files
from fillerscope.store.failures import best_part
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name


def measure_model(work: ModelWork, shards: StudyShards, on_measured: Callable[[], None] | None = None) -> None:
    """Compute the missing shards of every stage of one model, and merge them, unless they are a part of the study.

    `on_measured` is called when the prompts have been measured, if that was still to be done."""
    merged = {named: whole for whole, named in merged_files(work.study, work.spec.name).items()}
    for stage, named in stage_files(work.study).items():
        missing = work.missing(shards.own, named)
        with _merging(work, shards, named, merged.get(named)) as on_reduced:
            if missing:
                stage_of(stage, work, shards.all, shards.own).run(missing, len(shards.own), on_reduced)
        if missing and stage == MEASURING and on_measured is not None:
            on_measured()


class Stage(Protocol):
    """One kind of work on a model. What it needs before the first shard is found out once, from the whole study."""

    def prepare(self) -> None:
        """Load and check what the first shard needs, and note what is decided for all of them."""

    def run(self, missing: MissingShards, count: int, on_reduced: OnReduced) -> None:
        """Compute shards in order and write them; `count` is how many there are with those that are done."""


def stage_of(name: str, work: ModelWork, shards: Sequence[Shard], own: Sequence[Shard] = ()) -> Stage:
    """A stage by its name in `store.contents`; `shards` are all of the study, `own` those that this process computes,
    where it knows."""
    if name == MEASURING:
        return PromptStage(work, shards)
    if name == MEASURING_ANSWERS:
        return AnswerAttentionStage(work, shards)
    return (RepeatStage if name == ANSWERING_AGAIN else AnswerStage)(work, shards, own)


@contextmanager
def _merging(work: ModelWork, shards: StudyShards, named: FileName, whole: str | None) -> Iterator[OnReduced]:
    """Merge what is written in the block, and what was written before, into one file. A part is not merged alone."""
    if shards.part is not None or whole is None:
        yield lambda *_: None
        return
    names = [named(work.spec.name, shard.index) for shard in shards.all]
    merger = Merger.of(whole, names, work.store.get, work.spec.name)
    yield merger.add
    work.store.put(whole, merger.merged())


@dataclass
class PromptStage:
    """Measures prompts. What is found out before depends on the study as a whole, so that every job finds the same."""

    work: ModelWork
    shards: Sequence[Shard]

    @cached_property
    def runner(self) -> PassRunner:
        work = self.work
        check = check_capture(work.loaded)
        assert work.prompts  # notes label and template first
        work.note(selfcheck=check.record())
        layout = work.layout(self.shards)
        probing = probing_of(work, self.shards, layout)
        return study_runner(work, layout, probing)

    def prepare(self) -> None:
        _ = self.runner

    def run(self, missing: MissingShards, count: int, on_reduced: OnReduced) -> None:
        work, runner = self.work, self.runner
        tokens = runner.tokens
        tick = work.counter(measuring(work.folder.label), missing, count, len(work.study.conditions))
        measure_shards(work.prompts, runner, missing, Writer(work.store, on_reduced, work.refuse_changed), tick)
        if runner.tokens != tokens:
            work.progress.say(f"out of memory: passes were shortened from {tokens} to {runner.tokens} tokens")
            work.note(batch_tokens=runner.tokens)


@dataclass
class AnswerAttentionStage:
    """Measures the attention of the answers that were written."""

    work: ModelWork
    shards: Sequence[Shard]

    @cached_property
    def runner(self) -> PassRunner:
        return study_runner(self.work, self.work.layout(self.shards))

    def prepare(self) -> None:
        _ = self.runner

    def run(self, missing: MissingShards, count: int, on_reduced: OnReduced) -> None:
        work, study, runner = self.work, self.work.study, self.runner
        tick = work.counter(measuring_answers(work.folder.label), missing, count, len(study.conditions))
        with capturing(runner.model):
            for shard, name in missing:
                answers = answer_ids(study, work.store.get_table(answers_name(work.spec.name, shard.index)))
                part = measure_answers(study, work.prompts.of(shard), answers, runner, tick)
                part = best_part(work.store, name, part)
                work.refuse_changed()
                work.store.put(name, part)
                on_reduced(name, part)


def study_runner(work: ModelWork, layout: Layout, probing: Probing | None = None) -> PassRunner:
    """What runs the texts of a study through its model."""
    model = work.loaded.model
    return PassRunner(model, work.pass_tokens(), None, probing, layout, SmallOperations.for_passes(model))


def probing_of(work: ModelWork, shards: Sequence[Shard], layout: Layout) -> Probing:
    """The probes of the study. Activations are compared with a scale that is calibrated once and noted."""
    probes = work.study.probes
    if probes.activations is None:
        return Probing(probes.affine)
    record = work.facts().get("calibration")
    if record is None:
        work.progress.stage(f"calibrating on {work.folder.label}", 0, None)
        record = calibration(work.prompts, work.loaded.model, shards, layout)
        work.note(calibration=record)
    return Probing(probes.affine, Scale.read(record) if record else None, len(probes.activations.classes) + 1)


def calibration(prompts: ShardPrompts, model: nn.Module, shards: Sequence[Shard], layout: Layout = "shared") -> Json:
    """The scale of activations on the first prompts of the study; empty where no prompt could be made.

    Does not depend on how the study is cut into shards."""
    study = prompts.study
    assert study.probes.activations is not None
    texts: list[Text] = []
    for shard in shards:
        if not is_enough(texts):
            items = prompts.of(shard)
            if passing := next((item for item in items if item.may_pass), None):
                raise ModelError(f"activations cannot be calibrated on the first problems: {passing.error}")
            texts += plain_texts(study, [item for item in items if not item.error])
    if not texts:
        return {}
    texts = first_texts(texts)
    with capturing(model):
        gauge = PassRunner(model, sum(map(len, texts)), layout=layout)
        return calibrate(gauge, texts, study.probes.activations.c).record()


def measure_shards(
    prompts: ShardPrompts, gauge: PassRunner, missing: MissingShards, writer: Writer, tick: Callable[[int], None]
) -> None:
    """Measure shards in order and write them.

    While a GPU works on a shard, the one before is written and the next one prepared. Elsewhere a shard is written as
    soon as its passes are done."""
    study, is_ahead = prompts.study, device_of(gauge.model).type == "cuda"
    pending: list[tuple[str, PendingShard]] = []

    def finish() -> None:
        while pending:
            name, shard = pending.pop()
            writer.put(name, shard.reduced(study))

    with capturing(gauge.model), writer:
        try:
            for name, prepared in _ahead(prompts, missing):
                started = start_shard(study, prepared, gauge, tick)
                if is_ahead:
                    started = started.reducing(study)
                    finish()
                pending.append((name, started))
                if not is_ahead:
                    finish()
        finally:
            finish()


def _ahead(prompts: ShardPrompts, missing: MissingShards) -> Iterator[tuple[str, list[Prepared]]]:
    """The files of shards with their prompts, which are made in a thread of their own, one shard ahead."""
    with ThreadPoolExecutor(1) as thread:
        made: deque[tuple[str, Future[list[Prepared]]]] = deque()
        for shard, name in missing:
            made.append((name, thread.submit(prompts.of, shard)))
            if len(made) > 1:
                name, ready = made.popleft()
                yield name, ready.result()
        yield from ((name, ready.result()) for name, ready in made)


class Writer:
    """Writes shards in their order, in a thread of its own, and merges them, while others are measured."""

    AHEAD = 2  # shards that may wait for the disk

    def __init__(self, store: RunStore, on_reduced: OnReduced, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called before a shard is written, in the writer's thread; `on_reduced` while it is, in another."""
        self.store, self.on_reduced, self.check, self.broken = store, on_reduced, check, False
        self.writing, self.merging = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.waiting: deque[Future[None]] = deque()
        self.merge: Future[None] | None = None

    def put(self, name: str, reduced: ReducedShard) -> None:
        self.waiting.append(self.writing.submit(self._write, name, reduced))
        while len(self.waiting) > self.AHEAD:
            self.waiting.popleft().result()

    def _write(self, name: str, reduced: ReducedShard) -> None:
        if self.broken:
            return
        self.broken = True  # until this one is written: after a missing shard no other is written
        part = best_part(self.store, name, reduced.part())
        self.check()
        self._merged()
        self.merge = self.merging.submit(self.on_reduced, name, part)
        self.store.put(name, part)
        self.broken = False

    def _merged(self) -> None:
        """Wait until the last shard is merged, and raise what went wrong there."""
        if self.merge is not None:
            self.merge.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what was measured, whatever stopped the rest, and raise what stopped the writing."""
        self.writing.shutdown()
        self.merging.shutdown()
        for future in self.waiting:
            future.result()
        self._merged()
