"""One shard measured: problems under all conditions, from prompts to reduced arrays.

Touches no disk and knows no engine. Pairs never leave a shard, and what a shard gives depends on the
study alone, so any number of workers, kills and resumes ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.answers.request import common_start
from fillerscope.arm.rng import sequence_seed
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Gauge, Measured
from fillerscope.capture.transfer import Arriving
from fillerscope.errors import PromptError
from fillerscope.measure.reduce import reduce
from fillerscope.measure.tally import tally
from fillerscope.problems.problem import Problem
from fillerscope.prompts.prompt import Prompt, PromptMaker, token_texts
from fillerscope.store.run_folder import Part
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study
from fillerscope.study.token_classes import classify

LONGEST_TOKEN = 200  # characters; a question beyond this many for each token is not worth tokenizing
FEWEST_SHARED = 4  # tokens; what is shorter is not worth running apart


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
    classes: NDArray[np.int64] | None = None  # of every token without filler, where activations are wanted


def shards_of(problems: Sequence[Problem], size: int) -> list[Shard]:
    """Cut in order: a function of the study, never of the number of workers."""
    starts = range(0, len(problems), size)
    return [Shard(i, start, tuple(problems[start : start + size])) for i, start in enumerate(starts)]


def run_shard(
    study: Study, shard: Shard, gauge: Gauge, maker: PromptMaker, context: int | None, tick: Callable[[int], None]
) -> Part:
    """Measure a shard inside `capturing`. `tick` is told the number of prompts done as they are."""
    return launch(study, prepare_shard(study, shard, maker, context), gauge, tick).reduced(study, maker).part()


@dataclass(frozen=True)
class Launched:
    """A shard that a device may still be at work on."""

    prepared: list[Prepared]
    todo: list[Prepared]  # those that have prompts
    measured: Measured | None  # the texts of `todo`, all conditions of a problem together
    finite: Callable[[], NDArray[np.bool_]]  # of each text

    def reduced(self, study: Study, maker: PromptMaker) -> Reduced:
        """Wait for the device, and have it add up what the problems gave."""
        good, failed = self._split(study)
        failed += [item for item in self.prepared if item.error]
        records = [_record(item, maker) for item in sorted(good + failed, key=lambda item: item.number)]
        if not good or self.measured is None:
            return Reduced(Arriving({}), records)
        place = {item.number: i * len(study.conditions) for i, item in enumerate(self.todo)}
        names = [condition.name for condition in study.conditions]
        prompts = {name: [item.prompts[name] for item in good] for name in names}
        numbers = {name: [place[item.number] + i for item in good] for i, name in enumerate(names)}
        assert study.probes.attention is not None
        arrays = reduce(prompts, numbers, self.measured, study.probes.attention) | tally(numbers, self.measured)
        return Reduced(Arriving.of(arrays), records)

    def _split(self, study: Study) -> tuple[list[Prepared], list[Prepared]]:
        """Problems that were measured, and those that memory did not hold or whose numbers are not finite."""
        if self.measured is None:
            return [], []
        good, bad = [], []
        finite = self.finite().reshape(len(self.todo), len(study.conditions))
        for place, (item, sound) in enumerate(zip(self.todo, finite, strict=True)):
            if sound.all():
                good.append(item)
                continue
            first = int(sound.argmin())
            unsound = f"attention is not finite under {study.conditions[first].name}"
            reason = self.measured.errors.get(place * len(study.conditions) + first, unsound)
            bad.append(Prepared(item.number, item.problem, {}, reason))
        return good, bad


@dataclass(frozen=True)
class Reduced:
    """Arrays on their way to the host, and the records that go with them."""

    arriving: Arriving
    records: list[dict[str, Any]]

    def part(self) -> Part:
        return Part(self.arriving.arrays(), self.records)


def texts_of(study: Study, items: Sequence[Prepared]) -> list[Text]:
    """What is measured: all conditions of a problem together."""
    shared = {condition.name: _shared(study, items, condition) for condition in study.conditions}
    return [_text(study, item, condition, shared[condition.name]) for item in items for condition in study.conditions]


def launch(
    study: Study, prepared: list[Prepared], gauge: Gauge, tick: Callable[[int], None],
    make: Callable[[Sequence[Prepared]], list[Text]] | None = None,
) -> Launched:  # fmt: skip
    """Set the model to work on all prompts of a shard, or on the texts that `make` gives for them. What is asked of
    a GPU is under way when this returns."""
    tick(sum(len(study.conditions) for item in prepared if item.error))
    todo = [item for item in prepared if not item.error]
    texts = make(todo) if make else texts_of(study, todo)
    if not texts:
        return Launched(prepared, todo, None, lambda: np.ones(0, np.bool_))
    measured = gauge.measure(texts, tick)
    return Launched(prepared, todo, measured, measured.finite())


def plain_texts(study: Study, items: Sequence[Prepared]) -> list[Text]:
    """The same without filler alone, each from its first token."""
    return [_text(study, item, study.conditions[0], 0) for item in items]


def _text(study: Study, item: Prepared, condition: Condition, shared: int) -> Text:
    prompt = item.prompts[condition.name]
    change, key = changed(study, condition, prompt)
    text = Text(
        prompt.ids, prompt.original, shared, gap=(prompt.question_start, prompt.gap), change=change, key=key,
        keeps=_keeps(study, item) if condition.is_baseline else None,
    )  # fmt: skip
    if not (study.probes.affine or study.probes.activations):
        return text
    classes = np.zeros(len(prompt), dtype=np.int64)
    if item.classes is not None:
        classes[prompt.positions] = item.classes
    return replace(text, problem=item.number, wanted=prompt.reached, classes=classes)


def _keeps(study: Study, item: Prepared) -> NDArray[np.float32] | None:
    """What each row of the prompt without filler keeps of its weight where every filler token before it takes as
    much as an average token that the row sees. At a place that differs between problems, what they begin with would
    not be the same for all of them."""
    condition = study.reference
    if condition is None or condition.position == "random":
        return None
    places = item.prompts[condition.name].positions
    numbers = np.arange(len(places))
    return ((numbers + 1) / (places + 1)).astype(np.float32)


def changed(
    study: Study, condition: Condition, prompt: Prompt, sample: int = 0
) -> tuple[Redistribution | Knockout | None, int]:
    """What is done to a prompt inside the model, and the key of the random numbers in it. Samples draw their own;
    what is measured of a prompt, and of its first answer, has those of sample 0."""
    change = condition.intervention
    if isinstance(change, Redistribution):
        return change, sequence_seed(study.seed, prompt.ids, sample)
    return (change, 0) if isinstance(change, Knockout) else (None, 0)


def _shared(study: Study, items: Sequence[Prepared], condition: Condition) -> int:
    """How many tokens before the question all prompts of a condition begin with: these need to be run only once.
    What is done to activations is done to a prompt as a whole, and what is hidden is not to be seen from behind."""
    prompts = [item.prompts[condition.name] for item in items]
    if study.batch.prefix == "off" or not prompts or isinstance(condition.intervention, Redistribution):
        return 0
    shared = min(common_start([prompt.ids for prompt in prompts]), *(prompt.question_start for prompt in prompts))
    if isinstance(condition.intervention, Knockout):
        shared = min(shared, *(prompt.filler_start or 0 for prompt in prompts))
    return shared if shared >= FEWEST_SHARED else 0


def prepare_shard(study: Study, shard: Shard, maker: PromptMaker, context: int | None) -> list[Prepared]:
    """The prompts that attention is measured on are those that are answered, token for token."""
    return [prepare(study, maker, context, shard.start + i, p) for i, p in enumerate(shard.problems)]


def prepare(study: Study, maker: PromptMaker, context: int | None, number: int, problem: Problem) -> Prepared:
    """All prompts of a problem. One that cannot be made takes the problem out under every condition."""
    if context is not None and len(problem.question) > LONGEST_TOKEN * context:
        return Prepared(
            number, problem, {}, f"{len(problem.question)} characters, and the model takes {context} tokens"
        )
    try:
        plain = maker.plain(problem.question)
    except PromptError as error:
        return Prepared(number, problem, {}, str(error))
    prompts = {c.name: maker.make(problem, c, plain) if not c.is_baseline else plain for c in study.conditions}
    longest = max(prompt.room for prompt in prompts.values())
    if context is not None and longest > context:
        reason = f"{longest} tokens, and the model takes {context}; ask for less filler, or leave the problem out"
        return Prepared(number, problem, {}, reason)
    probe = study.probes.activations
    classes = None if probe is None else classify(token_texts(maker.tokenizer, plain.ids), probe.classes)
    return Prepared(number, problem, prompts, classes=classes)


def _record(item: Prepared, maker: PromptMaker) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "number": item.number,
        "id": item.problem.id,
        "status": "failed" if item.error else "ok",
    }
    if item.error:
        return entry | {"error": item.error}
    return entry | {
        "tokens": token_texts(maker.tokenizer, item.prompts["none"].ids),
        "prompts": {
            name: {"ids": p.ids, "spans": p.spans} | ({"gap": p.gap} if p.gap else {})
            for name, p in item.prompts.items()
        },
    }
