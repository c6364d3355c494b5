"""Which norms, rotary positions and gated MLPs of a model the small kernels compute, and a block in which they do; and
in which projections of one input are one product.

A kernel is used where it gives what the model's own code gives on made-up numbers, up to rounding; everything else
stays as it is. Knows nothing of passes or steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor, nn

from fillerscope.capture.gated_mlps import gated_mlps
from fillerscope.capture.joined_projections import joined
from fillerscope.models.quantised import is_quantised
from fillerscope.models.spread import is_spread
from fillerscope.models.structure import device_of
from fillerscope.models.tensor_parallel import processes

FORWARD = "forward"
ROTATION = "apply_rotary_pos_emb"  # as transformers calls it, in the module of every family
EPSILONS = ("variance_epsilon", "eps", "epsilon")
ROUNDINGS = 2  # by which results may differ
Rotation = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SmallOperations:
    """The operations of a model that kernels compute."""

    norms: Mapping[nn.Module, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    projections: Mapping[nn.Module, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    mlps: Mapping[nn.Module, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    rotations: Mapping[ModuleType, Rotation] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module) -> SmallOperations:
        """Those of a model on a GPU; none where Triton is missing or cannot compile."""
        if find_spec("triton") is None or is_quantised(model):
            return cls()
        try:
            return cls._found(model)
        except Exception:  # whatever a compiler lacks
            return cls()

    @classmethod
    def for_passes(cls, model: nn.Module) -> SmallOperations:
        """Those for passes that measure: on one GPU in half precision, else none."""
        dtype = next(model.parameters()).dtype
        suits = device_of(model).type == "cuda" and dtype in (torch.bfloat16, torch.float16)
        return cls.of(model) if suits and processes() == 1 and not is_spread(model) else cls()

    @classmethod
    def _found(cls, model: nn.Module) -> SmallOperations:
        with torch.inference_mode():
            norms = {module: norm for module in model.modules() if (norm := _norm_of(module)) is not None}
            places = {sys.modules[type(module).__module__] for module in model.modules()}
            dtype = next(model.parameters()).dtype
            found = {
                place: _rotation_of(place, device_of(model), dtype) for place in places if hasattr(place, ROTATION)
            }
        rotations = {place: rotation for place, rotation in found.items() if rotation is not None}
        return cls(norms, joined(model), gated_mlps(model), rotations)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside the block the kernels compute them. Modules are changed meanwhile: for one thread at a time."""
        with ExitStack() as stack:
            for module, forward in {**self.norms, **self.projections, **self.mlps}.items():
                setattr(module, FORWARD, forward)
                stack.callback(delattr, module, FORWARD)
            for place, rotation in self.rotations.items():
                stack.callback(setattr, place, ROTATION, getattr(place, ROTATION))
                setattr(place, ROTATION, rotation)
            yield


def _norm_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The kernel that computes what a module does; None where it is no such norm."""
    weight = getattr(module, "weight", None)
    epsilon = next((value for name in EPSILONS if isinstance(value := getattr(module, name, None), float)), None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    if epsilon is None or any(True for _ in module.children()):
        return None
    from fillerscope.capture.small_kernels import OFFSETS

    given = _made_up(weight, 3, len(weight))
    expected = module(given)
    candidates = [_norm(module, weight, epsilon, offset) for offset in OFFSETS]
    return next((norm for norm in candidates if _is_close(norm(given), expected)), None)


def _norm(module: nn.Module, weight: Tensor, epsilon: float, offset: float) -> Callable[[Tensor], Tensor]:
    from fillerscope.capture.small_kernels import normed

    whole = module.forward

    def norm(values: Tensor) -> Tensor:
        return normed(values, weight, epsilon, offset) if values.dtype == weight.dtype else whole(values)

    return norm


def _rotation_of(place: ModuleType, device: torch.device, dtype: torch.dtype) -> Rotation | None:
    """A function that rotates by a kernel, and as the model's own what that does not take; None where the model rotates
    otherwise."""
    from fillerscope.capture.small_kernels import rotated

    whole: Rotation = getattr(place, ROTATION)
    like = torch.empty(0, device=device, dtype=dtype)
    query, key = _made_up(like, 2, 3, 4, 64), _made_up(like, 2, 2, 4, 64)
    cos, sin = _made_up(like, 2, 4, 64), _made_up(like, 2, 4, 64).flip(-1)
    try:
        expected = whole(query, key, cos, sin)
    except Exception:  # it takes something else
        return None
    if not isinstance(expected, tuple) or len(expected) != 2:
        return None
    if not all(map(_is_close, rotated(query, key, cos, sin), expected)):
        return None

    def rotation(
        query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: object, **named: object
    ) -> tuple[Tensor, Tensor]:
        if more or named or not _is_usual(query, key, cos, sin):
            return whole(query, key, cos, sin, *more, **named)
        return rotated(query, key, cos, sin)

    return rotation


def _is_usual(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> bool:
    tensors = query, key, cos, sin
    return (
        [one.dim() for one in tensors] == [4, 4, 3, 3]
        and query.shape[2] == key.shape[2] == cos.shape[1] == sin.shape[1]
        and {len(cos), len(sin)} <= {1, len(query)}
        and len({one.shape[-1] for one in tensors}) == len({one.dtype for one in tensors}) == 1
    )


def _made_up(like: Tensor, *shape: int) -> Tensor:
    """The same numbers every time, of the kind of a tensor."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float32) * 1.7 + 0.3).view(shape).to(like.device, like.dtype)


def _is_close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    most = ROUNDINGS * torch.finfo(one.dtype).eps
    return torch.allclose(one.float(), other.float(), rtol=most, atol=most)
