"""Take the thresholds for activations from prompts without filler, before anything is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fillerscope.capture.activations import HIGHEST, LOWEST, Scale, rounded, watching_activations
from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import PassRunner

TOKENS = 512  # as many of the first prompts as fit
NORMAL = 1.4826  # makes the MAD of a normal distribution its standard deviation
BELOW = 3  # octaves of the histogram below the smallest threshold


def calibrate(runner: PassRunner, texts: Sequence[Text], c: float) -> Scale:
    """Return the scale of the probed tokens of these texts, run in one pass inside `capturing`."""
    packing = runner.packing(texts)
    pairs = zip(packing.places(), texts, strict=True)
    rows = np.concatenate([place.start + np.flatnonzero(text.probed) - text.shared for place, text in pairs])
    levels: list[tuple[float, float, float]] = []
    with watching_activations(runner.model, lambda _, values: levels.append(_levels(values.flatten(0, 1), rows))):
        runner.one_pass(texts)
    median, mad, largest = (np.array(some) for some in zip(*levels, strict=True))
    eps = tuple(rounded(NORMAL * one * c) for one in mad)
    low = min(math.floor(math.log2(min(eps))) - BELOW, HIGHEST - 2)
    high = math.ceil(math.log2(max(largest.max(), 1e-9))) + 1
    low = max(low, LOWEST + 1)  # what counts as zero is in the middle of the histogram
    octaves = low, min(max(high, low + 2), HIGHEST)
    return Scale(eps, tuple(map(rounded, median)), octaves, len(texts), len(rows))


def _levels(values: Tensor, rows: np.ndarray) -> tuple[float, float, float]:
    """Median, MAD and maximum of absolute values."""
    sizes = values.index_select(0, to_device(rows, values.device)).float().abs().flatten()
    median = sizes.median()
    return float(median), float((sizes - median).abs().median()), float(sizes.max())


def is_enough(texts: Sequence[Text]) -> bool:
    """Whether `first_texts` would take no further text."""
    return sum(map(len, texts)) >= TOKENS


def first_texts(texts: Sequence[Text]) -> list[Text]:
    """The first texts that fit into TOKENS, at least one."""
    ends = np.cumsum([len(text) for text in texts])
    return list(texts[: max(1, int((ends <= TOKENS).sum()))])
