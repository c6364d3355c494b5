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
from collections.abc import Sequence
from typing import IO, cast

from fillerscope.files import Json


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
    hung = threading.Event()
    timer = threading.Timer(seconds, _end_hung, (process, hung))
    timer.daemon = True
    timer.start()
    try:
        if question is not None:
            to_worker.write(json.dumps(question).encode() + b"\n")
            to_worker.flush()
        line = from_worker.readline()
    except OSError:
        line = b""
    except BaseException:
        kill(process)
        raise
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        return {"lost": "hung" if hung.is_set() else "died"}
    reply: Json = json.loads(line)
    return reply


def _end_hung(process: subprocess.Popen[bytes], hung: threading.Event) -> None:
    hung.set()
    _kill_group(process)


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
