from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ray_runs import closed_ray


@pytest.fixture(scope="package", autouse=True)
def _closed_ray() -> Iterator[None]:
    """For every test here: Ray is imported once in a process, and reads only then whether its clusters are closed."""
    with closed_ray():
        yield
