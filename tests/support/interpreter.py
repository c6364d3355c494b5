"""Triton's interpreter, which runs the kernels where there is no GPU."""

from __future__ import annotations

import sys

import pytest


def mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it work with recent numpy, and faster."""
    if "triton" not in sys.modules:
        return
    from triton.runtime import interpreter

    patch_tensor, patch_language = interpreter._patch_lang_tensor, interpreter._patch_lang
    patched: set[str] = set()

    def with_index(tensor, scope):  # type: ignore[no-untyped-def]
        """It turns arrays of one number into loop bounds in a way that numpy 2.4 refuses."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def launch(function):  # type: ignore[no-untyped-def]
        patched.clear()
        patched.add(function.__module__)
        return patch_language(function)

    def call(function, *given, **named):  # type: ignore[no-untyped-def]
        """It exchanges the language's functions with every call inside a kernel, which takes a third of the time:
        once a launch and module is enough."""
        if function.fn.__module__ not in patched:
            patched.add(function.fn.__module__)
            patch_language(function.fn)
        return function.rewrite()(*given, **named)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_index)
    monkeypatch.setattr(interpreter, "_patch_lang", launch)
    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)
