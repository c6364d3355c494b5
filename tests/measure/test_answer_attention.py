"""Where answers attend, against a stock model that reads prompt and answer: at once, or step by step inside ARM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.arm.hooks import arm
from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import PassRunner
from fillerscope.measure.answer_attention import Answers, answer_ids, measure_answers
from fillerscope.measure.answer_shard import answer_shard
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import context_length, decoder_of
from fillerscope.prompts.prompt import Prompt
from fillerscope.store.array_file import Part
from fillerscope.store.schema import ANSWER_COLUMNS, METRICS, Columns
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study
from support.grid import grid, some_fast
from support.shards import prepare_shard
from support.stock import loaded, maker_for, probed, prompts_of, shard_of, stored

FAMILIES = ("llama", "gemma3_text", "mistral", "qwen2", "phi3")  # the last two differ from the first in nothing here
SLASHES = {"kind": "repeat", "text": " /", "count": 6}
CONDITIONS: tuple[Any, ...] = (
    "none",
    {"name": "mless", **SLASHES},
    {"name": "inside", **SLASHES, "position": "random"},
    {"name": "arm", "intervention": {"kind": "arm", "layers": [1, 3], "fraction": 0.2}},
    {"name": "arm-filled", "intervention": {"kind": "scatter", "layers": [2]}, **SLASHES},
    {"name": "knockout", "intervention": {"kind": "knockout"}, **SLASHES},
    {"name": "moved", "intervention": {"kind": "shift", "by": 6}},
)
WRITTEN = 7  # tokens of every answer at most
CLOSE = 1e-5
SEEDS = {"mistral": 1}  # the usual one ends its answers at once
BATCHES = [{"tokens": 1}, {"tokens": 10_000}, {"tokens": 512, "prefix": "off"}]


def study_with(**changes: Any) -> Study:
    usual = {
        "conditions": CONDITIONS,
        "problems": {"limit": 3, "seed": 1},
        "probes": {"attention": {"positions": 300}, "answering": True},
        "generation": {"max_tokens": WRITTEN},
        "batch": {"shard": 3, "tokens": 512},
    }
    return probed(**(usual | changes))


class NoGrades:
    """Whether an answer is right is nothing to this."""

    def grade_all(self, answers: Sequence[object]) -> list[Any]:
        from fillerscope.answers.grading.grade import Grade

        return [Grade("wrong", None, "") for _ in answers]


def answered(study: Study, model: LoadedModel) -> Columns:
    maker, context = maker_for(study, model), context_length(model.model)
    generator = LocalGenerator(model, rows=4)
    grader: Any = NoGrades()
    return answer_shard(
        study, prepare_shard(study, shard_of(study), maker, context), generator, grader, lambda _: None
    )[0]


def looked_back(study: Study, model: LoadedModel, answers: Answers) -> Part:
    maker = maker_for(study, model)
    prepared = prepare_shard(study, shard_of(study), maker, context_length(model.model))
    with capturing(model.model):
        return measure_answers(
            study, prepared, answers, PassRunner(model.model, study.batch.tokens or 1), lambda _: None
        )


def model_of(family: str) -> LoadedModel:
    return loaded(family, double=True, seed=SEEDS.get(family, 0))


@cache
def written(family: str) -> Mapping[tuple[int, str], Sequence[int]]:
    """What the model itself answers, in float64."""
    study, model = study_with(), model_of(family)
    return answer_ids(study, answered(study, model))


# The stock model


@cache
def reference(family: str) -> list[tuple[int, Condition, Prompt, np.ndarray]]:
    """Number of the problem, condition, prompt, and all weights of prompt and answer."""
    study, model = study_with(), model_of(family)
    return [
        (number, condition, prompt, whole(study, model, condition, prompt, written(family)[number, condition.name]))
        for number, condition, prompt, _ in prompts_of(study, model)
    ]


def whole(study: Study, model: LoadedModel, condition: Condition, prompt: Prompt, answer: Sequence[int]) -> np.ndarray:
    """[layer, head, row, key] of prompt and answer."""
    change = condition.intervention
    if isinstance(change, Redistribution):
        return stepping(model.model, change, study.seed, list(prompt.ids), list(answer))[0]
    ids, original = (*prompt.ids, *answer), np.append(prompt.original, [True] * len(answer))
    positions = [i + prompt.gap * (i >= prompt.question_start) for i in range(len(ids))] if prompt.gap else None
    unseen = (original[:, None] & ~original)[None, None]
    return stored(model.model, ids, positions, (lambda _: unseen) if isinstance(change, Knockout) else None).weights


def stepping(
    model: Any, change: Redistribution | None, seed: int, prompt: list[int], answer: list[int]
) -> tuple[np.ndarray, list[int]]:
    """The prompt read at once and the answer token by token, with a cache: weights [layer, head, row, key] and the
    likeliest token after every one of them."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    total, rows, likeliest, cached = len(prompt) + len(answer), [], [], None
    with torch.inference_mode(), arm(model, change, seed=seed) if change else nullcontext():
        for ids in (prompt, *([token] for token in answer)):
            found = model(input_ids=torch.tensor([ids]), past_key_values=cached, use_cache=True, output_attentions=True)
            cached = found.past_key_values
            seen = cached.get_seq_length()
            rows.append(np.stack([_widened(layer[0].numpy(), seen, total) for layer in found.attentions]))
            likeliest.append(int(found.logits[0, -1].argmax()))
    model.set_attn_implementation(before)
    return np.concatenate(rows, axis=2), likeliest


def _widened(weights: np.ndarray, seen: int, total: int) -> np.ndarray:
    """A layer that slides keeps its last keys only: those at the end of what has been there."""
    return np.pad(weights, [(0, 0), (0, 0), (seen - weights.shape[-1], total - seen)])


def from_answer(weights: np.ndarray, tokens: int) -> np.ndarray:
    """[layer, head, position]: what positions of the prompt receive from the answer's rows, on average."""
    return weights[:, :, tokens:, :tokens].mean(axis=2)


@pytest.mark.parametrize(
    ("family", "batch"),
    [
        *grid(FAMILIES[:3], BATCHES),
        *(pytest.param(family, batch, marks=pytest.mark.slow) for family, batch in product(FAMILIES[3:], BATCHES)),
    ],
    ids=str,
)
def test_profile_and_filler_mass_are_those_of_the_answers_rows(family: str, batch: dict[str, Any]) -> None:
    part = looked_back(study_with(batch={"shard": 3} | batch), model_of(family), written(family))
    profiles: dict[str, list[np.ndarray]] = {}
    for number, condition, prompt, weights in reference(family):
        profile = from_answer(weights, len(prompt))
        profiles.setdefault(condition.name, []).append(profile)
        heads = dict(zip(METRICS, part.arrays[f"{condition.name}/heads"][number, :, 0], strict=True))
        kept = profile[..., prompt.original]
        np.testing.assert_allclose(heads["received_first"], profile[..., 0], atol=CLOSE)
        np.testing.assert_allclose(heads["received_original"], kept[..., 1:].mean(-1), atol=CLOSE)
        np.testing.assert_allclose(heads["peak"], kept[..., 1:].max(-1), atol=CLOSE)
        rows = weights[:, :, len(prompt) :]
        entropy = -np.where(rows > 0, rows * np.log(np.maximum(rows, 1e-300)), 0).sum(-1).mean(-1)
        np.testing.assert_allclose(heads["entropy"], entropy, atol=2 * CLOSE)
        if condition.has_filler:
            mass = profile[..., ~prompt.original].sum(-1)
            np.testing.assert_allclose(heads["filler_mass"], mass, atol=CLOSE)
            assert mass.any() == (condition.name != "knockout" and family != "mistral")  # nor beyond its window
    for name, some in profiles.items():
        longest = max(one.shape[-1] for one in some)
        ends = [(0, 0), (0, 0)]
        padded = np.stack(
            [np.pad(one, [*ends, (0, longest - one.shape[-1])], constant_values=np.nan) for one in some]
        )  # [problem, layer, head, position]
        np.testing.assert_array_equal(part.arrays[f"{name}/whole/count"][0, 0, 0], np.isfinite(padded[:, 0, 0]).sum(0))
        np.testing.assert_allclose(part.arrays[f"{name}/whole/mean"][0], np.nanmean(padded, axis=0), atol=CLOSE)


def test_the_one_group_of_queries_still_has_an_axis() -> None:
    part = looked_back(study_with(), loaded(double=True), written("llama"))
    axes = {"heads": 2, "peak_at": 1, "mean": 0, "m2": 0, "m3": 0, "count": 0}
    for key, array in part.arrays.items():
        assert array.shape[axes[key.rpartition("/")[2]]] == 1, key
    assert [record["status"] for record in part.records] == ["ok"] * 3


@pytest.mark.parametrize("family", some_fast(FAMILIES, "llama", "gemma3_text"))
def test_the_answer_that_is_read_again_is_the_one_that_was_written(family: str) -> None:
    """Inside ARM too: greedy tokens of a stock model that steps with a cache are those of the generator."""
    study, model = study_with(), model_of(family)
    changed = 0
    for number, condition, prompt, _ in prompts_of(study, model):
        change = condition.intervention
        if change is not None and not isinstance(change, Redistribution):
            continue
        answer = list(written(family)[number, condition.name])
        likeliest = stepping(model.model, change, study.seed, list(prompt.ids), answer)[1]
        assert likeliest[: len(answer)] == answer
        changed += change is not None and answer != written(family)[number, "none"]
    assert changed  # what ARM does shows in the words


@pytest.mark.parametrize("family", some_fast(FAMILIES, "llama"))
def test_every_token_of_the_answer_follows_from_the_pass_that_looks_back(family: str) -> None:
    """One pass over prompt and answer, and the likeliest token after each row is the next of the answer."""
    study, model = study_with(), model_of(family)
    hidden: list[Any] = []
    keep = decoder_of(model.model).register_forward_hook(lambda *given: hidden.append(given[-1].last_hidden_state))
    study_alone = study.model_copy(update={"batch": study.batch.model_copy(update={"tokens": 1, "prefix": "off"})})
    looked_back(study_alone, model, written(family))
    keep.remove()
    answers = written(family)
    texts = [
        ([*prompt.ids, *answers[number, c.name]], len(prompt)) for number, c, prompt, _ in prompts_of(study, model)
    ]
    assert len(hidden) == len(texts)
    lengths = {len(ids): [] for ids, _ in texts}  # type: ignore[var-annotated]
    for one in hidden:
        lengths[one.shape[1]].append(model.model.get_output_embeddings()(one)[0].argmax(-1).tolist())
    for ids, prompt in texts:
        assert any(found[prompt - 1 : -1] == ids[prompt:] for found in lengths[len(ids)]), (family, ids)


# Answers that are not there


def table(rows: Sequence[tuple[Any, ...]]) -> Columns:
    names = ("number", "condition", "temperature", "sample", "finish", "ids")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def test_the_first_greedy_answer_is_looked_at_without_the_token_that_ended_it() -> None:
    study = study_with(generation={"max_tokens": 5, "temperature": [0.7, 0], "samples": 2})
    rows = [
        (0, "none", 0.7, 0, "stop", [5, 6, 2]),
        (0, "none", 0.7, 1, "stop", [9, 9, 2]),
        (0, "none", 0.0, 0, "length", [7, 7, 7]),
        (0, "mless", 0.7, 0, "length", [5, 6, 8]),
        (1, "none", 0.7, 0, "failed", []),
        (1, "mless", 0.7, 0, "stop", [2]),
        (2, "none", 0.7, 0, "length", []),
    ]
    assert answer_ids(study, table(rows)) == {
        (0, "none"): [5, 6],
        (0, "mless"): [5, 6, 8],
        (1, "mless"): [],
        (2, "none"): [],
    }
    assert set(table(rows)) <= set(ANSWER_COLUMNS)


def test_a_problem_without_an_answer_is_left_out_under_all_conditions() -> None:
    study, model = study_with(), loaded(double=True)
    healthy = looked_back(study, model, written("llama"))
    for missing in ({"arm": None}, {"mless": []}, {"none": None, "mless": []}):
        answers = dict(written("llama"))
        for name, value in missing.items():
            answers.pop((1, name))
            answers |= {} if value is None else {(1, name): value}
        part = looked_back(study, model, answers)
        assert [record["status"] for record in part.records] == ["ok", "failed", "ok"]
        reason = f"there is no answer under {next(iter(missing))} to look back from"
        assert part.records[1] == {**{k: healthy.records[1][k] for k in ("number", "id")}, "status": "failed",
                                   "error": reason}  # fmt: skip
        assert part.arrays.keys() == healthy.arrays.keys()
        for condition in study.conditions:
            heads = [each.arrays[f"{condition.name}/heads"][:, :7] for each in (healthy, part)]
            np.testing.assert_allclose(heads[1], heads[0][[0, 2]], atol=1e-6)


def test_where_no_problem_has_answers_there_are_records_alone() -> None:
    part = looked_back(study_with(), loaded(double=True), {})
    assert part.arrays == {}
    assert [record["error"] for record in part.records] == ["there is no answer under none to look back from"] * 3


def test_a_problem_without_a_prompt_says_so_itself() -> None:
    """The reason is the prompt's, not that nothing was answered."""
    study, model = study_with(), loaded(double=True, max_position_embeddings=100)
    part = looked_back(study, model, {})
    reasons = [record["error"] for record in part.records]
    assert any("and the model takes 100" in reason for reason in reasons)
