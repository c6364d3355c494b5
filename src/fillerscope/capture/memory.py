"""How many tokens one forward pass takes: enough to be fast, and no more than memory holds."""

from __future__ import annotations

import psutil
import torch
from torch import nn

from fillerscope.models.structure import device_of, head_count, layer_count, text_config

MOST = {"cpu": 256, "mps": 4096, "cuda": 16384}  # beyond these nothing becomes faster; less shows progress sooner
FEWEST = 64
SHARE = 0.5  # of the memory that is free; the rest is for what the estimate leaves out


def pass_tokens(model: nn.Module) -> int:
    device = device_of(model)
    most = MOST[device.type]
    return max(FEWEST, min(most, int(SHARE * free_memory(device) / bytes_a_token(model))))


def bytes_a_token(model: nn.Module) -> int:
    """What a token needs while the model runs: the widest layer's intermediate results, and all layers' sums."""
    config = text_config(model)
    hidden = int(config.hidden_size)
    widths = getattr(config, "intermediate_size", None) or 4 * hidden
    widest = max(widths) if isinstance(widths, list | tuple) else int(widths)  # some have one for each layer
    element = int(next(model.parameters()).element_size())
    return element * (8 * hidden + 3 * widest) + 4 * 8 * layer_count(model) * head_count(model)


def free_memory(device: torch.device) -> int:
    """The bytes that can still be had: on a GPU those of the GPU, elsewhere those of the machine."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return int(psutil.virtual_memory().available)
