"""The Triton code that `kernels.py` launches: one kernel for column sums, one for attention itself.

Knows nothing of tensors' sizes or of what the sums mean; everything comes as pointers, strides and constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
NOWHERE = tl.constexpr(1e30)  # the lse of a row that does not exist: its weights are 0, and 0 * log 0 stays 0

kernel: Callable[[Callable[..., Any]], Any] = triton.jit
# Totals change with every batch: a kernel compiled anew for those that 16 divides would cost seconds each time.
kernel_of_totals: Callable[[Callable[..., Any]], Any] = triton.jit(do_not_specialize=("query_total", "key_total"))


@kernel
def _scores(products: tl.tensor, scale: tl.tensor, cap: tl.tensor) -> tl.tensor:
    """Scores times log2(e)."""
    scores = products * scale
    if cap is not None:
        # tanh by way of exp2: the hardware's own tanh is good to three digits only.
        scores = cap - 2.0 * cap / (1.0 + tl.exp2(scores))
    return scores


@kernel
def _visible(rows: tl.tensor, columns: tl.tensor, window: tl.tensor) -> tl.tensor:
    seen = columns <= rows
    if window is not None:
        seen = seen & (columns > rows - window)
    return seen


@kernel
def _load_rows(place, stride, left, ROWS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """[ROWS, PADDED] from `place` on; zeros past the rows that are left (None: all) and past the last column."""
    row, column = tl.arange(0, ROWS), tl.arange(0, PADDED)
    here = column[None, :] < DIM
    if left is not None:
        here = here & (row[:, None] < left)
    return tl.load(place + row[:, None] * stride + column[None, :], mask=here, other=0.0)


@kernel
def _bounds(first_key, query_count, shift, window, QUERIES: tl.constexpr, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The tiles of rows in three parts: around the diagonal, those that see the whole block, and around the edge of
    the window or of the text. Only the second needs no mask. A block that reaches past its text's end has the
    first part only: there causality hides those keys."""
    start = tl.maximum(first_key - shift, 0) // QUERIES
    stop, edge = query_count, query_count
    if window is not None:
        stop = tl.minimum(stop, tl.maximum(first_key + KEYS + window - 1 - shift, 0))
        edge = tl.minimum(edge, tl.maximum(first_key + window - shift, 0))
    stop = tl.cdiv(stop, QUERIES)
    whole = tl.minimum(tl.cdiv(tl.maximum(first_key + KEYS - shift, 0), QUERIES), stop)
    return start, whole, tl.maximum(edge // QUERIES, whole), stop


@kernel
def _logs(  # type: ignore[no-untyped-def]
    keys, query, lse, first, stride, left, scale, cap, QUERIES: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr
):
    """Logarithms to base 2 of the weights [KEYS, QUERIES] of a tile of rows on the keys, before any mask."""
    rows = first + tl.arange(0, QUERIES)
    row_lse = tl.load(lse + rows) if left is None else tl.load(lse + rows, mask=rows - first < left, other=NOWHERE)
    tile = _load_rows(query + tl.cast(first, tl.int64) * stride, stride, left, QUERIES, DIM, PADDED)
    # Keys by queries, so that a sum over queries stays within a few neighbouring threads.
    products = tl.dot(keys, tl.trans(tile), input_precision="ieee")
    return _scores(products, scale, cap) - (row_lse * LOG2_E)[None, :]


@kernel
def _weighed(tile, weights, rows, inside, stride, GROUPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """[KEYS, 4]: a tile [KEYS, QUERIES] added up over its queries for each group."""
    sums = tl.zeros([tile.shape[0], 4], tl.float32)
    for group in tl.static_range(GROUPS):
        weight = tl.load(weights + group * stride + rows, mask=inside, other=0.0)
        some = tl.sum(tile * weight[None, :], 1)
        sums += tl.where(tl.arange(0, 4)[None, :] == group, some[:, None], 0.0)
    return sums


@kernel
def _weighed_alike(tile, weights, first, stride, GROUPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same where all queries have the weight of the first."""
    group = tl.arange(0, 4)
    weight = tl.load(weights + group * stride + first, mask=group < GROUPS, other=0.0)
    return tl.sum(tile, 1)[:, None] * weight[None, :]


@kernel_of_totals
def column_sums_kernel(  # type: ignore[no-untyped-def]
    query, key, lse, weights, tile_starts, runs, query_starts, key_starts, received, diagonal, parts,
    query_stride, query_head_stride, key_stride, key_head_stride,
    query_total, key_total, scale, cap, window,
    SHARING: tl.constexpr, GROUPS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of keys, under one head, against every row that sees any of them."""
    head, text, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    query_start, key_start = tl.load(query_starts + text), tl.load(key_starts + text)
    query_count = tl.load(query_starts + text + 1) - query_start
    key_count = tl.load(key_starts + text + 1) - key_start
    first_key = block * KEYS
    if first_key >= key_count:
        return
    shift = key_count - query_count  # the first row's place among the keys
    query += query_start.to(tl.int64) * query_stride + head * query_head_stride
    key += (key_start + first_key).to(tl.int64) * key_stride + head // SHARING * key_head_stride
    lse += head * query_total + query_start
    weights += query_start
    runs += tl.load(tile_starts + text)
    diagonal += head * query_total + query_start
    bounds = _bounds(first_key, query_count, shift, window, QUERIES, KEYS)
    keys = _load_rows(key, key_stride, key_count - first_key, KEYS, DIM, PADDED)
    columns = first_key + tl.arange(0, KEYS)[:, None]
    sums, surprises = tl.zeros([KEYS, 4], tl.float32), tl.zeros([KEYS, 4], tl.float32)

    for part in tl.static_range(2):  # around the diagonal, and around the edge of the window or of the text
        for turn in range(bounds[2 * part], bounds[2 * part + 1]):
            first = turn * QUERIES
            rows = first + tl.arange(0, QUERIES)
            logs = _logs(keys, query, lse, first, query_stride, query_count - first, scale, cap, QUERIES, DIM, PADDED)
            shares = tl.where(_visible(rows[None, :] + shift, columns, window), tl.exp2(logs), 0.0)
            surprises += _weighed(shares * logs, weights, rows, rows < query_count, query_total, GROUPS)
            if part == 0:
                own = columns == rows[None, :] + shift
                here = (rows + shift >= first_key) & (rows + shift < first_key + KEYS) & (rows < query_count)
                tl.store(diagonal + rows, tl.sum(tl.where(own, shares, 0.0), 0), mask=here)
                shares = tl.where(own, 0.0, shares)
            sums += _weighed(shares, weights, rows, rows < query_count, query_total, GROUPS)

    turn = bounds[1]  # between them, where every row sees every key
    while turn < bounds[2]:
        run = tl.load(runs + turn)
        stop = tl.minimum(turn + tl.maximum(run, 1), bounds[2])
        if run == 0:
            rows = turn * QUERIES + tl.arange(0, QUERIES)
            logs = _logs(keys, query, lse, turn * QUERIES, query_stride, None, scale, cap, QUERIES, DIM, PADDED)
            shares = tl.exp2(logs)
            sums += _weighed(shares, weights, rows, rows < query_count, query_total, GROUPS)
            surprises += _weighed(shares * logs, weights, rows, rows < query_count, query_total, GROUPS)
        else:
            # Added up score by score, without a thread waiting for another, and weighed together at the end.
            alike, surprise = tl.zeros([KEYS, QUERIES], tl.float32), tl.zeros([KEYS, QUERIES], tl.float32)
            for tile in range(turn, stop):
                logs = _logs(keys, query, lse, tile * QUERIES, query_stride, None, scale, cap, QUERIES, DIM, PADDED)
                shares = tl.exp2(logs)
                alike += shares
                surprise += shares * logs
            sums += _weighed_alike(alike, weights, turn * QUERIES, query_total, GROUPS)
            surprises += _weighed_alike(surprise, weights, turn * QUERIES, query_total, GROUPS)
        turn = stop

    group = tl.arange(0, 4)
    place = received + (head * GROUPS + group[None, :]) * key_total + key_start + columns
    tl.store(place, sums, mask=(columns < key_count) & (group[None, :] < GROUPS))
    place = ((text * tl.num_programs(0) + head) * GROUPS + group) * tl.num_programs(2) + block
    tl.store(parts + place, tl.sum(surprises, 0) / -LOG2_E, mask=group < GROUPS)


@kernel_of_totals
def forward_kernel(  # type: ignore[no-untyped-def]
    query, key, value, query_starts, key_starts, output, lse,
    query_stride, query_head_stride, key_stride, key_head_stride, value_stride, value_head_stride,
    query_total, scale, cap, window,
    SHARING: tl.constexpr, DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    PADDED: tl.constexpr, VALUE_PADDED: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of queries, under one head, against every key it sees, with the usual running maximum."""
    head, text = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_start, key_start = tl.load(query_starts + text), tl.load(key_starts + text)
    query_count = tl.load(query_starts + text + 1) - query_start
    key_count = tl.load(key_starts + text + 1) - key_start
    first_query = (tl.cdiv(query_count, QUERIES) - 1 - tl.program_id(2)) * QUERIES  # the last see most: longest first
    if first_query < 0:
        return
    shift = key_count - query_count
    query += (query_start + first_query).to(tl.int64) * query_stride + head * query_head_stride
    key += key_start.to(tl.int64) * key_stride + head // SHARING * key_head_stride
    value += key_start.to(tl.int64) * value_stride + head // SHARING * value_head_stride

    queries = _load_rows(query, query_stride, query_count - first_query, QUERIES, DIM, PADDED)
    rows = first_query + tl.arange(0, QUERIES)
    highest, mass = tl.full([QUERIES], -NOWHERE, tl.float32), tl.zeros([QUERIES], tl.float32)
    mixture = tl.zeros([QUERIES, VALUE_PADDED], tl.float32)
    start = 0
    if window is not None:
        start = tl.maximum(first_query + shift - window + 1, 0) // KEYS * KEYS
    for first in range(start, tl.minimum(first_query + QUERIES + shift, key_count), KEYS):
        keys = _load_rows(key + tl.cast(first, tl.int64) * key_stride, key_stride, key_count - first, KEYS, DIM, PADDED)
        scores = _scores(tl.dot(queries, tl.trans(keys), input_precision="ieee"), scale, cap)
        columns = first + tl.arange(0, KEYS)
        # Finite, so that a row that sees nothing yet stays a number: its first real key wipes this out exactly.
        scores = tl.where(_visible(rows[:, None] + shift, columns[None, :], window), scores, -NOWHERE)
        higher = tl.maximum(highest, tl.max(scores, 1))
        shares, kept = tl.exp2(scores - higher[:, None]), tl.exp2(highest - higher)
        mass = mass * kept + tl.sum(shares, 1)
        place = value + tl.cast(first, tl.int64) * value_stride
        values = _load_rows(place, value_stride, key_count - first, KEYS, VALUE_DIM, VALUE_PADDED)
        mixture = tl.dot(shares.to(values.dtype), values, mixture * kept[:, None], input_precision="ieee")
        highest = higher

    real = rows < query_count
    tl.store(lse + head * query_total + query_start + rows, (highest + tl.log2(mass)) / LOG2_E, mask=real)
    places = (query_start + rows).to(tl.int64) * tl.num_programs(0) + head
    column = tl.arange(0, VALUE_PADDED)[None, :]
    mixture = (mixture / mass[:, None]).to(output.dtype.element_ty)
    tl.store(output + places[:, None] * VALUE_DIM + column, mixture, mask=real[:, None] & (column < VALUE_DIM))
