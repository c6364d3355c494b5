"""Whether the weights of a loaded model are those of the files that were hashed.

transformers can be sent to other files by a setting that nobody has thought of. Of every tensor in the hashed files
that the model has by the same name, in the same shape, one row is compared, which nobody can foretell.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fillerscope.errors import ModelError
from fillerscope.models.quantised import is_rounded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLAIN = ("F64", "F32", "F16", "BF16")  # dtypes of which a model's own are made by rounding alone


def refuse_other_values(model: PreTrainedModel, folder: Path, name: str) -> None:
    """Raise where a weight of the model is not what the files in a folder hold under its name, or where they have none
    of its names."""
    from safetensors import safe_open

    own, compared = dict(model.named_parameters()), 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  # it is no mapping
                weight = own.get(key, own.get(f"{model.base_model_prefix}.{key}"))
                stored = file.get_slice(key)
                if weight is None or list(weight.shape) != stored.get_shape() or stored.get_dtype() not in PLAIN:
                    continue
                if is_rounded(weight):
                    continue
                row = slice(number := secrets.randbelow(max(1, len(weight))), number + 1) if weight.ndim else ...
                loaded, expected = weight.detach()[row].cpu(), stored[row].to(weight.dtype)
                compared += 1
                if not torch.allclose(loaded, expected, rtol=0.0, atol=0.0, equal_nan=True):
                    raise ModelError(
                        f"{key} of {name} was not loaded from {path.name}, which holds other numbers: a setting in the "
                        "folder leads to other files, and those are not hashed; download the model again"
                    )
    if not compared:
        raise ModelError(
            f"no weight of {name} has a name and size that its files have, so that it cannot be told whether it was "
            "loaded from them; load it with transformers where you trust it, call save_pretrained, and give that folder"
        )
