"""How large a model would be that is built of a config, compared with its weights before any of it takes memory.

Some families keep a mask or a table of all positions beside their weights, as large as a config says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from fillerscope.display import readable
from fillerscope.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

MOST_BESIDE = 1 << 26  # bytes beside weights of no size: masks of 2,048 positions for 16 layers
MOST_TIMES = 8  # as large as its files: they may be in fewer bits than the model in memory
MOST_COMPUTED = 1 << 22  # numbers of a table of positions that transformers computes one by one: some ten seconds


def refuse_large_build(make: Callable[..., PreTrainedModel], config: PretrainedConfig, stored: int, name: str) -> None:
    """Refuse a config of which a model would be built that is much larger than the files of its weights, `stored`
    bytes."""
    try:
        with torch.device("meta"):  # shapes without memory
            model = make(config, trust_remote_code=False)
    except Exception:
        return  # no model can be built of it, as loading it will say
    size = sum(tensor.nbytes for tensor in chain(model.parameters(), model.buffers()))
    if size > MOST_BESIDE + MOST_TIMES * stored:
        raise ModelError(
            f"the config of {name} describes a model of {readable(size)} in memory, and its weights are "
            f"{readable(stored)}; the files belong to different models: download them again"
        )
    computed = max((one.weight.numel() for one in _computed_tables(model, config)), default=0)
    if computed > MOST_COMPUTED:
        raise ModelError(
            f"the config of {name} describes a table of positions with {computed:,} numbers, which are computed one by "
            f"one, and at most {MOST_COMPUTED:,} are: correct max_position_embeddings, or download the file again"
        )


def _computed_tables(model: PreTrainedModel, config: PretrainedConfig) -> Iterator[nn.Embedding]:
    """Tables of sines and cosines, by which Marian, Pegasus, RoFormer and XLM tell positions."""
    for path, module in model.named_modules():
        is_computed = "Sinusoidal" in type(module).__name__ or getattr(config, "sinusoidal_embeddings", False)
        if isinstance(module, nn.Embedding) and is_computed and "position" in path:
            yield module
