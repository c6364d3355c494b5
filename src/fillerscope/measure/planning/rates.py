"""How fast a machine is: as a calibration measured it, or as a table of peak rates says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from fillerscope.errors import ModelError
from fillerscope.measure.planning.decoding import Lengths
from fillerscope.measure.planning.model_size import ModelSize

PASSES, BANDWIDTH = 0.35, 0.6  # of the peak rates that passes and decode steps reach
LAUNCHES = 12e-6  # seconds of a layer in a decode step, however small
LOADING = 1e9  # bytes of weights a second, from a disk
REDUCING = 2e8  # values a second: measured sums of a head at a position, reduced to stored arrays
WRITING = 5e8  # bytes a second
CHECKS = 20.0  # seconds of all checks of a model
GRADING = 0.02  # seconds for an answer
TEXT = 2.0  # bytes of a stored answer for each of its tokens, compressed
ROW = 40.0  # and besides
CORE = 2.5e10  # operations a second of one core, in float32
CPU_BANDWIDTH = 2e10  # bytes a second
GB, TERA = 10**9, 1e12


@dataclass(frozen=True)
class Device:
    """Peak rates of a device: operations a second with dense matrices in bfloat16, bytes a second, bytes of memory."""

    name: str
    kind: str  # as torch calls it
    operations: float
    bandwidth: float
    memory: int


# From the data sheets of the makers, without sparsity.
DEVICES: dict[str, Device] = {
    name: Device(name, "cuda", tera * TERA, bandwidth * GB, memory * GB)
    for name, tera, bandwidth, memory in (
        ("a10", 125, 600, 24),
        ("a100", 312, 2039, 80),
        ("a100-40gb", 312, 1555, 40),
        ("h100", 989, 3350, 80),
        ("h200", 989, 4800, 141),
        ("b200", 2250, 8000, 180),
        ("l4", 121, 300, 24),
        ("l40s", 362, 864, 48),
        ("rtx-3090", 71, 936, 24),
        ("rtx-4090", 165, 1008, 24),
        ("t4", 65, 320, 16),
        ("v100", 125, 900, 32),
        ("mi300x", 1307, 5300, 192),
    )
}  # fmt: skip


def device_named(name: str) -> Device:
    """A device of the table, or `cpu`: the processor of this machine."""
    if name == "cpu":
        cores = os.cpu_count() or 1
        return Device("cpu", "cpu", CORE * cores / PASSES, CPU_BANDWIDTH / BANDWIDTH, psutil.virtual_memory().total)
    if name not in DEVICES:
        raise ModelError(f"no peak rates are known of {name!r}; choose cpu, {', '.join(DEVICES)}")
    return DEVICES[name]


@dataclass(frozen=True)
class AnswerBytes:
    """Bytes of a table of answers."""

    fixed: float = 6000.0
    row: float = ROW
    token: float = TEXT

    def of(self, rows: int, tokens: int) -> int:
        return round(self.fixed + self.row * rows + self.token * tokens) if rows else 0


@dataclass(frozen=True)
class Rates:
    """Seconds of everything that a model does in a run."""

    operation: float  # of passes that measure
    prefill: float  # of an operation of prefill passes
    step: Callable[[int, float], float]  # of a decode step, for so many rows and keys of the longest
    reduce: float  # of a value: a head at a position
    write: float  # of a byte
    load: float
    measure_checks: float = 0.0  # before the first shard is measured
    answer_checks: float = 0.0  # before the first answer
    grade: float = GRADING
    grader: float = 0.0  # to start those who grade
    lengths: Lengths = field(default_factory=lambda: Lengths((), (), 1))
    answer_bytes: AnswerBytes = AnswerBytes()

    @classmethod
    def peak(cls, device: Device, size: ModelSize, limit: int) -> Rates:
        """Those of a device that is not here, or of a model without its weights."""
        precise = 1.0 if size.element < 4 or device.kind == "cpu" else 0.5  # float32 in tensor cores, as TF32
        fast = device.operations * PASSES * precise

        def step(rows: int, width: float) -> float:
            read = size.weights + rows * width * size.kv_token
            computed = size.step_operations(rows, width) / fast
            return max(read / (device.bandwidth * BANDWIDTH), computed) + LAUNCHES * size.layers

        reducing = REDUCING if device.kind == "cuda" else REDUCING / 20
        return cls(
            1 / fast, 1 / fast, step, 1 / reducing, 1 / WRITING, size.weights / LOADING, CHECKS / 2, CHECKS / 2,
            lengths=Lengths((), (), limit),
        )  # fmt: skip
