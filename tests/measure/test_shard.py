"""Shards against a slow reference: whole matrices from eager attention, and the definitions in plain loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.errors import PromptError
from fillerscope.measure.prepare import Shard, shards_of
from fillerscope.measure.shard import start_shard
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import context_length, decoder_of
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import Prompt, PromptMaker
from fillerscope.store.array_file import Part
from fillerscope.store.schema import METRICS
from fillerscope.study.study import Study
from support.grid import some_fast
from support.shards import prepare_shard, run_shard
from support.studies import merge, study_of
from support.tiny import tiny_model, tiny_tokenizer

VIEWS = ("whole", "aligned", "difference", "logratio")


def loaded(family: str = "llama", **overrides: Any) -> LoadedModel:
    return wrap(tiny_model(family, **overrides), tiny_tokenizer(), "tiny")


def maker_for(study: Study, model: LoadedModel) -> PromptMaker:
    return PromptMaker.of(model.tokenizer, study.prompt, study.prompt.template, study.seed)


def measure(study: Study, model: LoadedModel, ticks: list[int] | None = None) -> Part:
    """All problems of the study as one shard."""
    shard = Shard(0, 0, tuple(load_problems(study.problems)))
    return run(study, shard, model, maker_for(study, model), ticks)


def run(study: Study, shard: Shard, model: LoadedModel, maker: PromptMaker, ticks: list[int] | None = None) -> Part:
    gauge, context = PassRunner(model.model, study.batch.tokens or 4096), context_length(model.model)
    with capturing(model.model):
        return run_shard(study, shard, gauge, maker, context, (ticks if ticks is not None else []).append)


@cache
def whole() -> Part:
    return measure(study_of("tiny"), loaded())


# The slow reference


def matrices(model: LoadedModel, prompt: Prompt) -> np.ndarray:
    """[layer, head, row, key] as the model itself computes them."""
    model.model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = decoder_of(model.model)(input_ids=torch.tensor([prompt.ids]), output_attentions=True, use_cache=False)
    return torch.stack([layer[0] for layer in out.attentions]).double().numpy()


def received(matrix: np.ndarray, prompt: Prompt, diagonal: bool) -> np.ndarray:
    """[query, layer, head, position], from the definition, in the order all, original, last."""
    row, key = np.indices((len(prompt), len(prompt)))
    below = row >= key if diagonal else row > key
    votes = np.stack([below, below & prompt.original[:, None], below & (row == len(prompt) - 1)])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.einsum("lhij,gij->glhj", matrix, votes) / votes.sum(axis=1)[:, None, None]


def per_problem(study: Study, model: LoadedModel) -> dict[tuple[str, str], list[np.ndarray]]:
    """By condition and view: for each problem [query, layer, head, position]."""
    maker, values = maker_for(study, model), {}
    for problem in load_problems(study.problems):
        plain = None
        for condition in study.conditions:
            prompt = maker.make(problem, condition)
            whole = received(matrices(model, prompt), prompt, study.probes.attention.diagonal)
            aligned = np.stack([whole[..., i] for i in range(len(prompt)) if prompt.original[i]], axis=-1)
            plain = aligned if plain is None else plain
            with np.errstate(divide="ignore", invalid="ignore"):
                found = (whole, aligned, aligned - plain, np.log(aligned / plain))
            for view, array in zip(VIEWS, found, strict=True):
                values.setdefault((condition.name, view), []).append(array)
    return values


def moments(profiles: list[np.ndarray], positions: int) -> tuple[np.ndarray, ...]:
    """Count, mean and sums of squared and cubed deviations of each cell, over what is finite there."""
    width = max(p.shape[-1] for p in profiles)
    ends = [(0, 0)] * (profiles[0].ndim - 1)
    padded = np.stack([np.pad(p, [*ends, (0, width - p.shape[-1])], constant_values=np.nan) for p in profiles])
    values = padded[..., :positions]
    there = np.isfinite(values)
    count = there.sum(axis=0)
    mean = np.where(there, values, 0).sum(axis=0) / np.maximum(count, 1)
    apart = np.where(there, values - mean, 0)
    return count, mean, (apart**2).sum(axis=0), (apart**3).sum(axis=0)


SETTINGS = {
    "llama": {},
    # A sliding window leaves whole columns at zero, where there is no log ratio; the diagonal votes too.
    "gemma3_text": {"probes": {"attention": {"positions": 104, "diagonal": True, "skip_first": False}}},
}


@cache
def both(family: str) -> tuple[Study, Part, dict[tuple[str, str], list[np.ndarray]]]:
    study = study_of("tiny", problems={"limit": 6, "seed": 1}, **SETTINGS[family])
    model = loaded(family)
    return study, measure(study, model), per_problem(study, model)


@pytest.mark.parametrize("condition", ["none", "mless", "first", "random", "inside"])
@pytest.mark.parametrize("family", SETTINGS)
def test_every_profile_is_what_eager_attention_gives(family: str, condition: str) -> None:
    study, part, reference = both(family)
    for view in VIEWS if condition != "none" else VIEWS[:2]:
        count, mean, m2, m3 = moments(reference[condition, view], study.probes.attention.positions)
        key = f"{condition}/{view}"
        # logs of small numbers: what float32 gets wrong there is relative
        tolerance = {"atol": 2e-4, "rtol": 1e-3} if view == "logratio" else {"atol": 1e-6, "rtol": 0}
        np.testing.assert_array_equal(np.broadcast_to(part.arrays[f"{key}/count"], mean.shape), count, err_msg=key)
        np.testing.assert_allclose(part.arrays[f"{key}/mean"], mean, **tolerance, err_msg=key)
        np.testing.assert_allclose(part.arrays[f"{key}/m2"], m2, **tolerance, err_msg=key)
        np.testing.assert_allclose(part.arrays[f"{key}/m3"], m3, **tolerance, err_msg=key)
        assert np.abs(mean[:, :, :, 1:]).max() > 0.01  # there is something to get wrong


def test_the_reference_tries_what_is_hard() -> None:
    """Counts that fall off, profiles that are cut, zeros without a logarithm, filler in different places."""
    study, _, reference = both("gemma3_text")
    lengths = [p.shape[-1] for p in reference["mless", "whole"]]
    assert min(lengths) < study.probes.attention.positions < max(lengths)
    log, difference = (moments(reference["mless", view], 50)[0] for view in ("logratio", "difference"))
    assert (log < difference).any()
    study, part, _ = both("llama")
    places = {tuple(record["prompts"]["inside"]["spans"]).index(1) for record in part.records}
    assert len(places) > 2
    assert len({tuple(record["prompts"]["inside"]["ids"]) for record in part.records}) == 6


def test_no_condition_is_compared_with_itself() -> None:
    _, part, _ = both("llama")
    assert {key.split("/")[1] for key in part.arrays if key.startswith("none/")} == {
        "whole", "aligned", "heads", "peak_at", "odds", "odds_heads",
    }  # fmt: skip


@pytest.mark.parametrize("family", SETTINGS)
def test_head_summaries_belong_to_their_problem(family: str) -> None:
    study, part, reference = both(family)
    first = 1 if study.probes.attention.skip_first else 0
    for condition in study.conditions:
        heads = part.arrays[f"{condition.name}/heads"]
        assert heads.shape == (6, len(METRICS), 3, *reference["none", "whole"][0].shape[1:3])
        for number, aligned in enumerate(reference[condition.name, "aligned"]):
            kept = aligned[..., first:]
            np.testing.assert_allclose(
                heads[number, METRICS.index("received_original")], np.nanmean(kept, -1), atol=1e-6
            )
            np.testing.assert_allclose(heads[number, METRICS.index("peak")], np.nanmax(kept, -1), atol=1e-5)


# Batches and shards


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(1, 20))
def test_shards_are_cut_in_order(count: int, size: int) -> None:
    problems = [Problem(str(n), "q", "") for n in range(count)]
    shards = shards_of(problems, size)
    assert [problem for shard in shards for problem in shard.problems] == problems
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert all(len(shard.problems) == size for shard in shards[:-1])
    for shard in shards:
        assert shard.problems[0] is problems[shard.start]


def assert_close(a: Part, b: Part) -> None:
    assert a.records == b.records
    assert a.arrays.keys() == b.arrays.keys()
    for key in a.arrays:
        if key.endswith("peak_at"):
            continue  # two tokens may be the highest by less than rounding
        tolerance = 1e-3 if "logratio" in key or "kurtosis" in key else 1e-6
        x, y = a.arrays[key], b.arrays[key]
        if key.endswith("/heads"):
            x, y = (np.delete(array, METRICS.index("kurtosis"), axis=1) for array in (x, y))
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=1e-5, err_msg=key)


@pytest.mark.parametrize("tokens", some_fast([1, 100_000], 1))
def test_the_size_of_batches_changes_nothing(tokens: int) -> None:
    assert_close(whole(), measure(study_of("tiny", batch={"shard": 3, "tokens": tokens}), loaded()))


@pytest.mark.parametrize("family", some_fast(["llama", "gemma2", "gpt2"], "gemma2"))
def test_running_beginnings_once_changes_nothing(family: str) -> None:
    shared, apart = (
        measure(study_of("tiny", batch={"shard": 3, "tokens": 256, "prefix": prefix}), loaded(family))
        for prefix in ("share", "off")
    )
    assert_close(shared, apart)


def test_filler_that_is_hidden_gives_nothing_to_what_prompts_share() -> None:
    """At the start it lies in what all prompts begin with, and the tokens of the system text come behind it."""
    filler = {"kind": "repeat", "text": " he", "count": 4, "position": "start"}
    conditions = [
        "none",
        {"name": "seen", **filler},
        {"name": "hidden", **filler, "intervention": {"kind": "knockout"}},
    ]
    part = measure(study_of("tiny", conditions=conditions, problems={"limit": 3}), loaded())
    spans = part.records[0]["prompts"]["hidden"]["spans"]
    start = spans.index(1)
    assert spans[start : start + 8] == [1] * 4 + [0] * 4  # the same in all prompts, up to the question
    seen, hidden = (part.arrays[f"{name}/whole/mean"][1, ..., start : start + 4] for name in ("seen", "hidden"))
    assert (seen > 0).all()  # by the original rows, in every layer and head
    assert (hidden == 0).all()


@pytest.mark.parametrize("size", some_fast([1, 3], 3))
def test_the_size_of_shards_changes_nothing(size: int) -> None:
    study, model = study_of("tiny"), loaded()
    maker, problems = maker_for(study, model), load_problems(study.problems)
    parts = [run(study, shard, model, maker) for shard in shards_of(problems, size)]
    assert_close(merge(parts), whole())


def test_every_prompt_is_counted_once() -> None:
    study, ticks = study_of("tiny"), []
    measure(study, loaded(), ticks)
    assert sum(ticks) == 8 * len(study.conditions)


def test_records_say_what_was_measured() -> None:
    study, model = study_of("tiny"), loaded()
    part, maker = whole(), maker_for(study, model)
    for number, (problem, record) in enumerate(zip(load_problems(study.problems), part.records, strict=True)):
        assert (record["number"], record["id"], record["status"]) == (number, problem.id, "ok")
        assert "".join(record["tokens"]) == model.tokenizer.decode(maker.plain(problem.question).ids)
        for condition in study.conditions:
            prompt = maker.make(problem, condition)
            assert record["prompts"][condition.name] == {"ids": [*prompt.ids], "spans": [*prompt.spans]}


# Problems that cannot be measured


def lengths_of(study: Study, model: LoadedModel) -> list[dict[str, int]]:
    maker = maker_for(study, model)
    return [
        {condition.name: len(maker.make(problem, condition)) for condition in study.conditions}
        for problem in load_problems(study.problems)
    ]


def test_a_prompt_too_long_under_one_condition_takes_its_problem_out_of_all() -> None:
    study = study_of("tiny")
    lengths = lengths_of(study, loaded())
    context = sorted(max(each.values()) for each in lengths)[-3]  # one just fits, two do not
    model, ticks = loaded(max_position_embeddings=context), []
    part = measure(study, model, ticks)
    fits = [number for number, each in enumerate(lengths) if max(each.values()) <= context]
    failed = [number for number, each in enumerate(lengths) if max(each.values()) > context]
    assert 0 < len(fits) < sum(each["none"] <= context for each in lengths)  # filler alone made some too long
    assert [record["number"] for record in part.records] == list(range(8))
    assert [record["number"] for record in part.records if record["status"] == "ok"] == fits
    for number in failed:
        longest = max(lengths[number].values())
        record = part.records[number]
        assert record.keys() == {"number", "id", "status", "error"}
        assert (record["id"], record["status"]) == (load_problems(study.problems)[number].id, "failed")
        assert record["error"].startswith(
            f"{longest} tokens, and the model takes {context}; ask for less filler, or leave the problem out"
        )
    for condition in study.conditions:
        assert part.arrays[f"{condition.name}/heads"].shape[0] == len(fits)
        assert part.arrays[f"{condition.name}/peak_at"].shape[0] == len(fits)
        assert part.arrays[f"{condition.name}/whole/count"].max() == len(fits)
    assert sum(ticks) == 8 * len(study.conditions)  # progress still ends at the end


def test_the_others_are_measured_as_if_the_failed_one_were_not_there() -> None:
    study = study_of("tiny")
    lengths = lengths_of(study, loaded())
    longest = max(range(8), key=lambda number: lengths[number]["none"])
    model = loaded(max_position_embeddings=max(lengths[longest].values()) - 1)
    problems = tuple(load_problems(study.problems))
    maker, kept = maker_for(study, model), tuple(p for n, p in enumerate(problems) if n != longest)
    with_it = run(study, Shard(0, 0, problems), model, maker)
    without = run(study, Shard(0, 0, kept), model, maker)
    assert with_it.arrays.keys() == without.arrays.keys()
    for key, array in without.arrays.items():
        np.testing.assert_array_equal(with_it.arrays[key], array)
    assert [record["status"] for record in with_it.records].count("failed") == 1


def test_where_all_fail_there_are_records_and_no_arrays() -> None:
    study = study_of("tiny")
    part = measure(study, loaded(max_position_embeddings=50))
    assert part.arrays == {}
    assert [record["status"] for record in part.records] == ["failed"] * 8


def test_a_template_that_refuses_a_question_fails_that_problem() -> None:
    class Refusing(PromptMaker):
        def plain(self, question: str) -> Prompt:
            if question == problems[2].question:
                raise PromptError("no such question")
            return super().plain(question)

    study, model = study_of("tiny"), loaded()
    problems = load_problems(study.problems)
    maker = Refusing(model.tokenizer, study.prompt, "chat", study.seed)
    part = run(study, Shard(4, 12, tuple(problems)), model, maker)
    assert [record["number"] for record in part.records] == list(range(12, 20))
    failed = [record for record in part.records if record["status"] == "failed"]
    assert failed == [{"number": 14, "id": problems[2].id, "status": "failed", "error": "no such question"}]
    assert part.arrays["mless/heads"].shape[0] == 7


def token_of_one(ids: Sequence[Mapping[str, Sequence[int]]]) -> tuple[int, int]:
    """A problem, and a token of its plain prompt that no other problem has under any condition."""
    every = [set().union(*prompts.values()) for prompts in ids]
    others = [set().union(*every[:number], *every[number + 1 :]) for number in range(len(ids))]
    only = ((number, sorted(set(prompts["none"]) - others[number])) for number, prompts in enumerate(ids))
    return next((number, tokens[0]) for number, tokens in only if tokens)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_reducing_beforehand_changes_nothing(device: str, broken: bool) -> None:
    """As on a GPU: before it is known whether all numbers are finite."""
    study, model = study_of("tiny", probes={"affine": True}), loaded()
    model.model.to(device)
    gauge, shard = (
        PassRunner(model.model, 4096, probing=Probing(True)),
        Shard(0, 0, tuple(load_problems(study.problems))),
    )
    prepared = prepare_shard(study, shard, maker_for(study, model), None)
    if broken:
        ids = [{name: prompt.ids for name, prompt in item.prompts.items()} for item in prepared]
        model.model.get_input_embeddings().weight.data[token_of_one(ids)[1]] = math.nan
    with capturing(model.model):
        pending = start_shard(study, prepared, gauge, lambda _: None)
    early, late = (one.reduced(study).part() for one in (pending.reducing(study), pending))
    assert [record["status"] for record in late.records].count("failed") == int(broken)
    assert early.records == late.records
    assert early.arrays.keys() == late.arrays.keys()
    for key in late.arrays:
        np.testing.assert_array_equal(early.arrays[key], late.arrays[key])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_fail_their_problem_alone(value: float) -> None:
    """A token whose embedding is broken; the others in the same batch are untouched."""
    study, model = study_of("tiny"), loaded()
    healthy = whole()
    ids = [{name: prompt["ids"] for name, prompt in record["prompts"].items()} for record in healthy.records]
    number, token = token_of_one(ids)
    model.model.get_input_embeddings().weight.data[token] = value
    part = measure(study, model)
    assert [record["status"] for record in part.records].count("failed") == 1
    assert part.records[number]["error"] == "attention is not finite under none"
    for key in healthy.arrays:
        if key.endswith("/heads"):
            np.testing.assert_array_equal(part.arrays[key], np.delete(healthy.arrays[key], number, axis=0))
    assert all(np.isfinite(part.arrays[key]).all() for key in part.arrays if key.endswith(("/mean", "/m2", "/m3")))
