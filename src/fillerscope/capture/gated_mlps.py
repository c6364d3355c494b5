"""Gated MLPs with one product for both projections and one kernel for SiLU and gate: a model launches four.

Used where it gives what the module's own code gives, up to rounding. Knows nothing of steps or slots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from fillerscope.capture.joined_projections import are_alike, join, one_product

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")  # as transformers calls them
ACTIVATION = "act_fn"
TRIED = 16  # rows of made-up numbers
SIZES = (1.0, 100.0)  # of these numbers: some families clamp what is large
OFTEN = {torch.bfloat16: (2.0, 1 / 8), torch.float16: (2.0, 1 / 8)}  # roundings that results and their size differ by
Forward = Callable[[Tensor], Tensor]


def gated_mlps(model: nn.Module) -> dict[nn.Module, Forward]:
    """What to call instead of the MLPs of a model whose gate is a SiLU. Their weights become parts of one tensor."""
    found: dict[nn.Module, Forward] = {}
    for module in model.modules():
        if _looks_gated(module):
            expected = [module(given) for given in _made_up(module)]
            forward = _fused(module)
            results = [forward(given) for given in _made_up(module)]
            if all(map(_agree, results, expected)):
                found[module] = forward
    return found


def _looks_gated(module: nn.Module) -> bool:
    children = dict(module.named_children())
    if set(children) != {*PROJECTIONS, ACTIVATION} or not isinstance(children[ACTIVATION], nn.SiLU | SiLUActivation):
        return False
    projections = [child for name in PROJECTIONS if type(child := children[name]) is nn.Linear]
    return len(projections) == len(PROJECTIONS) and are_alike(projections[:2])


def _fused(module: nn.Module) -> Forward:
    from fillerscope.capture.small_kernels import gated

    gate, other, down = (cast(nn.Linear, module.get_submodule(name)) for name in PROJECTIONS)
    watched: tuple[nn.Module, ...] = gate, other, module.get_submodule(ACTIVATION)
    whole: Forward = module.forward
    join([gate, other])

    def forward(values: Tensor) -> Tensor:
        if any(one._forward_hooks or one._forward_pre_hooks for one in watched) or values.dtype != gate.weight.dtype:
            return whole(values)  # somebody looks at what passes, or changes it
        result: Tensor = down(gated(one_product([gate, other], values)))
        return result

    return forward


def _made_up(module: nn.Module) -> list[Tensor]:
    like = cast(nn.Linear, module.get_submodule(PROJECTIONS[0])).weight
    numbers = torch.sin(torch.arange(TRIED * like.shape[1], dtype=torch.float32) * 1.7 + 0.3).view(TRIED, -1)
    return [(numbers * size).to(like.device, like.dtype) for size in SIZES]


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether results differ by rounding: by little, and on the whole by much less, as a factor would not."""
    difference, expected = one.double() - other.double(), other.double()
    rounding, size = torch.finfo(one.dtype).eps, expected.square().sum()
    spread = (difference.square().sum() / size).sqrt()
    factor = ((difference * expected).sum() / size).abs()
    often = OFTEN.get(one.dtype, (64.0, 64.0))  # sums are added up in another order, and nothing is rounded in between
    return bool(spread <= often[0] * rounding and factor <= often[1] * rounding)
