"""Jobs that share a study and are killed, repeated, or started twice: the merged run has the bytes of a single one."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from fillerscope.store.run_folder import RunStore
from support.chaos import is_long
from support.forks import KILLED, Forks, assert_nothing_half, finishing, outcome
from support.studies import CONDITIONS, write_study

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def shared_study(folder: Path, model: Path, problems: int) -> Path:
    """A shard for each problem, measured and answered."""
    return write_study(
        folder / "study.yaml", model, problems={"limit": problems, "difficulty": [1]}, conditions=CONDITIONS[:2],
        batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
        generation={"max_tokens": 4, "temperature": [0, 1], "recheck": 1},
    )  # fmt: skip


def single(forks: Forks, study: Path, folder: Path) -> dict[str, bytes]:
    """What the run of one process holds, and its export."""
    assert forks.run(*finishing(study, folder / "single")) == 0
    return outcome(folder / "single")


def merged(forks: Forks, run: Path, out: Path) -> dict[str, bytes]:
    process = forks.start(["merge", out, run], ["export", out, "--out", out / "tables"])
    assert process.code() == 0, process.lines()
    return outcome(out)


def job(study: Path, run: Path, number: int, count: int) -> list[object]:
    return ["run", study, "--out", run, "--shard", f"{number}/{count}", "--json"]


def test_killed_while_writing_and_repeated(forks: Forks, model: Path, tmp_path: Path) -> None:
    """The first of two jobs gets a little further each time."""
    study, run = shared_study(tmp_path, model, 3), tmp_path / "run"
    codes: list[int] = []
    while not codes or codes[-1]:
        codes.append(forks.run(job(study, run, 1, 2), die_at=31))
        assert_nothing_half(run / "parts/1-of-2")
        assert len(codes) < 12
    assert codes.count(KILLED) == len(codes) - 1 >= 1
    assert forks.run(job(study, run, 2, 2)) == 0
    assert merged(forks, run, tmp_path / "out") == single(forks, study, tmp_path)


def test_a_merge_that_is_killed_is_finished_by_the_next(forks: Forks, model: Path, tmp_path: Path) -> None:
    study, run = shared_study(tmp_path, model, 2), tmp_path / "run"
    for number in (1, 2):
        assert forks.run(job(study, run, number, 2)) == 0
    undisturbed = merged(forks, run, tmp_path / "undisturbed")
    for step in range(3, 60, 16):
        out = tmp_path / f"out{step}"
        code = forks.run(["merge", out, run], die_at=step)
        assert code in (KILLED, 0)
        assert_nothing_half(out)
        assert merged(forks, run, out) == undisturbed
        if code == 0:
            break
    else:
        pytest.fail("the merge has more steps than were tried")


def test_a_job_that_is_started_twice_is_refused_and_nothing_is_lost(forks: Forks, model: Path, tmp_path: Path) -> None:
    study, run = shared_study(tmp_path, model, 4), tmp_path / "run"
    first = forks.start(job(study, run, 1, 2), stop_after=1)
    first.wait_until_stopped()
    second = forks.start(job(study, run, 1, 2))
    other = forks.start(job(study, run, 2, 2))  # does not mind
    assert second.code() == 1
    said = f"fillerscope: another process is writing {run}/parts/1-of-2; wait for it, or stop it"
    assert [line for line in second.lines() if line.startswith("fillerscope")] == [said]
    assert other.code() == 0
    first.send(signal.SIGCONT)
    assert first.code() == 0
    assert RunStore.open(run / "parts/1-of-2").verify() == []
    assert merged(forks, run, tmp_path / "out") == single(forks, study, tmp_path)


@pytest.mark.slow
def test_sixteen_jobs_some_of_them_killed_at_any_moment(forks: Forks, model: Path, tmp_path: Path) -> None:
    """Two at a time, in any order; whoever was killed is repeated, and some that were not are repeated as well."""
    study, run, chance = shared_study(tmp_path, model, 20), tmp_path / "run", random.Random(0)
    numbers = list(range(1, 17))
    chance.shuffle(numbers)
    for pair in zip(numbers[::2], numbers[1::2], strict=True):
        processes = [forks.start(job(study, run, number, 16)) for number in pair]
        time.sleep(chance.uniform(0, 3 if is_long() else 1))
        killed = chance.choice(processes)
        killed.send(signal.SIGKILL)
        assert all(process.code() in (KILLED, 0) for process in processes)
        for number in pair:
            assert_nothing_half(run / f"parts/{number}-of-16")
            assert forks.run(job(study, run, number, 16)) == 0
    assert merged(forks, run, tmp_path / "out") == single(forks, study, tmp_path)
