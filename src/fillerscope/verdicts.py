"""Verdicts on claims about filler: their degrees, and the rule that decides between them.

An untrained model shows a fall of attention, a plateau on repeated tokens and a scaled output too: what is claimed of
a model must lie beyond what its untrained twins, or a measured control, show. Knows numbers only, no run.
"""

from __future__ import annotations

from enum import StrEnum


class Degree(StrEnum):
    HOLDS = "holds"
    LITTLE = "holds by little"  # beyond its reference, by less than the size in docs/method.md
    UNTESTED = "not tested against its control"
    FAILS = "does not hold"
    UNKNOWN = "cannot be told"
