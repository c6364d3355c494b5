"""Random models of every family and a tokenizer, built in code: tests of the package download nothing.

The weights are drawn much larger than a trained model's would be, so that attention is uneven and a
wrong mask, scale or head order shows up as a large difference.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    SiglipVisionConfig,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)

VOCABULARY = 512
WINDOW = 8

_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_SENTENCES = (
    "Please reason step by step and put your final answer within \\boxed{}.",
    "Anna has 3 apples and buys 4 more. How many apples does she have now?",
    "What is 12 + 30? The answer is 42, because 12 + 30 = 42.",
    "A train leaves at 9 and arrives at 11: how long is the ride?",
    "system user assistant he she / \\ . , the quick brown fox jumps over the lazy dog",
)

# Sizes that tell mistakes apart: two KV heads for four heads, three layers, four in the mixed families.
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_UNGROUPED = {key: value for key, value in _COMMON.items() if key != "num_key_value_heads"}
_MIXED_LAYERS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_GEMMA = {
    **_COMMON,
    "num_hidden_layers": 4,
    "layer_types": _MIXED_LAYERS,
    "sliding_window": WINDOW,
    "head_dim": 24,  # not hidden / heads
    "query_pre_attn_scalar": 24,
}
_GEMMA3_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
_GEMMA3_TEXT = {**_GEMMA, "rope_parameters": _GEMMA3_ROPE}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 1024,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_GPT_OSS = {
    **_COMMON,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": WINDOW,
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

_RECIPES: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, _COMMON),
    "qwen2": (Qwen2Config, _COMMON),
    "qwen3": (Qwen3Config, {**_COMMON, "head_dim": 24}),
    "gemma2": (Gemma2Config, {**_GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 30.0}),
    "gemma3_text": (Gemma3TextConfig, _GEMMA3_TEXT),
    "mistral": (MistralConfig, {**_COMMON, "sliding_window": WINDOW}),
    "phi3": (Phi3Config, _COMMON),
    "gpt2": (GPT2Config, _GPT2),
    "gpt_neox": (GPTNeoXConfig, _UNGROUPED),
    "gpt_oss": (GptOssConfig, _GPT_OSS),  # learned sinks
    "gemma3": (Gemma3Config, {}),  # multimodal; overrides go to its text config
}
FAMILIES = tuple(_RECIPES)


def tiny_model(family: str, seed: int = 0, **config_overrides: Any) -> PreTrainedModel:
    """A random model of the family in eval mode, the same for the same seed and overrides."""
    config = tiny_config(family, **config_overrides)
    mapping = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING if family == "gemma3" else MODEL_FOR_CAUSAL_LM_MAPPING
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = mapping[type(config)](config)
        redraw(model)
    model.generation_config.pad_token_id = 0
    return model.eval().requires_grad_(False)


def tiny_config(family: str, **overrides: Any) -> PreTrainedConfig:
    config_class, values = _RECIPES[family]
    if family != "gemma3":
        return config_class(**{**values, **overrides})
    return Gemma3Config(
        text_config=Gemma3TextConfig(**{**_GEMMA3_TEXT, **overrides}),
        vision_config=SiglipVisionConfig(**_VISION),
        mm_tokens_per_image=4,
        boi_token_index=VOCABULARY - 3,
        eoi_token_index=VOCABULARY - 2,
        image_token_index=VOCABULARY - 1,
    )


def redraw(model: torch.nn.Module, spread: float = 0.15) -> None:
    """Redraw every parameter around its start: norms stay near their identity, biases are not zero."""
    for parameter in model.parameters():
        centre = parameter.data.mean() if parameter.dim() == 1 else 0.0
        parameter.data.normal_(0.0, spread).add_(centre)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with ChatML turns: any text round-trips, and no id reaches the models' vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in _SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=_SPECIAL[0],
        eos_token=_SPECIAL[2],
        pad_token=_SPECIAL[0],
        chat_template=_CHATML,
        model_max_length=1024,
    )
