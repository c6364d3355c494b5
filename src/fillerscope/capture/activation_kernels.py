"""A Triton kernel that counts values by the upper half of their bits, as `activations.pattern_counts` does in torch.

Whole numbers are added up, so the order of additions does not matter. Knows nothing of what is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

kernel: Callable[[Callable[..., Any]], Any] = triton.jit
BLOCK = 1024


def count(values: Tensor, cell: Tensor, counts: Tensor, base: int) -> None:
    """Count `values` [token, width] into `counts` [cell, sign, step] int32, each token for its `cell` [token]."""
    tokens, width = values.shape
    grid = (tokens, triton.cdiv(width, BLOCK))
    with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
        _count[grid](values.contiguous(), cell, counts, width, base, counts.shape[-1], BLOCK)


@kernel
def _count(values, cell, counts, width, base: tl.constexpr, half: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < width
    value = tl.load(values + token * width + place, mask=inside, other=0.0).to(tl.float32)
    upper = value.to(tl.int32, bitcast=True) >> 16
    step = tl.minimum(tl.maximum((upper & 0x7FFF) - base, 0), half - 1)
    first = tl.load(cell + token).to(tl.int64) * (2 * half)
    tl.atomic_add(counts + first + step + tl.where(upper < 0, half, 0), 1, mask=inside, sem="relaxed")
