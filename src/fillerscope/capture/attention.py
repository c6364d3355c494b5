"""The attention function given to transformers, and the pass that records with it.

Registered under one name with transformers' own AttentionInterface, so stock models run unchanged. What
cannot be measured exactly is refused by name. Knows nothing of problems, conditions or statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.blocks import attend
from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule, mask_rule
from fillerscope.errors import CaptureError
from fillerscope.models.attending import attending, refuse_unknown
from fillerscope.models.structure import decoder_of, device_of, layer_count

NAME = "fillerscope"
GROUPS = ("all", "original", "last")


@dataclass
class Recorder:
    """What one forward pass adds up, layer by layer."""

    rows: Tensor  # [batch, group, query]
    block: int | None = None  # rows at a time; None: as many as suit the shape
    received: dict[int, Tensor] = field(default_factory=dict)
    diagonal: dict[int, Tensor] = field(default_factory=dict)
    entropy: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class TextAttention:
    """What was measured on one text. Sums, and the counts to divide them by."""

    received: NDArray[np.float32]  # [group, layer, head, position]: sums of rows below the diagonal
    diagonal: NDArray[np.float32]  # [layer, head, position]
    entropy: NDArray[np.float32]  # [group, layer, head]: sums over rows
    rows: NDArray[np.bool_]  # [group, position]: which rows voted

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.received).all() and np.isfinite(self.entropy).all())

    def mean_received(self, diagonal: bool = False) -> NDArray[np.float64]:
        """[group, layer, head, position]; NaN where no row could vote."""
        behind = self.rows[:, ::-1].cumsum(axis=1)[:, ::-1] - self.rows  # rows strictly after each key
        total, count = self.received.astype(np.float64), behind.astype(np.float64)
        if diagonal:
            total = total + self.diagonal.astype(np.float64) * self.rows[:, None, None, :]
            count = count + self.rows
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count[:, None, None, :] > 0, total / count[:, None, None, :], np.nan)

    def mean_entropy(self) -> NDArray[np.float64]:
        """[group, layer, head], in nats; NaN for a group without rows."""
        count = self.rows.sum(axis=1)[:, None, None]
        return np.where(count > 0, self.entropy.astype(np.float64) / np.maximum(count, 1), np.nan)


_active: ContextVar[Recorder | None] = ContextVar("fillerscope_recorder", default=None)


def captured_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: MaskRule | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """The usual attention output; with a recorder active, also what every position receives."""
    refuse_unknown(module, dropout, extra)
    recorder = _active.get()
    if recorder is None:
        raise CaptureError("the fillerscope attention is for use inside `record`; set another implementation")
    rule = PLAIN_CAUSAL if attention_mask is None else attention_mask
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    result = attend(query, key, value, recorder.rows, rule, scale, softcap, recorder.block)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    recorder.received[layer] = result.received
    recorder.diagonal[layer] = result.diagonal
    recorder.entropy[layer] = result.entropy
    return result.output.transpose(1, 2).contiguous(), None


def register() -> None:
    """Make the function and its mask known to transformers. Doing so twice is harmless."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, captured_attention)
    AttentionMaskInterface.register(NAME, mask_rule)


@contextmanager
def capturing(model: Any, name: str = NAME) -> Iterator[None]:
    """Run a stock model with our attention inside the block, and with its own again after it."""
    register()
    with attending(model, name):
        yield


def row_groups(original: Sequence[NDArray[np.bool_]], width: int) -> NDArray[np.bool_]:
    """[batch, group, position] of right-padded texts, given which positions are not filler."""
    rows = np.zeros((len(original), len(GROUPS), width), dtype=np.bool_)
    for text, mask in zip(rows, original, strict=True):
        text[0, : len(mask)] = True
        text[1, : len(mask)] = mask
        text[2, len(mask) - 1] = True
    return rows


def observe(model: Any, tokens: Tensor, rows: Tensor, mask: Tensor | None = None, block: int | None = None) -> Recorder:
    """One forward pass inside `capturing`. `mask` [batch, position] marks padding, on either side."""
    recorder = Recorder(rows.float(), block)
    places = None if mask is None else (mask.long().cumsum(-1) - 1).clamp(min=0)
    token = _active.set(recorder)
    try:
        with torch.inference_mode():
            decoder_of(model)(input_ids=tokens, attention_mask=mask, position_ids=places, use_cache=False)
    finally:
        _active.reset(token)
    missing = sorted(set(range(layer_count(model))) - set(recorder.received))
    if missing:
        names = ", ".join(str(layer + 1) for layer in missing)
        raise CaptureError(f"layers {names} do not attend through transformers' attention interface")
    return recorder


def record(
    model: Any, ids: Sequence[Sequence[int]], original: Sequence[NDArray[np.bool_]], block: int | None = None
) -> list[TextAttention]:
    """One forward pass over a batch of texts inside `capturing`: attention received, text by text."""
    lengths = [len(text) for text in ids]
    groups = row_groups(original, max(lengths))
    device = device_of(model)
    tokens = torch.zeros(len(ids), max(lengths), dtype=torch.long)
    for row, text in enumerate(ids):
        tokens[row, : len(text)] = torch.tensor(text)
    # Padding stands on the right, where causality hides it: no mask is needed.
    recorder = observe(model, tokens.to(device), torch.from_numpy(groups).to(device), block=block)
    return _texts(recorder, groups, lengths)


def _texts(recorder: Recorder, groups: NDArray[np.bool_], lengths: list[int]) -> list[TextAttention]:
    order = sorted(recorder.received)
    received = torch.stack([recorder.received[layer] for layer in order], 1).movedim(3, 1)
    diagonal = torch.stack([recorder.diagonal[layer] for layer in order], 1)
    entropy = torch.stack([recorder.entropy[layer] for layer in order], 1).movedim(3, 1)
    arrays = [tensor.cpu().numpy() for tensor in (received, diagonal, entropy)]
    return [
        TextAttention(arrays[0][i, ..., :n], arrays[1][i, ..., :n], arrays[2][i], groups[i, :, :n])
        for i, n in enumerate(lengths)
    ]
