"""A model that the caller holds in memory, measured as it is: its device, its dtype, its weights.

Nothing is loaded or moved. What a digest of its tensors could not describe is refused: adapters, several devices.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from fillerscope.errors import ModelError, PromptError, StudyError
from fillerscope.models.borrowing import borrowed
from fillerscope.models.description import load_tokenizer, stated_context
from fillerscope.models.hashed_view import refuse_changed
from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.loading import DTYPES, LoadedModel, load_folder, loaded_model
from fillerscope.models.memory_digest import model_digest
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.structure import context_length, kind_of, refuse_other, vocabulary_of
from fillerscope.models.tokenizer_checks import refuse_chance
from fillerscope.models.untrained import Sizes, untrained
from fillerscope.prompts.tokenizer import Tokenizer, encode, refuse_beyond
from fillerscope.study.arguments import shown

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class ModelInMemory:
    """A model with its tokenizer, and the digest that says exactly which. `of` checks and makes one."""

    model: PreTrainedModel
    tokenizer: Tokenizer
    name: str  # as the run says it
    label: str  # as figures say it
    digest: str
    untrained: int | None = None  # where weights are not to be used but drawn anew: the seed

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Tokenizer | None, name: str | None = None) -> ModelInMemory:
        """A model that can be measured; an error that says why where it cannot."""
        hide_hub_code()
        checked = _checked(model)
        called = name or _own_name(checked)
        if tokenizer is None or isinstance(tokenizer, str) or not callable(getattr(tokenizer, "encode", None)):
            raise ModelError(f"{called} needs its tokenizer, as AutoTokenizer gives one, not {tokenizer!r:.60}")
        refuse_chance(tokenizer, called)
        digest = model_digest(checked, tokenizer)
        loaded = loaded_model(called, called.rstrip("/").rpartition("/")[2], digest, checked, tokenizer)
        return cls(checked, tokenizer, called, loaded.label, digest)

    def twin(self, name: str, seed: int) -> ModelInMemory:
        """The same configuration and tokenizer with weights drawn from a seed."""
        label, digest = f"{self.label}, untrained twin {seed}", f"{self.digest} untrained {seed}"
        return replace(self, name=name, label=label, digest=digest, untrained=seed)

    @property
    def dtype(self) -> str:
        return str(_first_weight(self.model).dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        place = _first_weight(self.model).device
        return str(place) if place.type == "cuda" else place.type

    def load(self, dtype: str) -> LoadedModel:
        """The model itself, a copy of it where another dtype is wanted, or its untrained twin."""
        model = self.model
        if self.untrained is not None:
            model = _drawn(model, self.untrained)
        elif DTYPES[dtype] != _first_weight(model).dtype:
            model = _converted(copy.deepcopy(model), DTYPES[dtype])
        return loaded_model(self.name, self.label, self.digest, model, self.tokenizer)


@contextmanager
def ready(model: object, tokenizer: Tokenizer | None, needs_logits: bool) -> Iterator[LoadedModel]:
    """A model that the caller holds, wrapped by `load_model` or bare with its tokenizer, in eval mode for a while."""
    if not isinstance(model, LoadedModel):
        source = ModelInMemory.of(cast(nn.Module, model), tokenizer)
        model = source.load(source.dtype)
    elif tokenizer is not None:
        raise ModelError(f"{model.label} comes from load_model with its tokenizer: leave tokenizer= out")
    if needs_logits:
        refuse_without_logits(model.model, "a question", "ask with raw=True")
    with borrowed(model.model):
        yield model


def refuse_without_logits(model: PreTrainedModel, who: str, otherwise: str) -> None:
    """Raise where answers are asked for and the model cannot write any."""
    if model.get_output_embeddings() is None:
        raise StudyError(
            f"{who} asks for answers, and {_own_name(model)} has no layer that makes logits: load it with "
            f"AutoModelForCausalLM, or {otherwise}"
        )


def encoded(texts: str | Sequence[str], tokenizer: Tokenizer, model: nn.Module) -> list[list[int]]:
    """The token ids of each text; an error where one is too short or too long to be measured."""
    _refuse_mixed_up(model, tokenizer)
    _refuse_unloaded(model)
    _refuse_dtype(model)
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping) or _is_one_value(texts):
        raise PromptError(f"texts are a list of strings, not {shown(texts)}")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise PromptError(f"texts are strings, and one of them is {type(text).__name__}")
    ids = [encode(tokenizer, text, add_special_tokens=True) for text in texts]
    refuse_beyond(ids, vocabulary_of(model))
    if not ids or min(len(tokens) for tokens in ids) < 2:
        raise PromptError("give at least one text, each of two tokens or more: a single token receives nothing")
    longest = max(len(tokens) for tokens in ids)
    context = context_length(model)
    if context is not None and longest > context:
        raise PromptError(f"a text has {longest} tokens, and the model takes {context}; shorten it")
    return ids


def _is_one_value(texts: object) -> bool:
    """Whether it is an array without a dimension, which Python takes for a list and cannot go through."""
    return getattr(texts, "shape", None) == ()


def _refuse_mixed_up(model: object, tokenizer: object) -> None:
    """Raise where something else stands in the place of a model or of its tokenizer."""
    refuse_other(model)
    if isinstance(tokenizer, str) or not callable(getattr(tokenizer, "encode", None)):
        shown = f"{tokenizer!r:.60}"
        raise ModelError(f"after the model comes its tokenizer, as AutoTokenizer gives one, not {shown}")


ModelSource = ModelFolder | ModelInMemory
DEVICES = ("cpu", "cuda", "mps")


def load_source(source: ModelSource, dtype: str, device: str) -> LoadedModel:
    """A model from its folder, or from memory, where it stays on its device."""
    return load_folder(source, dtype, device) if isinstance(source, ModelFolder) else source.load(dtype)


def tokenizer_of(source: ModelSource) -> Tokenizer:
    if not isinstance(source, ModelFolder):
        return source.tokenizer
    tokenizer = load_tokenizer(source)
    refuse_changed(source)
    return tokenizer


def context_of(source: ModelSource) -> int | None:
    """How many tokens the model takes, as its config says."""
    return stated_context(source) if isinstance(source, ModelFolder) else context_length(source.model)


def _checked(model: nn.Module) -> PreTrainedModel:
    from transformers import PreTrainedModel

    if any(type(module).__module__.partition(".")[0] == "peft" for module in _modules(model)):
        raise ModelError(
            "the model has PEFT adapters, whose settings its weights do not show: give what model.merge_and_unload() "
            "returns, of a copy where you train on"
        )
    if not isinstance(model, PreTrainedModel):
        raise ModelError(f"model is a transformers model, as AutoModelForCausalLM gives one, not {kind_of(model)}")
    _refuse_unloaded(model)
    _refuse_scattered(model)
    _refuse_dtype(model)
    return model


def _modules(model: object) -> Iterator[nn.Module]:
    return model.modules() if isinstance(model, nn.Module) else iter(())


def _refuse_dtype(model: nn.Module) -> None:
    dtype = str(_first_weight(model).dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ModelError(f"the model is in {dtype}; convert it to one of {', '.join(DTYPES)}, such as model.float()")


def _refuse_unloaded(model: nn.Module) -> None:
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ModelError("some weights of the model are on no device (offloaded, or never loaded): load it whole")


def _refuse_scattered(model: PreTrainedModel) -> None:
    devices = sorted({str(tensor.device) for tensor in (*model.parameters(), *model.buffers())})
    if len(devices) != 1:
        raise ModelError(
            f"the model is spread over {', '.join(devices)}; load it onto one, such as device_map='cuda:0'"
        )
    if (kind := devices[0].partition(":")[0]) not in DEVICES:
        raise ModelError(f"the model is on {kind}; move it to one of {', '.join(DEVICES)}, such as model.to('cpu')")


def _first_weight(model: nn.Module) -> torch.Tensor:
    """The first parameter with real numbers: quantised weights are integers."""
    weights = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    if not weights:
        raise ModelError("the model has no weights in floating point; load it without quantisation")
    return weights[0]


def _own_name(model: PreTrainedModel) -> str:
    """The hub id that it was loaded from, or the last part of its folder, or its class."""
    given = str(getattr(model.config, "_name_or_path", "") or "").rstrip("/")
    return (Path(given).name if Path(given).is_dir() else given) or type(model).__name__


def _converted(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A model with its weights in another dtype. Buffers stay: rounded frequencies would be another model's."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    return model


def _drawn(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """An untrained twin of a model in memory, on its device and in its dtype."""
    if getattr(model.config, "quantization_config", None) is not None:
        raise ModelError("an untrained twin of a quantised model cannot be drawn: leave references.twin out")
    first = _first_weight(model)
    drawn = untrained(type(model)._from_config, copy.deepcopy(model.config), first.dtype, str(first.device), seed)
    return Sizes.of(model).apply_to(drawn, seed)
