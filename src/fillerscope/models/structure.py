"""Find the parts of a decoder: its layers, their attention and MLP modules, whatever the family.

Looks at modules by what they hold, not by the name of the model, so a new family usually needs no change
here. Runs nothing and knows nothing of what is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from fillerscope.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What only attention has, besides its layer's number: a direction, groups of heads, or a maker of queries.
_SIGNS_OF_QUERIES = ("q_proj", "qkv_proj", "c_attn", "query_key_value")
_SIGNS_OF_ATTENTION = ("is_causal", "num_key_value_groups", *_SIGNS_OF_QUERIES)


def text_config(model: nn.Module) -> Any:
    """The part of the config that describes the decoder; a multimodal config holds others."""
    return cast(Any, model).config.get_text_config(decoder=True)


def refuse_other(model: object) -> None:
    """Raise where something else stands in the place of a transformers model."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"model is a transformers model, as AutoModelForCausalLM gives one, not {kind_of(model)}")
    if not hasattr(model, "get_decoder") or not hasattr(getattr(model, "config", None), "get_text_config"):
        raise ModelError(
            f"model is a transformers model, as AutoModelForCausalLM gives one, not a module without a decoder and a "
            f"config: {type(model).__name__}"
        )


def kind_of(model: object) -> str:
    """What was given in the place of a model, and what to give instead."""
    kind = type(model).__name__
    if isinstance(model, str | Path):
        return f"{str(model)!r:.80}: name it in the study's `models`, or load it with load_model"
    for inner in ("_orig_mod", "module", "model"):  # torch.compile, DistributedDataParallel, LoadedModel
        if hasattr(model, inner):
            return f"{kind}: give the model inside it, {inner}"
    return kind


def layer_count(model: nn.Module) -> int:
    return int(text_config(model).num_hidden_layers)


def head_count(model: nn.Module) -> int:
    """Query heads, which are what attention weights are counted by."""
    return int(text_config(model).num_attention_heads)


def context_length(model: nn.Module) -> int | None:
    """How many tokens the model takes; None where its config does not say."""
    return getattr(text_config(model), "max_position_embeddings", None)


def is_changed_by_code(model: nn.Module) -> bool:
    """Whether somebody gave the model hooks, or a module a `forward` of its own. Hooks that torch and transformers keep
    for themselves, as after `output_attentions=True`, do nothing by then."""
    libraries = ("torch.", "transformers.")
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    own = [hook for hook in hooks if not str(getattr(hook, "__module__", "")).startswith(libraries)]
    return bool(own) or any("forward" in vars(module) for module in model.modules())


def vocabulary_of(model: nn.Module) -> int:
    """How many token ids the model has an embedding for: its tokenizer may know more."""
    embedding = cast("PreTrainedModel", model).get_input_embeddings()
    return int(getattr(embedding, "num_embeddings", 0) or text_config(model).vocab_size)


def decoder_of(model: nn.Module) -> nn.Module:
    """The stack whose forward gives hidden states, without the head that makes logits of them."""
    decoder = cast(Any, model).get_decoder()
    # A wrapper around a wrapper: each may answer with the next one in.
    while hasattr(decoder, "get_decoder") and decoder.get_decoder() is not decoder:
        decoder = decoder.get_decoder()
    if _layer_list(decoder) is None:  # some answer with themselves, or with the layer that makes logits
        decoder = next((module for module in model.modules() if _layer_list(module) is not None), decoder)
    return cast(nn.Module, decoder if hasattr(decoder, "config") else model)


def device_of(model: nn.Module) -> torch.device:
    """Where the decoder takes its tokens."""
    return next(decoder_of(model).parameters()).device


def layers_of(decoder: nn.Module) -> list[nn.Module]:
    """The decoder's layers in order: its list of as many blocks as the config says."""
    layers = _layer_list(decoder)
    if layers is None:
        raise ModelError(
            f"{type(decoder).__name__} holds no list of {layer_count(decoder)} layers, as its config says; "
            "fillerscope measures decoder-only transformers such as Llama, Qwen, Gemma, Mistral, Phi or GPT-2"
        )
    return layers


def _layer_list(decoder: nn.Module) -> list[nn.Module] | None:
    if not hasattr(decoder, "config"):
        return None
    count = layer_count(decoder)
    lists = (child for child in decoder.children() if isinstance(child, nn.ModuleList))
    return next((list(child) for child in lists if len(child) == count), None)


def attention_modules(decoder: nn.Module) -> dict[int, nn.Module]:
    """The causal attention module of each layer that has one, by the layer's number from 0. In hybrid models other
    layers have a state-space mixer, linear attention or a convolution instead."""
    linear = _linear_layers(decoder)
    by_layer = {
        number: _attention_of(decoder, layer, number + 1)
        for number, layer in enumerate(layers_of(decoder))
        if number not in linear
    }
    modules = {number: module for number, module in by_layer.items() if module is not None}
    if not modules:
        why = (
            "its positions are alibi biases, which are not measured"
            if has_alibi(decoder)
            else "state-space models (Mamba, RWKV) and linear attention have no attention weights to measure"
        )
        raise ModelError(
            f"no layer of {type(decoder).__name__} has an attention module that transformers' attention interface "
            f"serves; {why}"
        )
    return modules


def _linear_layers(decoder: nn.Module) -> set[int]:
    """Layers that the configuration calls linear attention: they have its marks, and no attention weights."""
    kinds = getattr(text_config(decoder), "layer_types", None) or ()
    return {number for number, kind in enumerate(kinds) if kind == "linear_attention"}


def has_alibi(decoder: nn.Module) -> bool:
    """Whether positions are biases on the scores."""
    return any("alibi" in name for name in dir(decoder))


def activation_modules(decoder: nn.Module) -> list[nn.Module]:
    """One nonlinearity a layer, in layer order: what comes out of it is act(gate) in gated MLPs, act(up) in others."""
    return [_activation_of(decoder, layer, number) for number, layer in enumerate(layers_of(decoder), start=1)]


def carries_state(model: nn.Module) -> bool:
    """Whether any layer mixes tokens by other means than attention: a convolution, or a module that knows its layer's
    number and is no attention."""
    decoder = decoder_of(model)
    attention = set(attention_modules(decoder).values())
    return any(
        isinstance(module, nn.Conv1d) or (hasattr(module, "layer_idx") and module not in attention)
        for layer in layers_of(decoder)
        for module in layer.modules()
        if module is not layer
    )


def has_experts(model: nn.Module) -> bool:
    """Whether a router chooses which weights a token meets."""
    return any("expert" in name.rpartition(".")[2] for name, _ in decoder_of(model).named_modules())


def _activation_of(decoder: nn.Module, layer: nn.Module, number: int) -> nn.Module:
    # What mixes tokens, attention or another, knows its layer's number; an MLP does not.
    mixing = {part for module in layer.modules() if hasattr(module, "layer_idx") and module is not layer
              for part in module.modules()}  # fmt: skip
    candidates = [module for module in layer.modules() if module not in mixing and _is_activation(module)]
    expert = next((name for name, _ in layer.named_modules() if "expert" in name.rpartition(".")[2]), None)
    if len(candidates) != 1 or expert:
        why = f"its {expert} see some of the tokens each" if expert else f"{len(candidates)} were found, expected 1"
        raise ModelError(
            f"layer {number} of {type(decoder).__name__} has no single nonlinearity that all tokens pass ({why}); "
            "leave out probes.activations and the conditions that redistribute activations"
        )
    return candidates[0]


def _is_activation(module: nn.Module) -> bool:
    """By where it is defined: next to others of its kind, in torch or in transformers."""
    home = type(module).__module__
    return (
        home in ("torch.nn.modules.activation", "transformers.activations") or "gelu" in type(module).__name__.lower()
    )


def _attention_of(decoder: nn.Module, layer: nn.Module, number: int) -> nn.Module | None:
    candidates = [module for module in layer.modules() if _is_attention(module)]
    if not candidates:
        _refuse_unplaced(decoder, layer, number)
        return None
    if len(candidates) > 1:
        raise ModelError(
            f"layer {number} of {type(decoder).__name__} has {len(candidates)} attention modules, expected 1; "
            "models with cross attention (encoder and decoder) or several attentions in a layer cannot be measured"
        )
    if not getattr(candidates[0], "is_causal", True):
        raise ModelError(
            f"{type(decoder).__name__} attends in both directions; fillerscope measures causal decoders, "
            "so choose a model that generates text"
        )
    return candidates[0]


def _refuse_unplaced(decoder: nn.Module, layer: nn.Module, number: int) -> None:
    """What makes queries and does not know its layer's number is attention that nobody could place."""
    for module in layer.modules():
        if any(hasattr(module, sign) for sign in _SIGNS_OF_QUERIES):
            raise ModelError(
                f"layer {number} of {type(decoder).__name__} has attention ({type(module).__name__}) that does not "
                "know its layer's number, as transformers' attention interface wants it; this model is not supported"
            )


def _is_attention(module: nn.Module) -> bool:
    placed = getattr(module, "layer_idx", None) is not None
    return placed and any(hasattr(module, sign) for sign in _SIGNS_OF_ATTENTION)
