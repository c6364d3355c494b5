"""Weights in 8 or 4 bits, rounded while they are loaded, so that a large model fits a small GPU.

What is measured is the rounded model: embeddings, norms and what is computed stay in floating point. Schemes that round
activations as well are left out: there a text is rounded with its neighbours in a pass.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fillerscope.errors import ModelError
from fillerscope.models.tensor_parallel import processes
from fillerscope.study.study import ALL_GPUS

if TYPE_CHECKING:
    import torch
    from torch import nn

INT8, NF4 = "int8", "nf4"
LIBRARIES = {INT8: "torchao", NF4: "bitsandbytes"}  # that round, by dtype
DEVICES = ("cpu", "cuda")


def refuse_quantising(dtype: str, device: str) -> None:
    """Raise where weights cannot be rounded to so few bits."""
    library = LIBRARIES[dtype]
    if find_spec(library) is None:
        raise ModelError(f"dtype {dtype} wants {library}: pip install 'fillerscope[quantised]'")
    if device.partition(":")[0] not in DEVICES or device == ALL_GPUS or processes() > 1:
        raise ModelError(f"weights in {dtype} are for one process on a CPU or one GPU: choose another dtype or device")


def quantising(dtype: str, computed: torch.dtype, device: str) -> dict[str, object]:
    """What transformers is told to round weights to `dtype`; nothing for other dtypes."""
    if dtype not in LIBRARIES:
        return {}
    from transformers import BitsAndBytesConfig, TorchAoConfig

    if dtype == NF4:
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_compute_dtype=computed)
    else:
        from torchao.quantization import Int8WeightOnlyConfig

        config = TorchAoConfig(Int8WeightOnlyConfig())
    return {"quantization_config": config, "device_map": {"": device}}


def is_rounded(weight: torch.Tensor) -> bool:
    """Whether a weight is in few bits."""
    return not weight.is_floating_point() or type(weight).__module__.startswith(LIBRARIES[INT8])


def is_quantised(model: nn.Module) -> bool:
    """Whether some weights of a model are in few bits."""
    return any(map(is_rounded, model.parameters()))
