"""Exact attention in blocks of queries, with what every key receives added up on the way.

The reference for every device. Each block's weights give both the layer's output and the column sums, so
measuring reuses the work the model does anyway, and nothing of size n x n exists. Knows nothing of
transformers, of prompts or of what the rows mean: it gets row weights and returns weighted column sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fillerscope.capture.masks import MaskRule

BLOCK_ELEMENTS = 1 << 21  # weights held at once, over batch, heads, rows and keys
SMALLEST_BLOCK, LARGEST_BLOCK = 16, 256


@dataclass(frozen=True)
class Attended:
    output: Tensor  # [batch, head, query, value_dim], in the model's dtype
    received: Tensor  # [batch, head, group, key] float32: weighted sums of rows strictly below the diagonal
    diagonal: Tensor  # [batch, head, key] float32: what each key receives from itself
    entropy: Tensor  # [batch, head, group] float32: weighted sums of row entropies, in nats


def attend(
    query: Tensor,  # [batch, head, query, dim]
    key: Tensor,  # [batch, kv_head, key, dim]
    value: Tensor,  # [batch, kv_head, key, value_dim]
    rows: Tensor,  # [batch, group, query] float32: the weight of each row in each group
    rule: MaskRule | Tensor,  # a Tensor is an additive or boolean mask [batch or 1, 1, query, key]
    scaling: float,
    softcap: float | None = None,
    block_rows: int | None = None,
) -> Attended:
    batch, heads, query_count, _ = query.shape
    kv_heads, key_count = key.shape[1], key.shape[2]
    groups = rows.shape[1]
    shift = _shift(rule, query_count, key_count)
    output = query.new_empty(batch, heads, query_count, value.shape[-1])
    received = torch.zeros(batch, heads, groups, key_count, device=query.device)
    diagonal = torch.zeros(batch, heads, key_count, device=query.device)
    entropy = torch.zeros(batch, heads, groups, device=query.device)
    step = block_rows or _block_size(batch * heads * key_count)
    for start in range(0, query_count, step):
        block = range(start, min(start + step, query_count))
        keys = rule.keys_for(block, key_count) if isinstance(rule, MaskRule) else range(key_count)
        piece = slice(block.start, block.stop)
        seen = slice(keys.start, keys.stop)
        # Query heads that share keys are stacked as rows: keys and values are never repeated. Scores are in
        # float32 whatever the model's dtype: half precision would round the large ones beyond use.
        stacked = (query[:, :, piece].float() * scaling).reshape(batch, kv_heads, -1, query.shape[-1])
        scores = stacked @ key[:, :, seen].float().transpose(-1, -2)
        scores = scores.view(batch, heads, len(block), len(keys))
        if softcap is not None:
            scores = torch.tanh(scores.div_(softcap)).mul_(softcap)
        _hide(scores, rule, block, keys, shift)
        logs = torch.log_softmax(scores, dim=-1)
        weights = logs.exp()
        mixed = weights.to(value.dtype).view(batch, kv_heads, -1, len(keys)) @ value[:, :, seen]
        output[:, :, piece] = mixed.view(batch, heads, len(block), -1)
        part = rows[:, None, :, piece]  # [batch, 1, group, row]
        entropy -= (part @ (weights * logs).sum(-1)[..., None]).squeeze(-1)
        own = torch.diagonal(weights, offset=block.start + shift - keys.start, dim1=-2, dim2=-1)
        first = block.start + shift
        diagonal[:, :, first : first + own.shape[-1]] = own
        own.zero_()  # a token's attention to itself is kept apart, exactly, not subtracted later
        received[..., seen] += part @ weights
    return Attended(output, received, diagonal, entropy)


def _shift(rule: MaskRule | Tensor, query_count: int, key_count: int) -> int:
    """How far the first query stands behind the first key: more than 0 when earlier keys are cached."""
    if isinstance(rule, MaskRule):
        return rule.query_offset - rule.key_offset
    return key_count - query_count


def _block_size(elements_a_row: int) -> int:
    rows = BLOCK_ELEMENTS // max(1, elements_a_row)
    return max(SMALLEST_BLOCK, min(LARGEST_BLOCK, rows))


def _hide(scores: Tensor, rule: MaskRule | Tensor, block: range, keys: range, shift: int) -> None:
    """Put the lowest finite score where a row must not look. Finite, so that a row that sees nothing at
    all (padding) gives finite garbage of weight zero instead of a NaN that would spread."""
    lowest = torch.finfo(scores.dtype).min
    if isinstance(rule, Tensor):
        mask = rule[:, :, block.start : block.stop, keys.start : keys.stop]
        if mask.dtype == torch.bool:
            scores.masked_fill_(~mask, lowest)
        else:
            scores.add_(mask).clamp_(min=lowest)
        return
    if rule.allowed is None and rule.padding is None:
        # Plain causal: only the square at the end of the block has anything to hide.
        square = range(min(keys.stop, block.start + shift), keys.stop)
        hidden = rule.hidden(block, square, scores.device)
        scores[..., square.start - keys.start :].masked_fill_(hidden, lowest)
        return
    scores.masked_fill_(rule.hidden(block, keys, scores.device), lowest)
