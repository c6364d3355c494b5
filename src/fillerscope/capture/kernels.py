"""Exact attention sums over packed texts, as Triton kernels for a GPU.

The second half of what `blocks.py` does in one go: given queries, keys and each row's log-sum-exp from any fused
attention, it adds up what every key receives without a score ever leaving the chip. `forward` serves the models
that no fused attention serves. Texts stand one after another without padding, each after its own cached keys.
Every sum is made in a fixed order, so a run repeats bit for bit. Knows nothing of models or of what rows mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.kernel_code import LOG2_E, column_sums_kernel, forward_kernel
from fillerscope.capture.memory import to_device
from fillerscope.errors import CaptureError

Tiles = tuple[int, int, int, int, int]  # queries, keys, warps, stages, registers a thread may use
LONG = 4096  # queries of a text
LAUNCH = ("num_warps", "num_stages", "maxnreg")  # Triton's names for the last three


@dataclass(frozen=True)
class Ragged:
    """Where each text's queries and keys are. A text's queries are its last keys' own."""

    query_starts: Tensor  # [text + 1] int32, on the device
    key_starts: Tensor  # [text + 1] int32, on the device
    longest_query: int
    longest_key: int


@dataclass(frozen=True)
class Rows:
    """How much each row counts, and where many in a row count alike: there is less to do there."""

    weights: Tensor  # [group, q_total] float32
    tile_starts: Tensor  # [text] int32: the first of a text's tiles
    runs: Tensor  # [tile] int32: how many whole tiles from here on hold rows of one weight; 0 where one holds several
    tiles: Tiles  # what `runs` was counted for

    @classmethod
    def of(
        cls,
        weights: NDArray[np.float32],
        starts: NDArray[np.int32],
        dim: int,
        device: torch.device,
        tiles: Tiles | None = None,
    ) -> Rows:
        """`weights` [group, q_total] and where each text begins and the last one ends [text + 1]."""
        if not 1 <= len(weights) <= 4:
            raise CaptureError(f"column_sums takes 1 to 4 groups of rows, not {len(weights)}")
        tiles = tiles or _tiles(dim, int(np.diff(starts).max()))
        runs = [_runs(weights[:, start:stop], tiles[0]) for start, stop in pairwise(starts.tolist())]
        first = np.cumsum([0, *map(len, runs)])[:-1]
        arrays = weights, first.astype(np.int32), np.concatenate(runs)
        weighed, tile_starts, counted = (to_device(array, device) for array in arrays)
        return cls(weighed, tile_starts, counted, tiles)


def _runs(weights: NDArray[np.float32], size: int) -> NDArray[np.int32]:
    """For one text, with a tile at its end that may not be whole."""
    whole = weights.shape[1] // size
    tiles = weights[:, : whole * size].reshape(len(weights), whole, size)
    alike = (tiles == tiles[..., :1]).all(axis=(0, 2))
    goes_on = alike[1:] & (tiles[:, 1:, 0] == tiles[:, :-1, 0]).all(axis=0)
    runs = np.zeros(whole + 1, dtype=np.int32)
    for tile in reversed(range(whole)):
        runs[tile] = (1 + (runs[tile + 1] if tile + 1 < whole and goes_on[tile] else 0)) if alike[tile] else 0
    return runs


def _tiles(dim: int, longest: int) -> Tiles:
    """For `column_sums`: small programs where texts are short and most tiles lie on the diagonal, large ones where
    they are long. Fixed, not tuned at run time: a run must repeat bit for bit."""
    if dim > 128:
        return (32, 128, 8, 2, 128)
    return (64, 64, 4, 2, 168) if longest <= LONG else (64, 128, 8, 3, 128)


def forward(
    query: Tensor,  # [q_total, head, dim]
    key: Tensor,  # [k_total, kv_head, dim]
    value: Tensor,  # [k_total, kv_head, value_dim]
    ragged: Ragged,
    scaling: float,
    window: int | None = None,
    softcap: float | None = None,
    tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention's output [q_total, head, value_dim], and each row's log-sum-exp [head, q_total] float32."""
    _check(query=query, key=key, value=value)
    (total, heads, dim), value_dim, texts = query.shape, value.shape[-1], len(ragged.query_starts) - 1
    queries, keys, *launch = tiles or (128, 64, 8, 2, 255)
    output = torch.empty(total, heads, value_dim, dtype=query.dtype, device=query.device)
    lse = torch.empty(heads, total, dtype=torch.float32, device=query.device)
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        forward_kernel[(heads, texts, triton.cdiv(ragged.longest_query, queries))](
            *(query, key, value, ragged.query_starts, ragged.key_starts, output, lse),
            *(*query.stride()[:2], *key.stride()[:2], *value.stride()[:2]),
            *(total, *_scales(scaling, softcap), window),
            *(heads // key.shape[1], dim, value_dim, triton.next_power_of_2(dim), triton.next_power_of_2(value_dim)),
            *(queries, keys),
            **dict(zip(LAUNCH, launch, strict=True)),
        )
    return output, lse


def column_sums(
    query: Tensor,  # [q_total, head, dim]
    key: Tensor,  # [k_total, kv_head, dim]
    lse: Tensor,  # [head, q_total] float32
    rows: Rows,
    ragged: Ragged,
    scaling: float,
    window: int | None,
    softcap: float | None,
    received: Tensor,  # [head, group, k_total] float32, to be written: what every key receives from later rows
    diagonal: Tensor,  # [head, q_total] float32, to be written: what every row keeps for itself
) -> Tensor:
    """Weighted sums of the rows' entropies in nats [text, head, group, part], a part for every block of keys."""
    _check(query=query, key=key)
    (total, heads, dim), groups, texts = query.shape, len(rows.weights), len(ragged.query_starts) - 1
    queries, keys, *launch = rows.tiles
    key_blocks = triton.cdiv(ragged.longest_key, keys)
    # Zeros, because the programs past a short text's end write nothing.
    parts = torch.zeros(texts, heads, groups, key_blocks, dtype=torch.float32, device=query.device)
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
        # Heads vary fastest and key blocks slowest: the first keys, which the most rows see, come first.
        column_sums_kernel[(heads, texts, key_blocks)](
            *(query, key, lse.contiguous(), rows.weights, rows.tile_starts, rows.runs),
            *(ragged.query_starts, ragged.key_starts, received, diagonal, parts),
            *(*query.stride()[:2], *key.stride()[:2], total, key.shape[0], *_scales(scaling, softcap), window),
            *(heads // key.shape[1], groups, dim, triton.next_power_of_2(dim), queries, keys),
            **dict(zip(LAUNCH, launch, strict=True)),
        )
    return parts


def _check(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.stride(-1) != 1:
            raise CaptureError(f"the last dimension of {name} must be contiguous; its strides are {tensor.stride()}")
    heads, kv_heads = tensors["query"].shape[1], tensors["key"].shape[1]
    if heads % kv_heads:
        raise CaptureError(f"{heads} query heads cannot share {kv_heads} key heads evenly")


def _scales(scaling: float, softcap: float | None) -> tuple[float, float | None]:
    """What to multiply the products with, and the cap, such that scores come out ready for exp2."""
    bits = float(LOG2_E.value)
    return (scaling * bits, None) if softcap is None else (scaling * 2 * bits / softcap, softcap * bits)
