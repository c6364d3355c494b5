"""How large a model is, as its structure says: what a token costs in operations and in memory.

Works on shapes alone, so the model may be on no device.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fillerscope.capture.memory import bytes_a_token, head_size, kv_bytes_a_token
from fillerscope.models.structure import (
    decoder_of,
    head_count,
    layer_count,
    layers_of,
    text_config,
    vocabulary_of,
)

_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


@dataclass(frozen=True)
class Work:
    """Tokens that a model computes, and pairs of a query and a key."""

    tokens: int = 0
    pairs: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.pairs + other.pairs)


@dataclass(frozen=True)
class ModelSize:
    """What a plan must know of a model."""

    layers: int
    heads: int
    head_dim: int
    weights: int  # bytes
    active: int  # parameters of the layers that one token meets
    head: int  # parameters of what makes logits
    element: int  # bytes of a parameter
    kv_token: int  # bytes of the keys and values of a token
    pass_token: int  # bytes of a token while a pass runs

    @classmethod
    def of(cls, model: nn.Module) -> ModelSize:
        config, decoder = text_config(model), decoder_of(model)
        heads = head_count(model)
        dim = head_size(model)
        element = int(next(model.parameters()).element_size())
        share = _share_of_experts(model)
        active = sum(
            parameter.numel() * (share if "expert" in name and "shared" not in name else 1.0)
            for layer in layers_of(decoder)
            for name, parameter in layer.named_parameters()
        )
        return cls(
            layer_count(model), heads, dim, sum(tensor.nbytes for tensor in model.parameters()), round(active),
            vocabulary_of(model) * int(config.hidden_size), element,
            kv_bytes_a_token(model), bytes_a_token(model),
        )  # fmt: skip

    def operations(self, work: Work) -> float:
        """Floating-point operations of passes, without logits."""
        return 2.0 * self.active * work.tokens + 4.0 * self.layers * self.heads * self.head_dim * work.pairs

    def step_operations(self, rows: int, width: float) -> float:
        """Those of a decode step, logits included."""
        pairs = 4.0 * self.layers * self.heads * self.head_dim * rows * width
        return 2.0 * (self.active + self.head) * rows + pairs

    def measured(self, positions: int) -> int:
        """Bytes of the sums that are measured at so many positions: three groups of query rows and the diagonal."""
        return 4 * 4 * self.layers * self.heads * positions


def _share_of_experts(model: nn.Module) -> float:
    """The share of its experts that a token meets."""
    config = text_config(model)
    chosen = next((int(getattr(config, name)) for name in _CHOSEN if getattr(config, name, None)), 1)
    experts = next((int(getattr(config, name)) for name in _EXPERTS if getattr(config, name, None)), 1)
    return min(1.0, chosen / experts)
