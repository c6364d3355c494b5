"""What decode steps need to know of every slot, in tensors on the model's device: a step takes its tokens and positions
from here and leaves them here for the next one, without the host. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from fillerscope.answers.local.rows import Row
from fillerscope.answers.request import Request
from fillerscope.arm.rng import sent


class Column(IntEnum):
    """The columns of the table."""

    PENDING = 0  # the token that comes next
    LENGTH = 1  # tokens in the slot, and so the place of the next one
    ISSUED = 2  # tokens that were generated
    LIVE = 3  # 1 where an answer is in progress: other slots stay as they are
    GAP_AT = 4  # before which place positions are skipped, and how many
    GAP_BY = 5
    FILLER_START = 6
    FILLER_STOP = 7
    KEY = 8  # of the random numbers of an intervention


@dataclass(frozen=True)
class DecodeTable:
    """A row for each slot."""

    cells: Tensor  # [slot, column] int64
    draws: Tensor | None  # [slot, token] float64: random numbers; none where tokens are not drawn

    @classmethod
    def empty(cls, slots: int, most: int, drawn: bool, device: torch.device) -> DecodeTable:
        """A table of free slots, with room for `most` random numbers each."""
        draws = torch.zeros(slots, most, dtype=torch.float64, device=device) if drawn else None
        return cls(torch.zeros(slots, len(Column), dtype=torch.int64, device=device), draws)

    def part(self, start: int, stop: int) -> DecodeTable:
        """Some rows, in the same memory."""
        return DecodeTable(self.cells[start:stop], None if self.draws is None else self.draws[start:stop])

    def column(self, column: Column) -> Tensor:
        return self.cells[:, column]

    def enter(self, first: int, rows: Sequence[Row], requests: Sequence[Request]) -> None:
        """Fill consecutive rows for answers whose next token is the last of their prompts."""
        filled = [
            [request.ids[-1], row.length, 0, 1, *request.gap, *request.filler, request.key]
            for row, request in zip(rows, requests, strict=True)
        ]
        self.cells[first : first + len(rows)] = sent(torch.tensor(filled), self.cells.device)
        if self.draws is not None:
            padded = np.zeros((len(rows), max(row.limit for row in rows)))
            for place, row in enumerate(rows):
                padded[place, : row.limit] = row.draws()
            drawn = sent(torch.from_numpy(padded), self.cells.device)
            self.draws[first : first + len(rows), : drawn.shape[1]] = drawn

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy some rows onto others."""
        self.cells[targets] = self.cells[sources]
        if self.draws is not None:
            self.draws[targets] = self.draws[sources]

    def free(self, places: Tensor) -> None:
        """Make some slots free: they take one token over and over, which nobody uses."""
        self.cells.index_fill_(0, places, 0)

    def skipped(self) -> Tensor:
        """How many positions are skipped before the next token [row, 1]."""
        beyond = self.column(Column.LENGTH) >= self.column(Column.GAP_AT)
        return (self.column(Column.GAP_BY) * beyond)[:, None]

    def hidden(self, width: int) -> Tensor:
        """Which keys are the filler before the next token [row, 1, 1, key]."""
        key = torch.arange(width, device=self.cells.device)
        start, stop, place = (
            self.column(column)[:, None] for column in (Column.FILLER_START, Column.FILLER_STOP, Column.LENGTH)
        )
        return ((place >= stop) & (key >= start) & (key < stop))[:, None, None]

    def drawn(self) -> Tensor | None:
        """The random number of each row's next token [row]."""
        if self.draws is None:
            return None
        return self.draws.gather(1, self.column(Column.ISSUED)[:, None])[:, 0]

    def advance(self, tokens: Tensor) -> None:
        """Take the tokens that were chosen, where an answer is in progress, as those that come next."""
        live = self.column(Column.LIVE)
        self.column(Column.PENDING).copy_(tokens.clamp(min=0) * live)  # NO_TOKEN ends an answer, one step late
        self.cells[:, Column.LENGTH : Column.LIVE].add_(live[:, None])
