"""Folders become models that can be measured; other kinds of model are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel, T5Config, T5ForConditionalGeneration

from fillerscope.errors import ModelError
from fillerscope.models import loading
from fillerscope.models.description import read_config
from fillerscope.models.loading import choose_device, choose_dtype, load_model, wrap
from fillerscope.models.resolve import find
from fillerscope.models.structure import layer_count
from support.tiny import FAMILIES, tiny_model, tiny_tokenizer

SMALL_BERT = BertConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=512
)
SMALL_T5 = T5Config(d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=512)


def save(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def test_a_folder_is_loaded_for_measuring(folder: Path, llama: Any) -> None:
    loaded = load_model(str(folder), device="cpu")
    assert (loaded.name, loaded.label) == (str(folder), "tiny-llama")
    assert (loaded.dtype, loaded.device, loaded.layers, loaded.heads) == ("float32", "cpu", 3, 4)
    assert (loaded.vocabulary, loaded.has_chat_template) == (512, True)
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), llama.parameters(), strict=True))
    assert loaded.decoder is loaded.model.model


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_dtype_is_the_one_asked_for(folder: Path, dtype: str) -> None:
    loaded = load_model(str(folder), dtype, "cpu")
    assert loaded.dtype == dtype
    assert {str(p.dtype) for p in loaded.model.parameters()} == {f"torch.{dtype}"}


def test_a_multimodal_model_is_loaded_as_its_decoder(tmp_path: Path) -> None:
    loaded = load_model(save(tiny_model("gemma3"), tmp_path / "gemma"), device="cpu")
    assert (type(loaded.decoder).__name__, loaded.layers, loaded.heads) == ("Gemma3TextModel", 4, 4)


def test_auto_chooses_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"
    chosen = [choose_dtype("auto", device) for device in ("cpu", "mps", "cuda", "cuda:1")]
    assert chosen == ["float32", "float32", "bfloat16", "bfloat16"]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "mps", "tpu"])
def test_a_device_that_is_not_there_is_refused_before_a_download(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr("fillerscope.models.loading.resolve", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(ModelError, match=f"device '{device}' is not on this machine; .*: cpu$"):
        load_model("smollm2-135m", device=device)


def test_the_second_of_two_gpus_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == "cuda:1"
    with pytest.raises(ModelError, match=r"'cuda:2' is not on this machine; .*cpu, cuda:0, cuda:1"):
        choose_device("cuda:2")


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ModelError, match="dtype 'int4' is not known; choose auto, float32, bfloat16, float16"):
        choose_dtype("int4", "cpu")


def test_too_little_gpu_memory_is_said_with_sizes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    monkeypatch.setattr(loading, "refuse_replaced", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100 << 10, 1 << 30))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ModelError, match=r"tiny-llama takes \d+ KiB on cuda, where 100 KiB is free; .*device cuda:all or cpu"
    ):
        load_model(str(folder), "float32", "cuda")


def test_weights_that_are_missing_are_not_made_up(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of its weights, model\.layers\.2\.mlp\.up_proj\.weight"):
        load_model(str(folder))


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"has 1 weights of other .*: model\.norm\.weight is \[32\], expected \[64\]"):
        load_model(str(folder))


def with_fewer_layers(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config.get("text_config", config)
    part["n_layer" if "n_layer" in part else "num_hidden_layers"] -= 1
    if part.get("layer_types"):
        part["layer_types"] = part["layer_types"][:-1]
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_the_config_has_no_place_for_are_refused(tmp_path: Path, family: str) -> None:
    name = save(tiny_model(family), tmp_path / "whole")
    assert load_model(name, device="cpu").layers == layer_count(tiny_model(family))
    with_fewer_layers(tmp_path / "whole")
    with pytest.raises(
        ModelError, match=r"has \d+ weights that its config\.json has no place for, \S+, \S+, \S+ and o"
    ):
        load_model(name, device="cpu")


def test_buffers_that_older_versions_saved_are_no_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    tensors["model.layers.0.attn.attention.masked_bias"] = torch.ones(1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert load_model(str(folder), device="cpu").layers == 3
    tensors["v_head.summary.weight"] = torch.ones(1, 64)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"has 1 weights that its config\.json has no place for, v_head\.summary\.weight;"
    ):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("hidden_act", "zzz", r"no model can be built of .*config\.json: hidden_act is 'zzz', which is not known"),
     ("intermediate_size", None, r"config\.json in .* cannot be read: .*'intermediate_size' expected int, got None"),
     ("num_attention_heads", 3, r"config\.json in .* cannot be read: .*not a multiple of the number of att")],
)  # fmt: skip
def test_a_bad_config_is_blamed_and_not_the_tokenizer_or_the_weights(
    folder: Path, key: str, value: object, told: str
) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ModelError, match=told) as caught:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(caught.value)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    name = save(T5ForConditionalGeneration(SMALL_T5), tmp_path / "t5")
    with pytest.raises(ModelError, match=r"t5 is made of an encoder and a decoder \(type t5\), not a decoder"):
        load_model(name)


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    name = save(BertForMaskedLM(SMALL_BERT), tmp_path / "bert")
    with pytest.raises(ModelError, match=r"bert was saved as BertForMaskedLM, not a decoder language model"):
        load_model(name)


def test_an_encoder_in_the_clothes_of_a_decoder_is_refused(tmp_path: Path) -> None:
    name = save(BertLMHeadModel(SMALL_BERT), tmp_path / "bert")
    with pytest.raises(ModelError, match=r"BertEncoder attends in both directions"):
        load_model(name)


def test_a_model_in_memory_is_wrapped() -> None:
    model = tiny_model("qwen3").train()
    loaded = wrap(model, tiny_tokenizer(), "mine/qwen")
    assert (loaded.name, loaded.label, loaded.layers, loaded.heads) == ("mine/qwen", "qwen", 3, 4)
    assert loaded.model is model
    assert not model.training
    assert wrap(model, tiny_tokenizer()).label == "Qwen3ForCausalLM"
    assert wrap(tiny_model("qwen3", seed=1), tiny_tokenizer()).digest != loaded.digest


def test_python_without_docstrings_is_blamed_and_not_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("No `Args` section is found in the docstring")

    loader = SimpleNamespace(from_config=loading._loader_for(read_config(find(str(folder))), "").from_config)
    loader.from_pretrained = broken
    monkeypatch.setattr(loading, "_loader_for", lambda *_: loader)
    monkeypatch.setattr(loading, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=2)))
    with pytest.raises(ModelError, match=r"^transformers needs docstrings, which python -OO drops; unset PYTHONOPTIM"):
        load_model(str(folder), device="cpu")


def test_loading_is_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(str(folder))
    assert capfd.readouterr() == ("", "")
