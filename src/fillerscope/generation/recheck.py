"""Greedy answers written again, one at a time: what many rows at once change is rounding, and it is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fillerscope.asking import Decoding
from fillerscope.generation.local import LocalGenerator
from fillerscope.generation.reply import Reply, Request, common_start


def recheck(
    alone: LocalGenerator, requests: Sequence[Request], replies: Sequence[Reply], decoding: Decoding
) -> dict[str, Any]:
    """How many answers are the same from `alone`, which has one row; for the others, how near the choice was.

    A margin is the difference of the logits of the two tokens at the first place where the answers part: next to
    nothing where rounding decided.
    """
    margins = []
    for request, reply in zip(requests, replies, strict=True):
        again = alone.answer([replace(request, shared=0)], decoding, lambda _: None)[0]
        if again.ids != reply.ids:
            margins.append(_margin(alone, request, reply.ids, again.ids))
    return {"checked": len(requests), "same": len(requests) - len(margins), "margins": margins}


@torch.inference_mode()
def _margin(alone: LocalGenerator, request: Request, one: tuple[int, ...], other: tuple[int, ...]) -> float:
    shared = common_start([one, other])
    ids = torch.tensor([[*request.ids, *one[:shared]]], device=alone.device)
    logits = alone.model(input_ids=ids, logits_to_keep=1).logits[0, -1].float()
    return float((logits[one[shared]] - logits[other[shared]]).abs())
