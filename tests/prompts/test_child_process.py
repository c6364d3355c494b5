"""Processes that are asked a line at a time: replies, and deadlines that one thread watches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from fillerscope.prompts import child_process
from fillerscope.prompts.child_process import exchange, kill

ECHO = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(asked["seconds"])
    print(json.dumps({"text": asked["text"]}), flush=True)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        kill(process)


def echo(started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    command, pipe = [sys.executable, "-c", ECHO], subprocess.PIPE
    started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True))
    return started[-1]


def asked(text: str, seconds: float = 0.0) -> dict[str, object]:
    return {"text": text, "seconds": seconds}


def test_many_exchanges_start_no_threads_of_their_own(started: list[subprocess.Popen[bytes]]) -> None:
    process = echo(started)
    assert exchange(process, asked("first"), 60) == {"text": "first"}
    before = set(threading.enumerate())
    for number in range(50):
        assert exchange(process, asked(str(number)), 60) == {"text": str(number)}
    assert set(threading.enumerate()) <= before


def test_a_reply_that_is_late_ends_its_process_alone(started: list[subprocess.Popen[bytes]]) -> None:
    slow, other = echo(started), echo(started)
    assert exchange(other, asked("one"), 60) == {"text": "one"}  # whose deadline would be much later
    assert exchange(slow, asked("late", seconds=600), 0.3) == {"lost": "hung"}
    assert slow.wait(60) != 0
    assert exchange(other, asked("two"), 60) == {"text": "two"}


def test_a_reply_in_time_leaves_no_deadline_behind(started: list[subprocess.Popen[bytes]]) -> None:
    process = echo(started)
    assert exchange(process, asked("one"), 60) == {"text": "one"}
    assert exchange(process, asked("two"), 1.0) == {"text": "two"}
    time.sleep(1.5)
    assert exchange(process, asked("three"), 60) == {"text": "three"}


def test_a_thread_that_cannot_be_started_costs_no_later_deadline(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = child_process._Deadlines()
    monkeypatch.setattr(child_process, "_DEADLINES", deadlines)
    process = echo(started)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            exchange(process, asked("one"), 0.1)
    assert not deadlines._open
    assert exchange(process, asked("late", seconds=600), 0.3) == {"lost": "hung"}


def test_exchanges_of_several_threads_have_deadlines_of_their_own(started: list[subprocess.Popen[bytes]]) -> None:
    replies: dict[int, object] = {}

    def ask(number: int, process: subprocess.Popen[bytes]) -> None:
        late = number % 2 == 1
        replies[number] = exchange(process, asked("x", 600.0 if late else 0.0), 0.5 if late else 60)

    threads = [threading.Thread(target=ask, args=(number, echo(started))) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert replies == {0: {"text": "x"}, 1: {"lost": "hung"}, 2: {"text": "x"}, 3: {"lost": "hung"}}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_thread_of_its_own_for_deadlines(started: list[subprocess.Popen[bytes]]) -> None:
    assert exchange(echo(started), asked("one"), 60) == {"text": "one"}
    ours = child_process._DEADLINES
    child = os.fork()
    if child == 0:  # pragma: no cover
        process = echo([])
        lost = exchange(process, asked("late", seconds=600), 0.3)
        os._exit(0 if child_process._DEADLINES is not ours and lost == {"lost": "hung"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
