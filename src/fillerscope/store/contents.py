"""The files that the run of a study has when it is finished, by model and shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fillerscope.store.schema import (
    answer_attention_name,
    answers_name,
    merged_name,
    repeated_answers_name,
    shard_name,
)
from fillerscope.study.study import Study

MEASURING, ANSWERING, MEASURING_ANSWERS = "measuring", "answering", "measuring answers"
ANSWERING_AGAIN = "answering again"

ShardName = Callable[[str, int], str]  # the name of a model's file for a shard


def measured_models(study: Study) -> Iterator[tuple[str, Study]]:
    """The models of a study in the order of the work, twins after theirs, each with what is asked of it."""
    for spec in study.models:
        yield spec.name, study
        yield from ((twin, study.untrained) for twin in study.twins(spec.name))


def stage_files(study: Study) -> dict[str, ShardName]:
    """The stages that a study asks for, in the order of the work, with the files of each."""
    stages: dict[str, ShardName] = {}
    if study.probes.attention is not None:
        stages[MEASURING] = shard_name
    if study.generation is not None:
        stages[ANSWERING] = answers_name
    if study.probes.answering:
        stages[MEASURING_ANSWERS] = answer_attention_name
    if study.generation is not None and study.generation.noise is not None:
        stages[ANSWERING_AGAIN] = partial(repeated_answers_name, dtype=study.generation.noise.dtype)
    return stages


def shard_files(study: Study, model: str, shard: int) -> list[str]:
    """The files of a model for one shard."""
    return [named(model, shard) for named in stage_files(study).values()]


def merged_files(study: Study, model: str) -> dict[str, ShardName]:
    """The files of a model in which all shards are merged, with the names of what they are merged from."""
    merged: dict[str, ShardName] = {}
    if study.probes.attention is not None:
        merged[merged_name(model)] = shard_name
    if study.probes.answering:
        merged[answer_attention_name(model)] = answer_attention_name
    return merged
