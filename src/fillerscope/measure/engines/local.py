"""The engine of one process: one model at a time, shards in order, each written as soon as it is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Self

from torch import nn

from fillerscope.capture.activations import Scale
from fillerscope.capture.attention import capturing
from fillerscope.capture.calibration import calibrate, first_texts, is_enough
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Layout, PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.capture.self_check import check_capture
from fillerscope.files import Json
from fillerscope.measure.answer_attention import answer_ids, measure_answers
from fillerscope.measure.engines.answers import AnswerStage
from fillerscope.measure.engines.model_work import MissingShards, ModelWork
from fillerscope.measure.plan import FileName, measuring, measuring_answers
from fillerscope.measure.prepare import Shard, ShardPrompts, StudyShards
from fillerscope.measure.shard import PendingShard, ReducedShard, plain_texts, start_shard
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import Part, RunStore
from fillerscope.store.schema import (
    answer_attention_name,
    answers_name,
    merged_name,
    repeated_answers_name,
    shard_name,
)

OnWritten = Callable[[str, Part], None]  # called with the name of a file and what was written


def measure_model(work: ModelWork, shards: StudyShards, on_measured: Callable[[], None] | None = None) -> None:
    """Compute the missing shards of every stage of one model, and merge them, unless they are a part of the study.

    `on_measured` is called when the prompts have been measured, if that was still to be done."""
    study, name = work.study, work.spec.name
    if study.probes.attention is not None:
        with _merging(work, shards, shard_name, merged_name(name)) as on_written:
            was_missing = _measure_prompts(work, shards, on_written)
        if was_missing and on_measured is not None:
            on_measured()
    if study.generation is not None:
        AnswerStage(work, shards).answer(answers_name)
    if study.probes.answering:
        with _merging(work, shards, answer_attention_name, answer_attention_name(name)) as on_written:
            _measure_answers(work, shards, on_written)
    if study.generation is not None and study.generation.noise is not None:
        AnswerStage(work, shards).repeat(partial(repeated_answers_name, dtype=study.generation.noise.dtype))


@contextmanager
def _merging(work: ModelWork, shards: StudyShards, named: FileName, whole: str) -> Iterator[OnWritten]:
    """Merge what is written in the block, and what was written before, into one file. A part is not merged alone."""
    if shards.part is not None:
        yield lambda *_: None
        return
    merger = Merger([named(work.spec.name, shard.index) for shard in shards.all], work.store.get)
    yield merger.add
    work.store.put(whole, merger.merged())


def _measure_prompts(work: ModelWork, shards: StudyShards, on_written: OnWritten) -> bool:
    """Measure the prompts of missing shards; whether there were any.

    What is found out before depends on the study as a whole, so that every job finds the same."""
    missing = work.missing(shards.own, shard_name)
    if not missing:
        return False
    check = check_capture(work.loaded)
    assert work.prompts  # notes label and template first
    work.note(selfcheck=check.record())
    layout = work.layout(shards.all)
    writer = Writer(work.store, on_written)
    tokens = work.pass_tokens()
    gauge = PassRunner(work.loaded.model, tokens, probing=_probing(work, shards.all, layout), layout=layout)
    tick = work.counter(measuring(work.folder.label), missing, len(shards.own), len(work.study.conditions))
    measure_shards(work.prompts, gauge, missing, writer, tick)
    if gauge.tokens != tokens:
        work.progress.say(f"out of memory: passes were shortened from {tokens} to {gauge.tokens} tokens")
        work.note(batch_tokens=gauge.tokens)
    return True


def _measure_answers(work: ModelWork, shards: StudyShards, on_written: OnWritten) -> None:
    """Measure the attention of the answers that were written."""
    missing = work.missing(shards.own, answer_attention_name)
    if not missing:
        return
    model, study = work.loaded.model, work.study
    gauge = PassRunner(model, work.pass_tokens(), layout=work.layout(shards.all))
    tick = work.counter(measuring_answers(work.folder.label), missing, len(shards.own), len(study.conditions))
    with capturing(model):
        for shard, name in missing:
            answers = answer_ids(study, work.store.get_table(answers_name(work.spec.name, shard.index)))
            part = measure_answers(study, work.prompts.of(shard), answers, gauge, tick)
            work.store.put(name, part)
            on_written(name, part)


def _probing(work: ModelWork, shards: Sequence[Shard], layout: Layout) -> Probing:
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
            texts += plain_texts(study, [item for item in prompts.of(shard) if not item.error])
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

    While the device works on a shard, the one before is reduced and written and the next one prepared."""
    study = prompts.study
    pending: list[tuple[str, PendingShard]] = []

    def finish() -> None:
        while pending:
            name, shard = pending.pop()
            writer.put(name, shard.reduced(study))

    with capturing(gauge.model), writer:
        try:
            for shard, name in missing:
                started = start_shard(study, prompts.of(shard), gauge, tick)
                finish()
                pending.append((name, started))
        finally:
            finish()


class Writer:
    """Writes shards in their order, in a thread of its own, while others are measured."""

    AHEAD = 2  # shards that may wait for the disk

    def __init__(self, store: RunStore, on_written: OnWritten) -> None:
        """`on_written` is called in the writer's thread."""
        self.store, self.on_written, self.broken = store, on_written, False
        self.thread = ThreadPoolExecutor(1)
        self.waiting: deque[Future[None]] = deque()

    def put(self, name: str, reduced: ReducedShard) -> None:
        self.waiting.append(self.thread.submit(self._write, name, reduced))
        while len(self.waiting) > self.AHEAD:
            self.waiting.popleft().result()

    def _write(self, name: str, reduced: ReducedShard) -> None:
        if self.broken:
            return
        self.broken = True  # until this one is written: after a missing shard no other is written
        part = reduced.part()
        self.store.put(name, part)
        self.on_written(name, part)
        self.broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what was measured, whatever stopped the rest, and raise what stopped the writing."""
        self.thread.shutdown()
        for future in self.waiting:
            future.result()
