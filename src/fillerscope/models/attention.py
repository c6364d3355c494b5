"""Run a stock model with another attention function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from fillerscope.errors import CaptureError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

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
    restore = noted_attention(model)
    try:
        _set_attention(model, name)
        yield
    finally:
        restore()


def _set_attention(model: PreTrainedModel, name: str) -> None:
    try:
        model.set_attn_implementation(name)
    except ValueError as error:
        raise CaptureError(f"{type(model).__name__} does not take attention functions: {error}") from None


def noted_attention(model: nn.Module) -> Callable[[], None]:
    """Note the attention functions of a model and of all its parts; calling what is returned sets them again."""
    before = [(config, config._attn_implementation) for config in _configs_of(model)]

    def restore() -> None:
        for config, name in before:  # setting that of a whole sets those of its parts, which come after it
            config._attn_implementation = name

    return restore


def _configs_of(model: nn.Module) -> list[PretrainedConfig]:
    """The configs of a model and of the models in it; a whole comes before its parts."""
    found: dict[int, PretrainedConfig] = {}
    waiting: list[object] = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        config = waiting.pop(0)
        if id(config) not in found and hasattr(config, "_attn_implementation"):
            config = found[id(config)] = cast("PretrainedConfig", config)
            waiting += [getattr(config, key, None) for key in config.sub_configs]
    return list(found.values())


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
