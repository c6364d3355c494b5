"""A check that vLLM computes what the model computes here: probabilities of first tokens, one step after the other.

The model is in memory here before vLLM starts, not beside it: the GPU may not hold both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fillerscope.answers.local.answer_check import (
    ENGINES,
    AnswerCheck,
    answercheck,
    short_prompts,
    tolerance_within,
    with_logits,
)
from fillerscope.answers.request import Request
from fillerscope.answers.vllm.generator import VllmGenerator
from fillerscope.errors import GenerationError
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import has_experts

TOKENS = 16  # of each answer
LONG = 3  # whole prompts of the study, the longest ones


@dataclass(frozen=True)
class Expected:
    """Prompts, and the logits [token, vocabulary] from which this process chose the first tokens of each answer."""

    requests: list[Request]
    logits: dict[int, Tensor]
    tolerance: float
    dtype: str
    jumps: bool  # rounding may choose another expert, and change one step by much

    @classmethod
    def of(cls, loaded: LoadedModel, requests: Sequence[Request]) -> Expected:
        check = answercheck(loaded, requests, None)
        longest = sorted(requests, key=lambda one: len(one.ids), reverse=True)[:LONG]
        chosen = [*short_prompts(loaded.model, requests), *longest]
        _, logits = with_logits(ENGINES[check.engine](loaded), chosen, TOKENS)
        kept = {number: one.cpu() for number, one in logits.items()}
        dtype = str(loaded.model.dtype).removeprefix("torch.")
        return cls(chosen, kept, tolerance_within(loaded.model, check), dtype, has_experts(loaded.model))

    def check(self, generator: VllmGenerator, label: str) -> AnswerCheck:
        """How far vLLM's probabilities are from these; an error where rounding cannot explain it."""
        written = generator.first_tokens(self.requests, TOKENS)
        gaps = [gap for number, one in self.logits.items() for gap in differences(one, written[number])]
        worst = (statistics.median(gaps) if self.jumps else max(gaps)) if gaps else float("inf")
        if not worst <= self.tolerance:
            raise GenerationError(
                f"vLLM does not compute what {label} computes here: probabilities of first tokens differ by "
                f"{worst:.1e} of the spread of the logits, {self.tolerance:.0e} is allowed; leave generation.engine out"
            )
        return AnswerCheck("vllm", worst, self.tolerance, len(self.requests), self.dtype)


def differences(logits: Tensor, steps: Sequence[tuple[int, float]]) -> list[float]:
    """At each step how far a token's probability is from the expected one, relative to the spread of the logits.

    The last step is the first one at which another token was chosen: it counts how much less likely it was."""
    gaps = []
    for step, (token, logprob) in zip(logits, steps, strict=False):
        expected = step.log_softmax(-1)
        shortfall = float(expected.max() - expected[token])
        gaps.append(max(abs(float(expected[token]) - logprob), shortfall) / max(float(step.std()), 1e-30))
        if int(step.argmax()) != token:
            break
    return gaps
