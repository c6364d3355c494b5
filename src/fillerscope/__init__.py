"""fillerscope: what inserted filler tokens do to a decoder language model.

The names below are the library. They are loaded on first use, so that opening a finished run needs no
torch and starting the command line stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fillerscope.version import __version__

if TYPE_CHECKING:
    from fillerscope.analysis.run import Run, open_run
    from fillerscope.api import attention_profile, run
    from fillerscope.arm.hooks import arm
    from fillerscope.errors import FillerscopeError
    from fillerscope.models.loading import load_model
    from fillerscope.study.study import Study

_HOMES = {
    "Study": "fillerscope.study.study",
    "run": "fillerscope.api",
    "open_run": "fillerscope.analysis.run",
    "Run": "fillerscope.analysis.run",
    "load_model": "fillerscope.models.loading",
    "attention_profile": "fillerscope.api",
    "arm": "fillerscope.arm.hooks",
    "FillerscopeError": "fillerscope.errors",
}

__all__ = [
    "FillerscopeError",
    "Run",
    "Study",
    "__version__",
    "arm",
    "attention_profile",
    "load_model",
    "open_run",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fillerscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
