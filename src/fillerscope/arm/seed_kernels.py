"""Seeds of random numbers as Triton kernels: one launch where `rng.py` takes dozens. Gives the same bits.

Knows nothing of what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fillerscope.arm import rng

kernel: Callable[[Callable[..., Any]], Any] = triton.jit
FEW = 128  # seeds of one program

LONG_SHIFTS = tuple(tl.constexpr(shift) for shift, _ in rng.LONG_ROUNDS)
LONG_FACTORS = tuple(tl.constexpr(factor) for _, factor in rng.LONG_ROUNDS)
FIRST_LONG_SHIFT, SECOND_LONG_SHIFT, THIRD_LONG_SHIFT = LONG_SHIFTS
FIRST_LONG_FACTOR, SECOND_LONG_FACTOR, THIRD_LONG_FACTOR = LONG_FACTORS
LONG_LAST_SHIFT = tl.constexpr(rng.LONG_LAST_SHIFT)
STEP = tl.constexpr(rng.STEP)
CHOICES_START = tl.constexpr(rng.signed(rng.CHOICES * rng.STREAM, 64))
MOVES_START = tl.constexpr(rng.signed(rng.MOVES * rng.STREAM, 64))


def step_seeds(keys: Tensor, steps: Tensor, layer: int) -> Tensor:
    """What `rng.step_seeds` gives, by one kernel."""
    seeds = torch.empty(len(keys), dtype=torch.int64, device=keys.device)
    with torch.cuda.device_of(keys):  # type: ignore[no-untyped-call]
        _mix_steps[(triton.cdiv(len(keys), FEW),)](
            keys, steps, seeds, keys.stride(0), steps.stride(0), rng.signed(layer * rng.LAYER, 64), len(keys), FEW
        )
    return seeds


def words(seeds: Tensor) -> tuple[Tensor, Tensor]:
    """What `rng.words` gives for choices and for moves, by one kernel."""
    mixed = torch.empty(2, len(seeds), dtype=torch.int64, device=seeds.device)
    _mix_words[(triton.cdiv(len(seeds), FEW),)](seeds.contiguous(), mixed, len(seeds), FEW)
    choosing, moving = mixed.view(torch.int32).view(2, -1, 2)
    return choosing, moving


@kernel
def _mixed_long(values):  # type: ignore[no-untyped-def]
    mixed = values.to(tl.uint64, bitcast=True)
    mixed = (mixed ^ (mixed >> FIRST_LONG_SHIFT)) * FIRST_LONG_FACTOR
    mixed = (mixed ^ (mixed >> SECOND_LONG_SHIFT)) * SECOND_LONG_FACTOR
    mixed = (mixed ^ (mixed >> THIRD_LONG_SHIFT)) * THIRD_LONG_FACTOR
    return (mixed ^ (mixed >> LONG_LAST_SHIFT)).to(tl.int64, bitcast=True)


@kernel
def _mix_steps(  # type: ignore[no-untyped-def]
    keys, steps, seeds, key_stride, step_stride, layer, count, FEW: tl.constexpr
):
    places = tl.program_id(0) * FEW + tl.arange(0, FEW)
    key = tl.load(keys + places * key_stride, mask=places < count, other=0)
    step = tl.load(steps + places * step_stride, mask=places < count, other=0)
    tl.store(seeds + places, _mixed_long(_mixed_long(key + step * STEP) + layer), mask=places < count)


@kernel
def _mix_words(seeds, mixed, count, FEW: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * FEW + tl.arange(0, FEW)
    seed = tl.load(seeds + places, mask=places < count, other=0)
    tl.store(mixed + places, _mixed_long(seed + CHOICES_START), mask=places < count)
    tl.store(mixed + count + places, _mixed_long(seed + MOVES_START), mask=places < count)
