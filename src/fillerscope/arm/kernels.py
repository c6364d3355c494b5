"""ARM on rows of bfloat16 as Triton kernels: exact, because there are only 65,536 numbers to count.

A long row is read to count every bit pattern, all order statistics come from the counts, and it is read again to be
rewritten; a short row is done by one program. Gives the same bits as `rule.py`, and the host never waits. Patterns
are whole numbers here throughout: the lower 15 bits are in the order of absolute values. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fillerscope.arm import rng
from fillerscope.arm.seed_kernels import kernel, words

# Lengths change with every prompt: a kernel compiled anew for those that 16 divides would cost seconds each time.
kernel_of_rows: Callable[[Callable[..., Any]], Any] = triton.jit(
    do_not_specialize=("count", "blocks", "least", "most", "top")
)

PATTERNS = 1 << 16
SIZES = 1 << 15  # patterns without their sign
SHORT = SIZES  # elements of a row that one program takes whole
COPIES = 8  # of a row's counts, so that fewer programs wait for each other
BLOCK = 4096
LAUNCH = {"num_warps": 8, "enable_fp_fusion": False}  # a product and a sum round twice, as they do elsewhere
LARGE = LAUNCH | {"num_warps": 32}

Rule = tuple[int, int, int, float, int]  # least, most, top, scale, count
How = tuple[bool, bool]  # whether the number to move is fixed, and whether `top` is a rank among sizes

SPREAD = tl.constexpr(rng.SPREAD)
SHIFTS = tuple(tl.constexpr(shift) for shift, _ in rng.ROUNDS)
FACTORS = tuple(tl.constexpr(factor) for _, factor in rng.ROUNDS)
FIRST_SHIFT, SECOND_SHIFT, THIRD_SHIFT = SHIFTS
FIRST_FACTOR, SECOND_FACTOR, THIRD_FACTOR = FACTORS
LAST_SHIFT = tl.constexpr(rng.LAST_SHIFT)


def moved(
    values: Tensor,  # [sequence, element] bfloat16
    seeds: Tensor,  # [sequence]
    least: int,  # how many move
    most: int,
    top: int,  # the rank of the largest move among the elements
    scale: float | None,  # eps in median absolute deviations; None: `most` move
    sized: bool,  # the rank is among their sizes
    scattered: bool,
    replaced: bool,
    block: int = BLOCK,
    short: int = SHORT,
) -> Tensor:
    """Redistribute rows as `rule.redistribute` does for ARM, or for as many elements at random."""
    patterns = values.contiguous().view(torch.int16)
    rule = (least, most, top, 0.0 if scale is None else scale, patterns.shape[1])
    how = (scale is None, sized)
    with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
        if patterns.shape[1] <= short:
            return _short_rows(patterns, seeds, rule, how, scattered, replaced).view(torch.bfloat16)
        return _long_rows(patterns, seeds, rule, how, scattered, replaced, block).view(torch.bfloat16)


def _short_rows(patterns: Tensor, seeds: Tensor, rule: Rule, how: How, scattered: bool, replaced: bool) -> Tensor:
    result, words = torch.empty_like(patterns), _words(seeds, patterns.device)
    size = max(1024, triton.next_power_of_2(patterns.shape[1]))
    _rewrite_short[(len(patterns),)](patterns, result, *words, *rule, *how, scattered, replaced, size, **LARGE)
    return result


def _words(seeds: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of choices and of moves; computed where the seeds are, which on the host is done before a kernel is launched."""
    if seeds.device == device:
        return words(seeds)
    choosing, moving = rng.sent(torch.stack([rng.words(seeds, s) for s in (rng.CHOICES, rng.MOVES)]), device)
    return choosing, moving


def _long_rows(
    patterns: Tensor, seeds: Tensor, rule: Rule, how: How, scattered: bool, replaced: bool, block: int
) -> Tensor:
    choosing, moving = _words(seeds, patterns.device)
    (rows, count), blocks = patterns.shape, triton.cdiv(patterns.shape[1], block)
    limits = torch.empty(rows, 3, dtype=torch.int32, device=patterns.device)  # threshold, how many at it, how many move
    bounds = torch.empty(rows, 2, dtype=torch.float32, device=patterns.device)
    _find_limits[(rows,)](counted(patterns, choosing, False, block), limits, bounds, *rule, *how, SIZES, **LARGE)
    if scattered:
        limits = _scattered(counted(patterns, choosing, True, block), limits[:, 2:])
    result = torch.empty_like(patterns)
    ties = torch.zeros(rows, blocks, dtype=torch.int32, device=patterns.device)
    _count_ties[(blocks, rows)](patterns, choosing, limits, ties, count, blocks, scattered, block, **LAUNCH)
    reached = ties.cumsum(1, dtype=torch.int32)
    inputs = (patterns, result, choosing, moving, limits, bounds, reached, ties, count, blocks)
    _rewrite[(blocks, rows)](*inputs, scattered, replaced, block, **LAUNCH)
    return result


def _scattered(counts: Tensor, wanted: Tensor) -> Tensor:
    """The limits [sequence, 3] of a choice at random."""
    upwards = counts.cumsum(1)
    threshold = (upwards <= wanted).sum(1, keepdim=True)
    below = torch.where(torch.arange(PATTERNS, device=counts.device) < threshold, counts, 0).sum(1, keepdim=True)
    return torch.cat([threshold, wanted - below, wanted], 1).to(torch.int32)


def counted(patterns: Tensor, choosing: Tensor, scattered: bool, block: int = BLOCK) -> Tensor:
    """[sequence, 65,536] int32: how often each pattern occurs or, for a choice at random, each number drawn."""
    (rows, count), blocks = patterns.shape, triton.cdiv(patterns.shape[1], block)
    counts = torch.zeros(rows, COPIES, PATTERNS, dtype=torch.int32, device=patterns.device)
    _count[(blocks, rows)](patterns, choosing, counts, count, scattered, COPIES, PATTERNS, block, **LAUNCH)
    # Counted with the last 7 bits in front: neighbours, often alike in number, would wait for each other in memory.
    return counts.sum(1, dtype=torch.int32).view(rows, 128, 512).transpose(1, 2).reshape(rows, PATTERNS)


@kernel
def _drawn(words, row, places):  # type: ignore[no-untyped-def]
    """32 random bits for every place, as `rng.bits` gives."""
    first = tl.load(words + 2 * row).to(tl.uint32, bitcast=True)
    second = tl.load(words + 2 * row + 1).to(tl.uint32, bitcast=True)
    mixed = places.to(tl.uint32) * SPREAD + first
    mixed = (mixed ^ (mixed >> FIRST_SHIFT)) * FIRST_FACTOR
    mixed = mixed ^ second
    mixed = (mixed ^ (mixed >> SECOND_SHIFT)) * SECOND_FACTOR
    mixed = (mixed ^ (mixed >> THIRD_SHIFT)) * THIRD_FACTOR
    return mixed ^ (mixed >> LAST_SHIFT)


@kernel
def _keys(words, row, places, patterns, SCATTERED: tl.constexpr):  # type: ignore[no-untyped-def]
    """By which elements are chosen, the smallest first."""
    if SCATTERED:
        return (_drawn(words, row, places) >> 16).to(tl.int32)
    else:  # noqa: RET505 - both or neither, for the compiler
        return patterns & 0x7FFF


@kernel
def _patterns(source, row, places, count):  # type: ignore[no-untyped-def]
    return tl.load(source + row * count + places, mask=places < count, other=0).to(tl.int32) & 0xFFFF


@kernel_of_rows
def _count(  # type: ignore[no-untyped-def]
    source, choosing, counts, count,
    SCATTERED: tl.constexpr, COPIES: tl.constexpr, PATTERNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    places = block * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    counts += (row * COPIES + block % COPIES) * PATTERNS
    if SCATTERED:
        patterns = _keys(choosing, row, places, 0, True)
    else:
        # Some nonlinearities give zeros by the million: these are added up here, not one by one in one place.
        patterns = _patterns(source, row, places, count)
        zeros = inside & ((patterns & 0x7FFF) == 0)
        inside = inside & ((patterns & 0x7FFF) != 0)
        tl.atomic_add(counts, tl.sum(zeros.to(tl.int32), 0), sem="relaxed")
    tl.atomic_add(counts + (((patterns & 127) << 9) | (patterns >> 7)), 1, mask=inside, sem="relaxed")


@kernel_of_rows
def _count_ties(  # type: ignore[no-untyped-def]
    source, choosing, limits, ties, count, blocks, SCATTERED: tl.constexpr, BLOCK: tl.constexpr
):
    """How many elements of each block are at the threshold; not counted where none of them moves."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    if tl.load(limits + 3 * row + 1) == 0:
        return
    places = block * BLOCK + tl.arange(0, BLOCK)
    keys = _keys(choosing, row, places, _patterns(source, row, places, count), SCATTERED)
    equal = (keys == tl.load(limits + 3 * row)) & (places < count)
    tl.store(ties + row * blocks + block, tl.sum(equal.to(tl.int32), 0))


@kernel_of_rows
def _rewrite(  # type: ignore[no-untyped-def]
    source, result, choosing, moving, limits, bounds, reached, ties, count, blocks,
    SCATTERED: tl.constexpr, REPLACED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    places = block * BLOCK + tl.arange(0, BLOCK)
    patterns = _patterns(source, row, places, count)
    keys = _keys(choosing, row, places, patterns, SCATTERED)
    threshold, left = tl.load(limits + 3 * row), tl.load(limits + 3 * row + 1)
    # Of the elements at the threshold the first ones move: all, none or, in one block at most, some of this block.
    after = tl.load(reached + row * blocks + block)
    before = after - tl.load(ties + row * blocks + block)
    chosen = keys < threshold
    if (left > before) & (left >= after):
        chosen = keys <= threshold
    elif left > before:
        equal = (keys == threshold).to(tl.int32)
        chosen = chosen | ((equal == 1) & (tl.cumsum(equal, 0) <= left - before))
    low, high = tl.load(bounds + 2 * row), tl.load(bounds + 2 * row + 1)
    moved = _moved(patterns, _drawn(moving, row, places), low, high, REPLACED)
    tl.store(result + row * count + places, tl.where(chosen, moved, patterns).to(tl.int16), mask=places < count)


@kernel
def _moved(patterns, drawn, low, high, REPLACED: tl.constexpr):  # type: ignore[no-untyped-def]
    """What every element would be."""
    values = (patterns << 16).to(tl.float32, bitcast=True)
    share = (drawn >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08  # 2 ** -24
    moves = share * tl.where(values < 0, low, high)
    return _rounded(moves if REPLACED else moves + values)


@kernel
def _total(weights, chosen):  # type: ignore[no-untyped-def]
    return tl.sum(tl.where(chosen, weights, 0), 0)


@kernel
def _ranked(keys, weights, rank, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest number that fewer than `rank` keys are below, which is the key at that rank; all ones after it."""
    key = rank * 0
    for turn in range(BITS):
        larger = key + (1 << (BITS - 1 - turn))
        key = tl.where(_total(weights, keys < larger) < rank, larger, key)
    return key


@kernel
def _number(sizes):  # type: ignore[no-untyped-def]
    return (sizes << 16).to(tl.float32, bitcast=True)


@kernel
def _statistics(  # type: ignore[no-untyped-def]
    sizes, up, down, least, most, top, scale, count, FIXED: tl.constexpr, SIZED: tl.constexpr
):
    """How many move, the smallest element, and the one at rank `top`, or zero on the other side of it; where SIZED, the
    size at that rank. `up` counts the elements of each size that are not below zero, `down` those that are."""
    negative = tl.sum(down, 0)
    if SIZED:
        high = _number(_ranked(sizes, up + down, negative * 0 + top, 15))
    else:
        high = tl.where(top > negative, _number(_ranked(sizes, up, top - negative, 15)), 0.0)
    low = -_number(tl.max(tl.where(down > 0, sizes, 0), 0))
    if FIXED:
        wanted = negative * 0 + most
    else:
        weights, middle = up + down, negative * 0 + (count + 1) // 2
        numbers = _number(tl.minimum(sizes, 0x7F80))  # past which there are none
        deviations = tl.abs(numbers - _number(_ranked(sizes, weights, middle, 15)))
        # The order of numbers from zero on is that of their bits.
        mad = _ranked(deviations.to(tl.int32, bitcast=True), weights, middle, 31).to(tl.float32, bitcast=True)
        near = _total(weights, numbers < mad * scale)
        wanted = tl.minimum(tl.maximum(near, least), most)
    return wanted, low, high


@kernel_of_rows
def _find_limits(  # type: ignore[no-untyped-def]
    counts, limits, bounds, least, most, top, scale, count,
    FIXED: tl.constexpr, SIZED: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """From a row's counts."""
    row = tl.program_id(0).to(tl.int64)
    sizes = tl.arange(0, SIZES)
    up = tl.load(counts + row * 2 * SIZES + sizes)
    down = tl.load(counts + row * 2 * SIZES + SIZES + sizes)
    wanted, low, high = _statistics(sizes, up, down, least, most, top, scale, count, FIXED, SIZED)
    threshold = _ranked(sizes, up + down, wanted + 1, 15)
    tl.store(limits + 3 * row, threshold)
    tl.store(limits + 3 * row + 1, wanted - _total(up + down, sizes < threshold))
    tl.store(limits + 3 * row + 2, wanted)
    tl.store(bounds + 2 * row, low)
    tl.store(bounds + 2 * row + 1, high)


@kernel_of_rows
def _rewrite_short(  # type: ignore[no-untyped-def]
    source, result, choosing, moving, least, most, top, scale, count,
    FIXED: tl.constexpr, SIZED: tl.constexpr, SCATTERED: tl.constexpr, REPLACED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row from start to finish."""
    row, places = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    patterns = _patterns(source, row, places, count)
    inside, negative = (places < count).to(tl.int32), (patterns > 0x8000).to(tl.int32)
    up, down = inside * (1 - negative), inside * negative
    wanted, low, high = _statistics(patterns & 0x7FFF, up, down, least, most, top, scale, count, FIXED, SIZED)
    keys = _keys(choosing, row, places, patterns, SCATTERED)
    threshold = _ranked(keys, inside, wanted + 1, 16 if SCATTERED else 15)
    left = wanted - _total(inside, keys < threshold)
    equal = inside * (keys == threshold).to(tl.int32)
    chosen = (keys < threshold) | ((equal == 1) & (tl.cumsum(equal, 0) <= left))
    moved = _moved(patterns, _drawn(moving, row, places), low, high, REPLACED)
    tl.store(result + row * count + places, tl.where(chosen, moved, patterns).to(tl.int16), mask=places < count)


@kernel
def _rounded(values: tl.tensor) -> tl.tensor:
    """Patterns of the nearest bfloat16 numbers, halves to even."""
    whole = values.to(tl.int32, bitcast=True)
    return ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16) & 0xFFFF
