"""The client of `sandbox.py`: starts the worker process, sends it questions, kills and replaces it.

The worker gets a clean environment with only the import path in it, and a process group of its own, which is killed as
a whole. Knows outcomes, not verdicts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import IO, cast

from fillerscope.errors import FillerscopeError
from fillerscope.files import Json

START_SECONDS = 120.0  # to load sympy, on a busy machine


class WorkerProcess:
    """A worker that starts at the first question. `cpu_seconds` limit one question, `wall_seconds` one that hangs."""

    def __init__(self, cpu_seconds: float, wall_seconds: float, memory: int) -> None:
        self._cpu_seconds, self._wall_seconds, self._memory = cpu_seconds, wall_seconds, memory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ask(self, reference: str, answer: str) -> str:
        """The outcome that `sandbox.py` gives, or "hung" or "died", after which a new worker is started.

        Answers are judged in forks, so a worker that dies was killed from outside: the question is repeated once.
        """
        outcome = self._ask(reference, answer)
        return self._ask(reference, answer) if outcome == "died" else outcome

    def stop(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process = None

    def _ask(self, reference: str, answer: str) -> str:
        process = self._process or self._start()
        reply = _exchange(process, {"reference": reference, "answer": answer}, self._wall_seconds)
        if "outcome" not in reply:
            self.stop()
        return str(reply.get("outcome") or reply["lost"])

    def _start(self) -> subprocess.Popen[bytes]:
        limits = [str(self._cpu_seconds), str(self._memory)]
        command = [sys.executable, "-P", "-B", "-s", "-m", "fillerscope.answers.grading.sandbox", *limits]
        process = subprocess.Popen(
            command, env=_environment(), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._process = process
        reply = _exchange(process, None, START_SECONDS)
        if "ready" not in reply:
            self.stop()
            reason = reply.get("broken", "it ended before it was ready")
            raise FillerscopeError(f"answers cannot be graded: {reason}; install fillerscope again, with math-verify")
        return process


def _environment() -> dict[str, str]:
    """The worker's environment: no keys or tokens, and a fixed hash seed, on which sympy's order of terms depends."""
    ours = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    return ours | {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}


def _exchange(process: subprocess.Popen[bytes], question: dict[str, str] | None, seconds: float) -> Json:
    """Send one line and read one line; {"lost": why} where none comes."""
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
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        return {"lost": "hung" if hung.is_set() else "died"}
    reply: Json = json.loads(line)
    return reply


def _end_hung(process: subprocess.Popen[bytes], hung: threading.Event) -> None:
    hung.set()
    _kill_group(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
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
