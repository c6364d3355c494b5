"""The batches of answers that a plan forms are those that the engine forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.answers.local import engine
from fillerscope.answers.local.engine import ONE_BY_ONE, PREFILL, LocalGenerator
from fillerscope.answers.local.slots import Pass, Slots
from fillerscope.answers.request import Request
from fillerscope.capture.memory import kv_bytes_a_token
from fillerscope.measure.planning.decoding import Generation, Lengths
from fillerscope.models.loading import wrap
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from support.tiny import tiny_model, tiny_tokenizer

LIMIT = 12
SIZES = PREFILL["cpu"], ONE_BY_ONE


def requests(**options: Any) -> list[Request]:
    """Prompts of several lengths, of which the first tokens are shared, and two that are not."""
    rng = np.random.default_rng(0)
    start = tuple(rng.integers(5, 400, 9).tolist())
    ids = [(*start, *rng.integers(5, 400, 3 + n % 7).tolist()) for n in range(20)]
    others = [tuple(rng.integers(5, 400, 6).tolist()) for _ in range(2)]
    shared = [Request(one, n, shared=len(start), filler=(2, 4), **options) for n, one in enumerate(ids)]
    return [*shared, *(Request(one, 50 + n, filler=(2, 4), **options) for n, one in enumerate(others))]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Rows, tokens of a row and keys of every pass that the engine runs."""
    seen: list[tuple[int, int, int]] = []
    real: Callable[..., torch.Tensor] = Slots.forward

    def forward(self: Slots, tokens: torch.Tensor, now: Pass, skipped: torch.Tensor | int = 0) -> torch.Tensor:
        seen.append((*tokens.shape, now.width))
        return real(self, tokens, now, skipped)

    monkeypatch.setattr(Slots, "forward", forward)
    return seen


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize(
    "change",
    [None, Knockout(kind="knockout"), Redistribution(kind="arm", fraction=0.25)],
    ids=["plain", "knockout", "arm"],
)
def test_prefills_and_steps_are_those_of_the_engine(rows: int, change: Any, passes: list[tuple[int, int, int]]) -> None:
    loaded = wrap(tiny_model("llama"), tiny_tokenizer())
    asked = requests(change=change)
    engine = LocalGenerator(loaded, rows)
    engine.stops = frozenset(range(0, 512, 9))  # so that some end early
    replies = engine.answer(asked, Decoding(max_tokens=LIMIT), lambda _: None)
    lengths = [reply.tokens + (reply.finish == "stop") for reply in replies]
    assert len(set(lengths)) > 1
    work = Generation(rows, *SIZES, LIMIT, 512).work(asked, lengths)
    prefills = [one for one in passes if one[1] > 1]
    steps = [one for one in passes if one[1] == 1]
    assert work.tokens == sum(lengths)
    assert work.passes == len(prefills)
    assert work.prefill.tokens == sum(count * tokens for count, tokens, _ in prefills)
    assert work.largest == max(count * tokens for count, tokens, _ in prefills)
    assert [one.rows for one in work.steps for _ in range(one.count)] == [count for count, _, _ in steps]
    assert sum(one.count * one.width for one in work.steps) == sum(width for _, _, width in steps)


def test_slots_are_as_many_and_as_long_as_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(Slots, "__post_init__", _noting(made, Slots.__post_init__))
    asked = requests()
    LocalGenerator(wrap(tiny_model("llama"), tiny_tokenizer()), 5).answer(
        asked, Decoding(max_tokens=LIMIT), lambda _: None
    )
    assert Generation(5, *SIZES, LIMIT, 512).work(asked, [3] * len(asked)).cells == max(made)


def test_slots_are_as_many_as_the_engines_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(Slots, "__post_init__", _noting(made, Slots.__post_init__))
    model, asked = tiny_model("llama"), requests()
    monkeypatch.setattr(engine, "memory_beside_weights", lambda _: 100 * kv_bytes_a_token(model) / engine.SLOTS_SHARE)
    generator = LocalGenerator(wrap(model, tiny_tokenizer()))
    generator.answer(asked, Decoding(max_tokens=LIMIT), lambda _: None)
    assert generator.most_cells() == 100
    cells = Generation(generator.rows, *SIZES, LIMIT, 512, 100).work(asked, [3] * len(asked)).cells
    assert cells == max(made)
    assert 0 < cells <= 100


def _noting(made: list[int], real: Callable[[Slots], None]) -> Callable[[Slots], None]:
    def noted(self: Slots) -> None:
        made.append(self.count * self.capacity)
        real(self)

    return noted


def test_an_answer_ends_where_the_context_does() -> None:
    asked = [Request(tuple(range(5, 25)))]
    work = Generation(4, *SIZES, 100, 24).work(asked, [100])
    assert (work.tokens, work.cells) == (4, 24)


def test_lengths_are_drawn_like_those_of_the_sample() -> None:
    lengths = Lengths((10, 20, 30), (50,), 50)
    assert lengths.is_known
    drawn = lengths.draw(400, 0)
    assert sorted(set(drawn.tolist())) == [10, 20, 30, 50]
    assert drawn.mean() == 27.5
    assert lengths.draw(400, 0).tolist() == drawn.tolist()


def test_an_answer_that_was_not_watched_to_its_end_goes_on() -> None:
    lengths = Lengths((10, 10), (20, 20), 500)
    assert not lengths.is_known
    drawn = lengths.draw(4000, 0)
    longer = drawn[drawn != 10]
    assert len(longer) == 2000
    assert longer.min() > 20
    assert longer.max() <= 500
    assert 40 < longer.mean() < 60  # one token in thirty ends an answer


def test_without_a_sample_every_answer_is_as_long_as_it_may_be() -> None:
    assert Lengths((), (), 77).draw(3, 0).tolist() == [77, 77, 77]
    assert Lengths((), (20, 20), 77).draw(3, 0).tolist() == [77, 77, 77]
