"""Answers of a model that is changed inside: against transformers' own `generate` and against plain loops.

In float64, so that rounding flips no choice: what a row writes must not depend on the rows beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor

import fillerscope
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.arm.hooks import arm
from fillerscope.arm.rng import sequence_seed
from fillerscope.errors import ModelError
from fillerscope.measure.answer_shard import answer_shard, answer_tasks
from fillerscope.measure.engines import model_work
from fillerscope.measure.prepare import Shard, shards_of
from fillerscope.measure.run_study import run_study
from fillerscope.measure.shard import texts_of
from fillerscope.models.loading import LoadedModel, load_model, wrap
from fillerscope.models.structure import attention_modules, decoder_of
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.schema import answers_name
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import Study
from support.shards import prepare_shard
from support.studies import save_model, study_of
from support.tiny import tiny_model, tiny_tokenizer

FAMILIES = ("llama", "gemma3_text", "gpt2", "phi3", "mistral")
WIDE: dict[str, dict[str, Any]] = {"gemma3_text": {"sliding_window": 512}, "mistral": {"sliding_window": 512}}
LENGTHS = (23, 9, 1, 17, 30, 12, 5)
SEED = 5
DECODING = Decoding(max_tokens=10)
HEAD, FILLER = tuple(range(40, 46)), (300,) * 7
ARM = Redistribution(kind="arm", fraction=0.25)
SPECS = {
    "arm": Redistribution(kind="arm", c=0.5, p_max=0.4),
    "scatter": Redistribution(kind="scatter", fraction=0.5),
    "gaussian": Redistribution(kind="gaussian", fraction=0.25),
    "two layers, replaced": Redistribution(kind="arm", fraction=0.3, layers=(1, 3), mode="replace"),
}


def in_every_family(name: str, values: Sequence[Any], quick: dict[str, Any]) -> pytest.MarkDecorator:
    """All pairs of family and value: those of `quick` in the fast half, the others in the slow one."""
    pairs = [
        pytest.param(family, value, marks=[] if quick.get(family) == value else pytest.mark.slow)
        for family in FAMILIES
        for value in values
    ]
    assert sum(not pair.marks for pair in pairs) == len(quick) >= len(values)
    return pytest.mark.parametrize(("family", name), pairs, ids=str)


# Models and requests -------------------------------------------------------------------------------------


@cache
def loaded(family: str = "llama", wide: bool = False) -> LoadedModel:
    """Never changed: `lasting` tells."""
    return wrap(tiny_model(family, **(WIDE.get(family, {}) if wide else {})).double(), tiny_tokenizer())


def texts(seed: int = 0, lengths: Sequence[int] = LENGTHS) -> list[tuple[int, ...]]:
    random = np.random.default_rng(seed)
    return [tuple(random.integers(3, 400, size=length).tolist()) for length in lengths]


def redistributed(spec: Redistribution | None, seed: int = SEED) -> list[Request]:
    """With the keys that `arm` would draw by."""
    return [Request(ids, n, change=spec, key=sequence_seed(seed, ids)) for n, ids in enumerate(texts())]


def hiding(change: Knockout | None, shared: int = 0) -> list[Request]:
    """Filler in the middle of prompts that begin alike."""
    place = len(HEAD), len(HEAD) + len(FILLER)
    return [Request((*HEAD, *FILLER, *text), n, shared, change, filler=place) for n, text in enumerate(texts())]


def moved(shared: int = 0, by: int = len(FILLER)) -> list[Request]:
    return [Request((*HEAD, *text), n, shared, gap=(len(HEAD), by)) for n, text in enumerate(texts())]


def answer(model: LoadedModel, asked: Sequence[Request], decoding: Decoding = DECODING, rows: int = 16) -> list[Reply]:
    return LocalGenerator(model, rows).answer(asked, decoding, lambda _: None)


def written(model: LoadedModel, asked: Sequence[Request], *how: Any, **engine: Any) -> list[list[int]]:
    return [list(reply.ids) for reply in answer(model, asked, *how, **engine)]


def differing(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """The share of answers that are not the same."""
    return sum(a != b for a, b in zip(ours, theirs, strict=True)) / len(ours)


# References ----------------------------------------------------------------------------------------------


class Drawn(LogitsProcessor):
    """Leaves the token that a row of random numbers chooses."""

    def __init__(self, temperature: float, seed: int, limit: int) -> None:
        self.temperature, self.draws = temperature, iter(np.random.default_rng(seed).random(limit))

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        reached = (scores.float() / self.temperature).softmax(-1).double().cumsum(-1)[0].numpy()
        token = int(np.searchsorted(reached, next(self.draws) * reached[-1], side="right"))
        alone = torch.full_like(scores, -torch.inf)
        alone[0, token] = 0
        return alone


def generated(model: LoadedModel, ids: tuple[int, ...], limit: int, *processors: LogitsProcessor) -> list[int]:
    stops = sorted(LocalGenerator(model).stops)
    with torch.inference_mode():
        found = model.model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=limit,
            do_sample=False, pad_token_id=0, eos_token_id=stops, logits_processor=list(processors),
        )  # fmt: skip
    return list(found[0, len(ids) :].tolist())


def by_arm(model: LoadedModel, asked: Sequence[Request], decoding: Decoding = DECODING) -> list[list[int]]:
    """Each prompt by itself, with transformers' own loop."""

    def processors(request: Request) -> list[LogitsProcessor]:
        return [Drawn(decoding.temperature, request.seed, decoding.max_tokens)] if decoding.temperature else []

    found = []
    for request in asked:
        assert isinstance(request.change, Redistribution)
        with arm(model.model, request.change, SEED):
            found.append(generated(model, request.ids, decoding.max_tokens, *processors(request)))
    return found


@cache
def arm_answers(family: str, spec: Redistribution, decoding: Decoding = DECODING) -> list[list[int]]:
    """Computed once, and changed by nobody."""
    return by_arm(loaded(family), redistributed(spec), decoding)


@contextmanager
def hidden(model: LoadedModel, start: int, stop: int, layers: Sequence[int]) -> Iterator[None]:
    """Eager attention whose mask hides some keys from all queries behind them, in layers counted from 1."""

    def hide(_: Any, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = named["attention_mask"].clone()
        mask[..., stop:, start:stop] = torch.finfo(mask.dtype).min
        return given, named | {"attention_mask": mask}

    before = model.model.config._attn_implementation
    modules = attention_modules(decoder_of(model.model))
    model.model.set_attn_implementation("eager")
    with ExitStack() as stack:
        stack.callback(model.model.set_attn_implementation, before)
        for layer in layers:
            handle = modules[layer - 1].register_forward_pre_hook(hide, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def looped(model: LoadedModel, request: Request, limit: int = DECODING.max_tokens) -> list[int]:
    """One token after another, everything computed anew each time, at the positions that the gap leaves."""
    ids, stops = list(request.ids), LocalGenerator(model).stops
    at, by = request.gap
    for _ in range(limit):
        places = torch.arange(len(ids))[None]
        with torch.inference_mode():
            logits = model.model(
                input_ids=torch.tensor([ids]), position_ids=places + by * (places >= at), use_cache=False,
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            ).logits  # fmt: skip
        ids.append(int(logits[0, -1].argmax()))
        if ids[-1] in stops:
            break
    return ids[len(request.ids) :]


def knocked_out(model: LoadedModel, asked: Sequence[Request], layers: Sequence[int]) -> list[list[int]]:
    found = []
    for request in asked:
        with hidden(model, *request.filler, layers):
            found.append(looped(model, request))
    return found


def all_layers(model: LoadedModel) -> range:
    return range(1, model.model.config.num_hidden_layers + 1)


# ARM and its controls ------------------------------------------------------------------------------------


@in_every_family(
    "name",
    list(SPECS),
    {"llama": "arm", "gemma3_text": "scatter", "gpt2": "gaussian", "mistral": "two layers, replaced"},
)
def test_redistributed_answers_are_those_of_generate_inside_arm(family: str, name: str) -> None:
    """Token for token, however many rows are computed together; and other than without."""
    model, asked = loaded(family), redistributed(SPECS[name])
    expected = arm_answers(family, SPECS[name])
    for rows in (1, 3, 16):
        assert written(model, asked, rows=rows) == expected, rows
    assert differing(expected, written(model, redistributed(None))) > 0.5


def test_the_keys_of_requests_are_what_their_numbers_are_drawn_by() -> None:
    model = loaded()
    usual, other = written(model, redistributed(ARM)), written(model, redistributed(ARM, SEED + 1))
    assert differing(usual, other) > 0.5
    reseeded = [replace(request, seed=request.seed + 9) for request in redistributed(ARM)]
    assert written(model, reseeded) == usual  # those of sampling are others


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_sampling_under_arm_draws_by_the_same_numbers(rows: int) -> None:
    model, asked = loaded(), redistributed(SPECS["arm"])
    decoding = Decoding(max_tokens=8, temperature=1.5)
    found = written(model, asked, decoding, rows=rows)
    assert found == arm_answers("llama", SPECS["arm"], decoding)
    assert differing(found, written(model, asked, Decoding(max_tokens=8))) > 0.5


@pytest.mark.parametrize("limit", [1, 2])
def test_answers_of_a_token_or_two(limit: int) -> None:
    model, decoding = loaded(), Decoding(max_tokens=limit)
    asked = redistributed(ARM)
    replies = answer(model, asked, decoding, rows=3)
    assert [list(reply.ids) for reply in replies] == by_arm(model, asked, decoding)
    assert {len(reply.ids) for reply in replies} <= {1, limit}


def test_a_first_token_that_ends_the_answer() -> None:
    """Its slot is free again at once, whichever place it had."""
    model, asked = loaded(), redistributed(ARM)
    expected = arm_answers("llama", ARM)
    for ending in (expected[0][0], expected[-1][0]):
        for rows in (1, 3):
            engine = LocalGenerator(model, rows)
            engine.stops |= {ending}
            for reply, whole in zip(engine.answer(asked, DECODING, lambda _: None), expected, strict=True):
                cut = whole[: whole.index(ending) + 1] if ending in whole else whole
                assert list(reply.ids) == cut
                assert reply.finish == ("stop" if cut[-1] in engine.stops else "length")
                assert reply.tokens == len(cut) - (reply.finish == "stop")


def mixed() -> list[Request]:
    """Changed in seven ways and not at all, taking turns."""
    groups = [redistributed(spec) for spec in (None, *SPECS.values())]
    groups += [hiding(Knockout(kind="knockout"), 4), hiding(Knockout(kind="knockout", layers=(2,)), 4), moved(4)]
    return [request for group in zip(*groups, strict=True) for request in group][: 3 * len(groups)]


@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_requests_of_all_kinds_in_one_call_are_answered_as_apart(family: str) -> None:
    model, asked = loaded(family), mixed()
    apart = [written(model, [request], rows=1)[0] for request in asked]
    for rows in (3, 16):
        assert written(model, asked, rows=rows) == apart
    order = np.random.default_rng(1).permutation(len(asked)).tolist()
    assert written(model, [asked[place] for place in order], rows=5) == [apart[place] for place in order]
    assert len({tuple(ids) for ids in apart}) > len(asked) * 0.8  # there is something to mix up


def test_layers_that_the_model_has_not_are_refused() -> None:
    spec = Redistribution(kind="arm", layers=(2, 4))
    with pytest.raises(ModelError, match="in layer 4, but LlamaForCausalLM has 3 layers; choose from 1 to 3"):
        answer(loaded(), redistributed(spec))


# Filler that is hidden, and positions that are moved -----------------------------------------------------


@in_every_family("layers", [(), (2,), (1, 3)], {"llama": (), "gemma3_text": (2,), "gpt2": (1, 3)})
def test_hidden_filler_is_seen_by_nobody_behind_it(family: str, layers: tuple[int, ...]) -> None:
    model, change = loaded(family), Knockout(kind="knockout", layers=layers)
    expected = knocked_out(model, hiding(None), layers or all_layers(model))
    for shared, rows in ((0, 16), (4, 3), (len(HEAD), 1), (len(HEAD) + 3, 3), (len(HEAD + FILLER), 16), (99, 2)):
        assert written(model, hiding(change, shared), rows=rows) == expected, (shared, rows)
    assert differing(expected, written(model, hiding(None))) > 0.25


@in_every_family("by", [1, len(FILLER), 40], {"phi3": 1, "gpt2": len(FILLER), "gemma3_text": 40})
def test_moved_positions_are_those_of_a_loop(family: str, by: int) -> None:
    model = loaded(family)
    expected = [looped(model, request) for request in moved(by=by)]
    for shared, rows in ((0, 16), (4, 3), (len(HEAD), 1), (99, 2)):
        assert written(model, moved(shared, by), rows=rows) == expected, (shared, rows)
    unmoved = written(model, [replace(request, gap=(0, 0)) for request in moved()])
    assert by < 40 or differing(expected, unmoved) > 0.25


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gpt2"])
def test_filler_hidden_in_all_layers_is_a_gap_of_its_length(family: str) -> None:
    """Where positions are rotations and no window ends: hidden filler takes up room in a window, a gap does not."""
    model = loaded(family, wide=True)
    assert written(model, hiding(Knockout(kind="knockout"))) == written(model, moved())
    assert differing(written(model, hiding(Knockout(kind="knockout"))), written(model, hiding(None))) > 0.5


@pytest.mark.parametrize("change", ["knockout", "shift"])
def test_samples_of_one_prompt_share_all_that_is_before_them(change: str) -> None:
    """As a study asks for them: the whole prompt is shared, and seeds differ."""
    model, decoding = loaded(), Decoding(max_tokens=8, temperature=1.3)
    prompts = (hiding(Knockout(kind="knockout")) if change == "knockout" else moved())[:5]
    apart = [replace(one, seed=10 * n + sample) for n, one in enumerate(prompts) for sample in range(4)]
    together = [replace(one, shared=len(one.ids)) for one in apart]
    expected = written(model, apart, decoding, rows=1)
    assert written(model, together, decoding, rows=16) == written(model, together, decoding, rows=3) == expected
    assert len({tuple(ids) for ids in expected[:4]}) == 4


def test_prompts_alike_in_their_tokens_alone_share_nothing() -> None:
    """The same beginning with the filler, or the gap, in another place."""
    model, ids = loaded(), (*HEAD, *texts()[0])
    places = [(0, 3), (2, 5), (3, 9)]
    asked = [Request(ids, shared=20, change=Knockout(kind="knockout"), filler=place) for place in places]
    asked += [Request(ids, shared=20, gap=gap) for gap in ((2, 30), (9, 30), (9, 5))]
    apart = [written(model, [replace(request, shared=0)])[0] for request in asked]
    assert written(model, asked) == apart
    assert len({tuple(answered) for answered in apart}) > 3


def test_filler_at_the_very_start_and_of_no_length() -> None:
    model, change = loaded(), Knockout(kind="knockout")
    first = [replace(request, filler=(0, 4)) for request in hiding(change)]
    assert written(model, first) == knocked_out(model, first, all_layers(model))
    nothing = [replace(request, filler=(0, 0)) for request in hiding(change)]
    assert written(model, nothing) == written(model, hiding(None))


# What a request may take up, and what is left behind -----------------------------------------------------


def test_a_gap_counts_as_room_in_the_context() -> None:
    model = wrap(tiny_model("gpt2", n_positions=30).double(), tiny_tokenizer())
    ids = tuple(range(3, 15))
    asked = [Request(ids, gap=(5, by)) for by in (0, 10, 17, 18, 25)]
    replies = answer(model, asked, Decoding(max_tokens=14))
    assert [reply.tokens for reply in replies] == [14, 8, 1, 0, 0]
    assert [reply.finish for reply in replies] == ["length"] * 3 + ["failed"] * 2
    assert "no room" in replies[3].error
    assert list(replies[1].ids) == looped(model, asked[1], 8)


def lasting(model: LoadedModel) -> tuple[Any, ...]:
    """What would be seen of somebody who left something behind."""
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.model.modules()]
    return sum(hooks), model.model.config._attn_implementation, torch.is_inference_mode_enabled()


@pytest.mark.parametrize("kind", ["arm", "knockout", "shift"])
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model = loaded()
    before = lasting(model)
    asked = {"arm": redistributed(ARM), "knockout": hiding(Knockout(kind="knockout")), "shift": moved()}[kind]
    written(model, asked, rows=3)
    assert lasting(model) == before
    assert before[0] == 0


@pytest.mark.parametrize("step", [0, 1, 7, 30])
def test_the_model_is_left_as_it_was_after_an_exception_too(step: int) -> None:
    """Wherever `tick` is called from, also while somebody still holds the exception."""
    model, calls = loaded(), 0
    before = lasting(model)

    def interrupted(_: float) -> None:
        nonlocal calls
        if calls == step:
            raise KeyboardInterrupt
        calls += 1

    with pytest.raises(KeyboardInterrupt) as caught:
        LocalGenerator(model, rows=3).answer(redistributed(ARM), DECODING, interrupted)
    assert lasting(model) == before
    assert caught.value.__traceback__ is not None
    assert written(model, redistributed(ARM)) == arm_answers("llama", ARM)


def test_an_exception_while_an_answer_is_counted_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded()
    before = lasting(model)
    monkeypatch.setattr(LocalGenerator, "_reply", lambda *_: pytest.fail("stopped"))
    with pytest.raises(pytest.fail.Exception) as caught:
        answer(model, redistributed(ARM))
    assert lasting(model) == before
    assert caught.value.__traceback__ is not None


# Studies -------------------------------------------------------------------------------------------------

CONDITIONS: tuple[Any, ...] = (
    "none",
    {"name": "mless", "kind": "repeat", "text": " /", "count": 6},
    {"name": "arm", "intervention": {"kind": "arm", "fraction": 0.25}},
    {"name": "scatter", "intervention": {"kind": "scatter", "fraction": 0.25}},
    {"name": "gaussian", "intervention": {"kind": "gaussian", "fraction": 0.25, "layers": [1, 3]}},
    {"name": "knockout", "kind": "repeat", "text": " /", "count": 6, "intervention": {"kind": "knockout"}},
    {"name": "shift", "intervention": {"kind": "shift", "by": 6}},
)
GENERATION = {"max_tokens": 6, "temperature": [0, 1.2], "samples": 2, "recheck": 0}

# Some shards of a study, answered by a process of their own.
WORKER = """
import json, sys
from pathlib import Path
from fillerscope.measure.answer_shard import answer_shard
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.models.loading import load_model
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.measure.prepare import ShardPrompts, shards_of
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name
from fillerscope.study.study import Study

if __name__ == "__main__":
    settings, model, out, *numbers = sys.argv[1:]
    study = Study.model_validate_json(settings)
    loaded = load_model(model, device="cpu")
    maker = PromptMaker.of(loaded.tokenizer, study.prompt, study.prompt.template, study.seed)
    prompts = ShardPrompts(study, maker, 1024)
    shards, generator = shards_of(load_problems(study.problems), study.batch.shard), LocalGenerator(loaded)
    store = RunStore.create(Path(out), {}, json.loads(settings))
    with store.writing(), GraderPool(2) as grader:
        for number in map(int, numbers):
            table, _ = answer_shard(study, prompts.of(shards[number]), generator, grader, lambda _: None)
            store.put_table(answers_name(model, number), table)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(autouse=True)
def _cache_of_its_own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("weights"):
        monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))


def small(model: Path | str, **changes: Any) -> Study:
    usual = {"conditions": CONDITIONS, "probes": {"attention": False}, "generation": GENERATION}
    return study_of(model, **(usual | changes))


def in_a_process(study: Study, model: Path, out: Path, numbers: Sequence[int]) -> dict[str, bytes]:
    script = out.with_suffix(".py")
    script.write_text(WORKER)
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run(
        [sys.executable, str(script), study.model_dump_json(), str(model), str(out), *map(str, numbers)],
        check=True, env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    return {name: (out / name).read_bytes() for name in (answers_name(str(model), number) for number in numbers)}


def answered_alone(study: Study, model: Path, number: int) -> dict[str, list[Any]]:
    """One shard, by a model that was loaded for it."""
    loaded = load_model(str(model), device="cpu")
    maker = PromptMaker.of(loaded.tokenizer, study.prompt, study.prompt.template, study.seed)
    shard = shards_of(load_problems(study.problems), study.batch.shard)[number]
    with GraderPool(2) as grader:
        table, _ = answer_shard(
            study, prepare_shard(study, shard, maker, 1024), LocalGenerator(loaded), grader, lambda _: None
        )
    return table


def test_a_shard_is_answered_as_if_there_were_no_others(saved: Path, tmp_path: Path) -> None:
    """So that several workers may share a study: no answer depends on what was written before it."""
    study = small(saved, problems={"limit": 2}, batch={"shard": 1})
    store = run_study(study, tmp_path / "run")
    for number in (1, 0):
        assert store.get_table(answers_name(str(saved), number)) == answered_alone(study, saved, number), number


@pytest.mark.slow
def test_one_worker_and_two_write_the_same_tables(saved: Path, tmp_path: Path) -> None:
    study = small(saved)
    run_study(study, tmp_path / "one")
    parts = in_a_process(study, saved, tmp_path / "two", [2, 0]) | in_a_process(study, saved, tmp_path / "three", [1])
    assert len(parts) == 3
    for name, content in parts.items():
        assert (tmp_path / "one" / name).read_bytes() == content, name


def by_condition(run: Any, model: Path) -> dict[str, list[str]]:
    columns = run[str(model)].answer_columns()
    return {
        c.name: [text for text, name in zip(columns["text"], columns["condition"], strict=True) if name == c.name]
        for c in run.study.conditions
    }


def test_rows_at_once_change_no_answer_of_a_study(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = model_work.load_source

    def in_float64(*given: Any) -> LoadedModel:
        found = load(*given)
        found.model.double()
        return found

    monkeypatch.setattr(model_work, "load_source", in_float64)
    found = {}
    for rows in (1, 16):
        study = small(saved, generation=GENERATION | {"rows": rows}, problems={"limit": 2})
        found[rows] = by_condition(fillerscope.run(study, tmp_path / str(rows)), saved)
    assert found[1] == found[16]
    for name in ("mless", "arm", "scatter", "gaussian", "knockout", "shift"):
        assert found[1][name] != found[1]["none"], name
    assert found[1]["knockout"] == found[1]["shift"]  # six tokens that nobody sees are six empty positions


def requests_of(study: Study, condition: str) -> list[Request]:
    maker = PromptMaker.of(tiny_tokenizer(), study.prompt, study.prompt.template, study.seed)
    asks = answer_tasks(study, prepare_shard(study, Shard(0, 0, tuple(load_problems(study.problems))), maker, 1024))
    return [ask.request for ask in asks if ask.condition == condition and ask.request is not None]


def test_a_study_asks_for_what_its_conditions_say() -> None:
    study = small("tiny", problems={"limit": 3}, generation={"max_tokens": 5}, seed=8)
    plain, arms, hidden, shifted = (requests_of(study, name) for name in ("none", "arm", "knockout", "shift"))
    assert [request.ids for request in arms] == [request.ids for request in shifted] == [r.ids for r in plain]
    assert [request.change for request in plain + shifted] == [None] * 6
    assert {request.change for request in arms} == {study.conditions[2].intervention}
    assert [request.key for request in arms] == [sequence_seed(8, request.ids) for request in plain]
    assert {request.change for request in hidden} == {Knockout(kind="knockout")}
    for request, bare in zip(hidden, plain, strict=True):
        start, stop = request.filler
        assert stop - start == 6
        assert request.ids[:start] + request.ids[stop:] == bare.ids
        assert len(set(request.ids[start:stop])) == 1
    assert [request.gap for request in shifted] == [(request.filler[0], 6) for request in hidden]
    assert {request.gap[1] for request in plain + arms + hidden} == {0}


@pytest.mark.parametrize(
    ("name", "engine"), [("arm", LocalGenerator), ("scatter", LocalGenerator), ("arm", AloneGenerator)]
)
def test_samples_of_one_prompt_are_changed_by_numbers_of_their_own(name: str, engine: type[LocalGenerator]) -> None:
    """And each sample by the same ones alone, among others and in another order."""
    sampled = {"max_tokens": 6, "temperature": 1.2, "samples": 3}
    study = small("tiny", problems={"limit": 2}, generation=sampled, seed=8)
    asked, decoding = requests_of(study, name), Decoding(max_tokens=6, temperature=1.2)
    assert len({request.key for request in asked}) == len(asked) == 6
    assert [asked[n].key for n in (0, 3)] == [sequence_seed(8, asked[n].ids) for n in (0, 3)]
    alone = [engine(loaded(), 1).answer([request], decoding, lambda _: None)[0].ids for request in asked]
    for order in (range(6), [4, 0, 5, 2, 1, 3]):
        replies = engine(loaded(), 4).answer([asked[n] for n in order], decoding, lambda _: None)
        assert [reply.ids for reply in replies] == [alone[n] for n in order]
    # Drawn alike, samples of one prompt still differ: by what is done inside the model.
    alike = [replace(request, seed=1) for request in asked]
    first, second = (
        {reply.ids for reply in engine(loaded(), 4).answer(some, decoding, lambda _: None)}
        for some in (alike[:3], alike[3:])
    )
    assert len(first | second) > 2


def test_greedy_answers_and_what_is_measured_have_the_numbers_of_the_first_sample() -> None:
    """Of the prompt, and of the answer that is read again."""
    study = small("tiny", problems={"limit": 2}, seed=8)
    maker = PromptMaker.of(tiny_tokenizer(), study.prompt, study.prompt.template, study.seed)
    items = prepare_shard(study, Shard(0, 0, tuple(load_problems(study.problems))), maker, 1024)
    measured = [text.key for text in texts_of(study, items) if text.change == study.conditions[2].intervention]
    keys = [request.key for request in requests_of(study, "arm")]  # greedy ones, then two samples of each
    assert keys[:2] == measured == [keys[2], keys[4]]


def test_what_is_checked_again_is_changed_by_the_same_numbers() -> None:
    """Two keys for one prompt are two answers, and each is found again."""
    ids = texts()[0]
    asked = [Request(ids, change=ARM, key=sequence_seed(SEED, ids, sample)) for sample in range(6)]
    replies = answer(loaded(), asked)
    assert len({reply.ids for reply in replies}) > 1
    found = recheck(LocalGenerator(loaded(), 1), asked, replies, DECODING, 1e-3)
    assert found == {"checked": 6, "same": 6, "margins": []}


# A real model --------------------------------------------------------------------------------------------

QUESTIONS = (
    "What is 12 + 30?", "Name a colour.", "Is 7 prime?", "What is half of 90?",
    "Spell the word cat.", "What comes after Monday?", "2, 4, 6, and then?", "Who wrote Hamlet?",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_model_writes_the_same_under_arm_alone_and_with_others(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    prompts = [
        tuple(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
            )
        )
        for question in QUESTIONS
    ]
    asked = [Request(ids, change=Redistribution(kind="arm"), key=sequence_seed(SEED, ids)) for ids in prompts]
    decoding = Decoding(max_tokens=24)
    alone, together = (answer(smollm2, asked, decoding, rows) for rows in (1, 8))
    assert [reply.text for reply in alone] == [reply.text for reply in together]


def test_ticks_add_up_to_the_answers() -> None:
    ticks: list[float] = []
    note: Callable[[float], None] = ticks.append
    LocalGenerator(loaded(), rows=3).answer(mixed(), DECODING, note)
    assert sum(ticks) == pytest.approx(len(mixed()))
