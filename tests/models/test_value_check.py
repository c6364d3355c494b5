"""Weights that were not loaded from the hashed files are noticed, whatever led transformers elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fillerscope.errors import ModelError
from fillerscope.models import checks, config_checks
from fillerscope.models.loading import load_folder
from fillerscope.models.resolve import resolve
from fillerscope.models.value_check import refuse_other_values
from support.studies import save_model
from support.tiny import tiny_model


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def test_weights_of_another_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody knew the keys of a config that name files."""
    monkeypatch.setattr(config_checks, "refuse_redirects", lambda *_: None)
    monkeypatch.setattr(checks, "_check_shards", lambda *_: None)
    folder = save_model(tmp_path / "model")
    assert load_folder(resolve(str(folder)), device="cpu")
    other = saved(tiny_model("llama", seed=1), tmp_path / "other") / "model.safetensors"
    names = [name for name, _ in load_folder(resolve(str(folder)), device="cpu").model.named_parameters()]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, str(shutil.copy(other, tmp_path / "o.safetensors")))}
    (folder / "x.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "x.safetensors.index.json"}))
    with pytest.raises(ModelError, match=r"was not loaded from model\.safetensors, which holds other numbers"):
        load_folder(resolve(str(folder)), device="cpu")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text", "gpt_oss"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_other_tensor_is_enough(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model(family)
    folder = saved(model, tmp_path)
    loaded = type(model).from_pretrained(folder, dtype=dtype)
    refuse_other_values(loaded, folder, "m")
    largest = max(loaded.parameters(), key=torch.numel)
    with torch.no_grad():
        largest += 1.0
    with pytest.raises(ModelError, match="of m was not loaded from"):
        refuse_other_values(loaded, folder, "m")


def test_weights_that_are_no_numbers_are_equal_to_themselves(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    refuse_other_values(model, saved(model, tmp_path), "m")


def test_files_of_other_names_say_nothing_of_a_model(tmp_path: Path) -> None:
    model = tiny_model("llama")
    weights = {f"other.{name}": weight.detach().clone() for name, weight in model.named_parameters()}
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="no weight of m has a name and size that its files have"):
        refuse_other_values(model, tmp_path, "m")


def test_a_weight_that_is_one_number_is_compared(tmp_path: Path) -> None:
    model = tiny_model("llama")
    model.model.scale = torch.nn.Parameter(torch.tensor(0.0))
    folder = saved(model, tmp_path)
    refuse_other_values(model, folder, "m")
    with torch.no_grad():
        model.model.scale.fill_(1.0)
    with pytest.raises(ModelError, match=r"model\.scale of m was not loaded from"):
        refuse_other_values(model, folder, "m")
