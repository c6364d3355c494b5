"""Queries, keys and values as one product against three, and weights that stay the same."""

from __future__ import annotations

import pytest
import torch

from fillerscope.capture.joined_projections import NAMES, joined
from support.tiny import tiny_model

IDS = torch.arange(5, 32).view(3, 9)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "gpt_oss"])
def test_a_model_with_joined_projections_computes_the_same(family: str) -> None:
    model = tiny_model(family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.inference_mode():
        expected = model(input_ids=IDS).logits
        forwards = joined(model)
        assert len(forwards) == len(NAMES) * model.config.num_hidden_layers
        for module, forward in forwards.items():
            module.forward = forward  # type: ignore[method-assign,assignment]
        torch.testing.assert_close(model(input_ids=IDS).logits, expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_change_of_weights_after_joining_counts() -> None:
    model = tiny_model("qwen2")
    attention = model.model.layers[0].self_attn
    values = torch.randn(2, 3, model.config.hidden_size)
    forwards = joined(model)
    with torch.no_grad():
        for name in NAMES:
            getattr(attention, name).weight.mul_(2)
        for name in NAMES:
            projection = getattr(attention, name)
            torch.testing.assert_close(forwards[projection](values), projection(values))


def test_weights_that_somebody_replaced_are_joined_anew() -> None:
    """As a check in another precision does. Nor do they become tensors that cannot be trained."""
    model = tiny_model("llama")
    attention, values = model.model.layers[0].self_attn, torch.randn(2, 3, model.config.hidden_size)
    forwards = joined(model)
    for name in NAMES:
        getattr(attention, name).weight.data = getattr(attention, name).weight.data.clone() * 3
    expected = [getattr(attention, name)(values) for name in NAMES]
    with torch.inference_mode():
        results = [forwards[getattr(attention, name)](values) for name in NAMES]
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert not any(parameter.is_inference() for parameter in model.parameters())


def test_joining_twice_moves_no_weight() -> None:
    model = tiny_model("llama")
    joined(model)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    joined(model)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


def test_a_projection_that_is_given_something_else_computes_it_itself() -> None:
    model = tiny_model("llama")
    forwards = joined(model)
    attention = model.model.layers[0].self_attn
    one, other = torch.randn(2, 1, 3, model.config.hidden_size)
    with torch.no_grad():
        forwards[attention.q_proj](one)
        torch.testing.assert_close(forwards[attention.k_proj](other), attention.k_proj(other))
        torch.testing.assert_close(forwards[attention.v_proj](one), attention.v_proj(one))
        torch.testing.assert_close(forwards[attention.v_proj](one), attention.v_proj(one))


def test_projections_with_norms_behind_them_stay_as_they_are() -> None:
    assert not joined(tiny_model("qwen3"))
