"""Rounds in which all contenders take turns, what is told of them, and where they ran. Knows no model."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fillerscope import __version__

PLAIN = "plain"  # what every other contender is a multiple of
FEWEST = 3  # rounds, however long they take
PACKAGES = ("torch", "transformers", "numpy", "transformer-lens", "nnsight")
GIB = 2**30


@dataclass(frozen=True)
class Ratio:
    """How many times as long as the plain forward: within each round, and best against best."""

    median: float
    low: float  # quartiles of the rounds
    high: float
    best: float

    @classmethod
    def of(cls, seconds: Sequence[float], plain: Sequence[float]) -> Ratio:
        rounds = [mine / theirs for mine, theirs in zip(seconds, plain, strict=True)]
        low, median, high = (float(value) for value in np.quantile(rounds, (0.25, 0.5, 0.75)))
        return cls(median, low, high, min(seconds) / min(plain))


@dataclass(frozen=True)
class Peak:
    """The most memory a pass needed, in bytes: with what was there before it, the model, and above that."""

    whole: int
    above: int


@dataclass(frozen=True)
class Result:
    """One contender on one batch. Without `seconds` it did not get through, and `note` says why."""

    model: str
    dtype: str
    texts: int
    length: int
    contender: str
    seconds: tuple[float, ...] = ()
    ratio: Ratio | None = None
    difference: float | None = None  # from what fillerscope found
    peak: Peak | None = None
    note: str = ""


def race(
    passes: Mapping[str, Callable[[], float]], rounds: int, limit: float, warm_ups: int
) -> dict[str, tuple[float, ...]]:
    """Seconds of every contender in every round; each round begins with another. `limit`, in seconds, ends it early."""
    names = list(passes)
    for name in names * warm_ups:
        passes[name]()
    found: dict[str, list[float]] = {name: [] for name in names}
    start = time.monotonic()
    for turn in range(rounds):
        if turn >= FEWEST and time.monotonic() - start > limit:
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(passes[name]())
    return {name: tuple(seconds) for name, seconds in found.items()}


def say(text: str) -> None:
    """What goes on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


def environment(device: torch.device) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "system": platform.system(),
        "python": platform.python_version(),
        "fillerscope": __version__,
        "versions": {name: version for name in PACKAGES if (version := version_of(name))},
    }


def processor() -> str:
    """ARM's name is in no file, so `lscpu` is asked."""
    program = shutil.which("lscpu")
    lines = subprocess.run([program], capture_output=True, text=True).stdout.splitlines() if program else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model name:")]
    return names[0] if names else platform.processor() or platform.machine()


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def write(path: Path, device: torch.device, results: Sequence[Result | dict[str, Any]]) -> None:
    plain = [asdict(result) if isinstance(result, Result) else result for result in results]
    found = {"environment": environment(device), "results": plain}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


HEADINGS = (
    "model", "batch", "contender", "seconds", "x plain", "quartiles", "best", "difference", "peak GiB", "x plain",
    "above model", "x plain",
)  # fmt: skip


def table(results: Sequence[Result]) -> str:
    """In Markdown: it can be read in a terminal and be pasted into the documentation."""
    plain = {(one.model, one.texts, one.length): one.peak for one in results if one.contender == PLAIN}
    rows = [_cells(one, plain.get((one.model, one.texts, one.length))) for one in results]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = [HEADINGS, tuple("-" * width for width in widths), *rows]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def _cells(one: Result, plain: Peak | None) -> tuple[str, ...]:
    batch = f"{one.texts} x {one.length}"
    seconds = f"{statistics.median(one.seconds):.4g}" if one.seconds else one.note
    ratios = ("", "", "")
    if one.ratio:
        ratios = (f"{one.ratio.median:.2f}", f"{one.ratio.low:.2f}-{one.ratio.high:.2f}", f"{one.ratio.best:.2f}")
    difference = "" if one.difference is None else f"{one.difference:.1e}"
    return (one.model, batch, one.contender, seconds, *ratios, difference, *_memory(one.peak, plain))


def _memory(peak: Peak | None, plain: Peak | None) -> tuple[str, str, str, str]:
    if peak is None or plain is None:
        return ("", "", "", "")
    return (
        f"{peak.whole / GIB:.2f}", f"{peak.whole / plain.whole:.2f}",
        f"{peak.above / GIB:.3f}", f"{peak.above / plain.above:.2f}",
    )  # fmt: skip
