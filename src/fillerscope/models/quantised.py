"""Weights in 8 or 4 bits, rounded while they are loaded, so that a large model fits a small GPU.

What is measured is the rounded model: embeddings, norms and what is computed stay in floating point. Schemes that round
activations as well are left out: there a text is rounded with its neighbours in a pass.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.tensor_parallel import processes
from fillerscope.study.study import ALL_GPUS

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig

INT8, NF4 = "int8", "nf4"
LIBRARIES = {INT8: "torchao", NF4: "bitsandbytes"}  # that round, by dtype
DEVICES = ("cpu", "cuda")
UNPACKED = "mxfp4"


def refuse_saved_in_few_bits(config: PretrainedConfig, name: str) -> None:
    """Raise where the weights of a model were rounded before they were saved, other than as transformers unpacks them
    by itself: native code of some package would read them, which looks at no size, and no digest knows its version."""
    for given in _quantisations(config.to_dict()):
        method = given.get("quant_method", "bitsandbytes")  # whose older configs do not say
        if method != UNPACKED:
            raise ModelError(
                f"the weights of {name} were saved in few bits by {method}: choose the model that they were made of, "
                "with `dtype: int8` or `dtype: nf4`, or let a server answer with them"
            )


def _quantisations(section: Json) -> Iterator[Json]:
    """The settings of quantisation in a config and in its parts."""
    if isinstance(given := section.get("quantization_config"), dict):
        yield given
    for value in section.values():
        if isinstance(value, dict):
            yield from _quantisations(value)


def refuse_quantising(dtype: str, device: str) -> None:
    """Raise where weights cannot be rounded to so few bits."""
    library = LIBRARIES[dtype]
    if find_spec(library) is None:
        raise ModelError(f"dtype {dtype} wants {library}: pip install 'fillerscope[quantised]'")
    if device.partition(":")[0] not in DEVICES or device == ALL_GPUS or processes() > 1:
        raise ModelError(f"weights in {dtype} are for one process on a CPU or one GPU: choose another dtype or device")


def quantising(config: PretrainedConfig, dtype: str, computed: torch.dtype, device: str) -> dict[str, object]:
    """What transformers is told to round weights to `dtype`, or to unpack those that were saved in few bits; nothing
    for others."""
    from transformers import BitsAndBytesConfig, Mxfp4Config, TorchAoConfig

    if dtype not in LIBRARIES:  # packed weights would be computed with otherwise, where some packages are installed
        is_packed = getattr(config, "quantization_config", None) is not None
        return {"quantization_config": Mxfp4Config(dequantize=True)} if is_packed else {}

    if dtype == NF4:
        _import_bitsandbytes()
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_compute_dtype=computed)
    else:
        from torchao.quantization import Int8WeightOnlyConfig

        config = TorchAoConfig(Int8WeightOnlyConfig())
    return {"quantization_config": config, "device_map": {"": device}}


def _import_bitsandbytes() -> None:
    """Import bitsandbytes without `kernels`, by which it too would run code of the hub on some processors."""
    hide_hub_code()
    logger = logging.getLogger("bitsandbytes")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)  # it would say that it misses them
        import_module("bitsandbytes")
    finally:
        logger.setLevel(level)


def use_plain_kernels(model: nn.Module) -> None:
    """Have weights in 4 bits computed alike on all processors.

    On some, bitsandbytes would round them once more, compute in bfloat16, and fail where a size is no multiple of 64.
    """
    for module in model.modules():
        if "support_avx512bf16_for_cpu" in vars(module):
            vars(module)["support_avx512bf16_for_cpu"] = False


def is_rounded(weight: torch.Tensor) -> bool:
    """Whether a weight is in few bits."""
    return not weight.is_floating_point() or type(weight).__module__.startswith(LIBRARIES[INT8])


def is_quantised(model: nn.Module) -> bool:
    """Whether some weights of a model are in few bits."""
    return any(map(is_rounded, model.parameters()))
