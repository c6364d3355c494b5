"""How many cases a test tries: few in `make test`, more in `make test-slow`, all in `make chaos`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

LONG = "FILLERSCOPE_CHAOS"  # set by `make chaos`


def is_long() -> bool:
    return bool(os.environ.get(LONG))


def cases(fast: int, slow: int, long: int) -> Iterator[Any]:
    """Seeds from 0 on as parameters of a test: those from `fast` on are slow ones, those from `slow` on run in
    `make chaos` alone."""
    for seed in range(long if is_long() else slow):
        yield seed if seed < fast else pytest.param(seed, marks=pytest.mark.slow)
