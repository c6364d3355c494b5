"""Real processes that are killed, interrupted and started twice: what remains always goes on to the same bytes."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.store import RunStore
from studies_helper import CONDITIONS, save_model, write_study

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
KILLED = -signal.SIGKILL


class Forks:
    """The other end of forkserver.py."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = os.environ | {"FILLERSCOPE_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "forkserver.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert json.loads(self.server.stdout.readline()) == {"ready": True}

    def start(self, *commands: list[Any], die_at: int | None = None) -> Fork:
        self.count += 1
        log = self.folder / f"{self.count}.log"
        request = {"commands": [[str(word) for word in command] for command in commands], "log": str(log)}
        return Fork(self, self.ask(request | {"die_at": die_at})["pid"], log)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(request), file=self.server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.server.stdout.readline())
        return answer

    def run(self, *commands: list[Any], die_at: int | None = None) -> int:
        """The exit code of commands in one process."""
        return self.start(*commands, die_at=die_at).code()

    def stop(self) -> None:
        self.server.stdin.close()
        self.server.wait(timeout=60)


class Fork:
    def __init__(self, forks: Forks, pid: int, log: Path) -> None:
        self.forks, self.pid, self.log = forks, pid, log

    def send(self, number: int) -> None:
        os.kill(self.pid, number)  # not waited for yet, so the pid is still its own

    def code(self) -> int:
        return int(self.forks.ask({"wait": self.pid})["code"])

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="module")
def study(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards, the second one smaller."""
    return write_study(
        tmp_path_factory.mktemp("study") / "study.yaml", model, problems={"limit": 3, "difficulty": [1]},
        conditions=[CONDITIONS[0], CONDITIONS[4]], batch={"shard": 2, "tokens": 512},
        figures=[{"name": "depth"}],
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert forks.run(*finishing(study, run)) == 0
    found = outcome(run)
    assert len([name for name in found if name.startswith("tables")]) == 5
    assert len([name for name in found if name.endswith(".safetensors")]) == 3
    return found


def finishing(study: Path, run: Path) -> list[list[Any]]:
    """Measure what is left, then export."""
    return [["measure", study, run], ["export", run, "--out", run / "tables"]]


def outcome(run: Path) -> dict[str, bytes]:
    """Every file with a number in it: the exported tables, and the shards behind them."""
    kept = {str(file.relative_to(run)): file for file in run.rglob("*") if file.is_file()}
    assert not [name for name in kept if name.endswith(".tmp")]
    kinds = ("tables", "shards", "merged", "answers", "problems")
    return {name: file.read_bytes() for name, file in kept.items() if name.startswith(kinds)}


def assert_nothing_half(run: Path) -> None:
    """At no moment does the manifest vouch for a file that is not there in full."""
    if (run / "manifest.json").exists():
        assert RunStore.open(run).verify() == []


def test_killed_at_every_step_of_every_write(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Half a temporary file, a whole one without its name, a shard that the manifest does not know: all of them."""
    step = 0
    while True:
        step += 1
        run = tmp_path / str(step)
        code = forks.run(["measure", study, run], die_at=step)
        if code == 0:
            break
        assert code == KILLED
        assert_nothing_half(run)
        assert forks.run(*finishing(study, run)) == 0, f"not resumed after a kill at step {step}"
        assert outcome(run) == undisturbed, f"other bytes after a kill at step {step}"
    # manifest and study; five notes; two shards and a merger, each with its manifest: three steps each
    assert step - 1 == 3 * (2 + 5 + 2 * 3)


def test_killed_at_steps_of_writing_answers(forks: Forks, model: Path, tmp_path: Path) -> None:
    """From the table of problems on, every fourth step: the sync of a file, its new name, its folder's sync."""
    study = write_study(
        tmp_path / "study.yaml", model, problems={"limit": 2, "difficulty": [1]}, conditions=CONDITIONS[:2],
        batch={"shard": 1, "tokens": 512}, probes={"attention": False},
        generation={"max_tokens": 4, "temperature": [0, 1], "samples": 2, "recheck": 1},
    )  # fmt: skip
    assert forks.run(*finishing(study, tmp_path / "whole")) == 0
    undisturbed = outcome(tmp_path / "whole")
    assert sorted(Path(name).name for name in undisturbed) == [
        "00000.parquet", "00001.parquet", "accuracy.parquet", "answers.parquet", "problems.parquet",
    ]  # fmt: skip
    # manifest, study, environment; then the problems, label, recheck and a shard, with the manifest of both files
    first, last = 3 * 3 + 1, 3 * (3 + 2 + 1 + 1 + 2)
    for step in range(first, last + 1, 4):
        run = tmp_path / str(step)
        assert forks.run(["measure", study, run], die_at=step) == KILLED
        assert_nothing_half(run)
        assert forks.run(*finishing(study, run)) == 0, f"not resumed after a kill at step {step}"
        assert outcome(run) == undisturbed, f"other bytes after a kill at step {step}"


def test_killed_again_and_again(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Each process gets a little further than the one before."""
    run, codes = tmp_path / "run", []
    while not codes or codes[-1]:
        codes.append(forks.run(["measure", study, run], die_at=10))
        assert len(codes) < 10
        assert_nothing_half(run)
    assert codes.count(KILLED) == len(codes) - 1 >= 3
    assert forks.run(*finishing(study, run)) == 0
    assert outcome(run) == undisturbed


def test_killed_at_any_moment(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Not only while writing: while loading, checking and measuring as well."""
    began = time.monotonic()
    assert forks.run(["measure", study, tmp_path / "timed"]) == 0
    takes = time.monotonic() - began
    delays, killed = random.Random(0), 0
    for number in range(4):
        run = tmp_path / str(number)
        for _ in range(2):
            process = forks.start(["measure", study, run])
            time.sleep(delays.uniform(0, takes))
            process.send(signal.SIGKILL)
            killed += process.code() == KILLED
            assert_nothing_half(run)
        assert forks.run(*finishing(study, run)) == 0
        assert outcome(run) == undisturbed
    assert killed >= 3


@pytest.fixture(scope="module")
def longer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough shards to be in the middle of them for a while."""
    return write_study(
        tmp_path_factory.mktemp("study") / "longer.yaml", model, problems={"limit": 24, "difficulty": [1]},
        conditions=CONDITIONS[:2], batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
    )  # fmt: skip


def hold_at(process: Fork, run: Path, shards: int) -> None:
    """Stop the process, for the time being, once so many shards are there."""
    deadline = time.monotonic() + 120
    while len(list(run.glob("shards/*/*.safetensors"))) < shards:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send(signal.SIGSTOP)


def test_an_interrupt_says_how_to_go_on_and_one_can(forks: Forks, longer: Path, tmp_path: Path) -> None:
    run = tmp_path / "a run"  # a name that a shell would take apart
    process = forks.start(["run", longer, "--out", run])
    hold_at(process, run, shards=3)
    process.send(signal.SIGINT)
    process.send(signal.SIGCONT)
    assert process.code() == 130
    advice = [line for line in process.lines() if line.startswith("fillerscope: ")]
    assert advice == [
        f"fillerscope: stopped. What is finished is kept; go on with: fillerscope run {longer} --out '{run}'"
    ]
    assert "Traceback" not in process.log.read_text()
    kept = len(RunStore.open(run).manifest["files"])
    assert 2 <= kept < 24

    again = shlex.split(advice[0].partition("go on with: ")[2])
    assert again[0] == "fillerscope"
    process = forks.start(again[1:], ["export", run, "--out", run / "tables"])
    assert process.code() == 0
    assert f"measuring tiny-llama: {kept} of 24 shards are there, going on from them" in process.lines()
    whole = tmp_path / "whole"
    assert forks.run(*finishing(longer, whole)) == 0
    assert outcome(run) == outcome(whole)


def test_a_second_process_is_told_that_the_first_is_writing(forks: Forks, longer: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = forks.start(["measure", longer, run])
    hold_at(first, run, shards=1)
    second = forks.start(["run", longer, "--out", run])
    assert second.code() == 1
    assert second.lines() == [f"fillerscope: another process is writing {run}; wait for it, or stop it"]
    first.send(signal.SIGCONT)
    assert first.code() == 0
    assert RunStore.open(run).verify() == []


def test_two_that_start_at_once_do_not_spoil_each_other(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """From nothing: even the folder itself is made by one of them alone."""
    for number in range(2):
        run = tmp_path / str(number)
        both = [forks.start(["run", study, "--out", run, "--json"]) for _ in range(2)]
        endings = sorted((process.code(), process.lines()) for process in both)
        assert endings[0][0] == 0, endings
        if endings[1][0]:
            said = f"fillerscope: another process is writing {run}; wait for it, or stop it"
            assert endings[1] == (1, [said])
        assert forks.run(*finishing(study, run)) == 0
        assert outcome(run) == undisturbed
