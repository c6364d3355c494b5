"""Decode steps with padded rows whose tokens are read one step late: the same answers as one step after the other.

On a CPU each step is computed as it is, where a GPU would replay a captured one: what surrounds the steps is the same.
In float64, so that rounding flips no choice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fillerscope.answers.local.batch import PassSize
from fillerscope.answers.local.engine import ONE_BY_ONE, LocalGenerator
from fillerscope.answers.local.graphs import Graphs, NotCapturedError, Outputs, Step, padded_rows, padded_width
from fillerscope.answers.local.slots import Pass, Slots
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.arm import hooks
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from support.grid import some_fast
from support.tiny import tiny_model, tiny_tokenizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of the kernels: else Triton's interpreter runs them
START = tuple(range(40, 51))
LENGTHS = (21, 12, 1, 25, 30, 18, 9, 2, 14, 7, 40, 3)
GREEDY, DRAWN = Decoding(max_tokens=20), Decoding(max_tokens=20, temperature=1.3, top_p=0.95)
CHANGES: dict[str, Any] = {
    "plain": None, "moved": None, "knockout": Knockout(kind="knockout", layers=(1,)),
    "arm": Redistribution(kind="arm", layers=(1, 2)), "scatter": Redistribution(kind="scatter"),
    "gaussian": Redistribution(kind="gaussian"),
}  # fmt: skip
MANY = PassSize(4096, 1 << 24)
Logits = dict[int, list[torch.Tensor]]  # of every token, by the number of the request


class Uncaptured(Graphs):
    """Computes each step as it is, with as many rows and keys as a captured one."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.steps: list[tuple[int, Hashable]] = []

    def run(self, rows: int, kind: Hashable, step: Step, cells: torch.Tensor) -> Outputs:  # noqa: ARG002 - as captured
        self.steps.append((rows, kind))
        return step()


class Refusing(Graphs):
    """No step can be captured."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.tried = 0

    def run(self, rows: int, kind: Hashable, step: Step, cells: torch.Tensor) -> Outputs:  # noqa: ARG002
        self.tried += 1
        before = cells.clone()
        step()  # some kernels run before one refuses
        cells.copy_(before)
        raise NotCapturedError("nonzero makes the host wait")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return wrap(tiny_model("llama").double(), tiny_tokenizer())


def requests(name: str, lengths: tuple[int, ...] = LENGTHS) -> list[Request]:
    random = np.random.default_rng(3)
    texts = [(*START, *random.integers(3, 500, size=length).tolist()) for length in lengths]
    gap = (5, 3) if name == "moved" else (0, 0)
    return [
        Request(ids, seed, len(START), CHANGES[name], key=7 * seed, filler=(2, 6), gap=gap if seed % 2 else (0, 0))
        for seed, ids in enumerate(texts)
    ]


def engine_of(model: LoadedModel, graphs: Graphs | None, rows: int = 5, ending: bool = True) -> LocalGenerator:
    engine = LocalGenerator(model, rows)
    engine.graphs, engine.whole = graphs, MANY if graphs else ONE_BY_ONE
    engine.stops = engine.stops | frozenset(range(0, 512, 16)) if ending else frozenset()
    return engine


def answered(engine: LocalGenerator, asked: list[Request], decoding: Decoding = GREEDY) -> list[Reply]:
    return engine.answer(asked, decoding, lambda _: None)


def answers_and_logits(engine: LocalGenerator, asked: list[Request], decoding: Decoding) -> tuple[list[Reply], Logits]:
    logits: Logits = {}
    engine.on_logits = lambda number, one: logits.setdefault(number, []).append(one.clone())
    replies = answered(engine, asked, decoding)
    engine.on_logits = None
    return replies, logits


CASES = [(name, decoding) for name in CHANGES for decoding in (GREEDY, DRAWN)]


@pytest.mark.parametrize("case", some_fast(CASES, ("plain", DRAWN), ("arm", GREEDY)))
def test_answers_are_those_of_one_step_after_the_other(model: LoadedModel, case: tuple[str, Decoding]) -> None:
    name, decoding = case
    asked, graphs = requests(name), Uncaptured()
    expected = answered(engine_of(model, None), asked, decoding)
    assert len({len(reply.ids) for reply in expected}) > 1, "answers must end at different times"
    for rows in (5, 12):
        engine = engine_of(model, graphs, rows)
        for _ in range(2):  # the second time in slots that hold the first answers
            assert answered(engine, asked, decoding) == expected
    assert graphs.steps


def test_a_batch_that_was_broken_off_leaves_nothing_in_the_slots(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were left in progress would go on beyond the end of their slots."""
    monkeypatch.setattr("fillerscope.answers.local.workspace.ROUNDED", 1)
    engine, ticks = engine_of(model, Uncaptured(), rows=len(LENGTHS), ending=False), []

    def broken(part: float) -> None:
        ticks.append(part)
        if len(ticks) == GREEDY.max_tokens - 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.answer(requests("plain"), GREEDY, broken)
    fewer = requests("plain")[:9]
    assert padded_rows(len(fewer), len(LENGTHS)) == len(LENGTHS)
    assert answered(engine, fewer) == answered(engine_of(model, None, ending=False), fewer)


def test_each_row_is_counted_once_and_no_step_is_computed_for_nothing(model: LoadedModel) -> None:
    graphs, ticks = Uncaptured(), []
    engine = engine_of(model, graphs, rows=64, ending=False)
    engine.answer(requests("plain"), GREEDY, ticks.append)
    assert len(graphs.steps) == GREEDY.max_tokens, "the host knows when answers reach their last token"
    assert sum(ticks) == pytest.approx(len(LENGTHS))
    assert {rows for rows, _ in graphs.steps} == {padded_rows(len(LENGTHS), len(LENGTHS))}


@pytest.mark.parametrize("name", ["plain", "arm"])
def test_logits_are_told_of_once_for_each_token(model: LoadedModel, name: str) -> None:
    told: list[Logits] = []
    for graphs in (None, Uncaptured()):
        engine = engine_of(model, graphs, rows=12)  # some rows that have ended stay among the others
        replies, logits = answers_and_logits(engine, requests(name), GREEDY)
        assert [len(logits[number]) for number in range(len(replies))] == [len(reply.ids) for reply in replies]
        told.append(logits)
    for number, expected in told[0].items():
        # Norms are computed in float32, and by some processors otherwise for another number of rows.
        assert torch.allclose(torch.stack(expected), torch.stack(told[1][number]), atol=1e-5)


def test_padding_of_whole_prompts_is_nowhere_among_their_tokens(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tokens for one place of a slot are written in no order on a GPU."""
    seen: list[torch.Tensor] = []
    forward = Slots.forward

    def recorded(self: Slots, tokens: torch.Tensor, now: Pass, skipped: torch.Tensor | int = 0) -> torch.Tensor:
        seen.append(now.positions)
        return forward(self, tokens, now, skipped)

    monkeypatch.setattr(Slots, "forward", recorded)
    asked = requests("arm")
    answered(engine_of(model, Uncaptured(), rows=len(asked)), asked)
    lengths = sorted(len(request.ids) for request in asked)
    assert len(seen[0]) == len(lengths), "all in one pass"
    for row, length in zip(seen[0].tolist(), lengths, strict=True):
        assert sorted(row)[:length] == list(range(length))
        assert set(sorted(row)[length:]) <= {length}


def test_where_no_step_can_be_captured_it_is_said_once_and_answers_stay(model: LoadedModel) -> None:
    graphs, said = Refusing(), []
    engine, asked = engine_of(model, graphs), requests("plain")
    engine.say = said.append
    for _ in range(2):
        assert answered(engine, asked) == answered(engine_of(model, None), asked)
    assert graphs.tried == 1
    assert len(said) == 1
    assert "nonzero makes the host wait" in said[0]


def test_a_model_with_hooks_is_run_as_it_is_and_that_is_said(model: LoadedModel) -> None:
    graphs, calls, said = Uncaptured(), [], []
    engine = engine_of(model, graphs)
    engine.say = said.append
    hook = model.model.register_forward_hook(lambda *_: calls.append(1))
    try:
        answered(engine, requests("plain"))
    finally:
        hook.remove()
    assert calls
    assert not graphs.steps
    assert ["hooks" in text for text in said] == [True]


def test_a_model_that_once_gave_its_attention_is_captured() -> None:
    """transformers leaves hooks behind, which do nothing from then on."""
    model, graphs = wrap(tiny_model("llama").double(), tiny_tokenizer()), Uncaptured()
    model.model(input_ids=torch.tensor([[5, 6]]), output_hidden_states=True)
    assert any(module._forward_hooks for module in model.model.modules())
    answered(engine_of(model, graphs), requests("plain"))
    assert graphs.steps


def counted(module: str, function: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every call of a function of a module that needs Triton."""
    kernels, calls = pytest.importorskip(module, reason="triton is not installed", exc_type=ImportError), []
    original = getattr(kernels, function)
    monkeypatch.setattr(kernels, function, lambda *given: (calls.append(1), original(*given))[1])
    return calls


@pytest.mark.parametrize(
    ("family", "name"),
    [("llama", "knockout"), ("gpt2", "moved"), ("gemma2", "plain"), ("mistral", "knockout"), ("gpt_oss", "plain")],
)
def test_steps_by_our_kernels_have_the_logits_of_torch(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouped heads, windows, soft-capping and sinks as models have them, in rows of different lengths."""
    calls = counted("fillerscope.answers.local.decode_kernels", "attend", monkeypatch)
    model, told = wrap(tiny_model(family).to(DEVICE), tiny_tokenizer()), []
    for kernels in (False, True):
        monkeypatch.setattr(Slots, "suit_kernels", lambda _, kernels=kernels: kernels)
        engine = engine_of(model, Uncaptured(), rows=3, ending=False)
        told.append(answers_and_logits(engine, requests(name, (1, 5, 9)), Decoding(max_tokens=3)))
        assert bool(calls) is kernels
    (expected, logits), (replies, by_kernels) = told
    assert replies == expected
    for number, one in logits.items():
        assert torch.allclose(torch.stack(one), torch.stack(by_kernels[number]), atol=1e-4)


def test_seeds_by_our_kernel_give_the_answers_of_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrap(tiny_model("llama").double().to(DEVICE), tiny_tokenizer())
    calls = counted("fillerscope.arm.seed_kernels", "step_seeds", monkeypatch)
    asked, few = requests("arm", (1, 5, 9)), Decoding(max_tokens=4)
    expected = answered(engine_of(model, None, rows=3), asked, few)
    assert not calls
    monkeypatch.setattr(hooks, "suits_kernels", lambda _: True)
    assert answered(engine_of(model, Uncaptured(), rows=3), asked, few) == expected
    assert calls


def test_slots_serve_again_where_they_are_large_enough_and_the_weights_are_where_they_were() -> None:
    model = wrap(tiny_model("llama").double(), tiny_tokenizer())
    engine = engine_of(model, Uncaptured())
    answered(engine, requests("plain"))
    first = engine.workspace
    answered(engine, requests("knockout")[:3], Decoding(max_tokens=9))
    assert engine.workspace is first
    answered(engine, requests("plain"), Decoding(max_tokens=400))
    longer = engine.workspace
    assert longer is not first
    for parameter in model.model.parameters():
        parameter.data = parameter.data.clone()
    answered(engine, requests("plain"))
    assert engine.workspace is not longer


@given(st.integers(1, 600), st.integers(1, 600))
def test_padded_rows_are_enough_few_and_of_few_numbers(rows: int, most: int) -> None:
    rows = min(rows, most)
    padded = padded_rows(rows, most)
    assert rows <= padded <= most
    assert padded <= max(1, 1.5 * rows)
    assert padded_rows(padded, most) == padded
    assert len({padded_rows(number, 512) for number in range(1, 513)}) <= 20


@given(st.integers(1, 9000), st.integers(1, 9000))
def test_padded_widths_are_enough(width: int, most: int) -> None:
    width = min(width, most)
    assert width <= padded_width(width, most) <= most


# On a GPU ------------------------------------------------------------------------------------------------


def logits_apart(one: LocalGenerator, other: LocalGenerator, asked: list[Request], decoding: Decoding) -> list[float]:
    """For each answer how far apart the logits are, up to the token where the answers part."""
    (replies, mine), (others, theirs) = (answers_and_logits(engine, asked, decoding) for engine in (one, other))
    apart = []
    for number, (a, b) in enumerate(zip(replies, others, strict=True)):
        same = 1 + common_start([a.ids, b.ids])
        pair = [torch.stack(logits[number][:same]) for logits in (mine, theirs)]
        apart.append(float((pair[0] - pair[1]).abs().max() / pair[0].std()))
    return apart


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["plain", "moved", "knockout", "arm"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "mistral", "qwen3"])
def test_captured_steps_give_the_answers_of_single_kernels(family: str, name: str) -> None:
    """In float32: where rounding decides, one answer may part. Logits are the same up to there."""
    model = wrap(tiny_model(family).cuda(), tiny_tokenizer())
    plain = LocalGenerator(model, 5)
    plain.graphs, plain.whole = None, ONE_BY_ONE
    captured = LocalGenerator(model, 5)
    for decoding in (GREEDY, DRAWN):
        expected, replies = (answered(engine, requests(name), decoding) for engine in (plain, captured))
        assert sum(a != b for a, b in zip(expected, replies, strict=True)) <= 1
        apart = sorted(logits_apart(plain, captured, requests(name), decoding))
        assert apart[-2 if name == "arm" else -1] < 1e-3  # rounding may move an activation across ARM's threshold
    assert captured.graphs is not None
    assert captured.graphs.usable
    assert captured.graphs.kernels
    steps = set(captured.graphs.captured)
    answered(captured, requests(name), DRAWN)
    assert set(captured.graphs.captured) == steps, "what was captured is replayed"


@pytest.mark.gpu
def test_what_waits_cannot_be_captured_and_changes_nothing() -> None:
    graphs, cells = Graphs(torch.device("cuda")), torch.ones(3, device="cuda")

    def waiting() -> Outputs:
        cells.add_(1)
        return cells * float(cells.sum()), None

    with pytest.raises(NotCapturedError):
        graphs.run(1, "waiting", waiting, cells)
    assert cells.tolist() == [1, 1, 1]

    def step() -> Outputs:
        return cells.add_(1) * 2, None

    assert [graphs.run(1, "step", step, cells)[0].tolist() for _ in range(2)] == [[4] * 3, [6] * 3]
