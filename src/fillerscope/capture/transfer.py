"""Arrays on their way to a device and back, in page-locked memory: neither side waits for the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A copy that the host does not wait for."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    # In a stream of its own, where it does not queue up behind the work at hand: what it was locked in is free again
    # at once, and need not be locked anew, which is slow, for the next one.
    stream, work = _copying(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(stream):
        copy = tensor.pin_memory().to(device, non_blocking=True)
    work.wait_stream(stream)
    copy.record_stream(work)
    return copy


@cache
def _copying(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Arriving:
    """Tensors that may still be on their way to the host."""

    tensors: dict[str, Tensor]
    event: torch.cuda.Event | None = None

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Arriving:
        if not any(tensor.is_cuda for tensor in tensors.values()):
            return cls({name: tensor.cpu() for name, tensor in tensors.items()})
        host = {name: torch.empty_like(tensor, device="cpu", pin_memory=True) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            host[name].copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return cls(host, event)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Once they have arrived."""
        if self.event is not None:
            self.event.synchronize()
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}
