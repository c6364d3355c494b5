"""Real processes that are killed, interrupted and started twice: what remains always goes on to the same bytes."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST
from support.chaos import is_long
from support.forks import KILLED, Forks, assert_nothing_half, finishing, outcome
from support.studies import CONDITIONS, write_study

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def steps_of(forks: Forks, study: Path, folder: Path) -> list[tuple[str, str]]:
    """Every step of an undisturbed run: what is done, and the file that it is done for, a folder's sync included."""
    run, log = folder / "run", folder / "steps"
    assert forks.run(["measure", study, run], steps=str(log)) == 0
    names = [line.split(" ", 1) for line in log.read_text().splitlines()]
    if any("/digests-" in name for _, *found in names for name in found):
        return steps_of(forks, study, folder / "again")  # the sums of the model's files had not been noted yet
    written = [str(Path(name).relative_to(run)) for _, *found in names for name in found]
    assert [kind for kind, *_ in names] == ["sync", "rename", "folder"] * len(written)
    return [(kind, name) for name in written for kind in ("sync", "rename", "folder")]


def assert_resumed(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], folder: Path, steps: Iterable[int]
) -> None:
    """A run that is killed at any of these steps is finished by the next process as if nothing had happened."""
    for step in steps:
        run = folder / str(step)
        assert forks.run(["measure", study, run], die_at=step) == KILLED
        assert_nothing_half(run)
        assert forks.run(*finishing(study, run)) == 0, f"not resumed after a kill at step {step}"
        assert outcome(run) == undisturbed, f"other bytes after a kill at step {step}"


def test_killed_at_each_kind_of_step(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Half a temporary file, a whole one without its name, a shard that the manifest does not know."""
    steps = steps_of(forks, study, tmp_path)
    names = [name for kind, name in steps if kind == "sync"]
    first, merged = (next(n for n, name in enumerate(names) if name.startswith(kind)) for kind in ("shards", "merged"))
    assert names[first + 1] == "manifest.json"
    files = (first, first + 1, merged)
    assert_resumed(forks, study, undisturbed, tmp_path, [3 * file + step for file in files for step in (1, 2, 3)])


@pytest.mark.slow
def test_killed_at_every_step_of_every_write(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    steps = steps_of(forks, study, tmp_path)
    # manifest; six notes; study, two shards and a merger, each with its manifest: three steps each
    assert len(steps) == 3 * (1 + 6 + 2 * 4)
    assert_resumed(forks, study, undisturbed, tmp_path, range(1, len(steps) + 1))


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7], ids=["all", "some"])
def test_killed_at_steps_of_writing_answers(forks: Forks, model: Path, tmp_path: Path, every: int) -> None:
    """From the table of problems on: the sync of a file, its new name, its folder's sync."""
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
    # manifest, study and its manifest, environment; then the problems, label, recheck and a shard, with the manifest of
    # both files
    first, last = 3 * 4 + 1, 3 * (4 + 2 + 1 + 1 + 2)
    assert_resumed(forks, study, undisturbed, tmp_path, range(first, last + 1, every))


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


def test_killed_while_loading_checking_and_measuring(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Not only while writing."""
    run, engine = tmp_path / "run", "fillerscope.measure.engines"
    for moment in (
        [f"{engine}.model_work", "load_source", 1],
        [f"{engine}.local", "check_capture", 1],
        [f"{engine}.local", "start_shard", 2],
    ):
        assert forks.run(["measure", study, run], die_in=moment) == KILLED, moment
        assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0
    assert outcome(run) == undisturbed


@pytest.mark.slow
def test_killed_at_any_moment(forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """Wherever it is then; on a quick machine some have ended before."""
    began = time.monotonic()
    assert forks.run(["measure", study, tmp_path / "timed"]) == 0
    takes, delays = time.monotonic() - began, random.Random(0)
    for number in range(34 if is_long() else 4):
        run = tmp_path / str(number)
        for _ in range(3 if is_long() else 2):
            process = forks.start(["measure", study, run])
            time.sleep(delays.uniform(0, takes))
            process.send(signal.SIGKILL)
            assert process.code() in (KILLED, 0)
            assert_nothing_half(run)
        assert forks.run(*finishing(study, run)) == 0
        assert outcome(run) == undisturbed


def failures(run: Path) -> set[tuple[str, object]]:
    """Everything that was measured or answered and failed."""
    store, failed = RunStore.open(run), set()
    for name in store.manifest["files"]:
        if name.startswith("shards/"):
            failed |= {(name, one["number"]) for one in store.get(name, []).records if one["status"] == "failed"}
        elif name.startswith("answers/"):
            table = store.get_table(name)
            rows = zip(table["number"], table["condition"], table["finish"], strict=True)
            failed |= {(name, row[:2]) for row in rows if row[2] == "failed"}
    return failed


@pytest.mark.parametrize("every", [pytest.param(True, marks=pytest.mark.slow), False], ids=["all", "one"])
def test_killed_at_steps_of_a_second_try(forks: Forks, plain_model: Path, tmp_path: Path, every: bool) -> None:
    """A problem fails; the second try is killed, and then everything fails: only that problem has failed, or none."""
    study = write_study(
        tmp_path / "study.yaml", plain_model, problems={"limit": 3, "difficulty": [1]}, conditions=CONDITIONS[:2],
        batch={"shard": 2, "tokens": 512}, probes={"answering": True} if every else {"attention": False},
        generation={"max_tokens": 4, "recheck": 0},
    )  # fmt: skip
    first, log = tmp_path / "first", tmp_path / "steps"
    assert forks.run(["measure", study, first], failing=[1]) == 0
    assert {what for _, what in failures(first)} == {(1, "none"), (1, "mless"), *([1] if every else [])}
    whole = Path(shutil.copytree(first, tmp_path / "whole"))
    assert forks.run(["retry", study, whole], steps=str(log)) == 0
    assert not failures(whole)
    steps = log.read_text().splitlines()
    answered = next(n for n, step in enumerate(steps, 1) if "rename" in step and step.endswith("/00000.parquet"))
    for step in range(1, len(steps) + 1) if every else [answered + 1]:  # the answers have their name
        run = Path(shutil.copytree(first, tmp_path / str(step)))
        assert forks.run(["retry", study, run], die_at=step) == KILLED
        assert_nothing_half(run)
        known = failures(run)
        assert known <= failures(first)
        assert forks.run(["measure", study, run], failing=[0, 1, 2]) == 0
        assert failures(run) <= known, f"lost by a kill at step {step}"
        assert forks.run(["retry", study, run]) == 0
        assert outcome(run) == outcome(whole), f"other bytes after a kill at step {step}"
        assert (run / MANIFEST).read_bytes() == (whole / MANIFEST).read_bytes()


SHARDS = 8


@pytest.fixture(scope="module")
def longer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough shards to be in the middle of them."""
    return write_study(
        tmp_path_factory.mktemp("study") / "longer.yaml", model, problems={"limit": SHARDS, "difficulty": [1]},
        conditions=CONDITIONS[:2], batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_says_how_to_go_on_and_one_can(
    forks: Forks, longer: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "a run"  # a name that a shell would take apart
    process = forks.start(["run", longer, "--out", run], stop_after=3)
    process.wait_until_stopped()
    process.send(number)
    process.send(signal.SIGCONT)
    assert process.code() == 128 + number
    advice = [line for line in process.lines() if line.startswith("fillerscope: ")]
    assert advice == [
        f"fillerscope: stopped. What is finished is kept; go on with: fillerscope run {longer} --out '{run}'"
    ]
    assert "Traceback" not in process.log.read_text()
    kept = sum(name.startswith("shards/") for name in RunStore.open(run).manifest["files"])
    assert 2 <= kept < SHARDS

    again = shlex.split(advice[0].partition("go on with: ")[2])
    assert again[0] == "fillerscope"
    process = forks.start(again[1:], ["export", run, "--out", run / "tables"])
    assert process.code() == 0
    assert f"measuring tiny-llama: resuming, {kept} of {SHARDS} shards are done" in process.lines()
    whole = tmp_path / "whole"
    assert forks.run(*finishing(longer, whole)) == 0
    assert outcome(run) == outcome(whole)


def test_a_second_process_is_told_that_the_first_is_writing(forks: Forks, longer: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = forks.start(["measure", longer, run], stop_after=1)
    first.wait_until_stopped()
    second = forks.start(["run", longer, "--out", run])
    assert second.code() == 1
    assert second.lines() == [f"fillerscope: another process is writing {run}; wait for it, or stop it"]
    first.send(signal.SIGCONT)
    assert first.code() == 0
    assert RunStore.open(run).verify() == []


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_two_that_start_at_once_do_not_spoil_each_other(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], tmp_path: Path, times: int
) -> None:
    """From nothing: even the folder itself is made by one of them alone."""
    for number in range(times):
        run = tmp_path / str(number)
        both = [forks.start(["run", study, "--out", run, "--json"]) for _ in range(2)]
        endings = sorted((process.code(), process.lines()) for process in both)
        assert endings[0][0] == 0, endings
        if endings[1][0]:
            said = f"fillerscope: another process is writing {run}; wait for it, or stop it"
            assert endings[1] == (1, [said])
        assert forks.run(*finishing(study, run)) == 0
        assert outcome(run) == undisturbed
