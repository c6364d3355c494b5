"""Load a folder of safetensors as a LoadedModel, or say in one line why it cannot be loaded.

Never runs code that comes with a model and never unpickles. Where weights come from is resolve.py's
business.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import torch
from torch import Tensor, nn

from fillerscope.display import readable
from fillerscope.errors import ModelError
from fillerscope.models import quantised
from fillerscope.models.build_size import refuse_large_build
from fillerscope.models.checks import refuse_other_weights
from fillerscope.models.description import load_tokenizer, read_config, reason
from fillerscope.models.hashed_view import HashedView, hashed_view
from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.memory_digest import model_digest
from fillerscope.models.quiet import quiet_transformers
from fillerscope.models.replaced_code import refuse_replaced
from fillerscope.models.resolve import ModelFolder, resolve
from fillerscope.models.spread import places_of, room, spread, staying
from fillerscope.models.structure import attention_modules, decoder_of, head_count, layer_count, text_config
from fillerscope.models.tensor_parallel import loading_options, own_device, processes
from fillerscope.models.untrained import Sizes, untrained
from fillerscope.models.value_check import refuse_other_values
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.tokenizer import Tokenizer
from fillerscope.study.arguments import check_arguments
from fillerscope.study.study import ALL_GPUS

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

Made = TypeVar("Made")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be measured, with what a run must know about it."""

    name: str
    label: str
    digest: str
    model: PreTrainedModel
    tokenizer: Tokenizer
    dtype: str
    device: str
    layers: int
    heads: int
    mapped: HashedView | None = None  # of the files from which weights are still read while the model is used

    @property
    def decoder(self) -> nn.Module:
        return decoder_of(self.model)

    @property
    def has_chat_template(self) -> bool:
        return self.tokenizer.chat_template is not None

    @property
    def vocabulary(self) -> int:
        """Ids that the embedding takes, which may be more than the tokenizer names."""
        return int(text_config(self.model).vocab_size)


def load_model(
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    progress: Progress | None = None,
    accept_licence: bool = False,
) -> LoadedModel:
    """Find, fetch if need be, and load a model: a catalogue name, folder, GGUF file or hub id."""
    given = {"name": name, "dtype": dtype, "device": device, "progress": progress, "accept_licence": accept_licence}
    check_arguments(given, optional=("progress",))
    choose_dtype(dtype, choose_device(device))  # refuse before a long download
    return load_folder(resolve(name, progress or SILENT, accept_licence), dtype, device)


def load_folder(folder: ModelFolder, dtype: str = "auto", device: str = "auto") -> LoadedModel:
    """Load a folder of weights."""
    place = own_device(choose_device(device))
    if place == ALL_GPUS and processes() > 1:
        raise ModelError(f"processes that share a model have a GPU each: leave device {ALL_GPUS}, or torchrun, out")
    precision = choose_dtype(dtype, place)
    with quiet_transformers():
        read_config(folder)  # a tokenizer reads it too, and would be blamed for it
        tokenizer = load_tokenizer(folder)

        def placed(model: PreTrainedModel) -> tuple[PreTrainedModel, bool]:
            refuse_replaced(model, tokenizer, folder.name)
            if precision in quantised.LIBRARIES:  # it was put there when it was rounded
                quantised.use_plain_kernels(model)
                return model, _read_into_memory([one for one in _tensors(model) if not quantised.is_rounded(one)])
            return _placed(model, place, folder)

        if folder.untrained is None:
            model, mapped = _loaded_weights(folder, precision, place, placed)
        else:
            model, mapped = placed(_draw(folder, precision, "cpu" if place == ALL_GPUS else place))[0], None
    loaded = loaded_model(folder.name, folder.label, folder.digest, model, tokenizer)
    return replace(loaded, dtype=precision, mapped=mapped)


def wrap(model: nn.Module, tokenizer: Tokenizer, name: str | None = None) -> LoadedModel:
    """Return a model that is in memory already as a LoadedModel. It is put in eval mode, and its weights are hashed."""
    hide_hub_code()
    model.eval()
    called = name or type(model).__name__
    return loaded_model(called, called.rstrip("/").rpartition("/")[2], model_digest(model, tokenizer), model, tokenizer)


def choose_device(device: str) -> str:
    """Return the device that `auto` stands for; others are checked."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if device == ALL_GPUS and torch.cuda.is_available():
        return device
    counts = {"cpu": 1, "mps": int(torch.backends.mps.is_available()), "cuda": torch.cuda.device_count()}
    if not (index or "0").isdecimal() or len(index) > 9 or int(index or 0) >= counts.get(kind, 0):
        raise ModelError(f"device {device!r} is not on this machine; choose auto, or one of: {', '.join(_devices())}")
    return device


def choose_dtype(dtype: str, device: str) -> str:
    """Return the dtype that `auto` stands for: bfloat16 where it is fast, else float32; others are checked."""
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    if dtype in quantised.LIBRARIES:
        quantised.refuse_quantising(dtype, device)
    elif dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known; choose auto, {', '.join((*DTYPES, *quantised.LIBRARIES))}")
    return dtype


def computed_in(dtype: str, device: str) -> torch.dtype:
    """The dtype of what is computed with weights of a dtype: of those in few bits another."""
    return DTYPES[choose_dtype("auto", device) if dtype in quantised.LIBRARIES else dtype]


def _devices() -> list[str]:
    mps = ["mps"] if torch.backends.mps.is_available() else []
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *mps, *gpus, *([ALL_GPUS] if gpus else [])]


def _loaded_weights(
    folder: ModelFolder, dtype: str, device: str, use: Callable[[PreTrainedModel], tuple[Made, bool]]
) -> tuple[Made, HashedView | None]:
    """What is made of a model while its files cannot be exchanged; with the view of them where its weights stay in
    them, which `use` says."""
    config = read_config(folder)
    quantised.refuse_saved_in_few_bits(config, folder.name)
    loader = _loader_for(config, folder.name)
    computed = computed_in(dtype, device)
    more = {**loading_options(config, folder.name), **quantised.quantising(config, dtype, computed, device)}
    with hashed_view(folder) as view:
        stored = sum(path.stat().st_size for path in view.path.glob("*.safetensors"))
        refuse_large_build(loader.from_config, config, stored, folder.name)
        try:
            model, report = loader.from_pretrained(
                view.path,
                dtype=computed,
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are reported, and refused below
                **more,
            )
        except Exception as error:
            _refuse_unbuildable(config, folder)
            said = view.explain(reason(error))
            raise ModelError(f"the weights of {folder.name} cannot be loaded: {said}") from error
        for loaded in (model, model.config):
            view.rename(loaded)
        refuse_other_weights(report, folder.name)
        if processes() == 1:  # else each has a part of every weight
            refuse_other_values(model, view.path, folder.name)
        made, is_copied = use(model.eval().requires_grad_(False))
    return made, None if is_copied else view


def without_weights(folder: ModelFolder, dtype: str) -> PreTrainedModel:
    """A model as its config describes it, on no device: shapes without memory."""
    config = read_config(folder)
    _refuse_unbuildable(config, folder)
    with quiet_transformers(), torch.device("meta"):
        model: PreTrainedModel = _loader_for(config, folder.name).from_config(
            config, dtype=computed_in(dtype, "cpu"), trust_remote_code=False
        )
    return model


def _refuse_unbuildable(config: PretrainedConfig, folder: ModelFolder) -> None:
    """Blame the config where no model can be built of it, whatever the weights."""
    if sys.flags.optimize > 1:
        raise ModelError("transformers needs docstrings, which python -OO drops; unset PYTHONOPTIMIZE, or use -O")
    try:
        with torch.device("meta"):
            _loader_for(config, folder.name).from_config(config, trust_remote_code=False)
    except Exception as error:
        said = reason(error)
        keys = [key for key, value in config.to_dict().items() if isinstance(value, str) and f"'{value}'" in said]
        what = f"{keys[0]} is {said}, which is not known" if keys and isinstance(error, KeyError) else said
        raise ModelError(
            f"no model can be built of {folder.path / 'config.json'}: {what}; correct it, or download the file again"
        ) from error


def _placed(model: PreTrainedModel, device: str, folder: ModelFolder) -> tuple[PreTrainedModel, bool]:
    """A model where it is used, and whether its weights are in memory."""
    if device == ALL_GPUS:
        places = places_of(model, room(), folder.label)
        copied = _read_into_memory(staying(model, places), for_gpu=True)
        return spread(model, places), copied
    model = _to_device(model, device, folder.label)
    return model, _read_into_memory(_tensors(model))


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _read_into_memory(tensors: Sequence[Tensor], for_gpu: bool = False) -> bool:
    """Copy weights out of their file, which the system would go on reading while they are used; those that a GPU will
    ask for over and over into memory that it reads faster.

    Those that memory has no room for stay in it. Returns whether they were copied."""
    weights = [weight for weight in tensors if weight.device.type == "cpu"]
    if processes() > 1 or sum(weight.nbytes for weight in weights) > psutil.virtual_memory().available / 2:
        return not weights
    for weight in weights:
        weight.data = weight.data.pin_memory() if for_gpu else weight.data.clone()
    return True


def _draw(folder: ModelFolder, precision: str, device: str) -> PreTrainedModel:
    """A model with random weights, scaled to the size of the model's own."""
    config = read_config(folder)
    assert folder.untrained is not None
    own, _ = _loaded_weights(folder, precision, device, lambda model: (Sizes.of(model), True))
    make = partial(_loader_for(config, folder.name).from_config, trust_remote_code=False)
    drawn = untrained(make, config, DTYPES[precision], device, folder.untrained)
    return own.apply_to(drawn, folder.untrained)


def _loader_for(config: PretrainedConfig, name: str) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    )

    _refuse_others(config, name)
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    raise ModelError(f"{name} is of type {config.model_type}, {_WANTED}")


_WANTED = "not a decoder language model; choose one that generates text, such as smollm2-135m"


def _refuse_others(config: PretrainedConfig, name: str) -> None:
    """Refuse what was not saved as a decoder: transformers lists encoders among its causal models too."""
    saved = (config.architectures or [""])[0]
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} is made of an encoder and a decoder (type {config.model_type}), {_WANTED}")
    if saved and not saved.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        raise ModelError(f"{name} was saved as {saved}, {_WANTED}")


def _to_device(model: PreTrainedModel, device: str, label: str) -> PreTrainedModel:
    try:
        return model.to(device)
    except torch.cuda.OutOfMemoryError as error:
        size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        free, _ = torch.cuda.mem_get_info(torch.device(device))
        raise ModelError(
            f"{label} takes {readable(size)} on {device}, where {readable(free)} is free; "
            f"close other programs there, choose a smaller model or dtype, or device {ALL_GPUS} or cpu"
        ) from error


def loaded_model(name: str, label: str, digest: str, model: PreTrainedModel, tokenizer: Tokenizer) -> LoadedModel:
    """A model as a LoadedModel; an error where it is no causal decoder."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(f"{label} is made of an encoder and a decoder (type {model.config.model_type}), {_WANTED}")
    attention_modules(decoder_of(model))  # refuses, by layer, what is not a causal decoder
    first = next(model.parameters())
    dtype = str(first.dtype).removeprefix("torch.")
    return LoadedModel(
        name, label, digest, model, tokenizer, dtype, str(first.device), layer_count(model), head_count(model)
    )
