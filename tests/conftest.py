"""Makes `tests/tiny.py` and its neighbours importable from every test, and lends the real models."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def lent(name):
    """A catalogue model in the user's own cache. A licence is accepted for nobody but the project's own CI."""
    from fillerscope.errors import ModelError
    from fillerscope.models.loading import load_model

    try:
        return load_model(name, device="cpu", accept_licence=bool(os.environ.get("CI")))
    except ModelError as error:
        if "licence" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2():
    return lent("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3():
    return lent("gemma-3-270m")
