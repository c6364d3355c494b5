"""Folders become models that can be measured; other kinds of model are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertLMHeadModel, T5Config, T5ForConditionalGeneration

from fillerscope.errors import ModelError
from fillerscope.models.loading import choose_device, choose_dtype, load_model, wrap
from support.tiny import tiny_model, tiny_tokenizer

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
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100 << 10, 1 << 30))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ModelError, match=r"tiny-llama takes \d+ KiB on cuda, where 100 KiB is free; .*device cpu"):
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
    with pytest.raises(ModelError, match=r"the weights of .*tiny-llama cannot be loaded"):
        load_model(str(folder))


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


def test_loading_is_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(str(folder))
    assert capfd.readouterr() == ("", "")
