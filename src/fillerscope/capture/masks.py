"""Who may attend to whom, kept as a rule and evaluated only for the block at hand.

transformers asks a registered mask function for the mask of each kind of layer. Ours hands back the rule
itself, so that no n x n mask is ever made: causal, sliding and chunked layers all go the same way. A rule
counts positions within one text. Knows nothing of scores or sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fillerscope.errors import CaptureError


@dataclass(frozen=True)
class MaskRule:
    """What transformers would have turned into a mask."""

    allowed: Callable[..., Any] | None  # None: plain causal
    causal: bool  # no row sees a later key
    reach: int | None  # no row sees further back than this many keys, itself included

    def keys_for(self, rows: range, key_count: int) -> range:
        """The keys that any of these rows can see: the rest need no work at all."""
        if not self.causal:
            return range(key_count)
        first = 0 if self.reach is None else max(0, rows.start - self.reach + 1)
        return range(first, min(key_count, rows.stop))

    def hidden(self, rows: range, keys: range, device: torch.device | None = None) -> Tensor:
        """[row, key], true where a row must not look."""
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        key = torch.arange(keys.start, keys.stop, device=device)
        if self.allowed is None:
            return key > row
        nothing = torch.zeros(1, dtype=torch.long, device=device)
        return ~torch.as_tensor(self.allowed(nothing, nothing, row, key), device=device)

    def window(self, length: int) -> int | None:
        """How far back rows of a text of this length see, where that is all there is to the rule; None: all the way.

        Whoever cannot evaluate rules asks `is_window` first.
        """
        return None if self.reach is None or self.reach >= length else self.reach

    def is_window(self, length: int, device: torch.device | None = None) -> bool:
        """Whether rows see just the keys before them, as far as the reach goes: by trying the edges of every row.
        On the host, for which no device need wait; on the device where the rule holds tensors of it."""
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
    mask_function: Callable[..., Any] | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    use_vmap: bool = False,
    **_: Any,
) -> MaskRule:
    """The function registered for masks: keeps what it is told and makes nothing."""
    from transformers.masking_utils import causal_mask_function

    if use_vmap:
        raise CaptureError("this model adds a rule of its own to the mask; it cannot be evaluated in blocks")
    return MaskRule(
        allowed=None if mask_function is causal_mask_function else mask_function,
        causal=allow_is_causal_skip,
        reach=local_size if allow_is_causal_skip else None,
    )
