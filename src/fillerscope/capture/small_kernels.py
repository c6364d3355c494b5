"""Norms, rotary positions and gated activations as one Triton kernel each: a model computes them in several.

Numbers are rounded once, at the end, where models round in between. Knows nothing of modules.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fillerscope.arm.seed_kernels import kernel

GATED = 1024  # columns of a program
OFFSETS = (0.0, 1.0)  # what families of models add to the weights of their norms


def normed(values: Tensor, weight: Tensor, epsilon: float, offset: float) -> Tensor:
    """The last dimension of `values` divided by its root mean square, times the weights and what is added to them."""
    rows = values.reshape(-1, values.shape[-1])
    result = torch.empty_like(rows)
    width = rows.shape[1]
    with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
        _norm[(len(rows),)](
            rows, weight, result, rows.stride(0), epsilon, offset,
            width, triton.next_power_of_2(width), num_warps=4 if width <= 2048 else 8,
        )  # fmt: skip
    return result.view(values.shape)


def rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys [row, head, token, dim] at positions with these cosines and sines [row or 1, token, dim]. The
    first half of a head is rotated with the second."""
    query, key, cos, sin = (one if one.stride(-1) == 1 else one.contiguous() for one in (query, key, cos, sin))
    rows, heads, tokens, dim = query.shape
    results = query.new_empty(query.shape), key.new_empty(key.shape)
    steps = [0 if one.shape[0] == 1 else one.stride(0) for one in (cos, sin)]
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        _rotate[(rows * tokens, heads + key.shape[1])](
            query, key, cos, sin, *results, *query.stride()[:3], *key.stride()[:3],
            steps[0], cos.stride(1), steps[1], sin.stride(1), tokens,
            heads, key.shape[1], dim, triton.next_power_of_2(dim), num_warps=1,
        )  # fmt: skip
    return results


def gated(values: Tensor) -> Tensor:
    """SiLU of the first half of the last dimension, times the second half."""
    width = values.shape[-1] // 2
    rows = values.reshape(-1, 2 * width)
    result = rows.new_empty(len(rows), width)
    with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
        _gate[(len(rows), triton.cdiv(width, GATED))](rows, result, rows.stride(0), width, GATED, num_warps=4)
    return result.view(*values.shape[:-1], width)


@kernel
def _norm(  # type: ignore[no-untyped-def]
    values, weight, result, step, epsilon, offset,
    WIDTH: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    here = column < WIDTH
    numbers = tl.load(values + row * step + column, mask=here, other=0.0).to(tl.float32)
    weights = tl.load(weight + column, mask=here, other=0.0).to(tl.float32)
    numbers = numbers * tl.rsqrt(tl.sum(numbers * numbers, 0) / WIDTH + epsilon)
    numbers = numbers * (weights + offset)
    tl.store(result + row * WIDTH + column, numbers.to(result.dtype.element_ty), mask=here)


@kernel
def _gate(values, result, step, width, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    here = column < width
    gate = tl.load(values + row * step + column, mask=here, other=0.0).to(tl.float32)
    other = tl.load(values + row * step + width + column, mask=here, other=0.0).to(tl.float32)
    numbers = gate * tl.sigmoid(gate) * other
    tl.store(result + row * width + column, numbers.to(result.dtype.element_ty), mask=here)


@kernel
def _rotate(  # type: ignore[no-untyped-def]
    query, key, cos, sin, query_result, key_result,
    query_row, query_head, query_token, key_row, key_head, key_token, cos_row, cos_token, sin_row, sin_token, tokens,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """One head of a token: a query's, or a key's."""
    row, token = tl.program_id(0).to(tl.int64) // tokens, tl.program_id(0).to(tl.int64) % tokens
    head = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, PADDED)
    here, is_first = column < DIM, column < DIM // 2
    other = tl.where(is_first, column + DIM // 2, column - DIM // 2)
    if head < HEADS:
        source = query + row * query_row + head * query_head + token * query_token
        target = query_result + ((row * HEADS + head) * tokens + token) * DIM
    else:
        source = key + row * key_row + (head - HEADS) * key_head + token * key_token
        target = key_result + ((row * KEY_HEADS + head - HEADS) * tokens + token) * DIM
    own = tl.load(source + column, mask=here, other=0.0).to(tl.float32)
    turned = tl.load(source + other, mask=here, other=0.0).to(tl.float32)
    along = tl.load(cos + row * cos_row + token * cos_token + column, mask=here, other=0.0).to(tl.float32)
    across = tl.load(sin + row * sin_row + token * sin_token + column, mask=here, other=0.0).to(tl.float32)
    sums = own * along + tl.where(is_first, -turned, turned) * across
    tl.store(target + column, sums.to(query_result.dtype.element_ty), mask=here)
