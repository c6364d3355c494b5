"""Attention masks as rules, evaluated only for the block in hand.

transformers asks a registered mask function for the mask of each kind of layer. Ours returns the rule
itself, so that no n x n mask is ever made: causal, sliding and chunked layers all go the same way. A rule
counts positions within one text. Knows nothing of scores or sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fillerscope.errors import CaptureError

MaskFunction = Callable[..., Tensor | bool]  # of batch, head, row and key, as in transformers.masking_utils


@dataclass(frozen=True)
class MaskRule:
    """A rule that says which keys each query row sees."""

    allowed: MaskFunction | None  # None: plain causal
    causal: bool  # no row sees a later key
    reach: int | None  # no row sees further back than this many keys, itself included

    def keys_for(self, rows: range, key_count: int) -> range:
        """The keys that any of these rows can see; no others are computed."""
        if not self.causal:
            return range(key_count)
        first = 0 if self.reach is None else max(0, rows.start - self.reach + 1)
        return range(first, min(key_count, rows.stop))

    def hidden(self, rows: range, keys: range, device: torch.device | None = None) -> Tensor:
        """[row, key], true where a row does not see a key."""
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        key = torch.arange(keys.start, keys.stop, device=device)
        if self.allowed is None:
            return key > row
        nothing = torch.zeros(1, dtype=torch.long, device=device)
        return ~torch.as_tensor(self.allowed(nothing, nothing, row, key), device=device)

    def window(self, length: int) -> int | None:
        """How many keys back rows of a text of this length see; None: all of them. Holds where `is_window` is true."""
        return None if self.reach is None or self.reach >= length else self.reach

    def is_window(self, length: int, device: torch.device | None = None) -> bool:
        """Whether rows see all earlier keys within the reach and no others, by trying the edges of every row. Tried on
        the host, so that no device waits; on the device where the rule holds tensors of it."""
        if self.allowed is None or not self.causal:
            return self.allowed is None
        try:
            return _sees_a_window(self, length, None)
        except RuntimeError:
            return _sees_a_window(self, length, device)


@lru_cache(maxsize=64)
def _sees_a_window(rule: MaskRule, length: int, device: torch.device | None) -> bool:
    assert rule.allowed is not None
    row, nothing = torch.arange(length, device=device), torch.zeros(1, dtype=torch.long, device=device)
    reach = length if rule.reach is None else rule.reach

    def sees(key: Tensor) -> Tensor:
        assert rule.allowed is not None
        seen = torch.as_tensor(rule.allowed(nothing, nothing, row, key.clamp(min=0)))
        return torch.broadcast_to(seen, row.shape)

    outside = row - reach
    inside = sees(row) & sees(outside + 1) & ~sees(row + 1)
    return bool((inside & (~sees(outside) | (outside < 0))).all())


PLAIN_CAUSAL = MaskRule(None, causal=True, reach=None)


def mask_rule(
    mask_function: MaskFunction | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    **_: object,
) -> MaskRule:
    """Return the rule of a layer's mask; registered with transformers as the mask function."""
    from transformers.masking_utils import causal_mask_function

    if use_vmap:
        raise CaptureError("this model adds a rule of its own to the mask; it cannot be evaluated in blocks")
    return MaskRule(
        allowed=None if mask_function is causal_mask_function else mask_function,
        causal=allow_is_causal_skip,
        reach=local_size if allow_is_causal_skip else None,
    )
