"""What the probes of a shard add up to: the numbers of every problem, moments of the bias, histograms.

Like `reduce`, on the device that measured, in float64. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fillerscope.capture.memory import to_device
from fillerscope.capture.passes import Measured
from fillerscope.store.schema import Quantity


def tally(numbers: Mapping[str, Sequence[int]], measured: Measured) -> dict[str, Tensor]:
    """Arrays by name. `numbers` are those of each condition's texts, problem by problem, `none` first."""
    found: dict[str, Tensor] = {}
    for place, (name, texts) in enumerate(numbers.items()):
        mine = {probe: _of(tensor, texts) for probe, tensor in measured.probes.items()}
        if "affine" in mine and place:
            found[Quantity.AFFINE.key(name)] = mine["affine"].permute(0, 2, 1, 3).float().contiguous()
            moments = _moments(mine["affine_more"], measured.without)
            found |= {Quantity.BIAS.key(name, part): array for part, array in moments.items()}
        if "activity" in mine:
            found[Quantity.ACTIVATIONS.key(name)] = mine["activity"].permute(0, 3, 2, 1).float().contiguous()
            found[Quantity.HISTOGRAM.key(name, "counts")] = mine["activity_more"].sum(0, dtype=torch.int64)
    return found


def _of(tensor: Tensor, texts: Sequence[int]) -> Tensor:
    """[problem, layer, ...] of [layer, text, ...]."""
    return tensor.transpose(0, 1).index_select(0, to_device(np.array(texts), tensor.device))


def _moments(values: Tensor, without: Sequence[int]) -> dict[str, Tensor]:
    """Over the problems [problem, layer, head, dim] that have a bias in every layer with attention and every head."""
    finite = torch.isfinite(values).flatten(2).all(2)
    finite[:, list(without)] = True
    kept = finite.all(1)
    marks = kept[:, None, None, None]
    count = kept.sum()
    mean = torch.where(marks, values, 0.0).sum(0) / count.clamp(min=1)
    apart = torch.where(marks, values - mean, 0.0)
    return {"count": count.reshape(1, 1, 1), "mean": mean, "m2": apart.square().sum(0), "m3": apart.pow(3).sum(0)}
