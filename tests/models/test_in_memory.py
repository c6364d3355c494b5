"""A model in memory: one digest for one model, its name, and what is refused because a digest could not describe it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from fillerscope.errors import ModelError
from fillerscope.models.in_memory import ModelInMemory
from fillerscope.models.loading import wrap
from support.tiny import tiny_model, tiny_tokenizer


def source(model: Any = None, tokenizer: Any = None, name: str | None = None) -> ModelInMemory:
    return ModelInMemory.of(tiny_model("llama") if model is None else model, tokenizer or tiny_tokenizer(), name)


def weight(model: Any) -> None:
    model.model.layers[2].mlp.up_proj.weight.data[-1, -1] += 1e-3


def frequency(model: Any) -> None:
    model.model.rotary_emb.inv_freq[-1] += 1e-6  # a buffer that is not saved with the weights


def precision(model: Any) -> None:
    model.bfloat16()


def stop_token(model: Any) -> None:
    model.generation_config.eos_token_id = 7


def rotary_base(model: Any) -> None:
    model.config.rope_parameters["rope_theta"] = 5.0


def scale(model: Any) -> None:
    model.model.layers[0].self_attn.scaling *= 8


def epsilon(model: Any) -> None:
    model.model.norm.variance_epsilon = 1e-2


def activation(model: Any) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.ReLU()


def hook(model: Any) -> None:
    model.model.layers[1].register_forward_hook(lambda _module, _given, output: output)


def own_forward(model: Any) -> None:
    layer = model.model.layers[1]
    layer.forward = layer.forward


class Ablated(torch.nn.Module):
    """A usual way to take heads out."""

    def __init__(self, inner: Any, heads: list[int]) -> None:
        super().__init__()
        self.inner, self.heads = inner, heads

    def forward(self, given: torch.Tensor) -> Any:
        return self.inner(given)


def of_own_class(model: Any) -> None:
    attention = model.model.layers[0].self_attn
    attention.o_proj = Ablated(attention.o_proj, [0])


def same_name(model: Any) -> None:
    layer = model.model.layers[0].mlp
    kind = type(layer)
    layer.__class__ = type(kind.__name__, (kind,), {"__qualname__": kind.__qualname__})


def listed(model: Any) -> None:
    model.model.layers[0].mlp.heads = [0, 1]


def tensor(model: Any) -> None:
    model.model.layers[0].self_attn.scaling = torch.tensor(0.25)


def functional(model: Any) -> None:
    mlp = model.model.layers[0].mlp
    del mlp.act_fn
    mlp.act_fn = partial(torch.nn.functional.leaky_relu, negative_slope=0.1)


CHANGES = [weight, frequency, precision, stop_token, rotary_base, scale, epsilon, activation, hook, own_forward,
           of_own_class, same_name, listed, tensor, functional]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_can_change_a_number_changes_the_digest(change: Callable[[Any], None]) -> None:
    model = tiny_model("llama")
    before = source(model).digest
    change(model)
    assert source(model).digest != before


@pytest.mark.parametrize("change", [weight, scale, activation, listed, tensor, functional])
def test_what_can_be_hashed_gives_the_same_digest_again(change: Callable[[Any], None]) -> None:
    models = tiny_model("llama"), tiny_model("llama")
    for model in models:
        change(model)
    assert source(models[0]).digest == source(models[1]).digest


@pytest.mark.parametrize("change", [hook, own_forward, of_own_class, same_name])
def test_code_that_nothing_can_hash_gives_a_new_digest_each_time(change: Callable[[Any], None]) -> None:
    model = tiny_model("llama")
    change(model)
    assert source(model).digest != source(model).digest


@pytest.mark.parametrize(
    "pair",
    [
        (partial(torch.nn.functional.leaky_relu, negative_slope=0.1),
         partial(torch.nn.functional.leaky_relu, negative_slope=0.9)),
        (lambda given: given * 2, lambda given: given * 3),
        ([0], [1, 2]),
        ({"heads": (0,)}, {"heads": (1,)}),
        (torch.tensor([0.1]), torch.tensor([0.9])),
        (True, False),
    ],
)  # fmt: skip
def test_settings_of_every_kind_are_told_apart(pair: tuple[Any, Any]) -> None:
    models = tiny_model("llama"), tiny_model("llama")
    for model, value in zip(models, pair, strict=True):
        model.model.layers[0].mlp.setting = value
    assert source(models[0]).digest != source(models[1]).digest


def test_a_method_of_a_library_that_somebody_replaced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(tiny_model("qwen2").model.layers[0].mlp)
    monkeypatch.setattr(kind, "forward", lambda _, given: given)
    model = tiny_model("qwen2")
    assert source(model).digest != source(model).digest


def test_a_tokenizer_with_code_of_its_own_has_a_new_digest_each_time() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.encode = lambda *_, **__: [3]
    assert source(tokenizer=tokenizer).digest != source(tokenizer=tokenizer).digest


def test_another_chat_template_changes_the_digest() -> None:
    tokenizer = tiny_tokenizer()
    before = source(tokenizer=tokenizer).digest
    tokenizer.chat_template += " "
    assert source(tokenizer=tokenizer).digest != before


def test_use_does_not_change_the_digest() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    before = source(model, tokenizer).digest
    tokenizer(["a", "b c d"], padding=True, truncation=True, max_length=2)
    model.train().requires_grad_(True)
    model.set_attn_implementation("eager")
    model.config._name_or_path = "elsewhere"
    assert source(model, tokenizer).digest == before == source().digest


def test_a_tensor_in_many_pieces_and_in_any_layout_has_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    before = source(model).digest
    projection = model.model.layers[0].mlp.up_proj
    projection.weight.data = projection.weight.data.t().contiguous().t()
    assert not projection.weight.is_contiguous()
    monkeypatch.setattr("fillerscope.models.memory_digest.CHUNK", 7)
    assert source(model).digest == before


def test_names(tmp_path: Any) -> None:
    model = tiny_model("llama")
    assert source(model).name == "LlamaForCausalLM"
    model.config._name_or_path = "owner/tiny-llama"
    assert (source(model).name, source(model).label) == ("owner/tiny-llama", "tiny-llama")
    model.config._name_or_path = str(tmp_path)  # where it lay is nobody's business
    assert source(model).name == tmp_path.name
    assert source(model, name="mine").name == "mine"


class Adapter(torch.nn.Linear):
    """Stands for a layer of PEFT, which is known by the package that it comes from."""


Adapter.__module__ = "peft.tuners.lora.layer"


def adapted(model: Any) -> Any:
    model.model.layers[1].mlp.up_proj = Adapter(4, 4)
    return model


def offloaded(model: Any) -> Any:
    model.model.layers[1].mlp.up_proj.to("meta")
    return model


def quantised(model: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # torch says where it is going to be
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def with_a_tensor(model: Any) -> Any:
    model.generation_config.eos_token_id = torch.tensor(2)
    return model


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "adapters": (adapted, r"the model has PEFT adapters, .*merge_and_unload\(\)"),
    "offloaded": (offloaded, "some weights of the model are on no device"),
    "float64": (lambda model: model.double(), r"the model is in float64; convert it .* such as model.float\(\)"),
    "quantised in place": (quantised, r"of the model is tuple, no tensor; give the model as it was before quant"),
    "a tensor": (with_a_tensor, r"^eos_token_id of GenerationConfig cannot be written as JSON; give plain numbers"),
    "compiled": (torch.compile, "not OptimizedModule: give the model inside it, _orig_mod"),
    "parallel": (torch.nn.DataParallel, "not DataParallel: give the model inside it, module"),
    "loaded": (lambda model: wrap(model, tiny_tokenizer()), "not LoadedModel: give the model inside it, model"),
    "a name": (lambda _: "smollm2-135m", "not 'smollm2-135m': name it in the study's `models`"),
    "no model": (lambda _: torch.nn.Linear(2, 2), "model is a transformers model, .* not Linear"),
    "no head": (lambda model: model.model.layers[0], "not LlamaDecoderLayer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_measured_as_it_is_is_refused(what: str) -> None:
    make, reason = REFUSED[what]
    with pytest.raises(ModelError, match=reason) as caught:
        source(make(tiny_model("llama")))
    assert "\n" not in str(caught.value)


def test_a_model_needs_its_tokenizer() -> None:
    with pytest.raises(ModelError, match="LlamaForCausalLM needs its tokenizer, as AutoTokenizer gives one, not None"):
        ModelInMemory.of(tiny_model("llama"), None)


def test_another_dtype_is_a_copy_with_its_frequencies_as_they_were() -> None:
    one = source()
    other = one.load("bfloat16").model
    assert other.dtype == torch.bfloat16
    assert one.model.dtype == torch.float32
    torch.testing.assert_close(other.model.rotary_emb.inv_freq, one.model.model.rotary_emb.inv_freq, rtol=0, atol=0)


def test_a_quantised_model_has_no_twin() -> None:
    one = source()
    one.model.config.quantization_config = {"quant_method": "any"}
    with pytest.raises(ModelError, match=r"quantised model cannot be drawn: leave references.twin out"):
        one.twin("twin", 1).load("float32")
