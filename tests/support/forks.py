"""fillerscope in real processes that can be killed, stopped and given faults, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fillerscope.store.own_files import LISTING
from fillerscope.store.run_folder import RunStore

SERVER = Path(__file__).parents[1] / "chaos/forkserver.py"
KILLED = -signal.SIGKILL


class Forks:
    """The other end of forkserver.py."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = os.environ | {"FILLERSCOPE_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
        self.server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert json.loads(self.server.stdout.readline()) == {"ready": True}

    def start(self, *commands: list[Any], **what_happens: Any) -> Fork:
        """What may happen to a process is said in forkserver.py."""
        self.count += 1
        log = self.folder / f"{self.count}.log"
        request = {"commands": [[str(word) for word in command] for command in commands], "log": str(log)}
        return Fork(self, self.ask(request | what_happens)["pid"], log)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(request), file=self.server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.server.stdout.readline())
        return answer

    def run(self, *commands: list[Any], **what_happens: Any) -> int:
        """The exit code of commands in one process."""
        return self.start(*commands, **what_happens).code()

    def stop(self) -> None:
        self.server.stdin.close()
        self.server.wait(timeout=300)  # a busy machine takes its time to free its memory


class Fork:
    def __init__(self, forks: Forks, pid: int, log: Path) -> None:
        self.forks, self.pid, self.log = forks, pid, log

    def send(self, number: int) -> None:
        os.kill(self.pid, number)  # not waited for yet, so the pid is still its own

    def code(self) -> int:
        return int(self.forks.ask({"wait": self.pid})["code"])

    def wait_until_stopped(self) -> None:
        assert self.forks.ask({"wait_stopped": self.pid})["stopped"], self.log.read_text()

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


def in_a_fork(action: Callable[[], Any], what_happens: dict[str, Any]) -> int:
    """The exit code of a fork of this process that does something, for what needs no torch: see `Steps` of
    forkserver.py for what may happen to it."""
    from chaos.forkserver import Steps

    child = os.fork()
    if not child:
        code = 70
        try:
            Steps(what_happens).watch()
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def finishing(study: Path, run: Path) -> list[list[Any]]:
    """Measure what is left, then export."""
    return [["measure", study, run], ["export", run, "--out", run / "tables"]]


def outcome(run: Path) -> dict[str, bytes]:
    """Every file with a number in it: the exported tables, and the shards behind them."""
    kept = {str(file.relative_to(run)): file for file in run.rglob("*") if file.is_file()}
    assert not [name for name in kept if name.endswith(".tmp")]
    kinds = ("tables", "shards", "merged", "answers", "problems")
    return {name: file.read_bytes() for name, file in kept.items() if name.startswith(kinds) and file.name != LISTING}


def assert_nothing_half(run: Path) -> None:
    """At no moment does the manifest vouch for a file that is not there in full."""
    if (run / "manifest.json").exists():
        assert RunStore.open(run).verify() == []
