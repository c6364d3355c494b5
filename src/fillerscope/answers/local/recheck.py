"""Greedy answers generated again, one at a time, to count how many change with the rounding of large batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.errors import GenerationError
from fillerscope.files import Json
from fillerscope.models.structure import has_experts
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Redistribution


def recheck(
    alone: LocalGenerator, requests: Sequence[Request], replies: Sequence[Reply], decoding: Decoding, allowed: float
) -> Json:
    """How many answers are the same from `alone`, which has one row, and the margins of the others.

    A margin is the difference between the logits of the two tokens where the answers first differ: close to 0 where
    rounding decided. One beyond `allowed`, relative to the spread of the logits, is an error.
    """
    margins = []
    for request, reply in zip(requests, replies, strict=True):
        single, logits = _with_logits(alone, replace(request, shared=0), decoding)
        one, other = reply.uncut or reply.ids, single.uncut or single.ids
        if one != other:
            margin, spread = _margin(logits, one, other)
            if margin > allowed * spread and not _may_jump(alone.model, request):
                raise GenerationError(
                    "an answer generated in a batch differs from the same one generated alone by more than rounding: "
                    f"where they first differ, the logits of the two tokens are {margin:.2g} apart "
                    f"({allowed * spread:.2g} is allowed); set generation.rows to 1, and please report this model"
                )
            margins.append(margin)
    return {"checked": len(requests), "same": len(requests) - len(margins), "margins": margins}


def _may_jump(model: nn.Module, request: Request) -> bool:
    """Whether rounding may change logits a lot: where it decides on an expert, or on activations to redistribute."""
    return isinstance(request.change, Redistribution) or has_experts(model)


def _with_logits(alone: LocalGenerator, request: Request, decoding: Decoding) -> tuple[Reply, list[Tensor]]:
    """An answer, and the logits of each decode step."""
    logits: list[Tensor] = []
    alone.on_logits = lambda _, one: logits.append(one.float().cpu())
    try:
        return alone.answer([request], decoding, lambda _: None)[0], logits
    finally:
        alone.on_logits = None


def _margin(logits: list[Tensor], one: tuple[int, ...], other: tuple[int, ...]) -> tuple[float, float]:
    """The margin, and the standard deviation of the logits there; infinite where one answer just ends earlier."""
    place = common_start([one, other])
    if place == min(len(one), len(other)):
        return float("inf"), 1.0
    return float((logits[place][one[place]] - logits[place][other[place]]).abs()), float(logits[place].std())
