"""How a layer makes attention weights of queries and keys, and the attention that follows from it in plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class Scoring:
    """How a layer makes weights of queries and keys."""

    scaling: float | None
    softcap: float | None
    sinks: Tensor | None  # [1, kv_head, query, 1]

    @property
    def is_fused(self) -> bool:
        """Whether a fused kernel computes it."""
        return self.softcap is None and self.sinks is None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """The attention output; in float32, and without a fused kernel, where there is a softcap or a sink."""
        if self.is_fused:
            return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scaling)
        scale = query.shape[-1] ** -0.5 if self.scaling is None else self.scaling
        scores = query.float() @ key.float().transpose(-1, -2) * scale
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap).mul_(self.softcap)
        scores.masked_fill_(~mask, torch.finfo(torch.float32).min)
        total = scores.logsumexp(-1, keepdim=True)
        if self.sinks is not None:
            total = torch.logaddexp(total, self.sinks)
        return (scores - total).exp().to(value.dtype) @ value
