"""The measurement of one shard: problems under all conditions, from prompts to reduced arrays.

Touches no disk and knows no engine. A shard holds all conditions of its problems and depends on the study alone, so
that any number of workers, kills and resumes gives the same bytes.
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
from fillerscope.store.array_file import Part
from fillerscope.store.schema import ProblemRecord, PromptRecord
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study

SHORTEST_PREFIX = 4  # tokens; a shorter prefix is not worth a pass of its own


@dataclass(frozen=True)
class PendingShard:
    """A shard whose passes were started; a GPU may still be computing them."""

    prepared: list[Prepared]
    todo: list[Prepared]  # those that have prompts
    measured: Measured | None  # the texts of `todo`, all conditions of a problem together
    finite: Callable[[], NDArray[np.bool_]]  # waits, and says of each text whether its numbers are finite
    of_all: PendingCopy | None = None  # the arrays of all of `todo`, where they were asked for beforehand

    def reducing(self, study: Study) -> PendingShard:
        """The same shard, whose reduction over all of its problems is started as well: a GPU computes it behind the
        passes, before the host knows that all numbers are finite."""
        if self.measured is None or self.measured.errors:
            return self
        return replace(self, of_all=self._reduction(study, self.todo, self.measured))

    def reduced(self, study: Study) -> ReducedShard:
        """Wait for the device and reduce what it measured over the problems."""
        good, failed = self._split(study)
        failed += [item for item in self.prepared if item.error]
        records = [_record(item) for item in sorted(good + failed, key=lambda item: item.number)]
        if not good or self.measured is None:
            return ReducedShard(PendingCopy({}), records)
        if self.of_all is not None and len(good) == len(self.todo):
            return ReducedShard(self.of_all, records)
        return ReducedShard(self._reduction(study, good, self.measured), records)

    def _reduction(self, study: Study, items: list[Prepared], measured: Measured) -> PendingCopy:
        """The arrays of some problems, which are being copied to the host."""
        place = {item.number: i * len(study.conditions) for i, item in enumerate(self.todo)}
        names = [condition.name for condition in study.conditions]
        prompts = {name: [item.prompts[name] for item in items] for name in names}
        numbers = {name: [place[item.number] + i for item in items] for i, name in enumerate(names)}
        assert study.probes.attention is not None
        return PendingCopy.of(reduce(prompts, numbers, measured, study.probes.attention) | tally(numbers, measured))

    def _split(self, study: Study) -> tuple[list[Prepared], list[Prepared]]:
        """Problems that were measured, and those that ran out of memory or whose numbers are not finite."""
        if self.measured is None:
            return [], []
        good, bad = [], []
        finite = self.finite().reshape(len(self.todo), len(study.conditions))
        for place, (item, is_finite) in enumerate(zip(self.todo, finite, strict=True)):
            if is_finite.all():
                good.append(item)
                continue
            first = int(is_finite.argmin())
            not_finite = f"attention is not finite under {study.conditions[first].name}"
            reason = self.measured.errors.get(place * len(study.conditions) + first, not_finite)
            bad.append(Prepared(item.number, item.problem, {}, reason))
        return good, bad


@dataclass(frozen=True)
class ReducedShard:
    """Arrays that are being copied to the host, and the records of their problems."""

    arriving: PendingCopy
    records: list[ProblemRecord]

    def part(self) -> Part:
        return Part(self.arriving.arrays(), self.records)


def texts_of(study: Study, items: Sequence[Prepared]) -> list[Text]:
    """The texts to measure: problem by problem, each under all conditions."""
    prefix = {condition.name: _prefix_length(study, items, condition) for condition in study.conditions}
    return [_text(study, item, condition, prefix[condition.name]) for item in items for condition in study.conditions]


def start_shard(
    study: Study, prepared: list[Prepared], gauge: PassRunner, tick: Callable[[int], None],
    make: Callable[[Sequence[Prepared]], list[Text]] | None = None,
) -> PendingShard:  # fmt: skip
    """Start the passes of all prompts of a shard, or of the texts that `make` gives for them.

    A GPU may still be computing when this returns."""
    tick(sum(len(study.conditions) for item in prepared if item.error))
    todo = [item for item in prepared if not item.error]
    texts = make(todo) if make else texts_of(study, todo)
    if not texts:
        return PendingShard(prepared, todo, None, lambda: np.ones(0, np.bool_))
    measured = gauge.measure(texts, tick)
    return PendingShard(prepared, todo, measured, measured.finite())


def text_under(study: Study, item: Prepared, condition: Condition) -> Text:
    """The text of one problem under one condition, without a shared prefix."""
    return _text(study, item, condition, 0)


def plain_texts(study: Study, items: Sequence[Prepared]) -> list[Text]:
    """The texts of the baseline, without a shared prefix."""
    return [text_under(study, item, study.conditions[0]) for item in items]


def _text(study: Study, item: Prepared, condition: Condition, prefix: int) -> Text:
    prompt = item.prompts[condition.name]
    change, key = changed(study, condition, prompt)
    text = Text(
        prompt.ids, prompt.original, prefix, gap=(prompt.question_start, prompt.gap), change=change, key=key,
        row_weights=_row_weights(study, item) if condition.is_baseline else None,
    )  # fmt: skip
    if not (study.probes.affine or study.probes.activations):
        return text
    classes = np.zeros(len(prompt), dtype=np.int64)
    if item.classes is not None:
        classes[prompt.positions] = item.classes
    return replace(text, problem=item.number, probed=prompt.question_and_tail, classes=classes)


def _row_weights(study: Study, item: Prepared) -> NDArray[np.float32] | None:
    """The share of its weight that each query row of the baseline would keep if every filler token before it took as
    much as an average token that the row sees. None where filler is at random places: prefixes would not be shared."""
    condition = study.reference
    if condition is None or condition.position == "random":
        return None
    places = item.prompts[condition.name].positions
    numbers = np.arange(len(places))
    return ((numbers + 1) / (places + 1)).astype(np.float32)


def changed(
    study: Study, condition: Condition, prompt: Prompt, sample: int = 0
) -> tuple[Redistribution | Knockout | None, int]:
    """The intervention on a prompt and the key of its random numbers, which differ from sample to sample.

    Prompts, and their first answers, are measured with those of sample 0."""
    change = condition.intervention
    if isinstance(change, Redistribution):
        return change, sequence_seed(study.seed, prompt.ids, sample)
    return (change, 0) if isinstance(change, Knockout) else (None, 0)


def _prefix_length(study: Study, items: Sequence[Prepared], condition: Condition) -> int:
    """How many tokens before the question the prompts of a condition share: their prefix is computed once.

    A redistribution acts on a prompt as a whole, so there is no prefix; a knockout needs the filler outside of it."""
    prompts = [item.prompts[condition.name] for item in items]
    if study.batch.prefix == "off" or not prompts or isinstance(condition.intervention, Redistribution):
        return 0
    prefix = min(common_start([prompt.ids for prompt in prompts]), *(prompt.question_start for prompt in prompts))
    if isinstance(condition.intervention, Knockout):
        prefix = min(prefix, *(prompt.filler_start or 0 for prompt in prompts))
    return prefix if prefix >= SHORTEST_PREFIX else 0


def _record(item: Prepared) -> ProblemRecord:
    if item.error:
        return {"number": item.number, "id": item.problem.id, "status": "failed", "error": item.error}
    prompts = {name: _prompt_record(prompt) for name, prompt in item.prompts.items()}
    tokens = list(item.tokens)
    return {"number": item.number, "id": item.problem.id, "status": "ok", "tokens": tokens, "prompts": prompts}


def _prompt_record(prompt: Prompt) -> PromptRecord:
    record: PromptRecord = {"ids": list(prompt.ids), "spans": list(prompt.spans)}
    return record | {"gap": prompt.gap} if prompt.gap else record
