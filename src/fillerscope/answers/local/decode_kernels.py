"""A decode step over slots as Triton kernels: one token more for each slot, and attention to what the slot holds.

Heads that share keys are computed together. A row's keys are read as far as its slot is filled, by one program or by
several whose parts are put together afterwards; sums are in float32. Masks decide what is seen, so that windows and
hidden filler are what the model says. Knows nothing of layers or passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from fillerscope.answers.local.slot_scoring import Scoring
from fillerscope.arm.seed_kernels import kernel

LOG2_E = tl.constexpr(1.4426950408889634)
FEWEST_QUERIES = 16  # rows of the smallest tile that tensor cores multiply
PROGRAMS = 1024  # enough to fill a large GPU
FEWEST_KEYS = 128  # of one program: fewer are not worth putting together
MOST_PARTS = 32
LARGE_TILE = 32768  # bytes of a tile of keys


@dataclass(frozen=True)
class Tiling:
    """How the keys of a row are cut: into parts, one for each program, and these into blocks."""

    parts: int
    block: int
    warps: int = 4
    stages: int = 2

    @classmethod
    def of(cls, rows: int, key: Tensor) -> Tiling:
        """For keys [row, kv_head, key, dim]."""
        wanted = PROGRAMS // max(1, rows * key.shape[1])
        most = min(MOST_PARTS, key.shape[2] // FEWEST_KEYS)
        parts = 1 << max(0, min(wanted, most).bit_length() - 1)
        tile = triton.next_power_of_2(key.shape[3]) * key.element_size()
        return cls(parts, max(16, min(128, LARGE_TILE // tile)))


def append(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> None:
    """Write keys and values [row, kv_head, 1, dim] into slots [row, kv_head, position, dim], at positions [row, 1]."""
    key, value = _packed(key), _packed(value)
    rows, heads, _, dim = key.shape
    strides = [stride for tensor in (key, value) for stride in tensor.stride()[:2]]
    strides += [stride for tensor in (keys, values) for stride in tensor.stride()[:3]]
    sizes = (dim, triton.next_power_of_2(dim), value.shape[3], triton.next_power_of_2(value.shape[3]))
    with torch.cuda.device_of(key):  # type: ignore[no-untyped-call]
        _append[(rows, heads)](key, value, keys, values, positions, *strides, positions.stride(0), *sizes, num_warps=1)


def attend(
    query: Tensor,  # [row, kv_head, query_head, dim]
    key: Tensor,  # [row, kv_head, key, dim]
    value: Tensor,
    mask: Tensor,  # [row, 1, 1, key]
    positions: Tensor,  # [row, 1]: of the last key
    scoring: Scoring,
    tiling: Tiling | None = None,
) -> Tensor:
    """Attention [row, kv_head, query_head, dim] of one token of each row."""
    query, tiling = _packed(query), tiling or Tiling.of(len(query), key)
    rows, heads, group, dim = query.shape
    value_dim = value.shape[3]
    output = query.new_empty(rows, heads, group, value_dim)
    partial, norms = _partial_results(output, tiling.parts)
    sinks = None if scoring.sinks is None else scoring.sinks.reshape(-1)
    scale = dim**-0.5 if scoring.scaling is None else scoring.scaling
    shared = (group, value_dim, triton.next_power_of_2(max(16, value_dim)), tiling.parts)
    tile = max(FEWEST_QUERIES, triton.next_power_of_2(group))
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], mask.stride(0), mask.stride(3))
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        _attend[(rows, heads, tiling.parts)](
            query, key, value, mask.view(torch.uint8), positions, sinks, output, partial, norms, *strides,
            positions.stride(0), key.shape[2], scale, scoring.softcap, *shared,
            tile, dim, triton.next_power_of_2(max(16, dim)), tiling.block,
            num_warps=tiling.warps, num_stages=tiling.stages,
        )  # fmt: skip
        if tiling.parts > 1:
            _combine[(rows, heads * group)](partial, norms, sinks, output, heads, *shared, num_warps=1)
    return output


def _partial_results(output: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Room for the sums of each part [row, kv_head, part, query_head, dim], and for the highest score and the sum of
    weights that they go with. One part alone needs none, and is given what it leaves unused."""
    if parts == 1:
        return output, output
    rows, heads, group, dim = output.shape
    sums = output.new_empty(rows, heads, parts, group, dim, dtype=torch.float32)
    return sums, output.new_empty(rows, heads, parts, group, 2, dtype=torch.float32)


def _packed(tensor: Tensor) -> Tensor:
    """With the numbers of the last dimension side by side, as the kernels read them."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


@kernel
def _append(  # type: ignore[no-untyped-def]
    key, value, keys, values, positions,
    key_row, key_head, value_row, value_head,
    keys_row, keys_head, keys_place, values_row, values_head, values_place, position_row,
    DIM: tl.constexpr, PADDED: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PADDED: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    place = tl.load(positions + row * position_row)
    column, value_column = tl.arange(0, PADDED), tl.arange(0, VALUE_PADDED)
    new = tl.load(key + row * key_row + head * key_head + column, mask=column < DIM)
    tl.store(keys + row * keys_row + head * keys_head + place * keys_place + column, new, mask=column < DIM)
    new = tl.load(value + row * value_row + head * value_head + value_column, mask=value_column < VALUE_DIM)
    target = values + row * values_row + head * values_head + place * values_place + value_column
    tl.store(target, new, mask=value_column < VALUE_DIM)


@kernel
def _scored(products, scale, cap):  # type: ignore[no-untyped-def]
    """Scores times log2(e)."""
    scores = products * scale
    if cap is not None:
        # tanh by way of exp2: the hardware's own tanh is good to three digits only.
        scores = cap - 2.0 * cap / (1.0 + tl.exp2(scores * (2.0 * LOG2_E / cap)))
    return scores * LOG2_E


@kernel
def _attend(  # type: ignore[no-untyped-def]
    query, key, value, mask, positions, sinks, output, partial, norms,
    query_row, query_head, query_one, key_row, key_head, key_place, value_row, value_head, value_place,
    mask_row, mask_place, position_row, width, scale, cap,
    GROUP: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PADDED: tl.constexpr, PARTS: tl.constexpr,
    TILE: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The heads of one group and row, over one part of its keys."""
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2)
    length = tl.minimum(tl.load(positions + row * position_row).to(tl.int32) + 1, width)
    share = tl.cdiv(tl.cdiv(length, PARTS), BLOCK) * BLOCK
    start = part * share
    stop = tl.minimum(start + share, length)
    one, column, value_column = tl.arange(0, TILE), tl.arange(0, PADDED), tl.arange(0, VALUE_PADDED)
    place = query + row * query_row + head * query_head + one[:, None] * query_one + column[None, :]
    queries = tl.load(place, mask=(one[:, None] < GROUP) & (column[None, :] < DIM), other=0.0)
    key += row * key_row + head * key_head
    value += row * value_row + head * value_head
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, VALUE_PADDED], tl.float32)
    for first in range(start, stop, BLOCK):
        places = first + tl.arange(0, BLOCK)
        seen = tl.load(mask + row * mask_row + places * mask_place, mask=places < stop, other=0) != 0
        rows = places[:, None].to(tl.int64)
        keys = tl.load(
            key + rows * key_place + column[None, :], mask=seen[:, None] & (column[None, :] < DIM), other=0.0
        )
        scores = _scored(tl.dot(queries, tl.trans(keys), input_precision="ieee"), scale, cap)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)  # where nothing was seen yet
        weights, kept = tl.exp2(scores - level[:, None]), tl.exp2(top - level)
        values = tl.load(
            value + rows * value_place + value_column[None, :],
            mask=seen[:, None] & (value_column[None, :] < VALUE_DIM), other=0.0,
        )  # fmt: skip
        sums = sums * kept[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = total * kept + tl.sum(weights, 1)
        top = higher
    heads = tl.num_programs(1)
    here = (one[:, None] < GROUP) & (value_column[None, :] < VALUE_DIM)
    if PARTS == 1:
        if sinks is not None:
            total += tl.exp2(tl.load(sinks + head * GROUP + one, mask=one < GROUP, other=0.0) * LOG2_E - top)
        target = output + ((row * heads + head) * GROUP + one[:, None]) * VALUE_DIM + value_column[None, :]
        tl.store(target, (sums / total[:, None]).to(output.dtype.element_ty), mask=here)
    else:
        line = ((row * heads + head) * PARTS + part) * GROUP + one
        tl.store(partial + line[:, None] * VALUE_DIM + value_column[None, :], sums, mask=here)
        tl.store(norms + 2 * line, top, mask=one < GROUP)
        tl.store(norms + 2 * line + 1, total, mask=one < GROUP)


@kernel
def _combine(  # type: ignore[no-untyped-def]
    partial, norms, sinks, output, heads,
    GROUP: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PADDED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Put the parts of one head and row together."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lines = ((row * heads + head // GROUP) * PARTS + tl.arange(0, PARTS)) * GROUP + head % GROUP
    column = tl.arange(0, VALUE_PADDED)
    tops, totals = tl.load(norms + 2 * lines), tl.load(norms + 2 * lines + 1)
    top = tl.max(tops, 0)
    shares = tl.exp2(tops - top)
    total = tl.sum(totals * shares, 0)
    if sinks is not None:
        total += tl.exp2(tl.load(sinks + head) * LOG2_E - top)
    sums = tl.load(partial + lines[:, None] * VALUE_DIM + column[None, :], mask=column[None, :] < VALUE_DIM, other=0.0)
    result = tl.sum(sums * shares[:, None], 0) / total
    target = output + (row * heads * GROUP + head) * VALUE_DIM + column
    tl.store(target, result.to(output.dtype.element_ty), mask=column < VALUE_DIM)
