"""First tokens against plain forward passes: an engine that does not write what the model writes is seen at load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fillerscope.answers.local.answer_check import answercheck
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.local.slots import SlotLayer
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.capture.precision import in_float32
from fillerscope.errors import GenerationError
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import decoder_of, layers_of
from fillerscope.study.generation import Decoding
from support.families import small_model
from support.tiny import tiny_model, tiny_tokenizer


def requests(shared: int = 10) -> list[Request]:
    random = np.random.default_rng(0)
    prefix = random.integers(5, 500, shared).tolist()
    return [Request((*prefix, *random.integers(5, 500, n).tolist()), n, shared) for n in (12, 40, 25, 33, 60)]


def planted() -> LoadedModel:
    return wrap(tiny_model("llama"), tiny_tokenizer(), "planted")


@contextmanager
def hooked(model: LoadedModel, hook: Callable[[Any, Any, Any], Any]) -> Iterator[None]:
    handle = layers_of(decoder_of(model.model))[0].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(("family", "engine"), [("llama", "rows"), ("gpt_oss", "rows"), ("qwen3_next", "alone")])
def test_a_family_gets_the_engine_that_writes_what_it_writes(family: str, engine: str) -> None:
    check = answercheck(wrap(small_model(family), tiny_tokenizer(), family), requests(), 4)
    assert (check.engine, check.prompts, check.dtype) == (engine, 3, "float32")
    assert check.difference <= 1e-4


def test_a_cache_that_mixes_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the first row stand in the second as well."""
    update = SlotLayer.update

    def mixing(self: SlotLayer, *given: Any, **more: Any) -> tuple[Tensor, Tensor]:
        keys, values = update(self, *given, **more)
        return keys, torch.cat([values[:1], values[:1], values[2:]])[: len(values)]

    model = planted()
    assert answercheck(model, requests(), 4).engine == "rows"
    monkeypatch.setattr(SlotLayer, "update", mixing)
    check = answercheck(model, requests(), 4)
    assert check.engine == "alone"
    assert "rows: logits differ by" in check.tried[0]


def test_a_model_whose_rows_see_each_other_answers_one_at_a_time() -> None:
    def mixing(_module: Any, _given: Any, output: Tensor) -> Tensor:
        return output + 0.05 * output.mean(0, keepdim=True)

    model = planted()
    with hooked(model, mixing):
        assert answercheck(model, requests(0), 4).engine == "alone"


def test_a_model_that_writes_otherwise_with_a_cache_is_refused() -> None:
    def by_length(_module: Any, _given: Any, output: Tensor) -> Tensor:
        return output * (1 + 0.1 * (output.shape[1] == 1))

    model = planted()
    with hooked(model, by_length), pytest.raises(GenerationError, match=r"planted cannot answer here.*rows:.*alone:"):
        answercheck(model, requests(), 4)


def test_half_precision_is_judged_by_its_own_rounding_or_in_float32() -> None:
    """Weights this large make logits of half precision differ by their own size."""
    model = wrap(small_model("mixtral").to(torch.bfloat16), tiny_tokenizer(), "mixtral")
    before = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    check = answercheck(model, requests(), 4)
    assert check.engine == "rows"
    assert check.dtype == ("float32" if check.tried else "bfloat16")
    after = model.model.state_dict()
    assert all(
        tensor.dtype == after[name].dtype and torch.equal(tensor, after[name]) for name, tensor in before.items()
    )


def test_what_is_not_of_half_precision_keeps_its_dtype() -> None:
    """Frequencies of rotary embeddings stay in float32 in every model."""
    model = tiny_model("llama").to(torch.bfloat16)
    rotary = decoder_of(model).rotary_emb
    rotary.inv_freq = rotary.inv_freq.float() * 1.0001
    expected = rotary.inv_freq.clone()
    with in_float32(model) as possible:
        assert possible
        assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
    assert torch.equal(rotary.inv_freq, expected)


def test_a_model_in_float32_stays_as_it_is() -> None:
    with in_float32(tiny_model("llama")) as possible:
        assert not possible


@pytest.mark.parametrize("asked", [
    pytest.param([replace(one, shared=len(one.ids)) for one in requests()], id="all of it shared"),
    pytest.param([Request((5, 6, 7), gap=(1, 4))], id="moved, and three tokens"),
    pytest.param([], id="none"),
])  # fmt: skip
def test_whatever_the_requests_look_like_the_engine_is_checked(asked: list[Request]) -> None:
    def mixing(_module: Any, _given: Any, output: Tensor) -> Tensor:
        return output + 0.05 * output.mean(0, keepdim=True)

    model = planted()
    check = answercheck(model, asked, 4)
    assert (check.engine, check.prompts) == ("rows", 3)
    with hooked(model, mixing):
        assert answercheck(model, asked, 4).engine == "alone"


def test_layers_that_use_the_keys_of_others_are_answered_together() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    model = wrap(small_model("gemma4_text", num_kv_shared_layers=2, layer_types=kinds), tiny_tokenizer(), "gemma4")
    assert answercheck(model, requests(), 4).engine == "rows"


def test_a_model_that_states_no_context_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.answers.local.engine.context_length", lambda _: None)
    assert LocalGenerator(planted()).max_new_tokens(requests()[0], Decoding(max_tokens=7)) == 7


# Written again


def otherwise(replies: Sequence[Reply], place: int, token: int) -> list[Reply]:
    """As if one token of every answer had been another."""
    return [Reply(r.text, r.tokens, r.finish, "", (*r.ids[:place], token, *r.ids[place + 1 :])) for r in replies]


def test_an_answer_that_parts_by_more_than_rounding_stops() -> None:
    model, decoding = planted(), Decoding(max_tokens=5)
    asked = requests()[:2]
    replies = LocalGenerator(model, 4).answer(asked, decoding, lambda _: None)
    alone = LocalGenerator(model, 1)
    assert recheck(alone, asked, replies, decoding, 1e-3) == {"checked": 2, "same": 2, "margins": []}
    with pytest.raises(GenerationError, match="by more than rounding"):
        recheck(alone, asked, otherwise(replies, 3, 77), decoding, 1e-3)


def test_answers_are_compared_as_they_were_written_beyond_the_next_question() -> None:
    model, decoding = planted(), Decoding(max_tokens=5)
    asked = requests()[:1]
    (whole,) = LocalGenerator(model, 4).answer(asked, decoding, lambda _: None)
    cut = replace(whole, ids=whole.ids[:2], uncut=whole.ids)
    alone = LocalGenerator(model, 1)
    assert recheck(alone, asked, [cut], decoding, 1e-3)["same"] == 1
    with pytest.raises(GenerationError, match="by more than rounding"):
        recheck(alone, asked, [replace(cut, uncut=())], decoding, 1e-3)


def test_an_answer_that_parts_where_two_tokens_are_as_likely_is_counted() -> None:
    model, decoding = planted(), Decoding(max_tokens=3)
    asked = requests()[:1]
    logits: list[Tensor] = []
    alone = AloneGenerator(model, 1)
    alone.on_logits = lambda _, one: logits.append(one)
    replies = alone.answer(asked, decoding, lambda _: None)
    second = int(logits[1].topk(2).indices[1])
    expected = float(logits[1].max() - logits[1][second])
    found = recheck(LocalGenerator(model, 1), asked, otherwise(replies, 1, second), decoding, 100.0)
    assert (found["checked"], found["same"]) == (1, 0)
    assert found["margins"] == [pytest.approx(expected, rel=1e-3)]
