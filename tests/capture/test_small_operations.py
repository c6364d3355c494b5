"""Norms and rotary positions by kernels against the models' own; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from fillerscope.capture.small_operations import ROTATION, SmallOperations, _norm_of, _rotation_of
from support.grid import some_fast
from support.tiny import FAMILIES, tiny_model

CUDA = torch.cuda.is_available()
kernels = pytest.importorskip(
    "fillerscope.capture.small_kernels", reason="triton is not installed", exc_type=ImportError
)
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = (torch.float32, torch.bfloat16) if CUDA else (torch.float32,)  # the interpreter has no bfloat16
ROTATING = ("llama", "qwen2", "qwen3", "gemma2", "mistral", "phi3")


def model_of(family: str, dtype: torch.dtype = torch.float32) -> Any:
    model = tiny_model(family).to(DEVICE, dtype)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data += torch.linspace(-0.5, 0.5, weight.numel(), device=DEVICE, dtype=dtype).view(weight.shape)
    return model


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "gemma3_text", "gpt_oss"])
def test_every_norm_of_a_model_is_computed_by_a_kernel(family: str, dtype: torch.dtype) -> None:
    model = model_of(family, dtype)
    norms = {name: module for name, module in model.named_modules() if type(module).__name__.endswith("RMSNorm")}
    assert norms
    small = SmallOperations.of(model)
    for name, module in norms.items():
        width = len(module.weight)
        given = torch.randn(2, 3, width, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(width)).to(dtype)
        expected = module(given)
        most = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(small.norms[module](given), expected, rtol=most, atol=most, msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", some_fast(ROTATING, "llama", "phi3"))
def test_rotations_are_those_of_the_model(family: str, dtype: torch.dtype) -> None:
    model = model_of(family, dtype)
    (place,) = SmallOperations.of(model).rotations
    random = torch.Generator(DEVICE).manual_seed(1)
    for rows, tokens in ((5, 1), (1, 1), (2, 7), (1, 7)):
        flat = torch.randn(2 * rows, tokens, 4 * 24, device=DEVICE, generator=random).to(dtype)
        query = flat.view(2 * rows, tokens, 4, 24).transpose(1, 2)  # as a projection leaves it
        key = torch.randn(2 * rows, 2, tokens, 24, device=DEVICE, generator=random).to(dtype)
        for count in (2 * rows, 1):
            cos, sin = (torch.randn(count, tokens, 24, device=DEVICE, generator=random).to(dtype) for _ in range(2))
            ours = SmallOperations.of(model).rotations[place](query, key, cos, sin)
            for one, other in zip(ours, getattr(place, ROTATION)(query, key, cos, sin), strict=True):
                most = 2 * torch.finfo(dtype).eps
                torch.testing.assert_close(one, other, rtol=most, atol=4 * most)


def test_other_arguments_go_to_the_models_own_function() -> None:
    place = ModuleType("family")
    calls: list[tuple[Any, ...]] = []
    own = getattr(sys.modules[type(model_of("llama")).__module__], ROTATION)

    def rotation(*given: Any, **named: Any) -> Any:
        calls.append((given, named))
        return own(*given, **named)

    setattr(place, ROTATION, rotation)
    ours = _rotation_of(place, DEVICE, torch.float32)
    assert ours is not None
    calls.clear()
    one = torch.zeros(1, 2, 1, 8, device=DEVICE)
    ours(one, one, one[:, 0], one[:, 0])
    assert not calls
    ours(one, one, one[0], one[0, :1])
    ours(one, one, one[:, 0], one[:, 0], unsqueeze_dim=1)
    ours(one, one, one[:, 0].double(), one[:, 0].double())
    assert len(calls) == 3


@pytest.mark.parametrize(
    "other",
    [
        lambda query, key, cos, _: (query * cos[:, None], key * cos[:, None]),
        lambda query, _, __: query,
        lambda query, *_: query,
        lambda query, key, cos, _: (query, key, cos),
    ],
)
def test_another_rotation_is_left_alone(other: Any) -> None:
    assert _rotation_of(SimpleNamespace(**{ROTATION: other}), DEVICE, torch.float32) is None  # type: ignore[arg-type]


class ScaledRMSNorm(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.weight, self.eps, self.scale = torch.nn.Parameter(torch.ones(8, device=DEVICE)), 1e-6, scale

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(values, (8,), self.weight, self.eps) * self.scale


def test_a_norm_of_another_kind_is_left_alone() -> None:
    with torch.inference_mode():
        assert _norm_of(ScaledRMSNorm(1.0)) is not None
        assert _norm_of(ScaledRMSNorm(1.01)) is None
        assert _norm_of(torch.nn.LayerNorm(8, device=DEVICE)) is None


@pytest.mark.parametrize("family", [*ROTATING, "gpt2", "gpt_neox"])
def test_a_pass_of_a_model_has_the_same_logits_and_leaves_no_trace(family: str) -> None:
    model = model_of(family).eval()
    small, ids = SmallOperations.of(model), torch.tensor([[5, 7, 9]], device=DEVICE)
    with torch.inference_mode():
        before = model(ids).logits
        with small.used():
            during = model(ids).logits
            assert all("forward" in vars(module) for module in small.norms)
        after = model(ids).logits
    torch.testing.assert_close(during, before, rtol=1e-4, atol=1e-4)
    assert torch.equal(before, after)
    assert not any("forward" in vars(module) for module in model.modules())


def test_families_are_known() -> None:
    assert set(ROTATING) <= set(FAMILIES)
