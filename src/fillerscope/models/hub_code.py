"""Keeps transformers from fetching and running code of the hub, which it does where the package `kernels` is installed.

No digest knows that code, and its authors may change it at any time.
"""

from __future__ import annotations

import sys
from typing import cast

PACKAGE = "kernels"
EXPERTS = ("eager", "batched_mm", "grouped_mm")  # the ways to compute experts that are code of transformers alone


def hide_hub_code() -> None:
    """Have `kernels` missing in this process from now on, also where transformers has been imported with it."""
    cast(dict[str, object], sys.modules)[PACKAGE] = None  # imports of it fail, and nothing finds it
    if known := sys.modules.get("transformers.utils.import_utils"):
        known.is_kernels_available.cache_clear()
    if (fetching := sys.modules.get("transformers.integrations.hub_kernels")) and hasattr(fetching, "get_kernel_hub"):
        vars(fetching)["get_kernel_hub"] = _refuse


def _refuse(name: str, *_: object, **__: object) -> None:
    raise ImportError(f"{name} is code of the hub, which fillerscope does not run")
