"""Models whose layers are in several places, against the same models in one.

With a GPU, layers are in main memory and copied to run, or run on GPU and CPU in turns: other devices, as two GPUs
would be. Without one, both are the CPU: weights are away between passes, and tensors pass through accelerate's hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from accelerate.hooks import attach_align_device_hook_on_blocks

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Request
from fillerscope.capture.memory import memory_beside_weights, pass_tokens
from fillerscope.errors import ModelError
from fillerscope.measure.identity import identify
from fillerscope.measure.reuse import holds
from fillerscope.models import loading
from fillerscope.models.loading import LoadedModel, choose_device, loaded_model
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.spread import is_spread, layer_devices, places_of, spread, staying
from fillerscope.models.structure import decoder_of, has_experts, layers_of
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution
from fillerscope.study.study import ALL_GPUS
from support.stock import measure, probed, scale_for
from support.tiny import tiny_model, tiny_tokenizer

CUDA = torch.cuda.is_available()
FIRST = torch.device("cuda:0" if CUDA else "cpu")
FAMILIES = ("llama", "gemma2", "gpt2", "gpt_oss", "gemma3")
CHANGES: dict[str, Any] = {
    "plain": None, "knockout": Knockout(kind="knockout", layers=(1, 3)),
    "arm": Redistribution(kind="arm", layers=(1, 3)), "gaussian": Redistribution(kind="gaussian", layers=(2,)),
}  # fmt: skip
CHANGED: tuple[Any, ...] = (
    "none", {"name": "mless", "kind": "repeat", "text": " /", "count": 6},
    {"name": "knockout", "intervention": {"kind": "knockout"}, "kind": "repeat", "text": " /", "count": 6},
    {"name": "arm", "intervention": {"kind": "arm", "layers": [1, 3]}},
)  # fmt: skip


def built(family: str) -> Any:
    """In float64, so that rounding moves nothing over a threshold; torch multiplies experts in float32 at most."""
    model = tiny_model(family).eval()
    return model if has_experts(model) else model.double()


def whole(family: str) -> LoadedModel:
    return loaded_model("tiny", "tiny", "0" * 64, built(family).to(FIRST), tiny_tokenizer())


def away(family: str) -> LoadedModel:
    """The last layers at least are somewhere else between passes."""
    model = built(family)
    layers = layers_of(decoder_of(model))
    if CUDA:
        layer = sum(parameter.nbytes for parameter in layers[0].parameters())
        size = sum(parameter.nbytes for parameter in model.parameters())
        model = spread(model, places_of(model, {0: size - layer, "cpu": 10 * size}, "tiny"))
        assert is_spread(model)
        assert staying(model, model.hf_device_map)
    else:
        for layer in layers[1:]:
            cpu_offload(layer, FIRST, preload_module_classes=[type(layer).__name__])
    assert {str(parameter.device) for parameter in layers[-1].parameters()} == {"meta"}
    assert layer_devices(model) == [FIRST] * len(layers)
    return loaded_model("tiny", "tiny", "0" * 64, model, tiny_tokenizer())


def in_turns(family: str) -> LoadedModel:
    """Layers run on the CPU and on the GPU in turns."""
    model = built(family)
    names = {module: name for name, module in model.named_modules()}
    layers = [names[layer] for layer in layers_of(decoder_of(model))]
    devices = {name: FIRST if number % 2 == 0 else torch.device("cpu") for number, name in enumerate(layers)}
    inside = tuple(f"{name}." for name in layers)
    others = [name for name, module in model.named_modules() if not any(True for _ in module.children())]
    devices |= dict.fromkeys((name for name in others if not name.startswith(inside)), FIRST)
    attach_align_device_hook_on_blocks(
        model, devices | {"": FIRST}, offload=dict.fromkeys(devices, False),
        skip_keys=sorted(model._skip_keys_device_placement or ()),
    )  # fmt: skip
    model.hf_device_map = dict(devices)
    assert layer_devices(model) == [devices[name] for name in layers]
    assert is_spread(model) == CUDA
    return loaded_model("tiny", "tiny", "0" * 64, model, tiny_tokenizer())


@pytest.mark.parametrize("placed", [away, in_turns])
@pytest.mark.parametrize("family", FAMILIES)
def test_measured_numbers_are_those_of_one_device(family: str, placed: Callable[[str], LoadedModel]) -> None:
    one = whole(family)
    if has_experts(one.model):  # no single nonlinearity
        study, scale = probed(conditions=CHANGED[:3], probes={"affine": True}), None
    else:
        study = probed(conditions=CHANGED)
        scale = scale_for(study, one)
    expected, found = (measure(study, model, scale=scale).arrays for model in (one, placed(family)))
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
        else:  # GPU and CPU round otherwise: a value may be counted in the next bin
            assert np.mean(found[name] != array) < (0.02 if CUDA else 1e-9), name


@pytest.mark.parametrize("placed", [away, in_turns])
@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_those_of_one_device(change: str, placed: Callable[[str], LoadedModel]) -> None:
    random = np.random.default_rng(3)
    prompts = [(*range(40, 51), *random.integers(3, 500, size=length).tolist()) for length in (21, 12, 1, 25, 18, 9)]
    asked = [
        Request(ids, seed, 11, CHANGES[change], key=7 * seed, filler=(2, 6), gap=(5, 3) if seed % 2 else (0, 0))
        for seed, ids in enumerate(prompts)
    ]
    expected, found = (
        [reply.ids for reply in LocalGenerator(model, 4).answer(asked, Decoding(max_tokens=12), lambda _: None)]
        for model in (whole("llama"), placed("llama"))
    )
    assert found == expected


def test_memory_for_passes_and_answers_is_that_of_the_device_with_the_least_for_a_layer() -> None:
    model = in_turns("llama").model
    assert pass_tokens(model, 1024) <= 1024
    beside = memory_beside_weights(whole("llama").model)
    assert 0 < memory_beside_weights(model) <= (3 * beside if CUDA else beside)


def test_layers_go_to_all_gpus_evenly_and_then_to_main_memory() -> None:
    model = tiny_model("llama", num_hidden_layers=8)
    layer, rest = (sum(one.nbytes for one in part.parameters()) for part in (model.model.layers[0], model.model.norm))
    rest += model.model.embed_tokens.weight.nbytes
    places = places_of(model, {0: rest + 3 * layer, 1: 3 * layer, "cpu": rest + 9 * layer}, "tiny")
    by_layer = [places[f"model.layers.{number}"] for number in range(8)]
    assert by_layer[0] == 0
    assert set(by_layer) == {0, 1, "cpu"}
    assert by_layer == sorted(by_layer, key=str), "in the order of layers"
    with pytest.raises(ModelError, match=r"tiny takes .*, which the GPUs and the main memory of this machine have no"):
        places_of(model, {0: rest + 3 * layer, "cpu": layer}, "tiny")


def test_all_gpus_are_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ModelError, match=r"device 'cuda:all' is not on this machine; choose auto, or one of: cpu"):
        choose_device(ALL_GPUS)


@pytest.mark.skipif(not CUDA, reason="needs a GPU")
def test_a_folder_is_loaded_onto_a_gpu_that_it_does_not_fit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    size = sum(parameter.nbytes for parameter in model.parameters())
    monkeypatch.setattr(loading, "room", lambda: {0: int(0.75 * size), "cpu": 10 * size})
    plain, over = (loading.load_model(str(tmp_path), "float32", device) for device in ("cuda", ALL_GPUS))
    assert is_spread(over.model)
    assert plain.digest == over.digest
    study = probed()
    expected, found = (measure(study, one, scale=scale_for(study, plain)).arrays for one in (plain, over))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_run_over_all_gpus_is_never_taken_for_one_of_a_single_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that kernels join on one GPU are rounded apart there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    folders: dict[str, Any] = {"tiny": ModelFolder(Path("tiny"), "tiny", "tiny", "0" * 64)}
    single, every = (identify(probed(device=device), [], folders) for device in ("cuda", ALL_GPUS))
    assert every == single | {"spread": True}
    assert not holds(single, every)
