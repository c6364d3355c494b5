"""Processes of our own that read what others wrote. They can be killed, as a library that hangs or crashes cannot.

A child gets a clean environment with only the import path in it, and a process group of its own, which is killed as a
whole. It is asked one line of JSON at a time. Knows nothing of what is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import IO, cast

from fillerscope.files import Json


@dataclass(eq=False)
class _Deadline:
    process: subprocess.Popen[bytes]
    time: float  # monotonic
    passed: bool = False


class _Deadlines:
    """Kills processes whose reply is late. One thread watches all of them: starting one for each exchange, of which a
    study has two for every problem, takes longer than most templates."""

    def __init__(self) -> None:
        self._open: set[_Deadline] = set()
        self._changed = threading.Condition()
        self._wakes = inf  # when the thread looks next
        self._thread: threading.Thread | None = None

    def start(self, process: subprocess.Popen[bytes], seconds: float) -> _Deadline:
        deadline = _Deadline(process, time.monotonic() + seconds)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._watch, name="deadlines", daemon=True)
                thread.start()  # waits for the lock; where it cannot be started the next exchange tries again
                self._thread = thread
            self._open.add(deadline)
            if deadline.time < self._wakes:
                self._changed.notify()
        return deadline

    def end(self, deadline: _Deadline) -> None:
        with self._changed:
            self._open.discard(deadline)

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for late in [one for one in self._open if one.time <= now]:
                    late.passed = True
                    _kill_group(late.process)
                    self._open.discard(late)
                self._wakes = min((one.time for one in self._open), default=inf)
                self._changed.wait(None if self._wakes == inf else self._wakes - now)


_DEADLINES = _Deadlines()


def _forget_deadlines() -> None:
    """In a fork, which has the parent's deadlines and not its thread."""
    global _DEADLINES
    _DEADLINES = _Deadlines()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_deadlines)


def start(module: str, arguments: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a module of ours as a process."""
    return subprocess.Popen(
        [sys.executable, "-P", "-B", "-s", "-m", module, *arguments], env=_environment(), start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def limit_memory(size: int) -> None:
    """Limit what this process may address, and let it write no files, where the system can do that."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        for name, value in ((resource.RLIMIT_AS, size), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(name, (value, value))


def _environment() -> dict[str, str]:
    """The worker's environment: no keys or tokens, a fixed hash seed, on which sympy's order of terms depends, and one
    time zone, which templates can write."""
    ours = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    ours |= {"TZ": "UTC0"}
    return ours | {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}


def exchange(process: subprocess.Popen[bytes], question: object, seconds: float) -> Json:
    """Send one line and read one line; {"lost": why} where none comes. An interrupt meanwhile ends the process: the
    reply that is still to come would be taken for that of the next question."""
    to_worker, from_worker = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    deadline = _DEADLINES.start(process, seconds)
    try:
        if question is not None:
            to_worker.write(json.dumps(question).encode() + b"\n")
            to_worker.flush()
        line = from_worker.readline()
    except OSError:
        line = b""
    except BaseException:
        _DEADLINES.end(deadline)  # before the process is waited for, after which its number may be another's
        kill(process)
        raise
    finally:
        _DEADLINES.end(deadline)
    if not line.endswith(b"\n"):
        return {"lost": "hung" if deadline.passed else "died"}
    reply: Json = json.loads(line)
    return reply


def kill(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group. Called before the process is waited for, so that its id is not reused yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
