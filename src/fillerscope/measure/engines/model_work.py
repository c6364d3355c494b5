"""One model at work on a study: what all stages share, loaded and checked once.

Knows which model, which prompts and which facts are noted; not what is measured or answered.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Unpack

import torch

from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.passes import Layout
from fillerscope.capture.row_check import check_rows
from fillerscope.measure.prepare import Shard, ShardPrompts, refuse_missing_layers
from fillerscope.models.hashed_view import HashedView
from fillerscope.models.in_memory import ModelSource, context_of, load_source, tokenizer_of
from fillerscope.models.loading import LoadedModel
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.structure import layer_count, vocabulary_of
from fillerscope.models.tensor_parallel import least
from fillerscope.models.tokenizer_rules import other_splits
from fillerscope.progress import Progress
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.array_file import Part
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import ModelFacts
from fillerscope.study.study import ModelSpec, Study

MissingShards = list[tuple[Shard, str]]  # shards to compute, each with the name of its file
OnReduced = Callable[[str, Part], None]  # called with the name of a shard's file and what is in it
LONG_QUESTIONS = 8  # problems among which the longest prompt is looked for
SLOWER_LAYOUTS = {
    "packed": "its texts do not share prefixes, which would change its numbers",
    "apart": "each text has a row of its own, because the model carries a state along a row; this is slower",
}


@dataclass
class ModelWork:
    """A model of a study, and where its results go. The model is loaded on first use."""

    study: Study
    spec: ModelSpec
    folder: ModelSource
    store: RunStore
    progress: Progress
    said: set[str] = field(default_factory=set)  # by generators, of which a run makes several
    _mapped: list[HashedView] = field(default_factory=list)  # files that models in use may still read

    @cached_property
    def loaded(self) -> LoadedModel:
        self.progress.stage(f"loading {self.folder.label}", 0, None)
        loaded = self._load(self.spec.dtype)
        refuse_missing_layers(self.study, layer_count(loaded.model), loaded.label)
        return loaded

    def _load(self, dtype: str) -> LoadedModel:
        loaded = load_source(self.folder, dtype, self.study.device)
        if loaded.mapped is not None:
            self._mapped.append(loaded.mapped)
        return loaded

    def refuse_changed(self) -> None:
        """Raise where weights that were read while the model was used are not those that it was loaded with."""
        for view in self._mapped:
            view.refuse_exchanged()

    def reload(self, dtype: str) -> LoadedModel:
        """The model in another dtype. The one in use is dropped first, as memory may not hold both."""
        self.unload()
        self.progress.stage(f"loading {self.folder.label} in {dtype}", 0, None)
        return self._load(dtype)

    def unload(self) -> None:
        """Drop the model, which is loaded again where it is asked for."""
        assert self.prompts  # made with the model that is dropped
        self.__dict__.pop("loaded", None)
        self._mapped.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @cached_property
    def prompts(self) -> ShardPrompts:
        """The prompts of the study for this model. With an endpoint only the tokenizer is loaded for them."""
        tokenizer = tokenizer_of(self.folder) if self.spec.endpoint else self.loaded.tokenizer
        known = None if self.spec.endpoint else vocabulary_of(self.loaded.model)
        study = self.study
        maker = PromptMaker.of(tokenizer, study.prompt, study.template_of(self.spec), study.seed, known)
        self.note(label=self.folder.label, template=maker.template)
        if isinstance(self.folder, ModelFolder) and (said := other_splits(tokenizer, self.folder.path)):
            self.say_once(said)
            self.note(tokenizer=said)
        return ShardPrompts(self.study, maker, context_of(self.folder))

    def say_once(self, text: str) -> None:
        """Say something of the model, unless that was said before."""
        if text not in self.said:
            self.said.add(text)
            self.progress.say(f"{self.folder.label}: {text}")

    def missing(self, shards: Sequence[Shard], name: Callable[[str, int], str]) -> MissingShards:
        """The shards whose files are missing or damaged."""
        names = [(shard, name(self.spec.name, shard.index)) for shard in shards]
        return [(shard, file) for shard, file in names if not self.store.is_sound(file)]

    def pass_tokens(self) -> int:
        """Tokens of one forward pass. A resumed run takes the number noted before, so that its bytes stay the same."""
        tokens = self.study.batch.tokens or self.facts().get("batch_tokens") or least(pass_tokens(self.loaded.model))
        self.note(batch_tokens=tokens)
        return int(tokens)

    def layout(self, shards: Sequence[Shard]) -> Layout:
        """How texts share rows of a batch: checked once a run against each text alone."""
        record = self.facts().get("rowcheck") or self._trained_facts().get("rowcheck")
        if record is None:
            longest = longest_prompt(self.prompts, shards)
            row = max(self.pass_tokens(), longest * len(self.study.conditions))  # a problem's prompts share a row
            check = check_rows(self.loaded, longest, row)
            if check.layout in SLOWER_LAYOUTS:
                self.progress.say(f"{self.loaded.label}: {SLOWER_LAYOUTS[check.layout]}")
            record = check.record()
        self.note(rowcheck=record)
        layout: Layout = record["layout"]
        return layout

    def counter(self, text: str, missing: MissingShards, shards: int, per_problem: int) -> Callable[[float], None]:
        """A function that reports progress on the missing shards; it is called with how much more is done."""
        if len(missing) < shards:
            self.progress.say(f"{text}: resuming, {shards - len(missing)} of {shards} shards are done")
        total, done = sum(len(shard.problems) for shard, _ in missing) * per_problem, 0.0

        def tick(count: float) -> None:
            nonlocal done
            done += count
            self.progress.stage(text, round(done, 3), total)  # parts of answers are counted as well

        tick(0)
        return tick

    def facts(self) -> ModelFacts:
        """What the manifest notes about this model."""
        return self._facts_of(self.spec.name)

    def note(self, **facts: Unpack[ModelFacts]) -> None:
        if self.facts() == self.facts() | facts:
            return
        self.refuse_changed()  # what is noted is believed when the run is resumed
        models = self.store.manifest.get("models", {})
        self.store.note("models", models | {self.spec.name: self.facts() | facts})

    def _trained_facts(self) -> ModelFacts:
        """The facts of the trained model whose configuration this untrained twin has."""
        trained = {twin: spec.name for spec in self.study.models for twin in self.study.twins(spec.name)}
        return self._facts_of(trained.get(self.spec.name, ""))

    def _facts_of(self, model: str) -> ModelFacts:
        return self.store.manifest.get("models", {}).get(model, {})


def longest_prompt(prompts: ShardPrompts, shards: Sequence[Shard]) -> int:
    """The number of tokens of a study's longest prompt, among the problems with the longest questions."""
    questions = [(shard.start + i, problem) for shard in shards for i, problem in enumerate(shard.problems)]
    longest = sorted(questions, key=lambda one: -len(one[1].question))[:LONG_QUESTIONS]
    items = [prompts.of_problem(number, problem) for number, problem in longest]
    return max((prompt.position_count for item in items for prompt in item.prompts.values()), default=0)
