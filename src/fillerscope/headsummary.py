"""The few numbers that say what a head does on one problem under one condition.

They are kept for every problem, because they are small and because intervals and pairs need them. numpy
only: sums come in as the capture gives them. Definitions are in docs/method.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fillerscope.prompts import Prompt

Floats = NDArray[np.float64]

METRICS = (
    "received_original",  # mean over original tokens, the first left out
    "received_before",  # the same over those before the filler (without filler: before the question)
    "received_after",  # and over those after it
    "received_filler",
    "received_first",  # whatever stands at position 0: the sink
    "peak",  # the highest value among original tokens, the first left out
    "spread",  # standard deviation over the same tokens
    "kurtosis",  # excess kurtosis over the same tokens
    "entropy",  # of rows, in nats
    "filler_mass",  # mean over original rows after the filler of their weight on the filler
)


class Measured(Protocol):
    """What the capture gives for one text."""

    @property
    def received(self) -> NDArray[np.float32]: ...
    @property
    def rows(self) -> NDArray[np.bool_]: ...
    def mean_entropy(self) -> Floats: ...


def summarise(
    texts: Sequence[Measured], whole: Sequence[Floats], prompts: Sequence[Prompt], plain: Sequence[Prompt],
    skip_first: bool,
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """`heads` [problem, metric, query, layer, head] and `peak_at` [problem, query, layer, head].

    `peak_at` counts original tokens, so that it means the same token under every condition; -1 without a peak.
    """
    found = [
        _one(text, profile, prompt, base, skip_first)
        for text, profile, prompt, base in zip(texts, whole, prompts, plain, strict=True)
    ]
    return {
        "heads": np.stack([values for values, _ in found]).astype(np.float32),
        "peak_at": np.stack([at for _, at in found]).astype(np.int32),
    }


def _one(
    text: Measured, profile: Floats, prompt: Prompt, plain: Prompt, skip_first: bool
) -> tuple[Floats, NDArray[np.int64]]:
    first = 1 if skip_first else 0
    aligned = profile[..., prompt.positions]
    kept = aligned[..., first:]
    boundary = _boundary(prompt, plain)
    values = {
        "received_original": _mean(kept),
        "received_before": _mean(aligned[..., first:boundary]),
        "received_after": _mean(aligned[..., max(boundary, first) :]),
        "received_filler": _mean(profile[..., ~prompt.original]),
        "received_first": profile[..., 0],
        "spread": _spread(kept),
        "kurtosis": _kurtosis(kept),
        "entropy": text.mean_entropy(),
        "filler_mass": _filler_mass(text, prompt),
    }
    values["peak"], at = _peak(kept)
    return np.stack([values[name] for name in METRICS]), np.where(at < 0, -1, at + first)


def _boundary(prompt: Prompt, plain: Prompt) -> int:
    """How many original tokens stand before the filler."""
    start = prompt.filler_start
    return plain.question_start if start is None else int(prompt.original[:start].sum())


def _mean(values: Floats) -> Floats:
    """Over the last axis, leaving missing ones out; NaN, not zero, where there is nothing."""
    valid = np.isfinite(values)
    count = valid.sum(axis=-1)
    return np.where(count > 0, np.where(valid, values, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)


def _peak(values: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The highest value and its place on the last axis; NaN and -1 where there is nothing."""
    lowest = np.full((*values.shape[:-1], 1), -np.inf)  # so that there is something to look at
    filled = np.concatenate([np.where(np.isfinite(values), values, -np.inf), lowest], axis=-1)
    peak, at = filled.max(axis=-1), filled.argmax(axis=-1)
    found = np.isfinite(peak)
    return np.where(found, peak, np.nan), np.where(found, at, -1)


def _spread(values: Floats) -> Floats:
    return np.sqrt(_mean((values - _mean(values)[..., None]) ** 2))


def _kurtosis(values: Floats) -> Floats:
    mean = _mean(values)
    centred = values - mean[..., None]
    variance = _mean(centred**2)
    alike = variance <= (1e-6 * mean) ** 2  # sums are in float32: below this they differ by rounding
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(~alike, _mean(centred**4) / variance**2 - 3.0, np.nan)


def _filler_mass(text: Measured, prompt: Prompt) -> Floats:
    """Filler is one block, so the rows of original tokens below it are the original rows after it."""
    filler = np.flatnonzero(~prompt.original)
    mass = np.full(text.received.shape[:3], np.nan)
    if not len(filler):
        return mass
    # `all` would count filler rows too; past the block every row is an original one, so it equals `original`.
    for group, rows in enumerate((1, 1, 2)):
        voters = int(text.rows[rows, filler[-1] + 1 :].sum())
        if voters:
            mass[group] = text.received[rows][..., filler].astype(np.float64).sum(axis=-1) / voters
    return mass
