"""Two writers, locks that are stolen, stale or missing, and a clock that is set back: always the same bytes."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from support.forks import KILLED, Forks, assert_nothing_half, finishing, outcome

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def test_a_lock_that_is_stolen_spoils_nothing(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Somebody removes the lock of a process that writes, and another one starts."""
    run = tmp_path / "run"
    first = forks.start(["measure", study, run], stop_after=1)
    first.wait_until_stopped()
    (run / "lock").unlink()
    assert forks.run(*finishing(study, run)) == 0
    assert outcome(run) == undisturbed
    first.send(signal.SIGCONT)
    assert first.code() in (0, 1)
    assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0
    assert outcome(run) == undisturbed


def test_a_lock_of_the_dead_is_free(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert forks.run(["measure", study, run], die_at=10) == KILLED
    assert (run / "lock").exists()
    assert forks.run(*finishing(study, run)) == 0
    assert outcome(run) == undisturbed


def test_a_file_system_without_flock(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """A file takes the place of the lock: it keeps a second process out, and is free when its owner is dead."""
    run = tmp_path / "run"
    first = forks.start(["measure", study, run], stop_after=1, flock_fails=errno.ENOSYS)
    first.wait_until_stopped()
    second = forks.start(["measure", study, run], flock_fails=errno.ENOSYS)
    assert second.code() == 1
    assert second.lines()[-1].startswith(f"fillerscope: another process is writing {run}; ")
    first.send(signal.SIGKILL)
    assert first.code() == KILLED
    assert forks.run(*finishing(study, run), flock_fails=errno.ENOSYS) == 0
    assert outcome(run) == undisturbed


def test_a_file_system_that_refuses_locks_is_one_line(forks: Forks, study: Path, tmp_path: Path) -> None:
    process = forks.start(["run", study, "--out", tmp_path / "run"], flock_fails=errno.ENOLCK)
    assert process.code() == 1
    (line,) = [line for line in process.lines() if line.startswith("fillerscope: ")]
    assert "No locks available; choose another folder with --out" in line
    assert not any("Traceback" in line for line in process.lines())


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_a_lock_that_is_a_link_is_not_followed(forks: Forks, study: Path, tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    victim.write_text("somebody's")
    run.mkdir()
    (run / "lock").symlink_to(victim)
    process = forks.start(["run", study, "--out", run])
    assert process.code() == 1
    assert process.lines()[-1].startswith(f"fillerscope: cannot write to {run}: ")
    assert victim.read_text() == "somebody's"


@pytest.mark.parametrize("clock", [-86400 * 400, 86400 * 400])
def test_a_clock_that_is_set_back_or_forward(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path, clock: int
) -> None:
    run = tmp_path / "run"
    assert forks.run(["measure", study, run], die_at=20) == KILLED
    assert forks.run(*finishing(study, run), clock=clock) == 0
    assert outcome(run) == undisturbed
