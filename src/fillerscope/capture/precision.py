"""Run a model in another precision inside a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fillerscope.capture.fused import without_warning
from fillerscope.capture.memory import free_memory
from fillerscope.models.structure import device_of


@contextmanager
def in_float32(model: nn.Module) -> Iterator[bool]:
    """Inside the block a model in half precision has its weights in float32; the way back loses nothing.

    Yields False, with the model unchanged, where it is in float32 already or memory does not hold it."""
    half = [one for one in (*model.parameters(), *model.buffers()) if one.dtype in (torch.float16, torch.bfloat16)]
    free = free_memory(device_of(model))
    needed = sum(one.numel() * 4 for one in half)
    if not half or needed > free / 2:
        yield False
        return
    kinds = [one.dtype for one in half]
    try:
        for one in half:
            one.data = one.data.float()
        with without_warning():
            yield True
    finally:
        for one, kind in zip(half, kinds, strict=True):
            one.data = one.data.to(kind)
