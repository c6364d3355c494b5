"""Who writes a part of a run: a file beside the part's manifest, for `fillerscope status`. No number depends on it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from fillerscope.display import first_line
from fillerscope.files import json_bytes, read_limited, write_whole
from fillerscope.store.addresses import remote_of
from fillerscope.store.lock import writing_to
from fillerscope.store.schema import JOB, LARGEST_JOB

SCHEDULED = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "AWS_BATCH_JOB_ID", "JOB_ID")  # what schedulers call a job


@dataclass(frozen=True)
class JobRecord:
    """The process that writes a part, or wrote to it last. Times are in seconds since 1970."""

    host: str
    pid: int
    born: float  # when the process started: its number may be another one's later
    started: float  # on this part
    scheduled: str = ""  # the number that a scheduler gave it
    ended: float | None = None
    error: str = ""

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> JobRecord:
        """The record of this process."""
        numbers = (environment[name] for name in SCHEDULED if environment.get(name))
        born = psutil.Process().create_time()
        return cls(platform.node(), os.getpid(), born, time.time(), next(numbers, ""))

    @classmethod
    def read(cls, part: Path) -> JobRecord | None:
        """The record of a part; None where there is none that can be read."""
        try:
            return TypeAdapter(cls).validate_json(read_limited(part / JOB, LARGEST_JOB), strict=True)
        except (OSError, ValueError):
            return None

    def is_alive(self) -> bool | None:
        """Whether the process is running; None where it is on another machine."""
        if self.host != platform.node():
            return None
        try:
            return abs(psutil.Process(self.pid).create_time() - self.born) < 1
        except (psutil.Error, ValueError, OverflowError):  # no process has such a number
            return False


@contextmanager
def recording(part: Path) -> Iterator[None]:
    """Leave a record of this process in a part, and of how the block ended. A kill leaves no end."""
    record = JobRecord.here()
    _write(part, record)
    try:
        yield
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)  # by a person, or by a scheduler's signal
        told = "" if stopped else f"{type(error).__name__}: {first_line(error)}"
        _write(part, replace(record, ended=time.time(), error=told))
        raise
    _write(part, replace(record, ended=time.time()))


def _write(part: Path, record: JobRecord) -> None:
    with writing_to(part):
        write_whole(part / JOB, [json_bytes(asdict(record))], sync=False)
    if (remote := remote_of(part)) is not None:
        remote.publish_freely(JOB)
