"""The client of `sandbox.py`: starts the worker process, sends it questions, kills and replaces it.

Knows outcomes, not verdicts.
"""

from __future__ import annotations

import subprocess
from types import TracebackType

from fillerscope.errors import FillerscopeError
from fillerscope.prompts.child_process import exchange, kill, start

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

    def start(self) -> None:
        """Start the worker now, unless it runs."""
        if self._process is None:
            self._start()

    def stop(self) -> None:
        if self._process is not None:
            kill(self._process)
            self._process = None

    def _ask(self, reference: str, answer: str) -> str:
        process = self._process or self._start()
        reply = exchange(process, {"reference": reference, "answer": answer}, self._wall_seconds)
        if "outcome" not in reply:
            self.stop()
        return str(reply.get("outcome") or reply["lost"])

    def _start(self) -> subprocess.Popen[bytes]:
        limits = [str(self._cpu_seconds), str(self._memory)]
        process = start("fillerscope.answers.grading.sandbox", limits)
        self._process = process
        reply = exchange(process, None, START_SECONDS)
        if "ready" not in reply:
            self.stop()
            reason = reply.get("broken", "it ended before it was ready")
            raise FillerscopeError(f"answers cannot be graded: {reason}; install fillerscope again, with math-verify")
        return process
