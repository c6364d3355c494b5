"""What the numbers of a run were made with, for the record: versions and hardware. Not part of its identity."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from fillerscope.files import Json
from fillerscope.measure.identity import GRADING

RECORDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", *GRADING)


def environment(device: str = "auto") -> Json:
    """Versions of Python and of the libraries that compute, and the machine."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    found |= hardware(device)
    for name in RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: str, described: Path = Path("/proc/cpuinfo")) -> Json:
    """The machine as far as it tells; `described` is where Linux describes its processors."""
    from fillerscope.models.loading import choose_device

    found: Json = {"processor": _processor(described), "cores": psutil.cpu_count()}
    found["memory_gib"] = round(psutil.virtual_memory().total / 2**30, 1)
    if (place := choose_device(device)).startswith("cuda"):
        import torch

        found["device"] = torch.cuda.get_device_name(place)
    return found


def _processor(described: Path) -> str:
    """Not every Linux names its processor: elsewhere than on x86 often the architecture is all there is."""
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.machine())
