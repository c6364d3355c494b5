"""Cases that combine lists of values: all of them in the slow half, and in the fast half as few as show every value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def grid(*lists: Sequence[Any]) -> list[Any]:
    """Parameters for every combination of one value from each list. The fast half goes through all lists at once, the
    shorter ones repeatedly; the other combinations are slow."""
    fast = {tuple(turn % len(one) for one in lists) for turn in range(max(map(len, lists)))}
    return [
        pytest.param(
            *(one[place] for one, place in zip(lists, places, strict=True)),
            marks=() if places in fast else pytest.mark.slow,
        )
        for places in product(*(range(len(one)) for one in lists))
    ]


def some_fast(values: Sequence[Any], *fast: Any) -> list[Any]:
    """Parameters for all values; those that are not named as fast are slow."""
    assert all(value in values for value in fast), "a fast value is not among all"
    return [pytest.param(value, marks=() if value in fast else pytest.mark.slow) for value in values]
