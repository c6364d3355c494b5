"""An untrained twin: a model of the same configuration with weights drawn anew by its own initialisation.

Whatever it shows is due to architecture, repetition and length, not to training.
"""

from __future__ import annotations

from typing import Any

import torch

from fillerscope.errors import ModelError
from fillerscope.models.wording import first_line


def untrained(loader: Any, config: Any, dtype: torch.dtype, device: str, seed: int) -> Any:
    """Drawn on its device, where large models take seconds. The caller's random numbers stay as they were."""
    place = torch.device(device)
    with torch.random.fork_rng([place] if place.type == "cuda" else [], device_type=place.type):
        torch.manual_seed(seed)
        try:
            with place:
                model = loader.from_config(config, dtype=dtype, trust_remote_code=False)
        except Exception as error:
            raise ModelError(
                f"an untrained twin of this {config.model_type} model cannot be drawn: {first_line(error)}"
            ) from error
    return model.eval().requires_grad_(False)
