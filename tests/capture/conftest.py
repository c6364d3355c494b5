"""What the tests of the kernels need where there is no GPU."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _loops_with_recent_numpy(monkeypatch):
    """Triton's interpreter turns arrays of one number into loop bounds in a way that numpy 2.4 refuses."""
    if "triton" not in sys.modules:
        return
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def mended(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", mended)
