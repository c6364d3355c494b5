"""Studies of every class of model from end to end, and their tables worked out again from the stock model alone.

Hybrids, learned sinks, positions that change with length: nothing is packed here, nothing shared, nothing cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import fillerscope
from fillerscope.analysis.export import export
from fillerscope.analysis.run import Run
from fillerscope.figures.registry import draw
from fillerscope.models.structure import attention_modules, decoder_of
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import Prompt, PromptMaker
from fillerscope.report.html import write_report
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Knockout, Shift
from support.families import small_model
from support.studies import study_of
from support.tiny import tiny_tokenizer

LIMIT = 112  # tokens: prompts lie on both sides of it
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": LIMIT,
    "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
}  # fmt: skip
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon_h1": ("falcon_h1", {}),
    "qwen3_next": ("qwen3_next", {}),
    "granite 4": ("granitemoehybrid", {}),
    "jamba": ("jamba", {}),
    "lfm2": ("lfm2", {}),
    "gpt-oss": ("gpt_oss", {}),
    "longrope": ("phi3", {"original_max_position_embeddings": LIMIT, "rope_parameters": LONGROPE}),
    "llama 4": ("llama4_text", {"floor_scale": LIMIT, "attn_temperature_tuning": True, "no_rope_layers": [0, 1, 0, 1],
                                "layer_types": ["full_attention"] * 4}),
}  # fmt: skip
QUICK = {"qwen3_next", "gpt-oss", "longrope"}
FILLER = {"kind": "repeat", "text": " /", "count": 6}
CONDITIONS: tuple[Any, ...] = (
    "none",
    FILLER | {"name": "mless"},
    FILLER | {"name": "hidden", "intervention": {"kind": "knockout"}},
    {"name": "moved", "intervention": {"kind": "shift", "by": 6}},
)
TOKENS = 5
WIDE = 1e-5


@dataclass(frozen=True)
class Case:
    run: Run
    model: Any
    tables: Path


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CLASSES],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, overrides = CLASSES[request.param]
    folder = tmp_path_factory.mktemp(family)
    model = small_model(family, **overrides)
    model.save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    study = study_of(
        folder / "model", conditions=CONDITIONS, problems={"limit": 4}, probes={"attention": {"positions": 200}},
        generation={"max_tokens": TOKENS, "recheck": 2}, batch={"shard": 2},
    )  # fmt: skip
    run = fillerscope.run(study, folder / "run")
    export(run, folder / "tables")
    return Case(run, model, folder / "tables")


def prompts(run: Run) -> Iterator[tuple[int, Condition, Prompt]]:
    study = run.study
    maker = PromptMaker.of(tiny_tokenizer(), study.prompt, study.template_of(study.models[0]), study.seed)
    for number, problem in enumerate(load_problems(study.problems)):
        for condition in study.conditions:
            yield number, condition, maker.make(problem, condition)


@contextmanager
def hiding(model: Any, prompt: Prompt, condition: Condition) -> Iterator[None]:
    """The mask that the model itself makes, with the filler hidden from what comes after it."""
    places = [place for place, span in enumerate(prompt.spans) if span == 1]

    def hook(_module: Any, args: Any, named: dict[str, Any]) -> Any:
        mask = named["attention_mask"].clone()
        mask[..., places[-1] + 1 :, places] = torch.finfo(mask.dtype).min
        return args, named | {"attention_mask": mask}

    with ExitStack() as stack:
        if isinstance(condition.intervention, Knockout):
            for module in attention_modules(decoder_of(model)).values():
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def positions(prompt: Prompt, condition: Condition) -> dict[str, Any]:
    if not isinstance(condition.intervention, Shift):
        return {}
    start = prompt.question_start
    moved = [place + condition.intervention.by * (place >= start) for place in range(len(prompt.ids))]
    # Without a mask a jump in positions would be taken for the start of another text.
    return {"position_ids": torch.tensor([moved]), "attention_mask": torch.ones(1, len(moved)).long()}


@torch.inference_mode()
def weights(model: Any, prompt: Prompt, condition: Condition) -> dict[int, np.ndarray]:
    """By layer with attention [head, row, key]."""
    model.set_attn_implementation("eager")
    with hiding(model, prompt, condition):
        found = decoder_of(model)(
            input_ids=torch.tensor([prompt.ids]), output_attentions=True, use_cache=False,
            **positions(prompt, condition),
        ).attentions  # fmt: skip
    layers = sorted(attention_modules(decoder_of(model)))
    return dict(zip(layers, (one[0].double().numpy() for one in found if one is not None), strict=True))


def received(attention: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[head, key]: the mean over rows strictly behind each key; NaN where there is none."""
    below = np.tril(attention, -1)[:, rows].sum(1)
    voters = np.array([(rows > key).sum() for key in range(attention.shape[-1])])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(voters > 0, below / voters, np.nan)


def entropy(attention: np.ndarray) -> np.ndarray:
    logs = np.log(attention, where=attention > 0, out=np.zeros_like(attention))
    return np.asarray(-(attention * logs).sum(-1).mean(-1))


def column(table: Path, name: str) -> np.ndarray:
    return np.asarray(pq.read_table(table)[name].to_numpy(zero_copy_only=False))


def test_every_number_of_the_summaries(case: Case) -> None:
    """Means over all queries and over original ones, of every problem, layer and head."""
    seen = 0
    layers = sorted(attention_modules(decoder_of(case.model)))
    assert case.run[None].attention_layers() == layers
    for number, condition, prompt in prompts(case.run):
        filler = np.array([span == 1 for span in prompt.spans])
        original = np.flatnonzero(~filler)
        for layer, one in weights(case.model, prompt, condition).items():
            values = received(one, original)
            expected = {"received_original": np.nanmean(values[:, original[1:]], axis=1),
                        "entropy": entropy(one[:, original])}  # fmt: skip
            if filler.any():
                behind = original[original > np.flatnonzero(filler)[-1]]
                expected["filler_mass"] = one[:, behind][:, :, filler].sum(-1).mean(-1)
            if case.run[None].has_sinks():
                expected["sink_mass"] = 1 - one[:, original].sum(-1).mean(-1)
            for metric, numbers in expected.items():
                mine = case.run.summary(metric, condition.name)[number, layer]
                np.testing.assert_allclose(mine, numbers, atol=WIDE, rtol=1e-4, err_msg=f"{metric} {condition.name}")
                seen += 1
    assert seen >= 4 * 4 * len(layers) * 2


def test_the_layers_without_attention_have_no_numbers_in_any_table(case: Case) -> None:
    without = {layer + 1 for layer in range(4)} - {layer + 1 for layer in case.run[None].attention_layers()}
    for table, name in (("summaries", "received_original"), ("heads", "drop"), ("depth", "drop")):
        layer, value = (column(case.tables / f"{table}.parquet", one) for one in ("layer", name))
        assert {int(one) for one in layer[~np.isfinite(value)]} <= without, table
        assert set(layer) - set(layer[np.isfinite(value)]) == without, table


def test_profiles_are_means_over_problems(case: Case) -> None:
    sums: dict[tuple[str, int], list[np.ndarray]] = {}
    for _, condition, prompt in prompts(case.run):
        for layer, one in weights(case.model, prompt, condition).items():
            values = received(one, np.arange(len(prompt.ids)))
            sums.setdefault((condition.name, layer), []).append(values)
    for (name, layer), problems in sums.items():
        longest = max(one.shape[1] for one in problems)
        padded = np.stack(
            [np.pad(one, ((0, 0), (0, longest - one.shape[1])), constant_values=np.nan) for one in problems]
        )
        count = np.isfinite(padded).sum(0)
        with np.errstate(invalid="ignore"):
            mean = np.where(count > 0, np.nansum(padded, axis=0) / np.maximum(count, 1), np.nan)
        profile = case.run.profile(name, "all", "whole")
        shown = min(longest, profile.positions)
        assert np.array_equal(profile.count[layer, :, :shown], count[:, :shown])
        known = count[:, :shown] > 0
        np.testing.assert_allclose(profile.mean[layer][:, :shown][known], mean[:, :shown][known], atol=WIDE, rtol=1e-4)


def test_paired_drops_of_heads(case: Case) -> None:
    """The geometric mean over problems of with / without."""
    logs: dict[int, list[np.ndarray]] = {}
    plain: dict[tuple[int, int], np.ndarray] = {}
    for number, condition, prompt in prompts(case.run):
        original = np.array([place for place, span in enumerate(prompt.spans) if span != 1])
        if condition.name not in ("none", "mless"):
            continue
        for layer, one in weights(case.model, prompt, condition).items():
            mean = np.nanmean(received(one, original)[:, original[1:]], axis=1)
            if condition.name == "none":
                plain[number, layer] = mean
            else:
                logs.setdefault(layer, []).append(np.log(mean / plain[number, layer]))
    table = case.tables / "heads.parquet"
    layer, head, name, drop, queries = (column(table, one) for one in ("layer", "head", "condition", "drop", "queries"))
    for number, some in logs.items():
        expected = np.exp(np.mean(some, axis=0))
        chosen = (layer == number + 1) & (name == "mless") & (queries == "original")
        mine = drop[chosen][np.argsort(head[chosen])]
        np.testing.assert_allclose(mine, expected, rtol=1e-4)


def evenly(prompt: Prompt, window: int | None, hidden: bool) -> np.ndarray:
    """[1, row, key]: attention spread over what a row may see."""
    filler = np.array([span == 1 for span in prompt.spans])
    row, key = np.arange(len(filler))[:, None], np.arange(len(filler))
    seen = (key <= row) & (row - key < (window or len(filler))) & ~(hidden & ~filler[:, None] & filler)
    return (seen / seen.sum(1, keepdims=True))[None]


def test_what_length_alone_would_do(case: Case) -> None:
    """The drop of even attention, drop / that, and what is received without filler as a ratio to it."""
    window = getattr(case.model.config, "sliding_window", None)
    kinds = getattr(case.model.config, "layer_types", None) or ["full_attention"] * 4
    means: dict[tuple[str, int | None, int], float] = {}
    for number, condition, prompt in prompts(case.run):
        original = np.array([place for place, span in enumerate(prompt.spans) if span != 1])
        for wide in {None, window}:
            one = evenly(prompt, wide, isinstance(condition.intervention, Knockout))
            means[condition.name, wide, number] = float(np.nanmean(received(one, original)[:, original[1:]]))
    table = case.tables / "heads.parquet"
    layer, head, name, queries, drop, uniform, beyond, ratio = (
        column(table, one)
        for one in ("layer", "head", "condition", "queries", "drop", "uniform", "beyond_uniform", "received")
    )
    plain = case.run.summary("received_original", "none")
    for place in case.run[None].attention_layers():
        wide = window if kinds[place] == "sliding_attention" else None
        for one in ("mless", "hidden"):
            logs = [np.log(means[one, wide, number] / means["none", wide, number]) for number in range(4)]
            chosen = (layer == place + 1) & (name == one) & (queries == "original")
            np.testing.assert_allclose(uniform[chosen], np.exp(np.mean(logs)), rtol=1e-9)
            np.testing.assert_allclose(beyond[chosen], drop[chosen] / uniform[chosen], rtol=1e-6)
            even = [plain[number, place] / means["none", wide, number] for number in range(4)]
            np.testing.assert_allclose(ratio[chosen][np.argsort(head[chosen])], np.mean(even, axis=0), rtol=1e-6)


def test_the_same_odds_with_the_share_of_average_tokens_for_filler(case: Case) -> None:
    """Whole matrices without filler whose rows behind it keep (what they see) / (that and the filler); of heads and of
    positions. Missing where a window hides part of a prompt, and beside learned sinks."""
    made = {(number, condition.name): (condition, prompt) for number, condition, prompt in prompts(case.run)}
    windows, profiles = case.run[None].windows(), {}
    layer, head, name, queries, odds, beyond, drop = (
        column(case.tables / "heads.parquet", one)
        for one in ("layer", "head", "condition", "queries", "odds", "beyond", "drop")
    )
    logs: dict[int, list[np.ndarray]] = {}
    for number in range(4):
        condition, plain = made[number, "none"]
        filled = np.array([span == 1 for span in made[number, "mless"][1].spans])
        before = np.cumsum(filled)[~filled]  # filler tokens before each original one
        seen = np.arange(len(plain.ids)) + 1
        for place, one in weights(case.model, plain, condition).items():
            if windows[place] is not None and windows[place] < len(filled):
                continue
            everyone = np.arange(len(seen))
            kept = received(one * (seen / (seen + before))[:, None], everyone)
            profiles.setdefault(place, []).append(kept)
            logs.setdefault(place, []).append(np.log(kept[:, 1:-1].mean(1) / received(one, everyone)[:, 1:-1].mean(1)))
    chosen = (name == "mless") & (queries == "original")
    for place in case.run[None].attention_layers():
        rows = np.flatnonzero(chosen & (layer == place + 1))
        rows = rows[np.argsort(head[rows])]
        if case.run[None].has_sinks() or len(logs.get(place, ())) < 4:
            assert not np.isfinite(odds[rows]).any()
            continue
        np.testing.assert_allclose(odds[rows], np.exp(np.mean(logs[place], axis=0)), rtol=1e-4)
        np.testing.assert_allclose(beyond[rows], drop[rows] / odds[rows], rtol=1e-6)
        mine = case.run[None].odds_profile(place + 1, 2)
        assert mine is not None
        np.testing.assert_allclose(
            mine.mean[0, 0, :40], np.mean([one[1, :40] for one in profiles[place]], 0), rtol=1e-4
        )
    assert not np.isfinite(odds[name == "hidden"]).any(), "hidden filler takes no share"


@torch.inference_mode()
def greedily(model: Any, prompt: Prompt, condition: Condition) -> list[int]:
    """Without a cache; tokens that stand behind a gap go on from it."""
    tokens, by = list(prompt.ids), getattr(condition.intervention, "by", 0)
    for _ in range(TOKENS):
        given: dict[str, Any] = {}
        if by:
            moved = [place + by * (place >= prompt.question_start) for place in range(len(tokens))]
            given = {"position_ids": torch.tensor([moved]), "attention_mask": torch.ones(1, len(tokens)).long()}
        with hiding(model, prompt, condition):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False, **given).logits[0, -1]
        tokens.append(int(logits.argmax()))
        if tokens[-1] == 2:  # the end of a turn
            break
    return tokens[len(prompt.ids) :]


def test_answers_are_the_greedy_ones_of_plain_passes(case: Case) -> None:
    """Or they fail by name, where prompt and answer would go beyond a limit of positions."""
    columns = case.run[None].answer_columns()
    answers = {(n, c): (text, finish) for n, c, text, finish in
               zip(*(columns[key] for key in ("number", "condition", "text", "finish")), strict=True)}  # fmt: skip
    limit = {"phi3": LIMIT, "llama4_text": LIMIT}.get(case.model.config.model_type)
    case.model.set_attn_implementation("eager")
    failed = 0
    for number, condition, prompt in prompts(case.run):
        text, finish = answers[number, condition.name]
        taken = len(prompt.ids) + getattr(condition.intervention, "by", 0)
        if limit is not None and taken + TOKENS > limit:
            failed += finish == "failed"
            if finish == "failed":
                continue
        ids = [one for one in greedily(case.model, prompt, condition) if one != 2]
        assert text == tiny_tokenizer().decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if limit is not None:
        assert 0 < failed < 16  # the study lies on both sides of the limit


FIGURES = ("layers", "heads", "headmap", "depth", "composite")


@pytest.mark.slow
def test_figures_and_report_are_made(case: Case, tmp_path: Path) -> None:
    first = case.run[None].attention_layers()[0] + 1
    for name in FIGURES:
        drawn = draw(case.run, name)
        assert drawn.figure.axes
        if name in ("layers", "heads"):
            assert set(drawn.table["layer"].tolist()) >= {first}
            assert np.isfinite(drawn.table["mean"]).all()
    write_report(case.run, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"Attention in layer {first}: " in page
    assert "nan [" not in page
