"""The digest of a model in memory, one sha256, which goes into the id of a run.

Two models have one digest only if they compute the same: what cannot be hashed, such as code that is not of torch or
transformers or a tokenizer that is not of the library tokenizers, gives a model a new digest each time. Functions of
these libraries that somebody replaced in their modules are not noticed.
"""

from __future__ import annotations

import enum
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType

import tokenizers
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.models.digests import CHUNK, digest_of_pairs
from fillerscope.models.hub_code import EXPERTS
from fillerscope.models.library_code import (
    UnknownCodeError,
    class_name,
    configs,
    function_name,
    refuse_global_hooks,
    refuse_own,
)
from fillerscope.models.named_code import experts_of, named_entries
from fillerscope.models.structure import is_changed_by_code
from fillerscope.prompts.tokenizer import Tokenizer

SIMPLE = bool | int | float | str | None
# What every module has: tensors and modules are hashed by themselves, hooks are asked for, and training ends in eval.
INTERNAL = frozenset(vars(nn.Module())) | {"_is_hf_initialized", "_hf_hook"}
PLACES = ("name_or_path", "_name_or_path", "transformers_version")  # where it came from; a run has versions of its own
TENSORS = (Tensor, nn.Parameter, nn.Buffer)
BACKEND = "_tokenizer"  # where a tokenizer keeps that of the library tokenizers
HISTORY = ("init_inputs", "init_kwargs", "files_loaded", "deprecation_warnings")  # of a tokenizer; nothing reads them


def model_digest(model: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """The digest of a model, from its classes, config, settings, weights, buffers and tokenizer."""

    def hashed() -> Iterable[tuple[str, str]]:
        yield "config", _sha256(_config_record(model))
        yield "code", _code_sha256(model, tokenizer)
        # A state dict leaves out buffers that are not saved, such as the frequencies of rotary positions, and hooks may
        # change what it says of weights.
        named = (model.named_buffers, model.named_parameters)
        tensors = model.state_dict() | {name: one for each in named for name, one in each(remove_duplicate=False)}
        for name, tensor in sorted(tensors.items()):
            if not isinstance(tensor, Tensor):
                advice = "give the model as it was before quantize_dynamic or the like"
                raise ModelError(f"{name} of the model is {type(tensor).__name__}, no tensor; {advice}")
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}", _tensor_sha256(tensor.detach())

    return digest_of_pairs(hashed())


def _config_record(model: PreTrainedModel) -> list[object]:
    """What a model is beside its tensors: its class, its config, and the tokens that end its answers."""
    generation = getattr(model, "generation_config", None)
    told = generation and _json_of(generation)
    return [type(model).__name__, _json_of(model.config), told, experts_of(model)]


def _json_of(config: PretrainedConfig | GenerationConfig) -> Json:
    try:
        record: Json = json.loads(config.to_json_string())
    except TypeError:
        odd = [key for key, value in vars(config).items() if isinstance(value, Tensor)]
        raise ModelError(
            f"{', '.join(odd) or 'a value'} of {type(config).__name__} cannot be written as JSON; give plain numbers "
            "and texts, such as tensor.tolist()"
        ) from None
    return {key: value for key, value in record.items() if key not in PLACES}


def _code_sha256(model: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """The digest of the classes of tokenizer and modules with their settings: a scale or a list of heads is no tensor,
    and changes numbers. A new one each time where something cannot be hashed."""
    try:
        if is_changed_by_code(model) or not set(experts_of(model)) <= {None, *EXPERTS}:
            raise UnknownCodeError
        refuse_global_hooks()
        if any(type(tensor) not in TENSORS for tensor in (*model.parameters(), *model.buffers())):
            raise UnknownCodeError  # of a class of somebody's own, which computes otherwise
        settings = _Settings(model)
        named = named_entries(model)
        return _sha256([*settings.of_tokenizer(tokenizer), *settings.of_modules(model), *named])
    except UnknownCodeError:
        return secrets.token_hex(32)


class _Settings:
    """The settings of a model's modules, as JSON takes them."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._own_configs = set(map(id, configs(model.config)))  # hashed as one

    def of_modules(self, module: nn.Module) -> list[object]:
        """Of a module and all in it, each at every place that it has."""
        inner = module.named_modules(remove_duplicate=False)
        return [(name, class_name(type(one)), self._of_one(one)) for name, one in inner]

    def _of_one(self, module: nn.Module) -> list[object]:
        return [(key, self._of(module, value)) for key, value in sorted(vars(module).items()) if key not in INTERNAL]

    def of_tokenizer(self, tokenizer: Tokenizer) -> list[object]:
        """Its class, what the library tokenizers says of it, and all else that it has. One that is not of that library
        has merges and models of its own kinds, which cannot be hashed."""
        backend = vars(tokenizer).get(BACKEND)
        if type(backend) is not tokenizers.Tokenizer:
            raise UnknownCodeError
        try:
            described: Json = json.loads(backend.to_str())
        except Exception:  # a part of it is code
            raise UnknownCodeError from None
        # Left behind by the last call, and set again by every other one.
        kept = {key: value for key, value in described.items() if key not in ("padding", "truncation")}
        others = {key: value for key, value in vars(tokenizer).items() if key not in (BACKEND, *HISTORY, *PLACES)}
        return [class_name(type(tokenizer)), kept, backend.encode_special_tokens, self._value(others)]

    def _of(self, module: nn.Module, value: object) -> object:
        if isinstance(value, MethodType) and value.__self__ is module:  # whose class and settings are hashed
            refuse_own([value.__func__])
            return value.__func__.__qualname__
        return self._value(value)

    def _value(self, value: object) -> object:
        if isinstance(value, SIMPLE):
            return repr(value)
        if isinstance(value, Tensor):
            return [str(value.dtype), list(value.shape), _tensor_sha256(value.detach())]
        if isinstance(value, Mapping):
            return ["mapping", *sorted(([repr(key), self._value(one)] for key, one in value.items()), key=str)]
        if isinstance(value, AbstractSet):
            return ["set", *sorted((self._value(one) for one in value), key=str)]
        if isinstance(value, Sequence):
            return ["sequence", *(self._value(one) for one in value)]
        return self._object(value)

    def _object(self, value: object) -> object:
        if isinstance(value, PretrainedConfig | GenerationConfig):
            return type(value).__name__ if id(value) in self._own_configs else self._other_config(value)
        if isinstance(value, tokenizers.AddedToken):
            return repr(value)
        if isinstance(value, torch.dtype | torch.device | torch.layout | enum.Enum):
            return "" if isinstance(value, torch.device) else repr(value)
        if isinstance(value, partial):
            return ["partial", self._object(value.func), self._value(value.args), self._value(value.keywords)]
        if isinstance(value, MethodType) and isinstance(value.__self__, type):
            refuse_own([value.__func__])
            return [value.__func__.__name__, class_name(value.__self__)]
        if isinstance(value, FunctionType | BuiltinFunctionType):
            return function_name(value)
        if isinstance(value, type):
            return class_name(value)
        if isinstance(value, nn.Module):  # in a list, or kept from the model's own modules
            return [self.of_modules(value), *(self._value(one) for one in value.state_dict().values())]
        raise UnknownCodeError

    def _other_config(self, config: PretrainedConfig | GenerationConfig) -> object:
        """A config that is not of the model as a whole: a layer may have one of its own."""
        return [type(config).__name__, _json_of(config), getattr(config, "_attn_implementation", None)]


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _tensor_sha256(tensor: Tensor) -> str:
    """The sha256 of a tensor's bytes, which leave their device a piece at a time. A view that torch negates or
    conjugates when it reads it has the bytes of its numbers."""
    hasher, values = hashlib.sha256(), tensor.resolve_conj().resolve_neg().reshape(-1)
    for start in range(0, values.numel(), CHUNK):
        hasher.update(values[start : start + CHUNK].cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()
