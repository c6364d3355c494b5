"""One shard measured: problems under all conditions, from prompts to reduced arrays.

Touches no disk and knows no engine. Pairs never leave a shard, and what a shard gives depends on the
study alone, so any number of workers, kills and resumes ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.capture.attention import TextAttention, record
from fillerscope.errors import PromptError
from fillerscope.headsummary import summarise
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length
from fillerscope.problem import Problem
from fillerscope.prompts import Prompt, PromptMaker, token_texts
from fillerscope.reducers import Moments
from fillerscope.store import Part
from fillerscope.study import Study

Floats = NDArray[np.float64]
LONGEST_TOKEN = 200  # characters; a question beyond this many for each token is not worth tokenizing


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


def shards_of(problems: Sequence[Problem], size: int) -> list[Shard]:
    """Cut in order: a function of the study, never of the number of workers."""
    starts = range(0, len(problems), size)
    return [Shard(i, start, tuple(problems[start : start + size])) for i, start in enumerate(starts)]


def run_shard(study: Study, shard: Shard, model: LoadedModel, maker: PromptMaker, tick: Callable[[int], None]) -> Part:
    """Measure a shard inside `capturing`. `tick` is told the number of prompts done as they are."""
    prepared = prepare_shard(study, shard, maker, context_length(model.model))
    tick(sum(len(study.conditions) for item in prepared if item.error))
    todo = [item for item in prepared if not item.error]
    jobs = [(item.number, name, prompt) for item in todo for name, prompt in item.prompts.items()]
    found: dict[tuple[int, str], TextAttention] = {}
    for batch in batches([prompt for *_, prompt in jobs], study.batch.tokens):
        chosen = [jobs[i] for i in batch]
        measured = record(model.model, [p.ids for *_, p in chosen], [p.original for *_, p in chosen])
        found |= {job[:2]: attention for job, attention in zip(chosen, measured, strict=True)}
        tick(len(batch))
    todo, failed = _split(todo, found)
    failed += [item for item in prepared if item.error]
    records = [_record(item, maker) for item in sorted(todo + failed, key=lambda item: item.number)]
    return Part(reduce(study, todo, found), records)


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
    prompts = {c.name: maker.make(problem, c) if c.kind != "none" else plain for c in study.conditions}
    longest = max(len(prompt) for prompt in prompts.values())
    if context is not None and longest > context:
        reason = f"{longest} tokens, and the model takes {context}; ask for less filler, or leave the problem out"
        return Prepared(number, problem, {}, reason)
    return Prepared(number, problem, prompts)


def batches(prompts: Sequence[Sized], tokens: int) -> Iterable[list[int]]:
    """Indices of prompts of similar length, so that padding is small, within a budget of padded tokens."""
    batch: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i)):
        if batch and (len(batch) + 1) * len(prompts[index]) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def reduce(study: Study, todo: list[Prepared], found: dict[tuple[int, str], TextAttention]) -> dict[str, Any]:
    """Profiles as moments over problems, and the summary of every head for every problem."""
    if not todo:
        return {}
    probe = study.probes.attention
    assert probe is not None
    arrays: dict[str, Any] = {}
    baseline: list[Floats] = []
    for condition in study.conditions:
        prompts = [item.prompts[condition.name] for item in todo]
        texts = [found[item.number, condition.name] for item in todo]
        whole = [text.mean_received(probe.diagonal) for text in texts]
        aligned = [r[..., p.positions] for r, p in zip(whole, prompts, strict=True)]
        parts = {"whole": _moments(whole, probe.positions), "aligned": _moments(aligned, probe.positions)}
        if condition.kind == "none":
            baseline = aligned
        else:
            parts |= _paired(aligned, baseline, probe.positions)
        for view, moments in parts.items():
            arrays |= {f"{condition.name}/{view}/{key}": array for key, array in moments.state().items()}
        plain = [item.prompts["none"] for item in todo]
        arrays |= {
            f"{condition.name}/{key}": array
            for key, array in summarise(texts, whole, prompts, plain, probe.skip_first).items()
        }
    return arrays


def stack_profiles(profiles: Sequence[Floats], positions: int) -> Floats:
    """Profiles of unequal length as one array, aligned from the start, NaN where a text has ended."""
    width = min(positions, max(profile.shape[-1] for profile in profiles))
    values = np.full((len(profiles), *profiles[0].shape[:-1], width), np.nan)
    for row, profile in zip(values, profiles, strict=True):
        row[..., : profile.shape[-1]] = profile[..., :width]
    return values


def _paired(with_filler: list[Floats], without: list[Floats], positions: int) -> dict[str, Moments]:
    pairs = list(zip(with_filler, without, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [np.log(a) - np.log(b) for a, b in pairs]
    ratios = stack_profiles(logs, positions)
    return {
        "difference": _moments([a - b for a, b in pairs], positions),
        "logratio": Moments.of(ratios, np.isfinite(ratios)),
    }


def _moments(profiles: list[Floats], positions: int) -> Moments:
    """Which positions have a value does not depend on layer or head, so neither does the count."""
    values = stack_profiles(profiles, positions)
    return Moments.of(values, np.isfinite(values[:, :, :1, :1]))


def _split(todo: list[Prepared], found: dict[tuple[int, str], TextAttention]) -> tuple[list[Prepared], list[Prepared]]:
    """Problems that were measured, and those where the model gave numbers that are not finite."""
    good, bad = [], []
    for item in todo:
        names = [name for name in item.prompts if not found[item.number, name].finite]
        if names:
            bad.append(Prepared(item.number, item.problem, {}, f"attention is not finite under {names[0]}"))
        else:
            good.append(item)
    return good, bad


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
        "prompts": {name: {"ids": p.ids, "spans": p.spans} for name, p in item.prompts.items()},
    }
