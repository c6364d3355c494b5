"""Texts measured together, behind prefixes that are run once, and where memory runs out: always the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.capture import passes
from fillerscope.capture.attention import Recorder, capturing
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Measured, PassRunner, TextAttention
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.measure.prepare import Shard
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import context_length
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.array_file import Part
from fillerscope.study.interventions import Redistribution
from fillerscope.study.study import Study
from support.grid import some_fast
from support.shards import run_shard
from support.studies import study_of
from support.tiny import tiny_model, tiny_tokenizer

Windowed = tuple[str, int | None]  # a family, and its window where it is not the usual one

FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma3", "mistral", "phi3", "gpt2", "gpt_neox")
WINDOWS = [("gemma2", 5), ("gemma2", 64), ("gemma3_text", 16), ("gemma3", 64), ("mistral", 16), ("mistral", 64)]
MODELS: list[Windowed] = [*((family, None) for family in FAMILIES), *WINDOWS]
FEW_MODELS: list[Windowed] = [
    ("llama", None), ("gemma2", None), ("phi3", None), ("gpt2", None),
    ("gemma2", 5), ("gemma3_text", 16), ("mistral", 64),
]  # fmt: skip
BEHIND, OTHERS = 20, 13  # tokens of the two prefixes


@cache
def texts() -> tuple[Text, ...]:
    """Two prefixes, one of them with filler in it, and none; like lengths and unlike ones, in no order."""
    random = np.random.default_rng(0)
    prefixes = {n: random.integers(3, 500, size=n).tolist() for n in (0, BEHIND, OTHERS)}
    made = []
    for shared, own in ((20, 9), (0, 30), (13, 9), (20, 40), (13, 1), (20, 10), (0, 3), (13, 41), (20, 40), (20, 41)):
        ids = prefixes[shared] + random.integers(3, 500, size=own).tolist()
        original = random.random(len(ids)) < 0.6
        original[:shared] = np.arange(shared) % 3 > 0 if shared == OTHERS else True
        made.append(Text(tuple(ids), original, shared))
    return tuple(made)


def apart(some: tuple[Text, ...]) -> list[Text]:
    """The same texts without anything that is run before."""
    return [Text(text.ids, text.original) for text in some]


def found(measured: Measured) -> list[TextAttention]:
    return [measured.text(number) for number in range(len(measured.texts))]


def assert_alike(mine: list[TextAttention], theirs: list[TextAttention], atol: float = 1e-5) -> None:
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_allclose(a.mean_received(), b.mean_received(), atol=atol, rtol=0, err_msg=str(number))
        np.testing.assert_allclose(a.diagonal, b.diagonal, atol=atol, rtol=0, err_msg=str(number))
        np.testing.assert_allclose(a.mean_entropy(), b.mean_entropy(), atol=2 * atol, rtol=0, err_msg=str(number))


def alone(model: Any, some: list[Text]) -> list[TextAttention]:
    """One pass for each text, nothing shared: the reference."""
    return [PassRunner(model, 1).one_pass([text]).text(0) for text in some]


# Beginnings


@pytest.mark.parametrize("windowed", some_fast(MODELS, *FEW_MODELS), ids=str)
def test_beginnings_run_once_change_nothing(windowed: Windowed) -> None:
    """Windows end inside the prefix, before it, or reach over all of it; two prefixes and none in one pass."""
    family, window = windowed
    model = tiny_model(family, **({} if window is None else {"sliding_window": window}))
    with capturing(model):
        reference = alone(model, apart(texts()))
        assert_alike(found(PassRunner(model, 10_000).measure(texts())), reference)
        assert_alike(found(PassRunner(model, 60).measure(texts())), reference)  # several passes


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """Every forward pass from now on."""
    seen: list[Recorder] = []
    observe = passes.observe

    def noting(model: Any, recorder: Recorder) -> Recorder:
        seen.append(recorder)
        return observe(model, recorder)

    monkeypatch.setattr(passes, "observe", noting)
    return seen


def test_each_beginning_is_run_once(observed: list[Recorder]) -> None:
    model = tiny_model("llama")
    runner = PassRunner(model, 60)
    with capturing(model):
        runner.measure(texts())
        runner.measure(texts()[::-1])
    kept = [recorder for recorder in observed if recorder.keep]
    assert sorted(recorder.packing.tokens for recorder in kept) == [OTHERS, BEHIND]
    assert len(observed) - len(kept) > 4
    rest = [text.own for text in texts()]
    assert sum(len(r.packing.kept_queries()) for r in observed if not r.keep) == 2 * sum(rest)


def test_texts_that_share_ids_but_not_filler_do_not_share_a_beginning() -> None:
    """In one pass: the rows that vote in the prefix are another's."""
    random = np.random.default_rng(1)
    ids = random.integers(3, 500, size=12).tolist()
    some = []
    for filler in (slice(0, 0), slice(2, 8), slice(0, 0), slice(5, 11)):
        text = (*ids, *random.integers(3, 500, size=10).tolist())
        original = np.ones(len(text), np.bool_)
        original[filler] = False
        some.append(Text(text, original, 12))
    model = tiny_model("llama")
    with capturing(model):
        assert_alike(found(PassRunner(model, 1000).measure(some)), alone(model, apart(tuple(some))))


def test_so_many_beginnings_are_remembered(monkeypatch: pytest.MonkeyPatch, observed: list[Recorder]) -> None:
    monkeypatch.setattr(passes, "REMEMBERED", 2)
    random, model = np.random.default_rng(2), tiny_model("llama")
    some = []
    for _ in range(5):
        ids = tuple(random.integers(3, 500, size=18).tolist())
        some += [Text(ids, np.ones(18, np.bool_), 10)] * 2
    runner = PassRunner(model, 1000)
    with capturing(model):
        measured = runner.measure(some)  # all five in one pass, three of them forgotten at once
        assert len(runner._prefixes) == 2
        assert_alike(found(measured), alone(model, apart(tuple(some))))
        observed.clear()
        runner.measure(some[-4:])
        assert [recorder.keep for recorder in observed] == [False]  # the last two are still there
        runner.measure(some[:2])
        assert [recorder.keep for recorder in observed] == [False, True, False]
        assert len(runner._prefixes) == 2


# Order and neighbours


@pytest.mark.parametrize("tokens", [1, 45, 10_000])
def test_texts_keep_their_order(tokens: int) -> None:
    model, random = tiny_model("gpt2"), np.random.default_rng(3)
    ticks: list[int] = []
    with capturing(model):
        usual = found(PassRunner(model, 10_000).measure(texts()))
        order = random.permutation(len(texts())).tolist()
        measured = PassRunner(model, tokens).measure([texts()[number] for number in order], ticks.append)
    assert [text.ids for text in measured.texts] == [texts()[number].ids for number in order]
    assert_alike(found(measured), [usual[number] for number in order])
    assert sum(ticks) == len(order)
    assert measured.starts == [0, *np.cumsum([len(texts()[number]) for number in order])]
    assert measured.finite()().all()
    assert not measured.errors


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])
def test_a_text_does_not_depend_on_its_neighbours(family: str) -> None:
    model, random = tiny_model(family), np.random.default_rng(4)
    with capturing(model):
        runner = PassRunner(model, 10_000)
        for number in (0, 3, 4):
            reference = runner.one_pass([texts()[number]]).text(0)
            others = [n for n in random.permutation(len(texts())).tolist() if n != number][:5]
            among = [texts()[n] for n in (*others[:3], number, *others[3:])]
            assert_alike([runner.one_pass(among).text(3)], [reference])


def test_a_text_that_is_not_finite_is_known_by_its_number() -> None:
    model, some = tiny_model("llama"), apart(texts())
    some[4] = Text((501, *some[4].ids), np.append(True, some[4].original))
    model.get_input_embeddings().weight.data[501] = torch.nan
    with capturing(model):
        finite = PassRunner(model, 60).measure(some).finite()()
    assert finite.tolist() == [number != 4 for number in range(len(some))]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["received", "entropy"])
def test_one_number_that_is_not_finite_is_enough(where: str, value: float) -> None:
    some = apart(texts())[:4]
    shapes = {"received": (3, 4, 3, sum(map(len, some))), "entropy": (3, 4, 4, 3)}
    arrays = {name: torch.rand(shape) for name, shape in shapes.items()}
    place = {"received": (2, 1, 0, len(some[0]) + len(some[1]) - 1), "entropy": (2, 1, 3, 2)}  # of the second text
    arrays[where][place[where]] = value
    measured = Measured(arrays["received"], torch.rand(3, 4, shapes["received"][-1]), arrays["entropy"], tuple(some))
    assert measured.finite()().tolist() == [True, False, True, True]


# Memory that runs out


def out_of_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total of 3 GiB.")


def another_device() -> None:
    raise torch.OutOfMemoryError("allocation of 2 GiB failed")


def in_words() -> None:
    raise RuntimeError("MPS backend out of memory (MPS allocated: 3 GB)")


def real_allocator() -> None:
    torch.empty(1 << 50)  # more than there are addresses


Limit = Callable[..., list[int]]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """From now on passes of more tokens fail; the list says how large they were."""
    observe = passes.observe

    def set_limit(tokens: int, fail: Callable[[], None] = out_of_memory) -> list[int]:
        failed: list[int] = []

        def limited(model: Any, recorder: Recorder) -> Recorder:
            if recorder.packing.tokens > tokens:
                failed.append(recorder.packing.tokens)
                fail()
            return observe(model, recorder)

        monkeypatch.setattr(passes, "observe", limited)
        return failed

    return set_limit


@pytest.mark.parametrize("fail", [out_of_memory, another_device, in_words, real_allocator])
def test_a_pass_that_memory_does_not_hold_is_halved(fail: Callable[[], None], limit: Limit) -> None:
    model, ticks = tiny_model("llama"), []  # type: ignore[var-annotated]
    runner = PassRunner(model, 10_000)
    with capturing(model):
        usual = found(PassRunner(model, 10_000).measure(texts()))
        failed = limit(60, fail)
        measured = runner.measure(texts(), ticks.append)
        assert_alike(found(measured), usual)
        assert not measured.errors
        assert measured.finite()().all()
        assert sum(ticks) == len(texts())
        assert failed
        assert runner.tokens <= 60  # what is known to be too much is not tried again
        tried = len(failed)
        runner.measure(texts())
        assert len(failed) == tried


def test_later_passes_of_the_same_texts_are_smaller_at_once(limit: Limit) -> None:
    """Passes are planned before the first of them fails."""
    random, model = np.random.default_rng(5), tiny_model("llama")
    some = [Text(tuple(random.integers(3, 500, size=20).tolist()), np.ones(20, np.bool_)) for _ in range(32)]
    runner = PassRunner(model, 160)
    with capturing(model):
        usual = found(PassRunner(model, 10_000).measure(some))
        failed = limit(50)
        assert_alike(found(runner.measure(some)), usual)
    assert failed == [160, 80]
    assert runner.tokens == 40


@pytest.mark.parametrize("fail", [out_of_memory, real_allocator])
def test_a_text_that_does_not_fit_is_an_error_for_itself_alone(fail: Callable[[], None], limit: Limit) -> None:
    model = tiny_model("llama")
    with capturing(model):
        usual = found(PassRunner(model, 10_000).measure(texts()))
        limit(40, fail)
        measured = PassRunner(model, 10_000).measure(texts())
    too_long = [number for number, text in enumerate(texts()) if text.own > 40]
    assert too_long == [7, 9]
    assert sorted(measured.errors) == too_long
    assert measured.finite()().tolist() == [number not in too_long for number in range(len(texts()))]
    mine = found(measured)
    rest = [number for number in range(len(texts())) if number not in too_long]
    assert_alike([mine[number] for number in rest], [usual[number] for number in rest])
    for number in too_long:
        assert measured.errors[number].startswith(f"{len(texts()[number])} tokens, and memory runs out: ")
        assert "\n" not in measured.errors[number]
        assert np.isnan(mine[number].received).all()


def test_a_beginning_that_does_not_fit_fails_its_texts_alone(limit: Limit) -> None:
    model = tiny_model("llama")
    some = [text for text in texts() if text.own < BEHIND]
    with capturing(model):
        limit(BEHIND - 1)
        measured = PassRunner(model, 10_000).measure(some)
    assert sorted(measured.errors) == [n for n, text in enumerate(some) if text.shared == BEHIND] != []


def test_other_errors_are_told(limit: Limit) -> None:
    def broken() -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    model = tiny_model("llama")
    failed = limit(60, broken)
    with capturing(model), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        PassRunner(model, 10_000).measure(texts())
    assert len(failed) == 1


# The same through a shard


def measure(study: Study, model: LoadedModel) -> Part:
    maker = PromptMaker.of(model.tokenizer, study.prompt, study.prompt.template, study.seed)
    shard = Shard(0, 0, tuple(load_problems(study.problems)))
    with capturing(model.model):
        runner = PassRunner(model.model, 4096)
        return run_shard(study, shard, runner, maker, context_length(model.model), lambda _: None)


def test_a_problem_that_memory_does_not_hold_fails_alone(limit: Limit) -> None:
    study, model = study_of("tiny", batch={"shard": 8, "prefix": "off"}), wrap(tiny_model("llama"), tiny_tokenizer())
    healthy = measure(study, model)
    longest = [max(len(p["ids"]) for p in record["prompts"].values()) for record in healthy.records]
    bad = int(np.argmax(longest))
    limit(longest[bad] - 1)
    part = measure(study, model)
    assert [record["status"] for record in part.records].count("failed") == 1
    record = part.records[bad]
    assert record.keys() == {"number", "id", "status", "error"}
    assert record["error"] == (
        f"{longest[bad]} tokens, and memory runs out: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    rest = [number for number in range(8) if number != bad]
    assert [part.records[number] for number in rest] == [healthy.records[number] for number in rest]
    for key, array in healthy.arrays.items():
        if key.endswith("/heads"):
            np.testing.assert_allclose(part.arrays[key][:, :4], np.delete(array, bad, axis=0)[:, :4], atol=1e-6)
        if key.endswith("/mean"):
            assert np.isfinite(part.arrays[key]).all()


@pytest.mark.parametrize(
    ("family", "change"),
    [("llama", None), ("llama", Redistribution(kind="arm", fraction=0.25)), ("gemma2", None)],
    ids=["llama", "llama with ARM", "gemma2"],
)
def test_kernels_for_small_operations_change_no_number(family: str, change: Redistribution | None) -> None:
    """Nor do they keep ARM from what it changes."""
    pytest.importorskip("triton", reason="triton is not installed")
    model = tiny_model(family)
    small = SmallOperations.of(model)
    assert small.norms
    some = [replace(text, change=change, key=number) for number, text in enumerate(apart(texts()[:3]))]
    with capturing(model):
        own = found(PassRunner(model, 200).measure(some))
        assert_alike(found(PassRunner(model, 200, small=small).measure(some)), own)
        assert_alike(found(PassRunner(model, 200).measure(some)), own, atol=0)  # the model is as it was
        if change is not None:
            unchanged = found(PassRunner(model, 200).measure(apart(texts()[:3])))
            assert any(np.abs(a.diagonal - b.diagonal).max() > 1e-3 for a, b in zip(own, unchanged, strict=True))


def test_models_on_other_devices_keep_their_own_operations() -> None:
    assert SmallOperations.for_passes(tiny_model("llama")) == SmallOperations()
