"""Packages that nobody has to install and that compute for a model where they are: transformers takes them by itself.

`kernels` is none of them: it is hidden (`hub_code.py`).
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

# By the names under which they are imported, the distributions that bring them: those that models ask for in
# transformers, and triton, in which ours are written.
COMPUTING = {
    "apex": ("apex",), "causal_conv1d": ("causal-conv1d",), "deep_gemm": ("deep-gemm",), "einops": ("einops",),
    "fla": ("flash-linear-attention", "fla-core"), "flash_attn": ("flash-attn", "flash-attn-4"),
    "flash_attn_interface": ("flash-attn-3",), "liger_kernel": ("liger-kernel",), "mamba_ssm": ("mamba-ssm",),
    "mambapy": ("mambapy",), "natten": ("natten",),
    "triton": ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-windows"),
    "xielu": ("xielu",), "xlstm": ("xlstm",),
}  # fmt: skip


def optional_packages() -> dict[str, str]:
    """The versions of those that are installed."""
    return {name: _version(COMPUTING[name]) for name in COMPUTING if find_spec(name) is not None}


def _version(distributions: tuple[str, ...]) -> str:
    return " and ".join(filter(None, map(_version_of, distributions))) or "unknown"


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
