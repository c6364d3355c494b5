"""Tensor parallelism: processes that torchrun has started share the heads and the MLPs of one model.

All of them run the same passes. Each has the heads of its own, in order, and what is measured of them is added up once
a pass, so that every process has all of it. Without torchrun there is one process, and everything here does nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fillerscope.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PretrainedConfig

STARTED = "TORCHELASTIC_RUN_ID"  # what torchrun alone sets


def processes() -> int:
    """How many processes share the model."""
    return int(os.environ.get("WORLD_SIZE", "1")) if STARTED in os.environ else 1


def rank() -> int:
    """The number of this process, from 0. The first one writes."""
    return int(os.environ.get("RANK", "0")) if processes() > 1 else 0


def join() -> None:
    """Meet the other processes."""
    import torch
    from torch import distributed

    if processes() > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def own_device(device: str) -> str:
    """The device of this process, of several of a kind."""
    if processes() == 1 or device != "cuda":
        return device
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def loading_options(config: PretrainedConfig, name: str) -> dict[str, Any]:
    """What transformers is told to load the share of this process; nothing where there is one process."""
    count = processes()
    if count == 1:
        return {}
    from transformers.distributed import DistributedConfig

    own = config.get_text_config()
    heads = own.num_attention_heads
    shared = getattr(own, "num_key_value_heads", None) or heads
    if heads % count or shared % count:
        raise ModelError(
            f"{name} has {heads} heads and {shared} of keys, which {count} processes cannot share evenly; give "
            "torchrun a number of processes that divides both"
        )
    join()
    return {"distributed_config": DistributedConfig(tp_size=count, tp_plan="auto")}


def own_heads(heads: int) -> slice:
    """The heads of this process among all of them."""
    share = heads // processes()
    return slice(rank() * share, (rank() + 1) * share)


def widened(tensor: Tensor, heads: int, axis: int) -> Tensor:
    """A tensor of this process's heads as one of all heads, with zeros for the others."""
    if processes() == 1:
        return tensor
    own, shape = own_heads(heads), list(tensor.shape)
    shape[axis] = heads
    whole = tensor.new_zeros(shape)
    whole.narrow(axis, own.start, own.stop - own.start).copy_(tensor)
    return whole


def added_up(tensor: Tensor) -> Tensor:
    """The sum of what all processes have, in place."""
    if processes() == 1:
        return tensor
    import torch
    from torch import distributed

    here = torch.device(own_device("cuda")) if distributed.get_backend() == "nccl" else tensor.device
    moved = tensor.to(here).contiguous()
    distributed.all_reduce(moved)
    return tensor if moved is tensor else tensor.copy_(moved)


def least(number: int) -> int:
    """The least of the numbers that all processes have, such as how much their memory holds."""
    if processes() == 1:
        return number
    import torch
    from torch import distributed

    device = own_device("cuda") if distributed.get_backend() == "nccl" else "cpu"
    value = torch.tensor(number, device=device)
    distributed.all_reduce(value, op=distributed.ReduceOp.MIN)
    return int(value)


def is_same(digest: str) -> bool:
    """Whether all processes have this digest."""
    parts = [int(digest[start : start + 12], 16) for start in range(0, len(digest), 12)]
    ends = [(least(part), -least(-part)) for part in parts]  # of all parts: the others wait for each
    return all(low == high for low, high in ends)


def wait_for_all() -> None:
    """Wait until all processes are here."""
    if processes() > 1:
        from torch import distributed

        distributed.barrier()
