"""Prompts of different lengths as one array of tokens, with the place of each token in its slot.

Padding goes to places that are overwritten before anything attends to them. Knows nothing of tensors or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Padded:
    """Tokens of a prefill pass."""

    ids: NDArray[np.int64]  # [row, token]
    places: NDArray[np.int64]  # [row, token]: in the slot of the row

    @property
    def width(self) -> int:
        """How many tokens a row has, with padding."""
        return int(self.ids.shape[1])


def padded_behind(texts: Sequence[Sequence[int]], start: int) -> Padded:
    """Texts that begin at the place `start`, with padding at their ends."""
    width = max(map(len, texts))
    ids = np.zeros((len(texts), width), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return Padded(ids, np.tile(np.arange(start, start + width), (len(texts), 1)))


def padded_in_front(texts: Sequence[Sequence[int]]) -> Padded:
    """Whole texts, each with its last token at the end of its row. Padding goes to the place of the next token."""
    width = max(map(len, texts))
    ids, places = np.zeros((len(texts), width), np.int64), np.empty((len(texts), width), np.int64)
    for tokens, where, text in zip(ids, places, texts, strict=True):
        padding = width - len(text)
        tokens[padding:] = text
        where[:padding], where[padding:] = len(text), np.arange(len(text))
    return Padded(ids, places)
