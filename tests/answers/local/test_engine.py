"""Answers of many rows at once against transformers' own `generate`, one at a time, family by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fillerscope.answers.local import engine
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.slots import Slots
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.capture.memory import kv_bytes_a_token
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.study.generation import Decoding
from support.tiny import tiny_model, tiny_tokenizer

# First those that differ most in what an answer depends on: rotations, windows, softcaps, learned positions, images.
FAMILIES = ("llama", "gemma2", "gemma3", "gpt2")
FURTHER = ("mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "gpt_neox")
# Some longer than the sliding window of 8, one of a single token, several that begin alike.
LENGTHS = (37, 12, 1, 25, 30, 18, 9, 2)
START = tuple(range(40, 51))
DECODING = Decoding(max_tokens=14)


def loaded(family: str = "llama", **changes: Any) -> LoadedModel:
    return wrap(tiny_model(family, **changes), tiny_tokenizer())


def requests(shared: int = 0, seed: int = 0) -> list[Request]:
    random = np.random.default_rng(seed)
    texts = [tuple(int(token) for token in random.integers(3, 500, size=n)) for n in LENGTHS]
    return [Request((*START, *text), index, shared) for index, text in enumerate(texts)]


def alone(model: LoadedModel, request: Request, limit: int) -> list[int]:
    with torch.inference_mode():
        written = model.model.generate(
            torch.tensor([request.ids]), attention_mask=torch.ones(1, len(request.ids), dtype=torch.long),
            max_new_tokens=limit, do_sample=False, pad_token_id=0, eos_token_id=sorted(stops_of(model)),
        )  # fmt: skip
    return list(written[0, len(request.ids) :].tolist())


def stops_of(model: LoadedModel) -> frozenset[int]:
    return LocalGenerator(model).stops


def answer(model: LoadedModel, asked: Sequence[Request], decoding: Decoding = DECODING, **engine: Any) -> list[Reply]:
    return LocalGenerator(model, **engine).answer(asked, decoding, lambda _: None)


@pytest.mark.parametrize("family", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_greedy_answers_are_those_of_generate(family: str) -> None:
    """Whatever the number of rows, and however much of the beginning is said to be shared."""
    model = loaded(family)
    expected = {request.ids: alone(model, request, DECODING.max_tokens) for request in requests()}
    for shared, rows in ((0, 64), (4, 3), (len(START), 3), (len(START), 64)):
        asked = requests(shared)
        replies = answer(model, asked, rows=rows)
        assert [list(reply.ids) for reply in replies] == [expected[request.ids] for request in asked]
    asked = [request for request in requests(99)[:3] for _ in range(3)]  # as for several samples of a prompt
    assert [list(reply.ids) for reply in answer(model, asked, rows=4)] == [expected[r.ids] for r in asked]


def test_an_answer_ends_at_a_stop_token_and_its_slot_is_used_again() -> None:
    model = loaded()
    plain = {index: alone(model, request, 14) for index, request in enumerate(requests())}
    stop = plain[0][5]
    engine = LocalGenerator(model, rows=2)
    engine.stops |= {stop}
    for index, reply in enumerate(engine.answer(requests(), DECODING, lambda _: None)):
        whole = plain[index]
        expected = whole[: whole.index(stop) + 1] if stop in whole else whole
        stopped = expected[-1] in engine.stops
        assert list(reply.ids) == expected
        assert reply.finish == ("stop" if stopped else "length")
        assert reply.tokens == len(expected) - stopped
        assert reply.text == model.tokenizer.decode(expected[: reply.tokens], skip_special_tokens=True)


def test_the_stops_are_what_settings_tokenizer_and_template_say() -> None:
    model = loaded()
    model.model.generation_config.eos_token_id = [7, 9]
    end = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert stops_of(model) == {7, 9, model.tokenizer.eos_token_id, end}


def test_no_answer_goes_beyond_the_context() -> None:
    model = loaded(max_position_embeddings=20)
    asked = [Request(tuple(range(3, 3 + n))) for n in (12, 19, 20, 25)]
    replies = answer(model, asked)
    assert [reply.finish for reply in replies] == ["length", "length", "failed", "failed"]
    assert [reply.tokens for reply in replies] == [8, 1, 0, 0]
    assert "no room" in replies[2].error
    assert list(replies[0].ids) == alone(model, asked[0], 8)
    small = [Request(asked[0].ids, room=room) for room in (3, 0, 9)]
    assert [reply.tokens for reply in answer(model, small)] == [3, 0, 8]
    assert "no room" in answer(model, small)[1].error


@pytest.mark.parametrize("engine", [LocalGenerator, AloneGenerator])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_whose_logits_are_not_finite_has_failed(engine: type[LocalGenerator], temperature: float) -> None:
    """It is no wrong answer; others in the batch are what they are."""
    model, decoding = loaded(), Decoding(max_tokens=12, temperature=temperature)
    sound, asked = answer(model, requests(), decoding), requests()
    with torch.no_grad():
        model.model.get_input_embeddings().weight[499] = float("inf")
    asked[1] = Request((*asked[1].ids[:3], 499, *asked[1].ids[4:]), asked[1].seed)
    ticks: list[float] = []
    replies = engine(model, 3).answer(asked, decoding, ticks.append)
    assert replies[1] == Reply("", 0, "failed", "the logits of token 1 are not finite")
    assert [reply.ids for reply in replies[2:]] == [reply.ids for reply in sound[2:]]
    assert sum(ticks) == pytest.approx(len(asked))


def test_samples_depend_on_their_seed_alone() -> None:
    model, decoding = loaded(), Decoding(max_tokens=12, temperature=1.5)
    asked = requests()
    together = answer(model, asked, decoding)
    assert len({reply.ids for reply in together}) == len(asked)
    for index, request in enumerate(asked):
        assert answer(model, [request], decoding)[0].ids == together[index].ids
    backwards = answer(model, asked[::-1], decoding, rows=3)
    assert [reply.ids for reply in backwards[::-1]] == [reply.ids for reply in together]
    reseeded = answer(model, [Request(request.ids, request.seed + 1) for request in asked], decoding)
    assert all(a.ids != b.ids for a, b in zip(together, reseeded, strict=True))


def test_every_answer_is_counted_once_and_the_model_is_left_as_it_was() -> None:
    model, ticks = loaded(), []
    before = model.model.config._attn_implementation
    replies = LocalGenerator(model, rows=3).answer(requests(), DECODING, ticks.append)
    assert len(replies) == len(LENGTHS)
    assert sum(ticks) == pytest.approx(len(LENGTHS))
    assert len(ticks) > len(LENGTHS), "an answer is heard of before it is done"
    assert model.model.config._attn_implementation == before
    assert LocalGenerator(model).answer([], DECODING, ticks.append) == []


@given(st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), min_size=1, max_size=5))
def test_the_common_start_is_the_longest(texts: list[tuple[int, ...]]) -> None:
    shared = common_start(texts)
    assert len({text[:shared] for text in texts}) == 1
    longer = {text[: shared + 1] for text in texts}
    assert len(longer) > 1 or min(map(len, texts)) == shared


def test_fewer_answers_are_in_progress_at_once_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded()
    asked = [Request((5, 6, 7 + n), n) for n in range(9)]
    slot = kv_bytes_a_token(model.model) * (3 + DECODING.max_tokens)
    counts: list[int] = []
    forward = Slots.forward

    def counted(self: Slots, *given: Any) -> torch.Tensor:
        counts.append(self.count)
        return forward(self, *given)

    def most_slots(rows: int | None, held: float) -> int:
        generator = LocalGenerator(model, rows)
        monkeypatch.setattr(engine, "memory_beside_weights", lambda _: held * slot / generator.share)
        counts.clear()
        generator.stops = frozenset()
        replies = generator.answer(asked, DECODING, lambda _: None)
        assert [reply.tokens for reply in replies] == [DECODING.max_tokens] * len(asked)
        return max(counts)

    monkeypatch.setattr(Slots, "forward", counted)
    assert [most_slots(None, held) for held in (100, 3.5, 0.1)] == [9, 3, 1]
    assert [most_slots(6, held) for held in (100, 3.5, 0.1)] == [6, 3, 1]
    assert LocalGenerator(model, 6).share > LocalGenerator(model).share  # chosen by somebody
