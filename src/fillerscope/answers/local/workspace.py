"""What answers are written in: slots for keys and values, and the table of decode steps. Kept between calls where
captured steps refer to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import nn

from fillerscope.answers.local.decode_table import DecodeTable
from fillerscope.answers.local.slots import Slots
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.models.structure import device_of, layer_count

ROUNDED = 64  # a capacity is a multiple of it where it is to serve again: the next prompts may be a little longer


@dataclass(frozen=True)
class Workspace:
    """Slots and table for so many answers in progress."""

    slots: Slots
    table: DecodeTable
    weights: tuple[int, ...]  # where the model's weights are
    wanted: int  # slots that were asked for: memory may hold fewer
    small: SmallOperations = field(default_factory=SmallOperations)  # what kernels compute

    @classmethod
    def of(cls, model: nn.Module, count: int, capacity: int, drawn: bool, wanted: int = 0) -> Workspace:
        slots = Slots(model, layer_count(model), count, capacity)
        table = DecodeTable.empty(count, capacity, drawn, device_of(model))
        return cls(slots, table, _addresses(model), wanted or count)

    @classmethod
    def rounded(cls, model: nn.Module, count: int, capacity: int, drawn: bool, wanted: int = 0) -> Workspace:
        """One that can serve again for prompts that are a little longer."""
        small = SmallOperations.of(model)  # first, as it moves weights
        return replace(cls.of(model, count, -(-capacity // ROUNDED) * ROUNDED, drawn, wanted), small=small)

    def serves(self, model: nn.Module, count: int, capacity: int, drawn: bool) -> bool:
        """Whether it is large enough, and was made for the same weights."""
        large = count <= self.wanted and capacity <= self.slots.capacity
        return large and drawn <= (self.table.draws is not None) and self.weights == _addresses(model)


def _addresses(model: nn.Module) -> tuple[int, ...]:
    return tuple(parameter.data_ptr() for parameter in model.parameters())
