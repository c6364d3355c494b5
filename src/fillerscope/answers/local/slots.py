"""The KV cache of a batch, with a slot for each answer in progress, and the attention over it.

A slot starts with the first token of its prompt, so there is no padding on the left: a row attends to what its layer's
mask allows at its own position, and anything else in the slot comes after that. Prefill and decode steps are the same
kind of pass. Knows nothing of texts or sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.cache_utils import CacheLayerMixin

from fillerscope.answers.local.slot_scoring import Scoring
from fillerscope.models.attention import refuse_unknown
from fillerscope.study.interventions import Knockout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "fillerscope-slots"
KERNEL_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST_HEAD = 256  # that the kernels take


@dataclass(frozen=True)
class Pass:
    """One forward pass: tokens for consecutive slots, each at a position of its own."""

    first: int  # the first slot
    positions: Tensor  # [row, query]: in the slot
    width: int  # number of keys that the longest row attends to
    hidden: tuple[Knockout, Tensor] | None = None  # layers, and keys hidden from queries [row, 1, query, key]
    lengths: tuple[int, ...] = ()  # number of keys of each row, where attention is computed row by row
    kernels: bool = False  # whether Triton kernels compute it: one token a row, each seeing no later key of its slot
    masks: dict[Hashable, tuple[Tensor, Tensor]] = field(default_factory=dict)  # what layers share, with its source


_pass: ContextVar[Pass] = ContextVar("fillerscope_pass")


@contextmanager
def running(now: Pass) -> Iterator[None]:
    """Make a pass the current one for attention and caches inside the block."""
    token = _pass.set(now)
    try:
        yield
    finally:
        _pass.reset(token)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """The slots of one layer: keys and values [slot, kv_head, position, dim]."""

    is_sliding = False  # all keys are held; the mask hides those outside of a window

    def __init__(self, slots: int, capacity: int) -> None:
        super().__init__()
        self.slots, self.capacity = slots, capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def empty(like: Tensor) -> Tensor:
            return like.new_zeros(self.slots, like.shape[1], self.capacity, like.shape[-1])

        self.keys, self.values = empty(key_states), empty(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        now = _pass.get()
        here, positions = slice(now.first, now.first + len(key_states)), now.positions.to(key_states.device)
        if now.kernels:
            from fillerscope.answers.local import decode_kernels  # needs triton

            decode_kernels.append(key_states, value_states, self.keys[here], self.values[here], positions)
        else:
            rows = torch.arange(here.start, here.stop, device=key_states.device)[:, None]
            self.keys[rows, :, positions] = key_states.transpose(1, 2)
            self.values[rows, :, positions] = value_states.transpose(1, 2)
        return self.keys[here, :, : now.width], self.values[here, :, : now.width]

    def copy(self, other: SlotLayer, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` positions of some slots of a layer, this one or another, into slots of this one."""
        if not other.is_initialized:
            return  # a layer that uses the keys and values of another has none
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        sources, targets = sources.to(self.keys.device), targets.to(self.keys.device)
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
    """The slots of all layers of a model. Use it inside `using_attention(model, NAME)`."""

    model: nn.Module
    layers: int
    count: int
    capacity: int
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = Cache(layers=[SlotLayer(self.count, self.capacity) for _ in range(self.layers)])

    def forward(self, tokens: Tensor, now: Pass, skipped: Tensor | int = 0) -> Tensor:
        """Logits [row, vocabulary] after the last of the tokens [row, query], whose keys and values go to the slots.

        `skipped` positions are added to those that the model is given."""
        positions = now.positions + skipped
        with running(now):
            result = self.model(
                input_ids=tokens, position_ids=positions, past_key_values=self.cache, use_cache=True, logits_to_keep=1
            )
        logits: Tensor = result.logits[:, -1]
        return logits

    def copy(self, other: Slots, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` positions of some slots into others, given by their numbers on the device."""
        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.copy(theirs, sources, targets, length)

    @property
    def filled(self) -> list[Tensor]:
        """The keys and values of all layers that hold some."""
        return [tensor for layer in self.cache.layers if layer.is_initialized for tensor in (layer.keys, layer.values)]

    def suit_kernels(self) -> bool:
        """Whether the decode kernels take these keys and values."""
        return find_spec("triton") is not None and all(
            tensor.is_cuda and tensor.dtype in KERNEL_DTYPES and tensor.shape[-1] <= WIDEST_HEAD
            for tensor in self.filled
        )


@contextmanager
def packing_last_tokens(model: PreTrainedModel) -> Iterator[None]:
    """Inside the block the last tokens of all rows are one matrix when logits are made of them: where they are taken
    out of longer rows as they are, a GPU reads the whole vocabulary once for each."""
    head = model.get_output_embeddings()
    if head is None:
        yield
        return
    hook = head.register_forward_pre_hook(lambda _, given: (given[0].contiguous(), *given[1:]))
    try:
        yield
    finally:
        hook.remove()


def slot_mask(
    batch_size: int, q_length: int, kv_length: int, mask_function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    device: torch.device | None = None, **_: object,
) -> Tensor:  # fmt: skip
    """The mask [row, 1, query, key] of a layer, at each row's own positions; true where a query attends."""
    query = _pass.get().positions[:, None, :, None]
    key = torch.arange(kv_length, device=query.device)[None, None, None, :]
    row = torch.arange(batch_size, device=query.device)[:, None, None, None]
    mask = torch.as_tensor(mask_function(row, torch.zeros_like(row[:1]), query, key), device=device)
    return mask.expand(batch_size, 1, q_length, kv_length)


def slot_attention(  # transformers calls it: the parameters are those of its attention functions
    module: torch.nn.Module,
    query: Tensor,  # [row, head, query, dim]
    key: Tensor,  # [row, kv_head, key, dim]
    value: Tensor,
    attention_mask: Tensor,  # [row, 1, query, key]
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,  # [head]: learned sinks
    **extra: object,
) -> tuple[Tensor, None]:
    """Attention over slots. Query heads that share keys are stacked as queries, so keys and values are not repeated."""
    refuse_unknown(module, dropout, extra)
    rows, heads, queries, dim = query.shape
    scoring = Scoring(scaling, softcap, _stacked_sinks(s_aux, key.shape[1], queries))
    as_bias = query.is_cuda and queries > 1 and scoring.is_fused and not _pass.get().lengths
    times = 1 if queries == 1 else heads // key.shape[1]
    mask = _shared_mask(attention_mask, int(module.layer_idx), times, query.dtype if as_bias else torch.bool)  # type: ignore[arg-type]
    output = _attended(query.reshape(rows, key.shape[1], -1, dim), key, value, mask, scoring)
    return output.reshape(rows, heads, queries, -1).transpose(1, 2).contiguous(), None


def _stacked_sinks(sinks: Tensor | None, kv_heads: int, queries: int) -> Tensor | None:
    """Sinks [1, kv_head, query, 1] for heads that are stacked as queries."""
    if sinks is None:
        return None
    return sinks.float().reshape(kv_heads, -1, 1).expand(-1, -1, queries).reshape(1, kv_heads, -1, 1)


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scoring: Scoring) -> Tensor:
    """Attention in the way of the current pass: row by row, by our kernels, or by torch."""
    now = _pass.get()
    if now.lengths:
        return torch.cat([scoring.attend(*row) for row in _row_by_row(query, key, value, mask, now.lengths)])
    if now.kernels:
        from fillerscope.answers.local import decode_kernels  # needs triton

        return decode_kernels.attend(query, key, value, mask, now.positions.to(query.device), scoring)
    return scoring.attend(query, key, value, mask)


def _row_by_row(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, lengths: Sequence[int]
) -> Iterator[tuple[Tensor, ...]]:
    """Each row with the keys that it attends to: with more keys or more rows, a kernel may add in another order."""
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        yield query[one], key[one, :, :length], value[one, :, :length], mask[one, ..., :length].contiguous()


def _shared_mask(mask: Tensor, layer: int, times: int, dtype: torch.dtype) -> Tensor:
    """The mask of a layer for heads that are stacked as queries, without the keys that a knockout hides there. Layers
    of a pass that have the same share one."""
    now = _pass.get()
    hidden = now.hidden[1] if now.hidden is not None and now.hidden[0].applies(layer) else None
    key = (id(mask), hidden is None, times, dtype)  # the mask is kept beside it, so that no other gets its id
    if key not in now.masks:
        now.masks[key] = mask, _stacked_mask(mask, hidden, times, dtype)
    return now.masks[key][1]


def _stacked_mask(mask: Tensor, hidden: Tensor | None, times: int, dtype: torch.dtype) -> Tensor:
    if hidden is not None:
        last = hidden[..., -mask.shape[-1] :]  # a cache of a sliding window holds the last keys alone
        mask = mask & ~last.to(mask.device)
    if times > 1:
        mask = mask.repeat(1, 1, times, 1)
    if dtype == torch.bool:
        return mask
    # As numbers to add, which fused kernels want, in rows that begin where they read: else each layer makes its own.
    rows, _, queries, width = mask.shape
    bias = torch.full((rows, 1, queries, -(-width // 8) * 8), -torch.inf, dtype=dtype, device=mask.device)
    return bias[..., :width].masked_fill_(mask, 0.0)


def register() -> None:
    """Register attention and mask with transformers. Doing so twice is harmless."""
    AttentionInterface.register(NAME, slot_attention)
    AttentionMaskInterface.register(NAME, slot_mask)
