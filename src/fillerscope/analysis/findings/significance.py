"""Whether a difference between answers is significant, and how the answers were drawn, in words."""

from __future__ import annotations

import math

from fillerscope.analysis.accuracy import Accuracy, Difference
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.noise import Noise


def significance(change: Difference) -> str:
    """Whether accuracy changes, with p after Holm."""
    words = significance_words(change)
    return f"{words} (p = {change.adjusted:.2g})" if math.isfinite(change.adjusted) else words


def significance_words(change: Difference) -> str:
    """The same without p."""
    if not math.isfinite(change.adjusted):
        return "cannot be told: no problem was answered under both"
    if change.adjusted >= ALPHA:
        return "not significant"
    return f"a significant {'gain' if change.difference > 0 else 'loss'}"


def drawing(row: Accuracy | Noise) -> str:
    """How the answers were drawn."""
    if row.temperature == 0:
        return "greedy"
    return f"temperature {row.temperature:g}, {row.samples} sample{'s' * (row.samples > 1)} a problem"


def finding_name(kind: str, row: Accuracy | Noise) -> str:
    """The name of a finding on one condition and way of drawing."""
    drawn = "" if row.temperature == 0 else f"_t{row.temperature:g}x{row.samples}"
    return f"{kind}_{row.condition}{drawn}"
