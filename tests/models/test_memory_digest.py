"""The digest of a model in memory: whatever changes its numbers changes it, and what does not leaves it."""

from __future__ import annotations

import copy
import functools
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AutoModelForCausalLM, CTRLTokenizer
from transformers.integrations.moe import ExpertsInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from fillerscope.models.memory_digest import model_digest
from support.families import small_config
from support.tiny import FAMILIES, tiny_model, tiny_tokenizer

Undo = Callable[[], object]
TOKENIZER = tiny_tokenizer()
TEXT = "What is 2 + 3? <|im_end|>"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_a_library_has_one_digest(family: str) -> None:
    assert model_digest(tiny_model(family), TOKENIZER) == model_digest(tiny_model(family), TOKENIZER)


def _replaced(model: Any, make: Callable[[Any], Any]) -> Undo:
    """Put something in the place of a method of a class."""
    kind = type(model.model.layers[0].mlp)
    before = kind.forward
    kind.forward = make(before)
    return lambda: setattr(kind, "forward", before)


def _wrapped(before: Any) -> Any:
    @functools.wraps(before)
    def forward(self: Any, *given: Any) -> Any:
        return before(self, *given) * 3

    return forward


class Descriptor:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, owner: object, _: type | None = None) -> Any:
        return functools.partial(self.function, owner)


def _global_hook(_: Any) -> Undo:
    def doubled(module: nn.Module, _: object, out: Any) -> Any:
        return out * 2 if isinstance(module, nn.Linear) else None

    return nn.modules.module.register_module_forward_hook(doubled).remove


def _own_attention(model: Any) -> None:
    def weak(*given: Any, **named: Any) -> Any:
        out, weights = sdpa_attention_forward(*given, **named)
        return out * 0.1, weights

    AttentionInterface.register("weak", weak)
    model.set_attn_implementation("weak")


def _own_config(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.config = copy.deepcopy(model.config)
        layer.mlp.config.hidden_act = "relu"


def _own_method(model: Any) -> None:
    norm = model.model.layers[0].input_layernorm
    norm.extra_repr = types.MethodType(lambda _: "mine", norm)


def _lying_state(model: Any) -> None:
    layer = model.model.layers[0].mlp.down_proj
    layer.weight.data *= 2
    layer._register_state_dict_hook(lambda _, state, prefix, __: state.update({f"{prefix}weight": layer.weight / 2}))


class Scaled(torch.Tensor):
    """A weight that computes otherwise than its numbers say."""


def _own_tensor(model: Any) -> None:
    layer = model.model.layers[0].mlp.down_proj
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Scaled))


class Returning:
    """A class that stands for a method."""

    def __new__(cls, *_: Any) -> Any:
        return torch.zeros(1)


def _other_code(model: Any) -> Undo:
    function = type(model.model.layers[0].mlp).forward
    before = function.__code__
    function.__code__ = (lambda self, x: self.down_proj(x)).__code__
    return lambda: setattr(function, "__code__", before)


CHANGES: dict[str, Callable[[Any], Undo | None]] = {
    "wrapped": lambda model: _replaced(model, _wrapped),
    "without gradients": lambda model: _replaced(model, lambda one: torch.no_grad()(lambda *given: one(*given) * 3)),
    "descriptor": lambda model: _replaced(model, lambda one: Descriptor(lambda *given: one(*given) * 3)),
    "partial": lambda model: _replaced(model, lambda one: functools.partialmethod(lambda *given: one(*given) * 3)),
    "class": lambda model: _replaced(model, lambda _: Returning),
    "code": _other_code,
    "tensor": _own_tensor,
    "global hook": _global_hook,
    "attention": _own_attention,
    "config of a layer": _own_config,
    "method of a module": _own_method,
    "hook of the state": _lying_state,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_has_another_digest(change: str) -> None:
    before = model_digest(tiny_model("llama"), TOKENIZER)
    model = tiny_model("llama")
    undo = CHANGES[change](model)
    try:
        assert model_digest(model, TOKENIZER) != before
    finally:
        if undo is not None:
            undo()
    assert model_digest(tiny_model("llama"), TOKENIZER) == before


def test_ways_to_compute_experts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JSON of a config says which it is."""
    model = AutoModelForCausalLM.from_config(small_config("qwen3_moe"))
    digests = []
    for way in ("grouped_mm", "batched_mm", "eager", "grouped_mm"):
        model.set_experts_implementation(way)
        digests.append(model_digest(model, TOKENIZER))
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]
    known = ExpertsInterface._global_mapping
    monkeypatch.setitem(known, "grouped_mm", known["batched_mm"])
    other = model_digest(model, TOKENIZER)
    assert other not in digests
    assert other == model_digest(model, TOKENIZER)


@pytest.mark.parametrize("way", ["mine", "sonicmoe"])
def test_experts_of_somebody_or_of_the_hub_give_a_new_digest_each_time(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ExpertsInterface._global_mapping, "mine", lambda *given: given)
    model = AutoModelForCausalLM.from_config(small_config("qwen3_moe"))
    model.set_experts_implementation(way)
    assert model_digest(model, TOKENIZER) != model_digest(model, TOKENIZER)


def test_modules_are_told_apart_by_all_of_their_places() -> None:
    """An ablation may give some layers the one of two modules, and others the other."""
    digests = set()
    for chosen in ((0,), (0, 2), (0, 3)):
        model, (one, other) = tiny_model("llama", num_hidden_layers=4), (nn.SiLU(), nn.Tanh())
        for number, layer in enumerate(model.model.layers):
            layer.mlp.act_fn = other if number in chosen else one
        digests.add(model_digest(model, TOKENIZER))
    assert len(digests) == 3


@pytest.mark.parametrize("setting", ["split_special_tokens", "add_bos_token"])
def test_a_tokenizer_that_was_changed_has_another_digest(setting: str) -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    before, ids = model_digest(model, tokenizer), tokenizer.encode(TEXT)
    setattr(tokenizer, setting, True)
    assert tokenizer.encode(TEXT) != ids
    assert model_digest(model, tokenizer) != before


def test_special_tokens_are_told_apart_by_their_roles() -> None:
    made = [tiny_tokenizer() for _ in range(3)]
    made[1].pad_token = made[1].eos_token
    made[2].unk_token = made[2].eos_token
    assert len({model_digest(tiny_model("llama"), tokenizer) for tokenizer in made}) == 3


class Shifting:
    def __init__(self, encode: Callable[..., list[int]]) -> None:
        self.encode = encode

    def __call__(self, *words: Any, **options: Any) -> list[int]:
        return [number + 1 for number in self.encode(*words, **options)]


@pytest.mark.parametrize("wrapped", [Shifting, functools.lru_cache, functools.partial, lambda one: lambda *_: one("a")])
def test_a_tokenizer_with_code_of_somebody_has_a_new_digest_each_time(wrapped: Callable[..., Any]) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.encode = wrapped(tokenizer.encode)
    digests = {model_digest(tiny_model("llama"), one) for one in (tokenizer, tokenizer, TOKENIZER)}
    assert len(digests) == 3


def test_tokenizers_in_python_are_not_told_apart_by_their_vocabulary(tmp_path: Path) -> None:
    """Their merges are objects of each family's own, so each is new."""
    letters = [f"{letter}{end}" for letter in "abc" for end in ("", "@@")]
    pieces = ["<unk>", *letters, "ab@@", "bc@@", "ab", "bc"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    made = []
    for name, merge in (("first", "a b"), ("second", "b c</w>"), ("third", "a b")):
        (tmp_path / name).write_text(f"#version: 0.2\n{merge}\n")
        made.append(CTRLTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / name)))
    assert made[0]("abc")["input_ids"] != made[1]("abc")["input_ids"]
    assert len({model_digest(tiny_model("llama"), tokenizer) for tokenizer in made}) == 3


def test_use_changes_no_digest() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    before = model_digest(model, tokenizer)
    tokenizer([TEXT, "longer " * 20], padding=True, truncation=True, max_length=8, return_tensors="pt")
    model.generate(torch.tensor([tokenizer.encode(TEXT)]), max_new_tokens=2, do_sample=False)
    assert model_digest(model, tokenizer) == before


def test_a_weight_that_torch_negates_when_it_reads_it_is_hashed_by_its_numbers() -> None:
    model, negated = tiny_model("llama"), tiny_model("llama")
    model.model.layers[0].mlp.up_proj.weight.data.neg_()
    weight = negated.model.layers[0].mlp.up_proj.weight
    weight.data = torch._neg_view(weight.data)
    assert model_digest(negated, TOKENIZER) == model_digest(model, TOKENIZER)
