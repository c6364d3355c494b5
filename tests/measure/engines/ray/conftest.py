from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.ray_runs import closed_ray


@pytest.fixture(scope="module", autouse=True)
def _closed_ray() -> Iterator[None]:
    """For every test here: Ray is imported once in a process, and reads only then whether its clusters are closed. A
    wider scope would last until the process ends, as these folders are no packages: Ray's own commands would fail."""
    with closed_ray():
        yield
