"""Exact attention in blocks of queries, with what every key receives added up on the way.

The reference for every device. Each block's weights give both the layer's output and the column sums, so
measuring reuses the work the model does anyway, and nothing of size n x n exists. Knows nothing of
transformers, of prompts or of what the rows mean: it gets row weights and returns weighted column sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.attention_inputs import AttentionInputs, LayerSums
from fillerscope.capture.masks import MaskRule
from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import Band, Packing

BLOCK_ELEMENTS = 1 << 21  # scores held at once, over texts, heads, rows and keys
BLOCK_ROWS = 96
LOWEST = torch.finfo(torch.float32).min
LOG2E = math.log2(math.e)  # scores are kept as powers of two: exp2 is a third faster than exp


@dataclass(frozen=True)
class Attended:
    """The output of one attention call on a batch of texts, and what was added up on the way."""

    output: Tensor  # [text, head, query, value_dim], in the model's dtype
    received: Tensor  # [text, head, group, key] float32: weighted sums of rows strictly below the diagonal
    diagonal: Tensor  # [text, head, query] float32: what each token receives from itself
    entropy: Tensor  # [text, head, group] float32: weighted sums of row entropies, in nats
    sink_sums: Tensor | None  # [text, head, group] float32: weighted sums of what rows give to a learned sink


def attend(
    inputs: AttentionInputs,
    packing: Packing,
    sums: LayerSums,
    block: int | None = None,  # rows at a time; None: as many as suit the shape
    hidden: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None,  # rows [token] and keys that they do not see
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the output [token, head, value_dim], entropies [text, head, group, 1] and what sinks take
    [text, head, group], texts in the order of the row. `sums` is written."""
    query = inputs.query
    heads, tokens, _ = query.shape
    output = query.new_empty(tokens, heads, inputs.value.shape[-1])
    weights = to_device(packing.weights, query.device)
    unseen = hidden and [to_device(mask, query.device)[None] for mask in hidden]
    entropy, sink_sums = [], []
    for band in packing.bands:
        rows = band.queries(weights)  # [text, group, query]
        keys, values = _with_prefix(band, inputs)
        targets = band.queries(output.transpose(0, 1)), band.keys(sums.received), band.queries(sums.diagonal)
        texts = max(1, BLOCK_ELEMENTS // (heads * (block or BLOCK_ROWS) * band.span))
        for some in (slice(start, start + texts) for start in range(0, len(band.texts), texts)):
            pairs = None if unseen is None else (band.queries(unseen[0])[some], band.keys(unseen[1])[some])
            batch = AttentionInputs(band.queries(query)[some], keys[some], values[some], inputs.rule)
            result = attend_texts(batch, rows[some], block, pairs)
            for target, part in zip(targets, (result.output, result.received, result.diagonal), strict=True):
                target[some] = part
            entropy.append(result.entropy)
            sink_sums += [] if result.sink_sums is None else [result.sink_sums]
    return output, torch.cat(entropy)[..., None], torch.cat(sink_sums) if sink_sums else None


def attend_texts(
    inputs: AttentionInputs,
    rows: Tensor,  # [text, group, query] float32
    block: int | None = None,
    unseen: tuple[Tensor, Tensor] | None = None,  # rows [text, 1, query] and keys [text, 1, key] that they do not see
) -> Attended:
    """Attention over a batch of texts of one length, with its sums."""
    query, key, value = inputs.query, inputs.key, inputs.value
    mask, scaling, softcap, sinks = inputs.rule.mask, inputs.rule.scaling, inputs.rule.softcap, inputs.rule.sinks
    texts, heads, query_count, dim = query.shape
    kv_heads, key_count = key.shape[1], key.shape[2]
    shift = key_count - query_count
    output = query.new_empty(texts, heads, query_count, value.shape[-1])
    received = torch.zeros(texts, heads, rows.shape[1], key_count, device=query.device)
    diagonal = torch.empty(texts, heads, query_count, device=query.device)
    entropy = torch.zeros(texts, heads, rows.shape[1], device=query.device)
    sink_sums = None if sinks is None else torch.zeros_like(entropy)
    logits = None if sinks is None else sinks.float()[:, None, None] * LOG2E
    columns = key.float().transpose(-1, -2).contiguous()  # once, where each product would do it again
    value = value.contiguous()
    step = block or _block_rows(texts * heads * key_count)
    # The same memory for every block: new pages would cost as much as the arithmetic.
    scratch = torch.empty(2, texts * heads * min(step, query_count) * key_count, device=query.device)
    for start in range(0, query_count, step):
        piece = slice(start, min(start + step, query_count))
        places = range(piece.start + shift, piece.stop + shift)
        keys = mask.keys_for(places, key_count)
        seen = slice(keys.start, keys.stop)
        shape = texts, heads, len(places), len(keys)
        scores, powers = (memory[: math.prod(shape)].view(shape) for memory in scratch)
        # Query heads that share keys are stacked as rows: keys and values are never repeated. Scores are in
        # float32 whatever the model's dtype: half precision would round the large ones beyond use.
        stacked = (query[:, :, piece].float() * (scaling * LOG2E)).reshape(texts, kv_heads, -1, dim)
        torch.matmul(stacked, columns[..., seen], out=scores.view(texts, kv_heads, -1, len(keys)))
        if softcap is not None:
            scores.div_(softcap * LOG2E).tanh_().mul_(softcap * LOG2E)
        _hide(scores, mask, places, keys)
        if unseen is not None:
            scores.masked_fill_(unseen[0][..., piece, None] & unseen[1][:, :, None, seen], LOWEST)
        largest = scores.amax(-1, keepdim=True)
        if logits is not None:
            largest = torch.maximum(largest, logits)
        scores.sub_(largest)
        torch.exp2(scores, out=powers)
        total = powers.sum(-1)  # [text, head, row]
        taken = None
        if logits is not None:
            taken = torch.exp2(logits - largest).squeeze(-1)
            total += taken
            taken /= total
        mixed = powers.to(value.dtype).view(texts, kv_heads, -1, len(keys)) @ value[:, :, seen]
        torch.div(mixed.view(texts, heads, len(places), -1), total[..., None], out=output[:, :, piece])
        lost = scores.mul_(powers).sum(-1).div_(total).mul_(math.log(2))
        part = rows[:, None, :, piece]  # [text, 1, group, row]
        spread = total.log() if taken is None else total.log() * (1 - taken)
        entropy += (part @ (spread - lost)[..., None]).squeeze(-1)
        if taken is not None and sink_sums is not None:
            sink_sums += (part @ taken[..., None]).squeeze(-1)
        own = torch.diagonal(powers, offset=places.start - keys.start, dim1=-2, dim2=-1)
        torch.div(own, total, out=diagonal[:, :, piece])
        own.zero_()  # a token's attention to itself is kept apart, exactly, not subtracted later
        for groups in _equal_groups(part):
            received[:, :, groups, seen] += (part[:, :, groups[:1]] / total[:, :, None]) @ powers
    return Attended(output, received, diagonal, entropy, sink_sums)


def _equal_groups(part: Tensor) -> list[list[int]]:
    """Numbers of groups whose rows weigh the same in this block [text, 1, group, row]: they are added up together.
    Groups without rows are left out. On a GPU every group is its own: comparing would make the host wait."""
    numbers = range(part.shape[2])
    if part.is_cuda:
        return [[number] for number in numbers]
    sets: list[list[int]] = []
    for number in numbers:
        equal = next((some for some in sets if torch.equal(part[:, :, some[0]], part[:, :, number])), None)
        if equal is not None:
            equal.append(number)
        elif part[:, :, number].any():
            sets.append([number])
    return sets


def _with_prefix(band: Band, inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """Keys and values of a band's texts, each after those of its prefix."""
    own = band.queries(inputs.key), band.queries(inputs.value)
    if inputs.prefixes is None or not band.shared:
        return own
    before = (tensor[:, band.prefix].expand(len(band.texts), -1, -1, -1) for tensor in inputs.prefixes)
    keys, values = (torch.cat(pair, dim=2) for pair in zip(before, own, strict=True))
    return keys, values


def _block_rows(elements_a_row: int) -> int:
    """Some rows at a time: few enough that their scores stay near the processor, enough for a good product."""
    return max(16, min(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, elements_a_row)))


def _hide(scores: Tensor, mask: MaskRule, places: range, keys: range) -> None:
    """Put the lowest finite score where a row must not look. Finite, so that a row that sees nothing at
    all gives finite garbage instead of a NaN that would spread."""
    if mask.allowed is None:
        # Plain causal: only the square at the end of the block has anything to hide.
        keys = range(max(keys.start, places.start), keys.stop)
    scores[..., scores.shape[-1] - len(keys) :].masked_fill_(mask.hidden(places, keys, scores.device), LOWEST)
