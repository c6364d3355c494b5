"""The reduction of a shard's probes: metrics of every problem, moments of the bias, histograms.

Like `reduce`, runs on the device that measured, in float64. Knows nothing of files.
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
    """The stored arrays, by name. `numbers` are those of each condition's texts, the baseline first."""
    arrays: dict[str, Tensor] = {}
    for place, (name, texts) in enumerate(numbers.items()):
        probes = {probe: _of(tensor, texts) for probe, tensor in measured.probes.items()}
        if "affine" in probes and place:
            arrays[Quantity.AFFINE.key(name)] = probes["affine"].permute(0, 2, 1, 3).float().contiguous()
            moments = _moments(probes["affine_more"], measured.without)
            arrays |= {Quantity.BIAS.key(name, part): array for part, array in moments.items()}
        if "activity" in probes:
            arrays[Quantity.ACTIVATIONS.key(name)] = probes["activity"].permute(0, 3, 2, 1).float().contiguous()
            arrays[Quantity.HISTOGRAM.key(name, "counts")] = probes["activity_more"].sum(0, dtype=torch.int64)
    return arrays


def _of(tensor: Tensor, texts: Sequence[int]) -> Tensor:
    """[problem, layer, ...] of [layer, text, ...]."""
    return tensor.transpose(0, 1).index_select(0, to_device(np.array(texts), tensor.device))


def _moments(values: Tensor, without: Sequence[int]) -> dict[str, Tensor]:
    """Moments over the problems [problem, layer, head, dim] with a bias in every head of every attention layer.

    `without` are the layers that have no attention."""
    finite = torch.isfinite(values).flatten(2).all(2)
    finite[:, list(without)] = True
    kept = finite.all(1)
    mask = kept[:, None, None, None]
    count = kept.sum()
    mean = torch.where(mask, values, 0.0).sum(0) / count.clamp(min=1)
    deviations = torch.where(mask, values - mean, 0.0)
    return {
        "count": count.reshape(1, 1, 1),
        "mean": mean,
        "m2": deviations.square().sum(0),
        "m3": deviations.pow(3).sum(0),
    }
