"""What the tests of the kernels need where there is no GPU."""

import pytest

from support import interpreter


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch):
    interpreter.mend(monkeypatch)
