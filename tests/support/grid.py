"""Many cases of one test: how few of them show every value, and which one of a loop has failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def case(*given: Any) -> Iterator[None]:
    """Name the case in what pytest says about a failure inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {', '.join(map(repr, given))}")
        raise


def some_fast(values: Sequence[Any], *fast: Any) -> list[Any]:
    """Parameters for all values; those that are not named as fast are slow."""
    assert all(value in values for value in fast), "a fast value is not among all"
    return [pytest.param(value, marks=() if value in fast else pytest.mark.slow) for value in values]
