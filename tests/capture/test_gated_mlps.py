"""Gated MLPs by one product and one kernel against the models' own; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from support.tiny import tiny_model

pytest.importorskip("triton", reason="triton is not installed")
from fillerscope.capture.gated_mlps import gated_mlps

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16) if CUDA else (torch.float32,)


def found(model: nn.Module) -> dict[nn.Module, Any]:
    with torch.inference_mode():
        return gated_mlps(model)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_every_mlp_of_a_model_is_computed_by_the_kernel(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(DEVICE, dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    forwards = found(model)
    assert len(forwards) == model.config.num_hidden_layers
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    random = torch.Generator(DEVICE).manual_seed(1)
    for module, forward in forwards.items():
        for shape in ((1, 1), (3, 5)):
            given = torch.randn(*shape, model.config.hidden_size, device=DEVICE, generator=random).to(dtype)
            most = 8 * torch.finfo(dtype).eps
            with torch.inference_mode():
                torch.testing.assert_close(forward(given), module(given), rtol=most, atol=most)


def test_a_hook_on_the_activation_is_heard() -> None:
    """ARM changes what the activation gives."""
    model = tiny_model("llama").to(DEVICE)
    module, forward = next(iter(found(model).items()))
    given = torch.randn(2, 3, model.config.hidden_size, device=DEVICE)
    with torch.inference_mode():
        before = forward(given)
        handle = module.get_submodule("act_fn").register_forward_hook(lambda _, __, output: output * 2)
        torch.testing.assert_close(forward(given), 2 * before)
        handle.remove()
        assert torch.equal(forward(given), before)


class Mlp(nn.Module):
    def __init__(self, activation: nn.Module, most: float | None = None, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.gate_proj, self.up_proj = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)
        self.down_proj, self.act_fn = nn.Linear(64, 32, bias=False), activation
        self.most, self.factor = most, factor
        self.to(DEVICE)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        gate, other = self.gate_proj(values), self.up_proj(values)
        if self.most is not None:
            gate, other = gate.clamp(max=self.most), other.clamp(-self.most, self.most)
        return self.down_proj(self.act_fn(gate) * other) * self.factor  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("module", "is_found"),
    [(Mlp(nn.SiLU()), True), (Mlp(nn.SiLU(), most=7.0), False), (Mlp(nn.SiLU(), factor=1.001), False),
     (Mlp(nn.GELU()), False)],
    ids=["usual", "clamped", "scaled", "other activation"],
)  # fmt: skip
def test_what_computes_something_else_is_left_alone(module: nn.Module, is_found: bool) -> None:
    assert (module in found(module)) is is_found


def test_models_in_double_precision_are_left_alone() -> None:
    """The kernel computes in single precision."""
    assert not found(tiny_model("llama").double().to(DEVICE))


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "phi3"])
def test_families_with_other_mlps_are_left_alone(family: str) -> None:
    assert not found(tiny_model(family).to(DEVICE))
