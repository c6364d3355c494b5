"""Makes `tests/tiny.py` and its neighbours importable from every test, and lends the real models."""

import os
import sys
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton, which reads it once

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


@pytest.fixture(autouse=True)
def _one_thread(request):
    """Threads cost more than they give on models this small; the real ones get them all."""
    torch = sys.modules.get("torch")
    if torch is None or request.node.get_closest_marker("weights"):
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
