"""Who may attend to whom, kept as a rule and evaluated only for the block at hand.

transformers asks a registered mask function for the mask of each kind of layer. Ours hands back the rule
itself, so that no n x n mask is ever made: causal, sliding, chunked, packed and padded layers all go the
same way. Knows nothing of scores or sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fillerscope.errors import CaptureError


@dataclass(frozen=True)
class MaskRule:
    """What transformers would have turned into a mask."""

    allowed: Callable[..., Any] | None  # None: plain causal
    padding: Tensor | None  # [batch, key] true where a token stands; None: no padding that matters
    batch: int
    query_offset: int
    key_offset: int
    causal: bool  # no row sees a later key
    reach: int | None  # no row sees further back than this many keys, itself included

    def keys_for(self, rows: range, key_count: int) -> range:
        """The keys that any of these rows can see: the rest need no work at all."""
        if not self.causal:
            return range(key_count)
        shift = self.query_offset - self.key_offset
        first = 0 if self.reach is None else max(0, rows.start + shift - self.reach + 1)
        return range(first, min(key_count, rows.stop + shift))

    def hidden(self, rows: range, keys: range, device: torch.device) -> Tensor:
        """[batch or 1, 1, row, key], true where a row must not look."""
        query = torch.arange(rows.start, rows.stop, device=device)[None, None, :, None] + self.query_offset
        key = torch.arange(keys.start, keys.stop, device=device)[None, None, None, :] + self.key_offset
        seen = key <= query if self.allowed is None else self._evaluate(query, key, device)
        if self.padding is not None:
            seen = seen & self.padding[:, None, None, keys.start : keys.stop]
        return ~seen

    def _evaluate(self, query: Tensor, key: Tensor, device: torch.device) -> Tensor:
        assert self.allowed is not None
        batch = torch.arange(self.batch, device=device)[:, None, None, None]
        head = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
        return torch.as_tensor(self.allowed(batch, head, query, key), device=device)


PLAIN_CAUSAL = MaskRule(None, None, batch=1, query_offset=0, key_offset=0, causal=True, reach=None)


def mask_rule(
    batch_size: int,
    q_length: int,  # noqa: ARG001 - the signature is transformers'
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    **_: Any,
) -> MaskRule:
    """The function registered for masks: keeps what it is told and makes nothing."""
    from transformers.masking_utils import causal_mask_function

    if use_vmap:
        raise CaptureError("this model adds a rule of its own to the mask; it cannot be evaluated in blocks")
    plain = mask_function is causal_mask_function
    return MaskRule(
        allowed=None if plain else mask_function,
        padding=_padding_that_matters(attention_mask, kv_length, int(kv_offset)),
        batch=batch_size,
        query_offset=int(q_offset),
        key_offset=int(kv_offset),
        causal=allow_is_causal_skip,
        reach=local_size if allow_is_causal_skip else None,
    )


def _padding_that_matters(mask: Tensor | None, key_count: int, key_offset: int) -> Tensor | None:
    """Padding on the right is behind every real row, where causality hides it already."""
    if mask is None:
        return None
    mask = mask[:, key_offset : key_offset + key_count].bool()
    right_padded = bool((mask[:, :-1] >= mask[:, 1:]).all()) and mask.shape[1] == key_count
    return None if right_padded else mask
