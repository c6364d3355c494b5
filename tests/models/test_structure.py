"""Layers, attention and MLPs are found in every family, in order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertLMHeadModel, MambaConfig, MambaForCausalLM

from fillerscope.errors import ModelError
from fillerscope.models.structure import (
    activation_modules,
    attention_modules,
    decoder_of,
    head_count,
    is_changed_by_code,
    layer_count,
    layers_of,
)
from support.families import small_model
from support.grid import some_fast
from support.tiny import FAMILIES, VOCABULARY, tiny_model, tiny_tokenizer

IDS = torch.arange(3, 33).reshape(2, 15)


def calls_in_order(modules: list[nn.Module], run: Any) -> list[int]:
    """Which of the modules were called, in the order of the calls."""
    called: list[int] = []
    hooks = [module.register_forward_hook(lambda *_, i=i: called.append(i)) for i, module in enumerate(modules)]
    with torch.inference_mode():
        run()
    for hook in hooks:
        hook.remove()
    return called


@pytest.mark.parametrize("family", FAMILIES)
def test_the_decoder_gives_hidden_states_without_logits(family: str) -> None:
    model = tiny_model(family)
    with torch.inference_mode():
        hidden = decoder_of(model)(input_ids=IDS).last_hidden_state
        logits = model(input_ids=IDS).logits
    assert hidden.shape == (2, 15, 64)
    made = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    assert torch.allclose(torch.tanh(made / cap) * cap if cap else made, logits, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_modules_are_found_in_the_order_of_layers(family: str) -> None:
    model = tiny_model(family)
    decoder = decoder_of(model)
    attention = attention_modules(decoder)
    for modules in (list(attention.values()), layers_of(decoder)):
        assert calls_in_order(modules, lambda: model(input_ids=IDS)) == list(range(layer_count(model)))
    assert [module.layer_idx for module in attention.values()] == list(attention) == list(range(layer_count(model)))


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gpt_oss"}))
def test_one_nonlinearity_a_layer_is_found_in_their_order(family: str) -> None:
    model = tiny_model(family)
    modules = activation_modules(decoder_of(model))
    assert calls_in_order(modules, lambda: model(input_ids=IDS)) == list(range(layer_count(model)))
    widths = []
    for module in modules:
        module.register_forward_hook(lambda *given: widths.append(given[-1].shape))
    with torch.inference_mode():
        model(input_ids=IDS)
    width = getattr(model.config.get_text_config(), "intermediate_size", None) or 4 * 64
    assert widths == [(2, 15, width)] * layer_count(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stock_model_is_not_changed_by_code(family: str) -> None:
    """Not even where transformers left its own hooks behind."""
    model = tiny_model(family)
    model(input_ids=IDS, output_hidden_states=True)
    assert not is_changed_by_code(model)


def test_hooks_and_other_forwards_change_a_model() -> None:
    model = tiny_model("llama")
    layer = model.model.layers[1]
    for register in (layer.register_forward_hook, layer.mlp.register_forward_pre_hook):
        hook = register(lambda *_: None)
        assert is_changed_by_code(model)
        hook.remove()
    layer.forward = layer.forward
    assert is_changed_by_code(model)


def test_a_mixture_of_experts_has_no_single_nonlinearity() -> None:
    with pytest.raises(ModelError, match=r"layer 1 of GptOssModel has no single nonlinearity.*experts see some"):
        activation_modules(decoder_of(tiny_model("gpt_oss")))


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_are_those_of_the_attention_weights(family: str) -> None:
    model = tiny_model(family)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        weights = decoder_of(model)(input_ids=IDS, output_attentions=True).attentions
    assert len(weights) == layer_count(model)
    assert weights[0].shape[:3] == (2, head_count(model), 15)


def test_the_decoder_of_a_decoder_is_itself() -> None:
    decoder = decoder_of(tiny_model("gemma3"))
    assert decoder_of(decoder) is decoder
    assert layer_count(decoder) == 4


def test_attention_in_both_directions_is_refused() -> None:
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
    with pytest.raises(ModelError, match="BertEncoder attends in both directions"):
        attention_modules(decoder_of(BertLMHeadModel(config)))


def test_a_bidirectional_gemma_is_refused() -> None:
    model = tiny_model("gemma3_text", use_bidirectional_attention=True)
    with pytest.raises(ModelError, match=r"Gemma3TextModel attends in both directions; .*causal decoders"):
        attention_modules(decoder_of(model))


def test_layers_without_attention_are_refused() -> None:
    model = MambaForCausalLM(MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=64, state_size=4))
    with pytest.raises(ModelError, match=r"no layer of MambaModel has an attention module.*state-space"):
        attention_modules(decoder_of(model))


def test_a_layer_whose_attention_does_not_know_its_place_is_refused() -> None:
    decoder = decoder_of(tiny_model("llama"))
    del attention_modules(decoder)[1].layer_idx
    with pytest.raises(ModelError, match=r"layer 2 of LlamaModel has attention \(LlamaAttention\) that does not know"):
        attention_modules(decoder)


def test_layers_of_a_hybrid_that_have_attention_are_found() -> None:
    decoder = decoder_of(small_model("qwen3_next"))
    assert list(attention_modules(decoder)) == [1, 3]


@pytest.mark.parametrize("family", some_fast(FAMILIES, "llama", "gemma3"))
def test_tiny_models_are_the_same_for_the_same_seed(family: str) -> None:
    first, again, other = tiny_model(family), tiny_model(family), tiny_model(family, seed=1)
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_the_tiny_tokenizer_fits_the_tiny_models() -> None:
    tokenizer = tiny_tokenizer()
    text = "<|im_start|>user\nWhat is 12 + 30?  Größe 日本 \\ / / /<|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert len(tokenizer) <= VOCABULARY
    assert (ids[0], ids[-1]) == tuple(tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]))
    assert len(tokenizer(" /" * 55)["input_ids"]) == 55
