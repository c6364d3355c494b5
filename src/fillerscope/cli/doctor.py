"""Is this machine fit to measure? Versions, devices, room, who can write to the cache, where packages come from, and
the capture tried on a real or tiny model."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import version

import psutil

from fillerscope.cli import tables
from fillerscope.cli.pip_settings import pip_places
from fillerscope.errors import FillerscopeError, ModelError
from fillerscope.models.cache import open_cache_warning
from fillerscope.models.catalogue import CATALOGUE, DEFAULT, cache_folder
from fillerscope.models.gguf import converted_folder

Check = Callable[[], str]


def examine(json: bool) -> bool:
    """Run every check; false if one failed."""
    found = []
    for name, check in CHECKS.items():
        try:
            found.append({"check": name, "ok": True, "found": check()})
        except (FillerscopeError, ImportError, OSError) as error:
            found.append({"check": name, "ok": False, "found": str(error)})
    if json:
        tables.print_json(found)
    else:
        tables.table("", ("check", "", "found"), [
            [str(row["check"]), "ok" if row["ok"] else "FAILED", str(row["found"])] for row in found
        ])  # fmt: skip
    return all(row["ok"] for row in found)


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _libraries() -> str:
    return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers", "gguf"))


def _device() -> str:
    import torch

    from fillerscope.models.loading import choose_device, choose_dtype

    device = choose_device("auto")
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    return f"{device} ({name}), {choose_dtype('auto', device)} by default"


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.total / 2**30:.0f} GiB, {memory.available / 2**30:.0f} GiB free"


def _cache() -> str:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    entries = [entry.name for entry in CATALOGUE.values() if converted_folder(entry.name, entry.sha256).exists()]
    free = shutil.disk_usage(folder).free / 2**30
    return f"{folder}, {free:.0f} GiB free; holds {', '.join(entries) or 'no model yet'}"


def _permissions() -> str:
    """The cache and the models in it are this user's alone to write to."""
    folder = cache_folder()
    for place in [folder, *sorted((folder / "models").glob("*/"))]:
        if warning := open_cache_warning(place):
            raise ModelError(warning)
    return f"only you can write to {folder}"


def _capture() -> str:
    from fillerscope.capture.self_check import check_capture
    from fillerscope.models.loading import load_model

    entry = CATALOGUE[DEFAULT]
    if not converted_folder(entry.name, entry.sha256).exists():
        return f"not tried: fetch a model first, with `fillerscope models get {DEFAULT}`"
    result = check_capture(load_model(DEFAULT))
    return f"{DEFAULT}: within {result.difference:.1e} of eager attention ({result.tolerance:.0e} allowed)"


CHECKS: dict[str, Check] = {
    "python": _python,
    "libraries": _libraries,
    "device": _device,
    "memory": _memory,
    "cache": _cache,
    "permissions": _permissions,
    "package index": pip_places,
    "capture": _capture,
}
