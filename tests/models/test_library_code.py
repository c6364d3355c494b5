"""A model that is known by its files is measured only where its classes are those of the libraries."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers
from torch import nn
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedTokenizerBase
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama import modeling_llama

from fillerscope.errors import ModelError
from fillerscope.models.library_code import UnknownCodeError, class_name
from fillerscope.models.loading import load_model

Patch = pytest.MonkeyPatch


def a_method(patch: Patch) -> None:
    before = modeling_llama.LlamaMLP.forward
    patch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: before(self, x) * 3)


def a_class(patch: Patch) -> None:
    class LlamaMLP(modeling_llama.LlamaMLP):
        pass

    patch.setattr(modeling_llama, "LlamaMLP", LlamaMLP)


def the_base(patch: Patch) -> None:
    before = nn.Module.__call__
    patch.setattr(nn.Module, "__call__", lambda self, *given, **named: before(self, *given, **named))


def the_tokenizer(patch: Patch) -> None:
    before = PreTrainedTokenizerBase.__call__
    patch.setattr(PreTrainedTokenizerBase, "__call__", lambda *given, **named: before(*given, **named))


def attention(patch: Patch) -> None:
    weak = lambda *given, **named: sdpa_attention_forward(*given, **named)  # noqa: E731
    patch.setitem(AttentionInterface._global_mapping, "sdpa", weak)


def loading(patch: Patch) -> None:
    before = AutoModelForCausalLM.from_pretrained

    def hooked(*given: Any, **named: Any) -> Any:
        model, report = before(*given, **named)
        model.lm_head.register_forward_hook(lambda _, __, out: out * 2)
        return model, report

    patch.setattr(AutoModelForCausalLM, "from_pretrained", hooked)


@pytest.mark.parametrize("change", [a_method, a_class, the_base, the_tokenizer, attention, loading])
def test_a_named_model_is_refused_where_code_was_changed(
    change: Callable[[Patch], None], folder: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        change(patch)
        with pytest.raises(ModelError, match="has been changed in this process"):
            load_model(str(folder), device="cpu")
    load_model(str(folder), device="cpu")


def test_a_named_model_is_refused_under_hooks_for_all_modules(folder: Path) -> None:
    hook = nn.modules.module.register_module_forward_hook(lambda _, __, out: out)
    try:
        with pytest.raises(ModelError, match="has been changed in this process"):
            load_model(str(folder), device="cpu")
    finally:
        hook.remove()
    load_model(str(folder), device="cpu")


def modelings() -> Iterator[str]:
    for family in pkgutil.iter_modules(transformers.models.__path__):
        if family.name in ("auto", "deprecated"):
            continue
        package = importlib.import_module(f"transformers.models.{family.name}")
        yield from (
            f"{package.__name__}.{one.name}"
            for one in pkgutil.iter_modules(package.__path__)
            if one.name.startswith(("modeling_", "tokenization_"))
        )


@pytest.mark.slow
def test_all_classes_of_the_library_are_its_own() -> None:
    wrong = []
    for name in modelings():
        try:
            module = importlib.import_module(name)
        except (ImportError, RuntimeError, NameError):  # it wants a library that is not here
            continue
        for kind in vars(module).values():
            if (
                inspect.isclass(kind)
                and issubclass(kind, nn.Module | PreTrainedTokenizerBase)
                and kind.__module__ == name
            ):
                try:
                    class_name(kind)
                except UnknownCodeError:
                    wrong.append(f"{name}.{kind.__name__}")
    assert not wrong
