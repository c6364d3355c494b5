"""A model that is larger than a GPU: its layers are put on all GPUs of the machine, and those that these have no room
for stay in main memory, from which each is copied to the first GPU when it runs.

Layers stay whole, so that attention is measured as on one device. accelerate moves tensors between devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import psutil
import torch
from torch import Tensor, nn

from fillerscope.display import readable
from fillerscope.errors import ModelError
from fillerscope.models.structure import decoder_of, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAIN_MEMORY, DISK = "cpu", "disk"  # accelerate's names
WEIGHTS_SHARE = 0.6  # of the memory that a GPU has free; the rest is for passes, keys and values
Places = Mapping[str, int | str]  # by module: the number of a GPU, or main memory


def is_spread(model: nn.Module) -> bool:
    """Whether the layers of a model are in several places."""
    return len(set(getattr(model, "hf_device_map", {}).values())) > 1


def layer_devices(model: nn.Module) -> list[torch.device]:
    """The device on which each layer runs, wherever its weights are meanwhile."""
    return [_runs_on(layer) for layer in layers_of(decoder_of(model))]


def room() -> dict[int | str, int]:
    """Bytes for weights on each GPU of this machine, and in its main memory."""
    found: dict[int | str, int] = {}
    for number in range(torch.cuda.device_count()):
        found[number] = int(WEIGHTS_SHARE * torch.cuda.mem_get_info(number)[0])
    return found | {MAIN_MEMORY: int(psutil.virtual_memory().available)}


def places_of(model: PreTrainedModel, room: Mapping[int | str, int], label: str) -> Places:
    """Where the modules of a model go: evenly on GPUs, then in main memory."""
    from accelerate.utils import get_balanced_memory, infer_auto_device_map

    whole = _layer_classes(model)
    even = get_balanced_memory(model, dict(room), no_split_module_classes=whole)
    places: Places = infer_auto_device_map(model, even, no_split_module_classes=whole)
    if DISK in places.values() or not isinstance(next(iter(places.values())), int):
        size = readable(sum(parameter.nbytes for parameter in model.parameters()))
        raise ModelError(
            f"{label} takes {size}, which the GPUs and the main memory of this machine have no room for; close other "
            "programs, or choose a smaller model or dtype"
        )
    return places


def staying(model: nn.Module, places: Places) -> list[Tensor]:
    """The weights that stay in main memory."""
    modules = [model.get_submodule(name) for name, place in places.items() if place == MAIN_MEMORY]
    return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]


def spread(model: PreTrainedModel, places: Places) -> PreTrainedModel:
    """A model with its modules in these places. A layer of main memory is copied as a whole, for as long as it runs."""
    from accelerate import dispatch_model

    dispatched: PreTrainedModel = dispatch_model(
        model, dict(places), main_device=next(iter(places.values())),
        skip_keys=sorted(model._skip_keys_device_placement or ()), preload_module_classes=_layer_classes(model),
    )  # fmt: skip
    return dispatched


def _layer_classes(model: nn.Module) -> list[str]:
    return sorted({type(layer).__name__ for layer in layers_of(decoder_of(model))})


def _runs_on(layer: nn.Module) -> torch.device:
    """Where accelerate's hook of a layer has it run, or else where its weights are."""
    hook = getattr(layer, "_hf_hook", None)
    hooks = (hook, *getattr(hook, "hooks", ()))  # one, or several in one
    devices = (getattr(one, "execution_device", None) for one in hooks)
    given = next((device for device in devices if device is not None), next(layer.parameters()).device)
    return torch.device("cuda", given) if isinstance(given, int) else torch.device(given)
