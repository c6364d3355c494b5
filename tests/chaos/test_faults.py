"""Operations on files that fail, one after the other: said in one line, and the next process ends in the same bytes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fillerscope.store.run_folder import RunStore
from support.chaos import cases
from support.forks import KILLED, Forks, assert_nothing_half, finishing, outcome

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork and /proc"),
]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.ESTALE)


Commands = list[list[Any]]


def reading(run: Path, out: Path) -> Commands:
    """What opens a finished run."""
    return [["verify", run], ["heads", run], ["figures", run, "depth", "--out", out], ["export", run, "--out", out]]


def counted(forks: Forks, commands: Commands, run: Path, log: Path) -> int:
    """How many operations on files of a run commands take."""
    assert forks.run(*commands, fail_at=[-1, 0, str(run)], operations=str(log)) == 0
    return int(log.read_text())


def chosen(operations: int, seed: int) -> tuple[int, int]:
    """An operation and its error: seeds go through all of them in a shuffled order."""
    every = [(number, error) for number in range(1, operations + 1) for error in ERRORS]
    return random.Random(0).sample(every, len(every))[seed % len(every)]


def assert_told(forks: Forks, commands: Commands, run: Path, number: int, error: int) -> str:
    """That an operation fails is one line, or nothing where it can be done without; returns which it was."""
    process = forks.start(*commands, fail_at=[number, error, str(run)])
    code, said = process.code(), process.lines()
    where = f"operation {number}: {os.strerror(error)}"
    assert code in (0, 1), f"{where}\n" + "\n".join(said)
    assert not code or said[-1].startswith("fillerscope: "), (where, said)
    for word in ("Traceback", "remove", "damaged"):
        assert not any(word in line for line in said), (where, said)
    return where


@pytest.fixture(scope="session")
def operations(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many operations a run and its export take."""
    folder = tmp_path_factory.mktemp("counted")
    return counted(forks, finishing(study, folder / "run"), folder / "run", folder / "operations")


@pytest.mark.parametrize("seed", cases(fast=3, slow=24, long=600))
def test_an_operation_that_fails_costs_nothing(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], operations: int, tmp_path: Path, seed: int
) -> None:
    run = tmp_path / "run"
    where = assert_told(forks, finishing(study, run), run, *chosen(operations, seed))
    assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0, where
    assert outcome(run) == undisturbed, where


@pytest.fixture(scope="session")
def unfinished(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run that was killed when its second shard had a name, and how many operations finishing it takes."""
    folder = tmp_path_factory.mktemp("unfinished")
    measuring = forks.start(["measure", study, folder / "run"], stop_after=2)
    measuring.wait_until_stopped()
    measuring.send(signal.SIGKILL)
    assert measuring.code() == KILLED
    copy = Path(shutil.copytree(folder / "run", folder / "copy"))
    assert list(copy.rglob("shards/*/*.safetensors"))
    return folder / "run", counted(forks, finishing(study, copy), copy, folder / "operations")


@pytest.mark.parametrize("seed", cases(fast=1, slow=8, long=300))
def test_an_operation_that_fails_while_a_run_is_resumed_costs_nothing(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], unfinished: tuple[Path, int], tmp_path: Path, seed: int
) -> None:
    run = Path(shutil.copytree(unfinished[0], tmp_path / "run"))
    where = assert_told(forks, finishing(study, run), run, *chosen(unfinished[1], seed))
    assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0, where
    assert outcome(run) == undisturbed, where


@pytest.fixture(scope="session")
def finished(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run, and how many operations reading it takes."""
    folder = tmp_path_factory.mktemp("finished")
    run = folder / "run"
    assert forks.run(*finishing(study, run)) == 0
    return run, counted(forks, reading(run, folder / "out"), run, folder / "operations")


@pytest.mark.parametrize("seed", cases(fast=1, slow=8, long=80))
def test_an_operation_that_fails_while_a_run_is_read_is_no_damage(
    forks: Forks, undisturbed: dict[str, bytes], finished: tuple[Path, int], tmp_path: Path, seed: int
) -> None:
    run = finished[0]
    where = assert_told(forks, reading(run, tmp_path / "out"), run, *chosen(finished[1], seed))
    assert outcome(run) == undisturbed, where


SIZES = (16, 384, 512, 640, 768)  # MiB more than it has: too little to begin, and enough for parts of a run


@pytest.mark.parametrize("more", [SIZES[0], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[1:])])
def test_memory_that_runs_out_is_one_line_and_costs_nothing(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path, more: int
) -> None:
    run = tmp_path / "run"
    process = forks.start(["run", study, "--out", run], memory=more << 20)
    code, said = process.code(), process.lines()
    assert code in (0, 1), said
    assert code == 0 or said[-1].startswith("fillerscope: memory ran out; what is finished is kept"), said
    assert code == 1 or more > SIZES[0]
    assert not any("Traceback" in line for line in said), said
    assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0
    store = RunStore.open(run)
    (merged,) = [name for name in store.manifest["files"] if name.startswith("merged")]
    errors = [record["error"] for record in store.get(merged).records if record["status"] == "failed"]
    assert all("memory runs out" in error for error in errors)  # in a pass: that problem failed, and is counted so
    assert errors or outcome(run) == undisturbed
