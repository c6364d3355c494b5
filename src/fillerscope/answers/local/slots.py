"""Keys and values of many answers in progress, a slot for each, and the attention that reads them.

Every slot begins with its own first token, so there is no padding: a row sees what its layer's rule allows at
its own position, and whatever else the slot holds is behind it. Prompts are read and tokens written by the
same pass. Knows nothing of texts, sampling or who waits for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.cache_utils import CacheLayerMixin

from fillerscope.models.attention import refuse_unknown
from fillerscope.study.interventions import Knockout

NAME = "fillerscope-slots"


@dataclass(frozen=True)
class Pass:
    """One forward pass: tokens for consecutive slots, each at a position of its own."""

    first: int  # the first slot
    positions: Tensor  # [row, query]: places in the slot
    width: int  # keys that any of the rows can see
    unseen: tuple[Knockout, Tensor] | None = None  # layers, and where a query must not look [row, 1, query, key]
    lengths: tuple[int, ...] = ()  # keys of each row, where every row is to attend by itself


_pass: ContextVar[Pass] = ContextVar("fillerscope_pass")


@contextmanager
def during(now: Pass) -> Iterator[None]:
    """Attention and caches inside the block belong to this pass."""
    token = _pass.set(now)
    try:
        yield
    finally:
        _pass.reset(token)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """The slots of one layer: keys and values [slot, kv_head, position, dim]."""

    is_sliding = False  # everything is kept, and the mask says what is too far back

    def __init__(self, slots: int, capacity: int) -> None:
        super().__init__()
        self.slots, self.capacity = slots, capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def room(like: Tensor) -> Tensor:
            return like.new_zeros(self.slots, like.shape[1], self.capacity, like.shape[-1])

        self.keys, self.values = room(key_states), room(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        now = _pass.get()
        rows = torch.arange(now.first, now.first + len(key_states), device=key_states.device)[:, None]
        self.keys[rows, :, now.positions] = key_states.transpose(1, 2)
        self.values[rows, :, now.positions] = value_states.transpose(1, 2)
        here = slice(now.first, now.first + len(key_states))
        return self.keys[here, :, : now.width], self.values[here, :, : now.width]

    def copy(self, other: SlotLayer, sources: Any, targets: Any, length: int) -> None:
        """The first `length` positions of some slots into others, of this layer or of its like elsewhere. A layer that
        uses another's keys and values has none."""
        if not other.is_initialized:
            return
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        self.keys[targets, :, :length] = other.keys[sources, :, :length]
        self.values[targets, :, :length] = other.values[sources, :, :length]

    def get_seq_length(self) -> int:
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - the signature is transformers'
        return _pass.get().width, 0

    def get_max_length(self) -> int:
        return self.capacity

    get_max_cache_shape = get_max_length  # its name in earlier releases


@dataclass
class Slots:
    """Answers in progress for one model, inside `using_attention(model, NAME)`."""

    model: nn.Module
    layers: int
    count: int
    capacity: int
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = Cache(layers=[SlotLayer(self.count, self.capacity) for _ in range(self.layers)])

    def forward(self, tokens: Tensor, now: Pass, moved: Tensor | int = 0) -> Tensor:
        """Logits [row, vocabulary] after the last of the tokens [row, query], which are kept in their slots. The
        model is told that they stand so many positions further on."""
        positions = now.positions + moved
        with during(now):
            result = self.model(
                input_ids=tokens, position_ids=positions, past_key_values=self.cache, use_cache=True, logits_to_keep=1
            )
        logits: Tensor = result.logits[:, -1]
        return logits

    def copy(self, other: Slots, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.copy(theirs, list(sources), list(targets), length)


def slot_mask(
    batch_size: int, q_length: int, kv_length: int, mask_function: Callable[..., Any],
    device: torch.device | None = None, **_: object,
) -> Tensor:  # fmt: skip
    """[row, 1, query, key], true where a query may look: the layer's own rule at each row's own positions."""
    query = _pass.get().positions[:, None, :, None]
    key = torch.arange(kv_length, device=query.device)[None, None, None, :]
    row = torch.arange(batch_size, device=query.device)[:, None, None, None]
    seen = torch.as_tensor(mask_function(row, torch.zeros_like(row[:1]), query, key), device=device)
    return seen.expand(batch_size, 1, q_length, kv_length)


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,  # [row, head, query, dim]
    key: Tensor,  # [row, kv_head, key, dim]
    value: Tensor,
    attention_mask: Tensor,  # [row, 1, query, key]
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,  # [head]: learned sinks
    **extra: Any,
) -> tuple[Tensor, None]:
    """Query heads that share keys are stacked as queries, so keys and values are never repeated."""
    refuse_unknown(module, dropout, extra)
    attention_mask = _seen(attention_mask, int(module.layer_idx))  # type: ignore[arg-type]
    rows, heads, queries, dim = query.shape
    stacked = query.reshape(rows, key.shape[1], -1, dim)
    mask = attention_mask if queries == 1 else attention_mask.repeat(1, 1, heads // key.shape[1], 1)
    sinks = None
    if s_aux is not None:
        sinks = s_aux.float().reshape(key.shape[1], -1, 1).expand(-1, -1, queries).reshape(1, key.shape[1], -1, 1)
    mix = partial(_mix, scaling=scaling, softcap=softcap, sinks=sinks)
    if lengths := _pass.get().lengths:
        mixed = torch.cat([mix(*one) for one in _apart(stacked, key, value, mask, lengths)])
    else:
        mixed = mix(stacked, key, value, mask)
    return mixed.reshape(rows, heads, queries, -1).transpose(1, 2).contiguous(), None


def _mix(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    if softcap is None and sinks is None:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap).mul_(softcap)
    scores.masked_fill_(~mask, torch.finfo(torch.float32).min)
    total = scores.logsumexp(-1, keepdim=True)
    if sinks is not None:
        total = torch.logaddexp(total, sinks)
    return (scores - total).exp().to(value.dtype) @ value


def _apart(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, lengths: Sequence[int]
) -> Iterator[tuple[Tensor, ...]]:
    """Each row with as many keys as it sees: over more, or beside others, a kernel may add up in another order."""
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        yield query[one], key[one, :, :length], value[one, :, :length], mask[one, ..., :length].contiguous()


def _seen(mask: Tensor, layer: int) -> Tensor:
    """The mask of a layer, less what is hidden there."""
    if (unseen := _pass.get().unseen) is None or not unseen[0].applies(layer):
        return mask
    return mask & ~unseen[1][..., -mask.shape[-1] :]  # a cache of a sliding window holds the last keys alone


def register() -> None:
    """Make both known to transformers. Doing so twice is harmless."""
    AttentionInterface.register(NAME, slot_attention)
    AttentionMaskInterface.register(NAME, slot_mask)
