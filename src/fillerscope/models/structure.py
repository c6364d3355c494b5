"""Where things are in a decoder: its layers, their attention and MLP modules, whatever the family.

Looks at modules by what they hold, not by the name of the model, so a new family usually needs no change
here. Runs nothing and knows nothing of what is measured.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from fillerscope.errors import ModelError

# What only attention has, besides its layer's number: a direction, groups of heads, or a maker of queries.
_SIGNS_OF_ATTENTION = ("is_causal", "num_key_value_groups", "q_proj", "qkv_proj", "c_attn", "query_key_value")


def text_config(model: nn.Module) -> Any:
    """The part of the config that describes the decoder; a multimodal config holds others."""
    return cast(Any, model).config.get_text_config(decoder=True)


def layer_count(model: nn.Module) -> int:
    return int(text_config(model).num_hidden_layers)


def head_count(model: nn.Module) -> int:
    """Query heads, which are what attention weights are counted by."""
    return int(text_config(model).num_attention_heads)


def context_length(model: nn.Module) -> int | None:
    """How many tokens the model takes; None where its config does not say."""
    return getattr(text_config(model), "max_position_embeddings", None)


def decoder_of(model: nn.Module) -> nn.Module:
    """The stack whose forward gives hidden states, without the head that makes logits of them."""
    decoder = cast(Any, model).get_decoder()
    # A wrapper around a wrapper: each may answer with the next one in.
    while hasattr(decoder, "get_decoder") and decoder.get_decoder() is not decoder:
        decoder = decoder.get_decoder()
    return cast(nn.Module, decoder)


def device_of(model: nn.Module) -> torch.device:
    """Where the decoder takes its tokens."""
    return next(decoder_of(model).parameters()).device


def layers_of(decoder: nn.Module) -> list[nn.Module]:
    """The decoder's layers in order: its list of as many blocks as the config says."""
    wanted = layer_count(decoder)
    for child in decoder.children():
        if isinstance(child, nn.ModuleList) and len(child) == wanted:
            return list(child)
    raise ModelError(
        f"{type(decoder).__name__} holds no list of {wanted} layers, as its config says; "
        "fillerscope measures decoder-only transformers such as Llama, Qwen, Gemma, Mistral, Phi or GPT-2"
    )


def attention_modules(decoder: nn.Module) -> list[nn.Module]:
    """One causal attention module a layer, in layer order."""
    layers = layers_of(decoder)
    return [_attention_of(decoder, layer, number) for number, layer in enumerate(layers, start=1)]


def activation_modules(decoder: nn.Module) -> list[nn.Module]:
    """One nonlinearity a layer, in layer order: what comes out of it is act(gate) in gated MLPs, act(up) in others."""
    attention = attention_modules(decoder)
    return [
        _activation_of(decoder, layer, set(attended.modules()), number)
        for number, (layer, attended) in enumerate(zip(layers_of(decoder), attention, strict=True), start=1)
    ]


def _activation_of(decoder: nn.Module, layer: nn.Module, attention: set[nn.Module], number: int) -> nn.Module:
    found = [module for module in layer.modules() if module not in attention and _is_activation(module)]
    expert = next((name for name, _ in layer.named_modules() if "expert" in name.rpartition(".")[2]), None)
    if len(found) != 1 or expert:
        why = f"its {expert} see some of the tokens each" if expert else f"{len(found)} were found, expected 1"
        raise ModelError(
            f"layer {number} of {type(decoder).__name__} has no single nonlinearity that all tokens pass ({why}); "
            "leave out probes.activations and the conditions that redistribute activations"
        )
    return found[0]


def _is_activation(module: nn.Module) -> bool:
    """By where it is defined: next to others of its kind, in torch or in transformers."""
    home = type(module).__module__
    return (
        home in ("torch.nn.modules.activation", "transformers.activations") or "gelu" in type(module).__name__.lower()
    )


def _attention_of(decoder: nn.Module, layer: nn.Module, number: int) -> nn.Module:
    found = [module for module in layer.modules() if _is_attention(module)]
    if len(found) != 1:
        raise ModelError(
            f"layer {number} of {type(decoder).__name__} has {len(found)} attention modules, expected 1; "
            "models with state-space, linear or cross attention layers cannot be measured"
        )
    if not getattr(found[0], "is_causal", True):
        raise ModelError(
            f"{type(decoder).__name__} attends in both directions; fillerscope measures causal decoders, "
            "so choose a model that generates text"
        )
    return found[0]


def _is_attention(module: nn.Module) -> bool:
    return hasattr(module, "layer_idx") and any(hasattr(module, sign) for sign in _SIGNS_OF_ATTENTION)
