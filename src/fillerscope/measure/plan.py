"""The stages of a run as progress reports them: their texts, how much work each is, and what is done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fillerscope.measure.prepare import Shard, StudyShards
from fillerscope.progress import PlannedStage
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS, stage_files
from fillerscope.store.run_folder import RunStore
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


class StageWork(NamedTuple):
    """A stage of a model: its name in `store.contents`, its text, and how much work it is."""

    stage: str
    text: str
    each: int  # units of a problem; a unit is a prompt measured or an answer written
    cost: float  # of a unit


def stages(
    study: Study, model: str, label: str, shards: StudyShards, store: RunStore, planned: Mapping[str, float]
) -> dict[str, PlannedStage]:  # fmt: skip
    """The stages of one model, by their texts. `planned` are the seconds that stages of the whole study will take."""
    files = stage_files(study)
    return {
        one.text: PlannedStage(
            one.text.removesuffix(label), one.each * _problems(shards.own),
            one.each * _problems([one_shard for one_shard in shards.own
                                  if store.is_sound(files[one.stage](model, one_shard.index))]),
            one.cost,
            planned[one.stage] / max(1, one.each * _problems(shards.all)) if one.stage in planned else None,
        )
        for one in stage_works(study, label)
    }  # fmt: skip


def _problems(shards: Sequence[Shard]) -> int:
    return sum(len(shard.problems) for shard in shards)


def stage_works(study: Study, label: str) -> Iterator[StageWork]:
    """The stages that a study asks for, in the order of the work."""
    conditions, generation = len(study.conditions), study.generation
    answers = samples(generation) if generation is not None else 0
    cost = generation.max_tokens / TOKENS_LIKE_A_PROMPT if generation is not None else 0.0
    works = (
        StageWork(MEASURING, measuring(label), conditions, 1.0),
        StageWork(ANSWERING, answering(label), conditions * answers, cost),
        StageWork(MEASURING_ANSWERS, measuring_answers(label), conditions, 1.0),
        StageWork(ANSWERING_AGAIN, answering_again(label), answers, cost),
    )
    return (work for work in works if work.stage in stage_files(study))
