"""Memory of the device: how many tokens one forward pass takes, and copies between host and device.

Copies go through page-locked memory, so that neither side waits for the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.models.spread import layer_devices
from fillerscope.models.structure import (
    attention_modules,
    decoder_of,
    device_of,
    head_count,
    layer_count,
    text_config,
)

MOST = {"cpu": 256, "mps": 4096, "cuda": 16384}  # beyond these nothing becomes faster; less shows progress sooner
FEWEST = 64
SHARE = 0.5  # of the memory that is free; the rest is for what the estimate leaves out
SUMS_SHARE = 1 / 32  # of a GPU's memory, whatever is free: for the sums of one pass


def pass_tokens(model: nn.Module, most: int | None = None) -> int:
    """Return how many tokens one forward pass of a model takes: enough to be fast, and no more than memory holds.

    A power of two: machines of the same kind have not quite the same memory free, and must not differ for that."""
    free = min(map(free_memory, set(layer_devices(model))))
    return tokens_in(free, model, MOST[device_of(model).type] if most is None else most)


def tokens_in(free: int, model: nn.Module, most: int) -> int:
    """How many tokens of a pass so many bytes hold, up to `most`."""
    held = max(FEWEST, int(SHARE * free / bytes_a_token(model)))
    return min(most, 1 << held.bit_length() - 1)


def bytes_a_token(model: nn.Module) -> int:
    """Bytes that a token needs while the model runs: the widest layer's intermediate results, and all layers' sums."""
    config = text_config(model)
    hidden = int(config.hidden_size)
    widths = getattr(config, "intermediate_size", None) or 4 * hidden
    widest = max(widths) if isinstance(widths, list | tuple) else int(widths)  # some have one for each layer
    element = int(next(model.parameters()).element_size())
    return element * (8 * hidden + 3 * widest) + 4 * 8 * layer_count(model) * head_count(model)


def kv_bytes_a_token(model: nn.Module) -> int:
    """Bytes of the keys and values of a token, in all layers."""
    element = int(next(model.parameters()).element_size())
    return element * sum(_kv_width(model, module) for module in attention_modules(decoder_of(model)).values())


def _kv_width(model: nn.Module, attention: nn.Module) -> int:
    """How many numbers the keys and values of a token have in a layer."""
    own = [getattr(getattr(attention, name, None), "out_features", None) for name in ("k_proj", "v_proj")]
    if all(isinstance(width, int) for width in own):
        return sum(width for width in own if width is not None)
    kv_heads = setting_of(model, "num_key_value_heads") or head_count(model)
    return 2 * int(kv_heads) * head_size(model)


def head_size(model: nn.Module) -> int:
    """Numbers of a head; where layers differ, an equal share of the hidden ones."""
    return int(setting_of(model, "head_dim") or text_config(model).hidden_size // head_count(model))


def setting_of(model: nn.Module, name: str) -> int | None:
    """A setting of all layers; None where there is none, or another one for each layer."""
    try:
        value = getattr(text_config(model), name, None)
    except Exception:  # some configs refuse to say what differs between layers
        return None
    return value if isinstance(value, int) else None


def free_memory(device: torch.device) -> int:
    """Bytes that are free: on a GPU those of the GPU, elsewhere those of the machine."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return int(psutil.virtual_memory().available)


def memory_beside_weights(model: nn.Module) -> int:
    """Bytes of the device's memory that the model's weights leave, whatever else is in it now: the same on all machines
    of a kind. Of several devices those in which there are as many for each layer everywhere."""
    layers = Counter(layer_devices(model))
    return min(_beside_weights(model, device) * layers.total() // number for device, number in layers.items())


def _beside_weights(model: nn.Module, device: torch.device) -> int:
    whole = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else psutil.virtual_memory().total
    weights = sum(parameter.nbytes for parameter in model.parameters() if parameter.device == device)
    return max(0, int(whole) - weights)


def stays(size: int, device: torch.device) -> bool:
    """Whether the sums of a pass, of so many bytes, stay on their device. Larger ones are moved to the host layer by
    layer, where reducing them takes several times as long."""
    return device.type != "cuda" or size <= SUMS_SHARE * torch.cuda.get_device_properties(device).total_memory


def wait_for(devices: Iterable[torch.device]) -> None:
    """Wait until GPUs among some devices have done what they were given."""
    for device in set(devices):
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()


def to_device(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy an array to a device without making the host wait."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    # In a stream of its own, where it does not queue behind other work: its page-locked memory is free again at once
    # and can be used for the next copy; locking new pages is slow.
    stream, work = _copy_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(stream):
        copy = tensor.pin_memory().to(device, non_blocking=True)
    work.wait_stream(stream)
    copy.record_stream(work)
    return copy


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class PendingCopy:
    """Tensors that are being copied to the host."""

    tensors: dict[str, Tensor]
    event: torch.cuda.Event | None = None

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> PendingCopy:
        """Start copying tensors to the host."""
        if not any(tensor.is_cuda for tensor in tensors.values()):
            return cls({name: tensor.cpu() for name, tensor in tensors.items()})
        host = {name: torch.empty_like(tensor, device="cpu", pin_memory=True) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            host[name].copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        device = next(tensor.device for tensor in tensors.values() if tensor.is_cuda)
        event.record(torch.cuda.current_stream(device))  # where the copies are, whichever device is the current one
        return cls(host, event)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Wait for the copies and return them as arrays."""
        if self.event is not None:
            self.event.synchronize()
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}
