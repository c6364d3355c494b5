"""An untrained twin: a model of the same configuration with weights drawn anew by its own initialisation, as large as
the model's own.

Larger weights make attention uneven whatever they hold. What a twin shows is due to architecture, repetition, length
and the size of weights, not to what was learned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fillerscope.display import first_line
from fillerscope.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_one_at_a_time = threading.Lock()  # torch has one random state for all threads


def untrained(
    make: Callable[..., PreTrainedModel], config: PretrainedConfig, dtype: torch.dtype, device: str, seed: int
) -> PreTrainedModel:
    """A model with random weights, drawn on its device, where that takes seconds. The global random state is kept.

    `make` takes a config and a dtype and gives a model that initialises itself."""
    place = torch.device(device)
    with _one_at_a_time, torch.random.fork_rng([place] if place.type == "cuda" else [], device_type=place.type):
        torch.manual_seed(seed)
        try:
            with place:
                model = make(config, dtype=dtype)
        except Exception as error:
            raise ModelError(
                f"an untrained twin of this {config.model_type} model cannot be drawn: {first_line(error)}"
            ) from error
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class Sizes:
    """How large the parameters of a model are, without what they hold: gains and biases in whole, of matrices the
    root mean square."""

    vectors: dict[str, Tensor]
    matrices: dict[str, float]

    @classmethod
    def of(cls, model: nn.Module) -> Sizes:
        named = [(name, value.detach().float()) for name, value in model.named_parameters()]
        return cls(
            {name: value.cpu().clone() for name, value in named if value.dim() < 2},
            {name: float(value.square().mean().sqrt()) for name, value in named if value.dim() > 1},
        )

    def apply_to(self, model: PreTrainedModel, seed: int) -> PreTrainedModel:
        """Give a random model these sizes: gains and biases in a random order, matrices scaled."""
        order = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in self.vectors:
                    values = self.vectors[name]
                    parameter.copy_(values[torch.randperm(len(values), generator=order)] if values.dim() else values)
                elif (size := float(parameter.float().square().mean().sqrt())) > 0:
                    parameter.mul_(self.matrices[name] / size)
        return model
