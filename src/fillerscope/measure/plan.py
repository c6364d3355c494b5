"""The stages of a run as progress reports them: their texts, how much work each is, and what is done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from fillerscope.measure.prepare import Shard
from fillerscope.progress import PlannedStage
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answer_attention_name, answers_name, repeated_answers_name, shard_name
from fillerscope.study.generation import GenerationSpec
from fillerscope.study.study import Study

TOKENS_LIKE_A_PROMPT = 32  # tokens of an answer that take about as long as measuring a prompt

FileName = Callable[[str, int], str]  # of a model's shard


def measuring(label: str) -> str:
    return f"measuring {label}"


def answering(label: str) -> str:
    return f"answering with {label}"


def measuring_answers(label: str) -> str:
    return f"measuring answers of {label}"


def answering_again(label: str) -> str:
    return f"answering again with {label}"


def samples(spec: GenerationSpec) -> int:
    """Answers to each prompt, over all temperatures."""
    return sum(spec.drawn(temperature) for temperature in spec.temperature)


def stages(
    study: Study, model: str, label: str, shards: Sequence[Shard], store: RunStore
) -> dict[str, PlannedStage]:  # fmt: skip
    """The stages of one model, by their texts. A unit is a prompt measured or an answer written."""
    return {
        text: PlannedStage(
            text.removesuffix(label), each * _problems(shards),
            each * _problems([shard for shard in shards if store.is_sound(name(model, shard.index))]), cost,
        )
        for text, name, each, cost in _stages(study, label)
    }  # fmt: skip


def _problems(shards: Sequence[Shard]) -> int:
    return sum(len(shard.problems) for shard in shards)


def _stages(study: Study, label: str) -> Iterator[tuple[str, FileName, int, float]]:
    """Text, files, units of a problem, and cost of a unit."""
    conditions, generation = len(study.conditions), study.generation
    if study.probes.attention is not None:
        yield measuring(label), shard_name, conditions, 1.0
    if generation is not None:
        cost = generation.max_tokens / TOKENS_LIKE_A_PROMPT
        yield answering(label), answers_name, conditions * samples(generation), cost
        if generation.noise is not None:
            repeated: FileName = partial(repeated_answers_name, dtype=generation.noise.dtype)
            yield answering_again(label), repeated, samples(generation), cost
    if study.probes.answering:
        yield measuring_answers(label), answer_attention_name, conditions, 1.0
