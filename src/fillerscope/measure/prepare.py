"""The prompts of a shard: problems under all conditions, made once for all stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import ModelError, PromptError
from fillerscope.problems.problem import Problem
from fillerscope.prompts.chat_template import TemplateLimitError
from fillerscope.prompts.prompt import Prompt, PromptMaker
from fillerscope.store.job_part import JobPart
from fillerscope.study.study import Study
from fillerscope.study.token_classes import classify

LONGEST_TOKEN = 200  # characters; a question beyond this many for each token is not worth tokenizing
CACHED_TOKENS = 1 << 22  # of prompts that are cached between stages; a token takes some 40 bytes
CACHED_FIRST = 1 << 17  # where there is one stage: those of the first shards, of which passes are sized


@dataclass(frozen=True)
class Shard:
    """A fixed group of problems; `start` is the number of its first problem in the study."""

    index: int
    start: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Prepared:
    """A problem with its prompts by condition, or the reason why it has none."""

    number: int
    problem: Problem
    prompts: dict[str, Prompt]
    error: str = ""
    may_pass: bool = False  # whether the error is not the question's: it may not come again
    tokens: tuple[str, ...] = ()  # texts of the tokens without filler
    heading: str = ""  # of a question in a raw prompt, at which an answer ends
    room: int | None = None  # tokens beside the longest prompt: an answer has no more under any condition
    classes: NDArray[np.int64] | None = None  # of every token without filler, where activations are wanted


def shards_of(problems: Sequence[Problem], size: int) -> list[Shard]:
    """Cut problems into shards in order: a function of the study, never of the number of workers."""
    starts = range(0, len(problems), size)
    return [Shard(i, start, tuple(problems[start : start + size])) for i, start in enumerate(starts)]


@dataclass(frozen=True)
class StudyShards:
    """All shards of a study, and the part of them that this job measures."""

    all: Sequence[Shard]
    part: JobPart | None = None  # None: all of them

    @property
    def own(self) -> Sequence[Shard]:
        return self.all if self.part is None else [shard for shard in self.all if self.part.has(shard.index)]


@dataclass
class ShardPrompts:
    """The prompts of a study for one model, the same token for token for measuring and answering."""

    study: Study
    maker: PromptMaker
    context: int | None  # tokens that the model takes; None where it does not say
    _cache: dict[int, list[Prepared]] = field(default_factory=dict)
    _free: int = field(init=False)

    def __post_init__(self) -> None:
        self._free = CACHED_FIRST if self.study.generation is None else CACHED_TOKENS

    def of(self, shard: Shard) -> list[Prepared]:
        """The problems of a shard with their prompts, cached up to a number of tokens."""
        if shard.index in self._cache:
            return self._cache[shard.index]
        items = [self.of_problem(shard.start + i, problem) for i, problem in enumerate(shard.problems)]
        size = sum(len(prompt) for item in items for prompt in item.prompts.values())
        if size <= self._free:
            self._cache[shard.index], self._free = items, self._free - size
        return items

    def of_problem(self, number: int, problem: Problem) -> Prepared:
        return prepare(self.study, self.maker, self.context, number, problem)


def prepare(study: Study, maker: PromptMaker, context: int | None, number: int, problem: Problem) -> Prepared:
    """All prompts of a problem. If one cannot be made, the problem fails under every condition."""
    if context is not None and len(problem.question) > LONGEST_TOKEN * context:
        return Prepared(
            number, problem, {}, f"{len(problem.question)} characters, and the model takes {context} tokens"
        )
    try:
        plain = maker.plain(problem.question)
    except PromptError as error:
        return Prepared(number, problem, {}, str(error), may_pass=isinstance(error, TemplateLimitError))
    prompts = {c.name: maker.make(problem, c, plain) if not c.is_baseline else plain for c in study.conditions}
    longest = max(prompt.position_count for prompt in prompts.values())
    if context is not None and longest > context:
        reason = f"{longest} tokens, and the model takes {context}; ask for less filler, or leave the problem out"
        return Prepared(number, problem, {}, reason)
    probe, tokens = study.probes.activations, tuple(map(maker.token_text, plain.ids))
    classes = None if probe is None else classify(tokens, probe.classes)
    room = None if context is None else context - longest
    return Prepared(number, problem, prompts, tokens=tokens, heading=maker.heading, room=room, classes=classes)


def refuse_missing_layers(study: Study, layers: int, label: str) -> None:
    """Raise where an intervention names a layer that the model does not have: it would silently do nothing."""
    for condition in study.conditions:
        beyond = [layer for layer in getattr(condition.intervention, "layers", ()) if layer > layers]
        if beyond:
            raise ModelError(
                f"condition {condition.name!r} changes layer {beyond[0]}, and {label} has {layers} layers; choose from "
                f"1 to {layers}"
            )
