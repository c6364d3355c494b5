"""Models whose weights are rounded to 8 or 4 bits: measured as the stock model with the same rounding is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

from fillerscope import api
from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import record
from fillerscope.errors import ModelError, StudyError
from fillerscope.models import quantised
from fillerscope.models.loading import choose_dtype, load_model
from fillerscope.models.quantised import LIBRARIES, is_quantised
from fillerscope.models.structure import layer_count
from fillerscope.study.study import ALL_GPUS, Study
from support.stock import stored
from support.tiny import tiny_model, tiny_tokenizer

IDS = tuple(range(40, 75))
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
DTYPES = [pytest.param("int8", marks=needs_torchao), "nf4"]


def config_of(dtype: str) -> Any:
    if dtype == "nf4":
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    from torchao.quantization import Int8WeightOnlyConfig

    return TorchAoConfig(Int8WeightOnlyConfig())


@pytest.fixture(params=["llama", "gemma2"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tiny_model(request.param).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def received(model: Any) -> np.ndarray:
    """[group, layer, head, position]."""
    with capturing(model):
        return record(model, [IDS], [np.ones(len(IDS), np.bool_)])[0].received


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_is_that_of_the_stock_model_with_the_same_rounding(folder: Path, dtype: str) -> None:
    stock = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=config_of(dtype), dtype=torch.float32, device_map={"": "cpu"}
    ).eval()
    quantised.use_plain_kernels(stock)
    weights = stored(stock, IDS).weights  # [layer, head, row, key]
    expected = weights.sum(2) - np.diagonal(weights, axis1=2, axis2=3)
    ours = load_model(str(folder), dtype, "cpu")
    assert is_quantised(ours.model)
    assert ours.dtype == dtype
    np.testing.assert_allclose(received(ours.model)[0], expected, atol=1e-4)
    plain = load_model(str(folder), "float32", "cpu")
    assert plain.digest == ours.digest, "the files are the same"
    assert np.abs(received(plain.model)[0] - expected).max() > 1e-2, "rounding must be seen"
    assert layer_count(ours.model) == layer_count(plain.model)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_study_in_few_bits_is_a_run_of_its_own(folder: Path, tmp_path: Path, dtype: str) -> None:
    study = {
        "name": "few-bits", "problems": {"limit": 2}, "conditions": ["none", "mless"], "device": "cpu",
        "generation": {"max_tokens": 4},
    }  # fmt: skip
    runs = {
        one: api.run({**study, "models": [{"name": str(folder), "dtype": one}]}, out=tmp_path / f"run-{one}")
        for one in ("float32", dtype)
    }
    identities = [run.store.manifest["identity"] for run in runs.values()]
    assert [identity["models"][0]["dtype"] for identity in identities] == ["float32", dtype]
    assert identities[1]["libraries"].keys() - identities[0]["libraries"].keys() == {LIBRARIES[dtype]}


def test_what_cannot_be_rounded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("mps", ALL_GPUS):
        with pytest.raises(ModelError, match="weights in nf4 are for one process on a CPU or one GPU"):
            choose_dtype("nf4", device)
    with pytest.raises(StudyError, match=r"references\.twin draws weights anew, not in nf4: choose another dtype"):
        Study.parse({"name": "twins", "models": [{"name": "m", "dtype": "nf4"}], "references": {"twin": 2}})
    monkeypatch.setattr(quantised, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"dtype nf4 wants bitsandbytes: pip install 'fillerscope\[quantised\]'"):
        choose_dtype("nf4", "cuda")


def test_weights_that_were_saved_in_few_bits_are_refused(folder: Path, tmp_path: Path) -> None:
    """bitsandbytes would read as many of their bytes as a config says, and some of them from the file while it runs."""
    saved = tmp_path / "saved"
    stock = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config_of("nf4"), device_map={"": "cpu"})
    stock.save_pretrained(saved)
    tiny_tokenizer().save_pretrained(saved)
    with pytest.raises(ModelError, match=r"were saved in few bits by bitsandbytes: choose the model .*`dtype: nf4`"):
        load_model(str(saved), "float32", "cpu")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("given", "method"), [({"quant_method": "awq"}, "awq"), ({"load_in_8bit": True}, "bitsandbytes")]
)
def test_other_methods_are_refused_wherever_a_config_says_so(given: dict[str, Any], method: str, nested: bool) -> None:
    config = tiny_model("gemma2").config
    quantised.refuse_saved_in_few_bits(config, "m")
    section = {"quantization_config": given}
    config.update({"text_config": section} if nested else section)
    with pytest.raises(ModelError, match=f"the weights of m were saved in few bits by {method}"):
        quantised.refuse_saved_in_few_bits(config, "m")


def test_what_transformers_unpacks_by_itself_is_not_refused() -> None:
    config = tiny_model("gpt_oss").config
    assert quantised.quantising(config, "float32", torch.float32, "cpu") == {}
    config.update({"quantization_config": {"quant_method": "mxfp4"}})
    quantised.refuse_saved_in_few_bits(config, "m")
    told: Any = quantised.quantising(config, "float32", torch.float32, "cpu")
    assert told["quantization_config"].dequantize, "where some packages are installed it would be left packed"


def test_weights_that_transformers_unpacks_are_loaded(tmp_path: Path) -> None:
    tiny_model("gpt_oss").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    (path := tmp_path / "config.json").write_text(
        json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}})
    )
    assert not is_quantised(load_model(str(tmp_path), "float32", "cpu").model)


def test_all_processors_compute_alike(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bitsandbytes has a kernel of its own for the processor, it packs and rounds weights anew."""
    plain = received(load_model(str(folder), "nf4", "cpu").model)
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    np.testing.assert_array_equal(received(load_model(str(folder), "nf4", "cpu").model), plain)


def test_no_code_of_the_hub_is_run_where_bitsandbytes_is_imported(tmp_path: Path) -> None:
    """It does so on some processors, with the package `kernels`."""
    (tmp_path / "kernels.py").write_text("def get_kernel(*_, **__):\n    print('fetched')\n")
    (tmp_path / "bitsandbytes.py").write_text(
        "try:\n    from kernels import get_kernel\n    get_kernel('one')\nexcept ImportError:\n    print('without')\n"
    )
    script = "{}from fillerscope.models.quantised import _import_bitsandbytes as go; go()"
    for first in ("", "import kernels; "):
        done = subprocess.run(
            [sys.executable, "-c", script.format(first)], capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert done.stdout.split() == ["without"]
