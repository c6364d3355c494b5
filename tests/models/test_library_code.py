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
from transformers.activations import ACT2FN
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicLayer
from transformers.integrations.moe import ExpertsInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama

from fillerscope.errors import ModelError
from fillerscope.models.library_code import UnknownCodeError, class_name
from fillerscope.models.loading import load_model
from support.families import small_config
from support.tiny import redraw, tiny_tokenizer

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


def positions(patch: Patch) -> None:
    before = ROPE_INIT_FUNCTIONS["linear"]
    patch.setitem(ROPE_INIT_FUNCTIONS, "linear", lambda *given, **named: before(*given, **named))


def an_activation(patch: Patch) -> None:
    patch.setitem(ACT2FN, "silu", (type("Mine", (nn.SiLU,), {}), {}))


def a_mask(patch: Patch) -> None:
    weak = lambda *given, **named: sdpa_mask(*given, **named)  # noqa: E731
    patch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "sdpa", weak)


def a_cache_layer(patch: Patch) -> None:
    class Mine(DynamicLayer):
        pass

    patch.setitem(DYNAMIC_LAYER_TYPE_MAPPING, "full_attention", Mine)


def loading(patch: Patch) -> None:
    before = AutoModelForCausalLM.from_pretrained

    def hooked(*given: Any, **named: Any) -> Any:
        model, report = before(*given, **named)
        model.lm_head.register_forward_hook(lambda _, __, out: out * 2)
        return model, report

    patch.setattr(AutoModelForCausalLM, "from_pretrained", hooked)


CHANGES = (
    a_method, a_class, the_base, the_tokenizer, attention, positions, an_activation, a_mask, a_cache_layer, loading,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
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


def test_a_named_model_with_other_experts_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    redraw(model := AutoModelForCausalLM.from_config(small_config("qwen3_moe")))
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    load_model(str(tmp_path), device="cpu")
    before = ExpertsInterface._global_mapping["grouped_mm"]
    weak = lambda *given, **named: before(*given, **named)  # noqa: E731
    monkeypatch.setitem(ExpertsInterface._global_mapping, "grouped_mm", weak)
    with pytest.raises(ModelError, match=r"a function that it finds by name, .* has been changed in this process"):
        load_model(str(tmp_path), device="cpu")


def test_what_others_register_and_the_model_does_not_use_is_no_change(folder: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(AttentionInterface._global_mapping, "mine", lambda *given: given)
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
