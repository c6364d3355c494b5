"""Configs of which a model far larger than its weights would be built are refused before it takes memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MarianConfig,
    OPTConfig,
    OPTForCausalLM,
    PegasusConfig,
    RoFormerConfig,
    XGLMConfig,
    XGLMForCausalLM,
    XLMConfig,
)

from fillerscope.errors import ModelError
from fillerscope.models.build_size import refuse_large_build
from fillerscope.models.loading import load_model
from support.tiny import tiny_model, tiny_tokenizer

SIZES = {"vocab_size": 512, "bos_token_id": 0, "eos_token_id": 2}


def gpt_neo() -> Any:
    kinds = [[["global", "local"], 1]]
    return GPTNeoForCausalLM(
        GPTNeoConfig(hidden_size=64, num_layers=2, num_heads=4, attention_types=kinds, intermediate_size=96, **SIZES)
    )


def gptj() -> Any:
    return GPTJForCausalLM(GPTJConfig(n_embd=64, n_layer=2, n_head=4, rotary_dim=16, **SIZES))


def opt() -> Any:
    return OPTForCausalLM(
        OPTConfig(
            hidden_size=64, num_hidden_layers=2, ffn_dim=96, num_attention_heads=4, word_embed_proj_dim=64, **SIZES
        )
    )


def xglm() -> Any:
    return XGLMForCausalLM(XGLMConfig(d_model=64, num_layers=2, ffn_dim=96, attention_heads=4, **SIZES))


# A mask of all pairs of positions in each layer, tables of positions that are made anew, a table that is learned.
LARGE: dict[str, tuple[Callable[[], Any], str, int]] = {
    "masks": (gpt_neo, "max_position_embeddings", 20_000),
    "a table of sines": (xglm, "max_position_embeddings", 2_000_000),
    "tables of angles": (gptj, "n_positions", 4_000_000),
    "learned positions": (opt, "max_position_embeddings", 1_500_000),
    "wide heads": (lambda: tiny_model("llama"), "head_dim", 1 << 18),
}


@pytest.mark.parametrize("what", LARGE)
def test_a_model_far_larger_than_its_weights_is_refused(tmp_path: Path, what: str) -> None:
    make, key, value = LARGE[what]
    make().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    stored = (tmp_path / "model.safetensors").stat().st_size
    refuse_large_build(AutoModelForCausalLM.from_config, AutoConfig.from_pretrained(tmp_path), stored, "sound")
    path.write_text(json.dumps(config | {key: value}))
    with pytest.raises(ModelError, match=r"describes a model of .* in memory, and its weights are [\d.]+ [KM]iB"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    "config",
    [
        MarianConfig(vocab_size=99, pad_token_id=1, d_model=64, decoder_layers=1, encoder_layers=1),
        PegasusConfig(vocab_size=99, d_model=64, decoder_layers=1, encoder_layers=1),
        RoFormerConfig(vocab_size=99, hidden_size=64, num_hidden_layers=1, num_attention_heads=1, is_decoder=True),
        XLMConfig(vocab_size=99, emb_dim=64, n_layers=1, n_heads=2, sinusoidal_embeddings=True),
    ],
    ids=lambda config: config.model_type,
)
def test_tables_that_are_computed_one_by_one_are_limited(config: Any) -> None:
    """They take seconds for each million of numbers, in lists of Python."""
    refuse_large_build(AutoModelForCausalLM.from_config, config, 10**12, "sound")
    config.max_position_embeddings = 100_000
    with pytest.raises(ModelError, match="a table of positions with 6,400,000 numbers"):
        refuse_large_build(AutoModelForCausalLM.from_config, config, 10**12, "large")
