"""One process, one model at a time: shards in order, each kept as soon as it is measured or answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Self, Unpack

from torch import nn

from fillerscope.capture.activations import Scale
from fillerscope.capture.attention import capturing
from fillerscope.capture.calibration import calibrate, first_texts, is_enough
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Layout, PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.capture.row_check import check_rows
from fillerscope.capture.self_check import check_capture
from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.measure.answer_attention import answers_in, look_back
from fillerscope.measure.engines.answers import Answering, Missing
from fillerscope.measure.prepare import Shard, ShardPrompts
from fillerscope.measure.shard import Launched, Reduced, launch, plain_texts
from fillerscope.models.loading import LoadedModel, load_folder, load_tokenizer, stated_context
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.structure import layer_count
from fillerscope.progress import Progress
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import Part, RunStore
from fillerscope.store.schema import (
    ModelFacts,
    answer_attention_name,
    answers_name,
    merged_name,
    repeated_answers_name,
    shard_name,
)
from fillerscope.study.study import ModelSpec, Study

LONG_QUESTIONS = 8  # problems among which the longest prompt is looked for
LAYOUTS = {
    "packed": "its texts do not share prefixes, which would change its numbers",
    "apart": "each text has a row of its own, because the model carries a state along a row; this is slower",
}


def measure_model(
    study: Study,
    spec: ModelSpec,
    folder: ModelFolder,
    shards: Sequence[Shard],
    store: RunStore,
    progress: Progress,
) -> None:
    """All shards of one model that are not there yet, then their merger."""
    work = _Work(study, spec, folder, store, progress)
    if study.probes.attention is not None:
        names = [shard_name(spec.name, shard.index) for shard in shards]
        merger = Merger(names, store.get)
        work.measure(_missing(store, shards, names), shards, merger.add)
        store.put(merged_name(spec.name), merger.merged())
    if study.generation is not None:
        names = [answers_name(spec.name, shard.index) for shard in shards]
        Answering(work).answer(_missing(store, shards, names), len(shards))
    if study.probes.answering:
        names = [answer_attention_name(spec.name, shard.index) for shard in shards]
        merger = Merger(names, store.get)
        work.look_back(_missing(store, shards, names), len(shards), merger.add)
        store.put(answer_attention_name(spec.name), merger.merged())
    if study.generation is not None and study.generation.noise is not None:
        names = [repeated_answers_name(spec.name, shard.index, study.generation.noise.dtype) for shard in shards]
        Answering(work).answer_again(_missing(store, shards, names), len(shards))


def _missing(store: RunStore, shards: Sequence[Shard], names: Sequence[str]) -> Missing:
    return [(shard, name) for shard, name in zip(shards, names, strict=True) if not store.is_sound(name)]


@dataclass
class _Work:
    """One model at work on a study. It is loaded when something first needs it."""

    study: Study
    spec: ModelSpec
    folder: ModelFolder
    store: RunStore
    progress: Progress

    @cached_property
    def loaded(self) -> LoadedModel:
        self.progress.stage(f"loading {self.folder.label}", 0, None)
        loaded = load_folder(self.folder, self.spec.dtype, self.study.device)
        refuse_missing_layers(self.study, layer_count(loaded.model), loaded.label)
        return loaded

    def loaded_in(self, dtype: str) -> LoadedModel:
        """The model in another dtype, in place of the one at hand: memory may not hold both."""
        assert self.prompts
        self.__dict__.pop("loaded", None)
        self.progress.stage(f"loading {self.folder.label} in {dtype}", 0, None)
        return load_folder(self.folder, dtype, self.study.device)

    @cached_property
    def prompts(self) -> ShardPrompts:
        """An endpoint's answers need the tokenizer, not the weights."""
        tokenizer = load_tokenizer(self.folder) if self.spec.endpoint else self.loaded.tokenizer
        maker = PromptMaker.of(tokenizer, self.study.prompt, self.study.template_of(self.spec), self.study.seed)
        self.note(label=self.folder.label, template=maker.template)
        return ShardPrompts(self.study, maker, stated_context(self.folder))

    def measure(self, missing: Missing, shards: Sequence[Shard], kept: Callable[[str, Part], None]) -> None:
        if not missing:
            return
        check = check_capture(self.loaded)
        assert self.prompts  # notes label and template first
        self.note(selfcheck=check.record())
        layout = self._layout(shards)
        writer = Writer(self.store, kept)
        tokens = self._pass_tokens()
        gauge = PassRunner(self.loaded.model, tokens, probing=self._probing(shards, layout), layout=layout)
        tick = self.ticker(f"measuring {self.folder.label}", missing, len(shards), len(self.study.conditions))
        measure_shards(self.prompts, gauge, missing, writer, tick)
        if gauge.tokens != tokens:
            self.progress.say(f"memory ran out: passes were cut from {tokens} to {gauge.tokens} tokens")
            self.note(batch_tokens=gauge.tokens)

    def _pass_tokens(self) -> int:
        """As many as before where a run goes on: on another machine too its bytes are the same."""
        tokens = self.study.batch.tokens or self.facts().get("batch_tokens") or pass_tokens(self.loaded.model)
        self.note(batch_tokens=tokens)
        return int(tokens)

    def _layout(self, shards: Sequence[Shard]) -> Layout:
        """How texts share rows: found by comparing them with each alone, once a run."""
        known = self.facts().get("rowcheck") or self._twin_of().get("rowcheck")
        if known is None:
            longest = longest_prompt(self.prompts, shards)
            row = max(self._pass_tokens(), longest * len(self.study.conditions))  # a problem's prompts share a row
            check = check_rows(self.loaded, longest, row)
            if check.layout != "shared":
                self.progress.say(f"{self.loaded.label}: {LAYOUTS[check.layout]}")
            known = check.record()
        self.note(rowcheck=known)
        layout: Layout = known["layout"]
        return layout

    def look_back(self, missing: Missing, total: int, kept: Callable[[str, Part], None]) -> None:
        """Where the answers that are there attend."""
        if not missing:
            return
        model = self.loaded.model
        gauge = PassRunner(model, self._pass_tokens(), layout=self._layout([shard for shard, _ in missing]))
        conditions = len(self.study.conditions)
        tick = self.ticker(f"measuring answers of {self.folder.label}", missing, total, conditions)
        with capturing(model):
            for shard, name in missing:
                answers = answers_in(self.study, self.store.get_table(answers_name(self.spec.name, shard.index)))
                part = look_back(self.study, self.prompts.of(shard), answers, gauge, tick)
                self.store.put(name, part)
                kept(name, part)

    def _probing(self, shards: Sequence[Shard], layout: Layout) -> Probing:
        """What activations are held against is taken once, from the first prompts of the study, and kept."""
        probes = self.study.probes
        if probes.activations is None:
            return Probing(probes.affine)
        record = self.facts().get("calibration")
        if record is None:
            self.progress.stage(f"calibrating on {self.folder.label}", 0, None)
            record = calibration(self.prompts, self.loaded.model, shards, layout)
            self.note(calibration=record)
        return Probing(probes.affine, Scale.read(record) if record else None, len(probes.activations.classes) + 1)

    def ticker(self, text: str, missing: Missing, total: int, each: int) -> Callable[[float], None]:
        if len(missing) < total:
            there = f"{total - len(missing)} of {total} shards"
            self.progress.say(f"{text}: {there} are there, going on from them")
        whole, done = sum(len(shard.problems) for shard, _ in missing) * each, 0.0

        def tick(count: float) -> None:
            nonlocal done
            done += count
            self.progress.stage(text, round(done, 3), whole)  # parts of answers are counted as well

        tick(0)
        return tick

    def _twin_of(self) -> ModelFacts:
        """What is known of the model that an untrained twin has its configuration from."""
        twins = {twin: spec.name for spec in self.study.models for twin in self.study.twins(spec.name)}
        return self.store.manifest.get("models", {}).get(twins.get(self.spec.name, ""), {})

    def facts(self) -> ModelFacts:
        return self.store.manifest.get("models", {}).get(self.spec.name, {})

    def note(self, **facts: Unpack[ModelFacts]) -> None:
        if self.facts() == self.facts() | facts:
            return
        models = self.store.manifest.get("models", {})
        self.store.note("models", models | {self.spec.name: self.facts() | facts})


def refuse_missing_layers(study: Study, layers: int, label: str) -> None:
    """An intervention in a layer that is not there would do nothing, and nobody would know."""
    for condition in study.conditions:
        beyond = [layer for layer in getattr(condition.intervention, "layers", ()) if layer > layers]
        if beyond:
            raise ModelError(
                f"condition {condition.name!r} changes layer {beyond[0]}, and {label} has {layers} layers; choose from "
                f"1 to {layers}"
            )


def longest_prompt(prompts: ShardPrompts, shards: Sequence[Shard]) -> int:
    """Tokens of the longest prompt of a study, from the problems with the longest questions."""
    questions = [(shard.start + i, problem) for shard in shards for i, problem in enumerate(shard.problems)]
    longest = sorted(questions, key=lambda one: -len(one[1].question))[:LONG_QUESTIONS]
    items = [prompts.of_problem(number, problem) for number, problem in longest]
    return max((prompt.position_count for item in items for prompt in item.prompts.values()), default=0)


def calibration(prompts: ShardPrompts, model: nn.Module, shards: Sequence[Shard], layout: Layout = "shared") -> Json:
    """Of the first prompts of the study, however it is cut into shards; nothing where there are none."""
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
    prompts: ShardPrompts, gauge: PassRunner, missing: Missing, writer: Writer, tick: Callable[[int], None]
) -> None:
    """Shards measured one after another and written under their names. While a device measures a shard the one before
    is added up and written, and the next one prepared."""
    study = prompts.study
    before: list[tuple[str, Launched]] = []

    def keep() -> None:
        while before:
            name, launched = before.pop()
            writer.put(name, launched.reduced(study))

    with capturing(gauge.model), writer:
        try:
            for shard, name in missing:
                launched = launch(study, prompts.of(shard), gauge, tick)
                keep()
                before.append((name, launched))
        finally:
            keep()


class Writer:
    """Keeps shards in their order, each as soon as it has arrived, while others are measured."""

    AHEAD = 2  # shards that may wait for the disk

    def __init__(self, store: RunStore, kept: Callable[[str, Part], None]) -> None:
        """`kept` is told of every shard that is on disk, in the writer's own thread."""
        self.store, self.kept, self.broken = store, kept, False
        self.thread = ThreadPoolExecutor(1)
        self.waiting: deque[Future[None]] = deque()

    def put(self, name: str, reduced: Reduced) -> None:
        self.waiting.append(self.thread.submit(self._write, name, reduced))
        while len(self.waiting) > self.AHEAD:
            self.waiting.popleft().result()

    def _write(self, name: str, reduced: Reduced) -> None:
        if self.broken:
            return
        self.broken = True  # unless all goes well: behind a shard that is missing none is written
        part = reduced.part()
        self.store.put(name, part)
        self.kept(name, part)
        self.broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What was measured is kept, whatever stopped the rest; and what stopped the writing is told."""
        self.thread.shutdown()
        for future in self.waiting:
            future.result()
