"""Measuring must not cost much more memory than running: no matrix of tokens x tokens is ever held."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from fillerscope.capture.attention import capturing
from fillerscope.capture.memory import kv_bytes_a_token, memory_beside_weights, stays
from fillerscope.capture.passes import record
from fillerscope.measure.planning.model_size import ModelSize
from support.families import small_model
from support.tiny import tiny_model

TOKENS, LAYERS = 4096, 3
SCRIPT = """
import json, resource, sys
from pathlib import Path
import numpy as np, torch
from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import record
from fillerscope.models.loading import load_model
from fillerscope.models.structure import decoder_of

def peak():
    scale = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

kind, tokens, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loaded = load_model("smollm2-135m", dtype="float32", device="cpu")
for parameter in loaded.model.parameters():
    parameter.sum()  # a file of weights is in memory only as far as it was read
decoder = decoder_of(loaded.model)
whole = decoder.layers
decoder.layers, decoder.config.num_hidden_layers = whole[:layers], layers
ids = np.random.default_rng(0).integers(0, loaded.vocabulary, size=tokens).tolist()
loading = peak()
if Path("/proc/self/clear_refs").exists():
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading, which is above what is kept
baseline = peak()
if kind == "plain":
    loaded.model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        decoder(input_ids=torch.tensor([ids]), use_cache=False)
else:
    with capturing(loaded.model):
        record(loaded.model, [ids], [np.ones(tokens, dtype=bool)])
print(json.dumps({"loading": loading, "baseline": baseline, "peak": peak()}))
"""


def memory(kind: str) -> dict[str, int]:
    """What a process of its own needed at most, in MiB. Its parent is a shell: what the parent of a process
    held is counted as its own, and the process of the tests may hold much."""
    command = [sys.executable, "-c", SCRIPT, kind, str(TOKENS), str(LAYERS)]
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", *command], capture_output=True, text=True, check=True, timeout=600
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: int(size) >> 20 for name, size in found.items()}


class Largest(TorchDispatchMode):
    """How many elements the largest tensor has that is made inside."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        result = function(*given, **(named or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.untyped_storage().nbytes() // one.element_size())
        return result


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_no_tensor_is_as_large_as_a_matrix_of_all_pairs_of_tokens(family: str) -> None:
    tokens, heads = 1024, 4
    ids = np.random.default_rng(0).integers(3, 500, size=tokens).tolist()
    with capturing(model := tiny_model(family)), Largest() as largest:
        record(model, [ids], [np.ones(tokens, dtype=bool)])
    assert tokens * 64 <= largest.elements < heads * tokens * tokens / 4


@pytest.mark.slow
@pytest.mark.weights
def test_a_long_prompt_takes_little_more_memory_than_running_it() -> None:
    """Three layers run, for the sake of time; the memory of one is free again before the next."""
    plain, capture = memory("plain"), memory("capture")
    figures = f"in MiB: plain {plain}, capture {capture}"
    print(figures)
    assert plain["peak"] > plain["baseline"], f"the peak of loading hides that of running; {figures}"
    assert capture["peak"] <= 1.3 * plain["peak"], figures
    whole_matrices = (9 * TOKENS * TOKENS * 4) >> 20  # one a head, of one layer
    assert capture["peak"] - capture["baseline"] < whole_matrices / 2, figures


@pytest.mark.parametrize(("mebibytes", "is_so"), [(768, True), (769, False)])
def test_sums_stay_on_a_gpu_up_to_a_share_of_its_memory(
    mebibytes: int, is_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of a study with four conditions are larger than 256 MiB: on the host a shard took seconds."""
    card = SimpleNamespace(total_memory=24 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert stays(mebibytes << 20, torch.device("cuda")) is is_so
    assert stays(mebibytes << 20, torch.device("cpu"))


def test_memory_beside_weights_does_not_depend_on_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    weights = sum(parameter.nbytes for parameter in model.parameters())
    for free in (10, 10**9):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: SimpleNamespace(total=10**10, available=free))
        assert memory_beside_weights(model) == 10**10 - weights
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=10, available=10))
    assert memory_beside_weights(model) == 0


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
def test_keys_and_values_of_a_token_take_what_a_cache_takes(family: str) -> None:
    model, cache = tiny_model(family), DynamicCache()
    with torch.inference_mode():
        model(input_ids=torch.arange(5, 9)[None], past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert kv_bytes_a_token(model) * 4 == held


def test_layers_that_differ_are_counted_one_by_one() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    model = small_model("gemma4_text", num_kv_shared_layers=2, layer_types=kinds)
    cache = DynamicCache()
    with torch.inference_mode():
        model(input_ids=torch.arange(5, 9)[None], past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers if layer.is_initialized)
    assert held <= kv_bytes_a_token(model) * 4 <= 2 * held
    assert ModelSize.of(model).head_dim > 0
