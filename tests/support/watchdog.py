"""Time limits for tests of time limits: where the protection is gone, they fail instead of waiting for ever."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest


@contextmanager
def watched(seconds: float = 60) -> Iterator[None]:
    """Fail a block that takes too long, where it waits in Python: for a file, a process or a lock."""

    def fail(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        pytest.fail(f"not finished after {seconds:g} s: it may wait for ever")  # no Exception, which may be caught

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_a_fork(function: Callable[[], object], seconds: float = 60) -> None:
    """Call a function in a fork of this process, which is killed if it takes too long: C code and threads as well."""
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    stop = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > stop:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"not finished after {seconds:g} s: it may take for ever")
        time.sleep(0.01)
    assert ended[1] == 0, "it failed; see above"
