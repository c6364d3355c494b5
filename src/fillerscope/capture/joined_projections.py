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
    """The projections of one layer. The first one that is called computes all, and the others take what is theirs.

    Weights are looked up at every call: somebody may have put others in their place."""

    modules: Sequence[nn.Linear]
    waiting: tuple[Tensor, Sequence[Tensor]] | None = None  # an input, and what was computed of it

    def forwards(self) -> Iterator[tuple[nn.Module, Forward]]:
        """What each module's `forward` is to be."""
        yield self.modules[0], self._first
        for place, module in enumerate(self.modules[1:]):
            yield module, self._other(place, module.forward, is_last=place == len(self.modules) - 2)

    def _first(self, values: Tensor) -> Tensor:
        sizes = [module.out_features for module in self.modules]
        parts = torch.split(one_product(self.modules, values), sizes, -1)
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
    for module in model.modules():
        projections = [child for name in NAMES if type(child := getattr(module, name, None)) is nn.Linear]
        if len(projections) == len(NAMES) and _can_join(module, projections):
            join(projections)
            found.update(JoinedProjections(projections).forwards())
    return found


def _can_join(attention: nn.Module, projections: Sequence[nn.Linear]) -> bool:
    has_norms = any("norm" in name for name, _ in attention.named_children())  # these copy what is not side by side
    return not has_norms and are_alike(projections)


def are_alike(projections: Sequence[nn.Linear]) -> bool:
    """Whether projections of one input can be one product."""
    tensors = [projection.weight for projection in projections]
    kinds = {(one.dtype, one.device, one.shape[1], type(one), one.is_inference()) for one in tensors}
    biases = {projection.bias is None for projection in projections}
    return len(kinds) == len(biases) == 1 and not tensors[0].is_inference()


def one_product(projections: Sequence[nn.Linear], values: Tensor) -> Tensor:
    """The outputs of projections, one after the other."""
    return linear(values, *join(projections))


def join(projections: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of projections, each as one tensor of which theirs are parts from now on."""
    biases = [projection.bias for projection in projections if projection.bias is not None]
    weight = _side_by_side([projection.weight for projection in projections])
    return weight, _side_by_side(biases) if biases else None


def _side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor of which the parameters are parts from now on."""
    whole = _common(parameters)
    if whole is None:
        with torch.inference_mode(False), torch.no_grad():  # else nobody could train the model afterwards
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
