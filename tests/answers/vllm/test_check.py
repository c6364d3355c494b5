"""Probabilities of first tokens against the model here: an engine that computes something else is refused."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fillerscope.answers.request import Request
from fillerscope.answers.vllm.check import TOKENS, Expected, differences
from fillerscope.answers.vllm.generator import VllmGenerator
from fillerscope.errors import GenerationError
from fillerscope.models.loading import wrap
from support.families import small_model
from support.tiny import tiny_model, tiny_tokenizer


def requests() -> list[Request]:
    random = np.random.default_rng(0)
    return [Request(tuple(random.integers(5, 500, n).tolist()), n) for n in (12, 40, 25, 33, 60)]


class Stock:
    """Writes as vLLM would, with plain passes of a model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @torch.inference_mode()
    def first_tokens(self, requests: list[Request], count: int) -> list[list[tuple[int, float]]]:
        return [self._steps(list(request.ids), count) for request in requests]

    def _steps(self, ids: list[int], count: int) -> list[tuple[int, float]]:
        steps: list[tuple[int, float]] = []
        for _ in range(count):
            known = torch.tensor([[*ids, *(token for token, _ in steps)]])
            logits = self.model(input_ids=known, use_cache=False).logits[0, -1].float()
            token = int(logits.argmax())
            steps.append((token, float(logits.log_softmax(-1)[token])))
        return steps


def check(here: Any, there: Any) -> Any:
    expected = Expected.of(wrap(here, tiny_tokenizer(), "here"), requests())
    return expected.check(cast(VllmGenerator, Stock(there)), "here")


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_the_same_model_passes(family: str) -> None:
    found = check(tiny_model(family), tiny_model(family))
    assert (found.engine, found.prompts, found.dtype) == ("vllm", 6, "float32")
    assert 0 < found.difference < 1e-4 < found.tolerance


@pytest.mark.parametrize("changed", [{"sliding_window": 512}, {"final_logit_softcapping": None}])
def test_a_model_that_is_computed_otherwise_is_refused(changed: dict[str, Any]) -> None:
    other = tiny_model("gemma2", **changed)
    other.load_state_dict(tiny_model("gemma2").state_dict())
    with pytest.raises(GenerationError, match="vLLM does not compute what here computes"):
        check(tiny_model("gemma2"), other)


def test_one_step_that_jumps_is_pardoned_where_experts_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Stock.first_tokens

    def jumping(self: Stock, *given: Any) -> list[list[tuple[int, float]]]:
        first, *others = steps(self, *given)
        return [[(first[0][0], first[0][1] - 9), *first[1:]], *others]

    monkeypatch.setattr(Stock, "first_tokens", jumping)
    assert check(small_model("mixtral"), small_model("mixtral")).difference < 1e-3
    with pytest.raises(GenerationError):
        check(tiny_model("llama"), tiny_model("llama"))


def test_nothing_written_is_refused() -> None:
    expected = Expected(requests(), {0: torch.ones(TOKENS, 9)}, 1.0, "float32", False)

    class Silent:
        def first_tokens(self, requests: list[Request], _: int) -> list[list[tuple[int, float]]]:
            return [[] for _ in requests]

    with pytest.raises(GenerationError):
        expected.check(cast(VllmGenerator, Silent()), "here")


@given(st.integers(0, 2**32 - 1), st.integers(0, TOKENS), st.floats(0, 5))
def test_differences_end_where_answers_part(seed: int, parting: int, off: float) -> None:
    logits = torch.randn(TOKENS, 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    known = logits.log_softmax(-1)
    chosen = [int(step.argmin() if place == parting else step.argmax()) for place, step in enumerate(logits)]
    found = differences(logits, [(token, float(step[token]) + off) for token, step in zip(chosen, known, strict=True)])
    assert len(found) == min(parting + 1, TOKENS)
    spread = logits.std(-1)
    assert found[:parting] == pytest.approx([off / float(one) for one in spread[:parting]], abs=1e-9)
    if parting < TOKENS:
        shortfall = float(known[parting].max() - known[parting].min())
        assert found[-1] == pytest.approx(max(off, shortfall) / float(spread[parting]))
