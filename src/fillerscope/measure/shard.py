"""One shard measured: problems under all conditions, from prompts to reduced arrays.

Touches no disk and knows no engine. Pairs never leave a shard, and what a shard gives depends on the
study alone, so any number of workers, kills and resumes ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fillerscope.answers.request import common_start
from fillerscope.arm.rng import sequence_seed
from fillerscope.capture.memory import PendingCopy
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Measured, PassRunner
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.reduce import reduce
from fillerscope.measure.tally import tally
from fillerscope.prompts.prompt import Prompt
from fillerscope.store.run_folder import Part
from fillerscope.store.schema import ProblemRecord, PromptRecord
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study

FEWEST_SHARED = 4  # tokens; what is shorter is not worth running apart


@dataclass(frozen=True)
class Launched:
    """A shard that a device may still be at work on."""

    prepared: list[Prepared]
    todo: list[Prepared]  # those that have prompts
    measured: Measured | None  # the texts of `todo`, all conditions of a problem together
    finite: Callable[[], NDArray[np.bool_]]  # of each text

    def reduced(self, study: Study) -> Reduced:
        """Wait for the device, and have it add up what the problems gave."""
        good, failed = self._split(study)
        failed += [item for item in self.prepared if item.error]
        records = [_record(item) for item in sorted(good + failed, key=lambda item: item.number)]
        if not good or self.measured is None:
            return Reduced(PendingCopy({}), records)
        place = {item.number: i * len(study.conditions) for i, item in enumerate(self.todo)}
        names = [condition.name for condition in study.conditions]
        prompts = {name: [item.prompts[name] for item in good] for name in names}
        numbers = {name: [place[item.number] + i for item in good] for i, name in enumerate(names)}
        assert study.probes.attention is not None
        arrays = reduce(prompts, numbers, self.measured, study.probes.attention) | tally(numbers, self.measured)
        return Reduced(PendingCopy.of(arrays), records)

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

    arriving: PendingCopy
    records: list[ProblemRecord]

    def part(self) -> Part:
        return Part(self.arriving.arrays(), self.records)


def texts_of(study: Study, items: Sequence[Prepared]) -> list[Text]:
    """What is measured: all conditions of a problem together."""
    shared = {condition.name: _shared(study, items, condition) for condition in study.conditions}
    return [_text(study, item, condition, shared[condition.name]) for item in items for condition in study.conditions]


def launch(
    study: Study, prepared: list[Prepared], gauge: PassRunner, tick: Callable[[int], None],
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
        row_weights=_keeps(study, item) if condition.is_baseline else None,
    )  # fmt: skip
    if not (study.probes.affine or study.probes.activations):
        return text
    classes = np.zeros(len(prompt), dtype=np.int64)
    if item.classes is not None:
        classes[prompt.positions] = item.classes
    return replace(text, problem=item.number, probed=prompt.question_and_tail, classes=classes)


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


def _record(item: Prepared) -> ProblemRecord:
    if item.error:
        return {"number": item.number, "id": item.problem.id, "status": "failed", "error": item.error}
    prompts = {name: _prompt_record(prompt) for name, prompt in item.prompts.items()}
    tokens = list(item.tokens)
    return {"number": item.number, "id": item.problem.id, "status": "ok", "tokens": tokens, "prompts": prompts}


def _prompt_record(prompt: Prompt) -> PromptRecord:
    record: PromptRecord = {"ids": list(prompt.ids), "spans": list(prompt.spans)}
    return record | {"gap": prompt.gap} if prompt.gap else record
