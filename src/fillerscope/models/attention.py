"""Run a stock model with another attention function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from fillerscope.errors import CaptureError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Arguments of models that do not change the weights, or that the mask holds already.
HARMLESS = {
    "is_causal", "sliding_window", "position_ids", "cache_position", "use_cache", "output_attentions",
    "output_hidden_states", "output_router_logits", "logits_to_keep", "return_dict", "training", "layer_idx",
    "position_embeddings",
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "num_items_in_batch", "past_key_values",
}  # fmt: skip


@contextmanager
def using_attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Inside the block a model runs with the attention function `name`, afterwards with its own again.

    The function must be registered with transformers' AttentionInterface."""
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(name)
    except ValueError as error:
        raise CaptureError(f"{type(model).__name__} does not take attention functions: {error}") from None
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def refuse_unknown(module: nn.Module, dropout: float, extra: dict[str, Any]) -> None:
    """Raise CaptureError for arguments that our attention functions do not implement."""
    kind = type(module).__name__
    if dropout:
        raise CaptureError(f"{kind} applies dropout; call model.eval() first")
    unknown = sorted(name for name, given in extra.items() if given is not None and name not in HARMLESS)
    if unknown:
        raise CaptureError(
            f"{kind} passes {', '.join(unknown)} to its attention, which changes the weights in a way that "
            "is not measured exactly here; this model is not supported"
        )
