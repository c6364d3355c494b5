"""The environment of a run: versions and hardware. Recorded, but not part of its identity."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from fillerscope.files import Json
from fillerscope.measure.identity import GRADING
from fillerscope.models.optional_packages import optional_packages
from fillerscope.study.study import ALL_GPUS

RECORDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", *GRADING)


def environment(device: str = "auto") -> Json:
    """Versions of Python and of the libraries that compute, and the machine."""
    record: Json = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    record |= hardware(device)
    for name in RECORDED:
        try:
            record[name] = version(name)
        except PackageNotFoundError:
            continue
    return record | optional_packages()


def hardware(device: str, described: Path = Path("/proc/cpuinfo")) -> Json:
    """Processor, memory and device; `described` is the file in which Linux describes its processors."""
    from fillerscope.models.loading import choose_device

    record: Json = {"processor": _processor(described), "cores": psutil.cpu_count()}
    record["memory_gib"] = round(psutil.virtual_memory().total / 2**30, 1)
    if (place := choose_device(device)).startswith("cuda"):
        import torch

        gpus = range(torch.cuda.device_count()) if place == ALL_GPUS else [place]
        record["device"] = ", ".join(map(torch.cuda.get_device_name, gpus))
    return record


def _processor(described: Path) -> str:
    """The name of the processor, or else its architecture: on other machines than x86 Linux often gives no name."""
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.machine())
