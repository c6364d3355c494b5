"""Small models on disk, as users bring them: a folder, and a GGUF file written the way llama.cpp does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from support.tiny import tiny_model, tiny_tokenizer

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.layers": "blk",
}


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """A cache of its own for every test; those with real weights share the user's."""
    if request.node.get_closest_marker("weights"):
        return None
    folder = tmp_path / "cache"
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(folder))
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into; those of pytest are closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def llama() -> Any:
    return tiny_model("llama")


@pytest.fixture
def folder(tmp_path: Path, llama: Any) -> Path:
    """What save_pretrained writes."""
    path = tmp_path / "tiny-llama"
    llama.save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def write_gguf(tmp_path: Path, llama: Any) -> Callable[..., Path]:
    """Writes the tiny Llama as GGUF; `leave_out` names tensors that are lost on the way, `blocks` says how many layers
    it claims, `frequencies` are factors of its rotary frequencies, `settings` are further ones, `pre` is how it splits
    texts, `more` are further tensors, and `marks` are further tokens with their types."""

    def write(
        name: str = "tiny.gguf",
        add_bos: bool | None = False,
        leave_out: tuple[str, ...] = (),
        blocks: int | None = None,
        frequencies: list[float] | None = None,
        settings: dict[str, Any] | None = None,
        pre: str | None = "gpt-2",
        more: dict[str, Any] | None = None,
        marks: dict[str, int] | None = None,
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, "llama")
        _write_shape(writer, llama.config, blocks)
        if frequencies:
            writer.add_tensor("rope_freqs.weight", np.array(frequencies, np.float32))
        _write_tokenizer(writer, add_bos, llama.config.vocab_size, pre, marks or {})
        for key, value in (settings or {}).items():
            if isinstance(value, list):
                writer.add_array(key, value)
            else:
                writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
        for key, tensor in llama.state_dict().items():
            if gguf_name(key) not in leave_out:
                writer.add_tensor(gguf_name(key), _as_llama_cpp(key, tensor, llama.config).numpy())
        for key, numbers in (more or {}).items():
            writer.add_tensor(key, np.asarray(numbers, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def gguf_name(key: str) -> str:
    for theirs, ours in _NAMES.items():
        key = key.replace(theirs, ours)
    return key


def _as_llama_cpp(key: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """llama.cpp rotates neighbouring pairs, so it keeps the rows of queries and keys in another order."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for projection, count in heads.items():
        if projection in key:
            rows, columns = tensor.shape
            return tensor.view(count, 2, rows // count // 2, columns).transpose(1, 2).reshape(rows, columns)
    return tensor


def _write_shape(writer: gguf.GGUFWriter, config: Any, blocks: int | None) -> None:
    writer.add_name("tiny")
    writer.add_block_count(blocks or config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(
    writer: gguf.GGUFWriter, add_bos: bool | None, size: int, pre: str | None, marks: dict[str, int]
) -> None:
    tokenizer = tiny_tokenizer()
    special = set(tokenizer.added_tokens_encoder)
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    kinds = [3 if token in special else 1 for token in tokens] + list(marks.values())
    tokens += marks
    unused = [f"<unused{number}>" for number in range(size - len(tokens))]
    kinds += [5] * len(unused)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([*tokens, *unused])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in _merges(tokenizer)])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    writer.add_chat_template(tokenizer.chat_template)


def _merges(tokenizer: Any) -> list[list[str]]:
    import json

    return list(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"])
