"""Queries, keys and values of a layer as one product: a GPU takes less time for a large product than for three.

The three weights become parts of one tensor, with the same numbers. Knows nothing of steps or slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

NAMES = ("q_proj", "k_proj", "v_proj")  # as transformers calls them; it calls them in this order
Forward = Callable[[Tensor], Tensor]


@dataclass
class JoinedProjections:
    """The projections of one layer. The first one that is called computes all, and the others take what is theirs."""

    weight: Tensor  # [all outputs, input]
    bias: Tensor | None
    sizes: tuple[int, ...]
    waiting: tuple[Tensor, Sequence[Tensor]] | None = None  # an input, and what was computed of it

    def forwards(self, modules: Sequence[nn.Linear]) -> Iterator[tuple[nn.Module, Forward]]:
        """What each module's `forward` is to be."""
        yield modules[0], self._first
        for place, module in enumerate(modules[1:]):
            yield module, self._other(place, module.forward, is_last=place == len(modules) - 2)

    def _first(self, values: Tensor) -> Tensor:
        parts = torch.split(linear(values, self.weight, self.bias), list(self.sizes), -1)
        self.waiting = values, parts[1:]
        return parts[0]

    def _other(self, place: int, own: Forward, is_last: bool) -> Forward:
        def forward(values: Tensor) -> Tensor:
            if self.waiting is None or self.waiting[0] is not values:
                return own(values)
            result = self.waiting[1][place]
            if is_last:
                self.waiting = None  # its memory is free when the caller has done with it
            return result

        return forward


def joined(model: nn.Module) -> dict[nn.Module, Forward]:
    """What to call instead of the projections of a model whose layers have such three, where nothing comes between a
    projection and the attention but a change of shape."""
    found: dict[nn.Module, Forward] = {}
    with torch.inference_mode(False), torch.no_grad():
        for module in model.modules():
            projections = [child for name in NAMES if type(child := getattr(module, name, None)) is nn.Linear]
            if len(projections) == len(NAMES) and _can_join(module, projections):
                found.update(_joined(projections).forwards(projections))
    return found


def _can_join(attention: nn.Module, projections: Sequence[nn.Linear]) -> bool:
    tensors = [projection.weight for projection in projections]
    kinds = {(one.dtype, one.device, one.shape[1], type(one), one.is_inference()) for one in tensors}
    biases = {projection.bias is None for projection in projections}
    has_norms = any("norm" in name for name, _ in attention.named_children())  # these copy what is not side by side
    return len(kinds) == len(biases) == 1 and not has_norms and not tensors[0].is_inference()


def _joined(projections: Sequence[nn.Linear]) -> JoinedProjections:
    weight = _side_by_side([projection.weight for projection in projections])
    biases = [projection.bias for projection in projections if projection.bias is not None]
    bias = _side_by_side(biases) if biases else None
    return JoinedProjections(weight, bias, tuple(projection.out_features for projection in projections))


def _side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor of which the parameters are parts from now on."""
    whole = _common(parameters)
    if whole is None:
        whole = torch.cat([parameter.data for parameter in parameters])
        for parameter, part in zip(parameters, torch.split(whole, [len(one) for one in parameters]), strict=True):
            parameter.data = part
    return whole


def _common(parameters: Sequence[Tensor]) -> Tensor | None:
    """The tensor of which the parameters are parts already."""
    first = parameters[0].data
    place = first.storage_offset()
    for parameter in parameters:
        is_theirs = parameter.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not is_theirs or parameter.storage_offset() != place or not parameter.is_contiguous():
            return None
        place += parameter.numel()
    return first.as_strided((sum(map(len, parameters)), *first.shape[1:]), first.stride())
