"""How far a run and its parts are, who is at them, and which have stopped."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from fillerscope.errors import ModelError, StoreError
from fillerscope.store.array_file import Part
from fillerscope.store.job_part import JobPart
from fillerscope.store.job_record import JobRecord, recording
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import JOB, LARGEST_JOB, answers_name, merged_name, shard_name
from fillerscope.store.status import (
    ABSENT,
    DAMAGED,
    FAILED,
    FINISHED,
    MOST_ABSENT,
    RUNNING,
    STOPPED,
    UNREADABLE,
    status_of,
)
from support.studies import study_of

MODEL = "tiny"
STUDY = study_of(MODEL, batch={"shard": 3}, generation={"max_tokens": 4}).model_dump(mode="json")


def make(run: Path, number: int, measured: int = 0, answered: int = 0, problems: int | None = 8) -> RunStore:
    """A part of two with this many of its shards measured and answered. Of three shards the first part has two, of
    three and two problems; the second has one."""
    part = JobPart(number, 2)
    store = RunStore.create(part.folder(run), {"of": "status"}, STUDY, part)
    if problems is not None:
        store.note("problems", problems)
    shards = [shard for shard in range(3) if part.has(shard)]
    for shard in shards[:measured]:
        store.put(shard_name(MODEL, shard), Part({"none/whole/mean": np.zeros(2)}, []))
    for shard in shards[:answered]:
        store.put_table(answers_name(MODEL, shard), {"id": ["a"]})
    return store


def ended(folder: Path, **changes: Any) -> None:
    """The record of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    record = {"host": platform.node(), "pid": process.pid, "born": 1.0, "started": 2.0} | changes
    (folder / JOB).write_text(json.dumps(record))


def test_problems_count_once_all_stages_are_done(tmp_path: Path) -> None:
    make(tmp_path, 1, measured=2, answered=1)
    make(tmp_path, 2, measured=1, answered=1)
    one, two = status_of(tmp_path)
    assert (one.part, one.state, one.problems, one.problems_total) == ("1/2", STOPPED, 3, 5)
    assert one.stage == f"answering {MODEL}: 3 of 5"
    assert (two.part, two.state, two.problems, two.problems_total) == ("2/2", FINISHED, 3, 3)
    assert two.stage == ""


def test_parts_that_are_not_there_are_listed(tmp_path: Path) -> None:
    make(tmp_path, 2)
    assert [(one.part, one.state) for one in status_of(tmp_path)] == [("1/2", ABSENT), ("2/2", STOPPED)]


def test_of_very_many_parts_that_are_not_there_the_first_are_listed(tmp_path: Path) -> None:
    RunStore.create(JobPart(7, 99_999).folder(tmp_path), {"study": {}}, {}, JobPart(7, 99_999))
    found = status_of(tmp_path)
    assert len(found) == 1 + MOST_ABSENT + 1
    assert [one.part for one in found[:2]] == ["1/99999", "2/99999"]
    assert found[-1].error == f"{99_998 - MOST_ABSENT:,} parts more are not there"


def test_a_part_that_was_stopped_before_problems_were_counted(tmp_path: Path) -> None:
    make(tmp_path, 1, problems=None)
    one, _ = status_of(tmp_path)
    assert (one.state, one.problems_total, one.stage) == (STOPPED, None, "")


def test_the_lock_says_who_is_writing(tmp_path: Path) -> None:
    store = make(tmp_path, 1, measured=1)
    with store.writing(), recording(store.path):
        one, _ = status_of(tmp_path)
    assert (one.state, one.host, one.pid, one.alive) == (RUNNING, platform.node(), os.getpid(), True)
    assert one.last_written is not None


def test_a_process_that_was_killed_is_gone(tmp_path: Path) -> None:
    ended(make(tmp_path, 1).path)
    one, _ = status_of(tmp_path)
    assert (one.state, one.alive, one.error) == (STOPPED, False, "")


def test_a_number_that_another_process_has_now_is_not_taken_for_the_job(tmp_path: Path) -> None:
    ended(make(tmp_path, 1).path, pid=os.getpid())
    assert status_of(tmp_path)[0].alive is False
    ended(make(tmp_path, 1).path, pid=os.getpid(), born=psutil.Process().create_time())
    assert (status_of(tmp_path)[0].alive, status_of(tmp_path)[0].state) == (True, RUNNING)


def test_of_another_machine_it_cannot_be_told(tmp_path: Path) -> None:
    ended(make(tmp_path, 1).path, host="elsewhere")
    one, _ = status_of(tmp_path)
    assert (one.host, one.alive, one.state) == ("elsewhere", None, STOPPED)


@pytest.mark.parametrize(
    ("error", "state", "told"),
    [(ModelError("no such\nmodel"), FAILED, "ModelError: no such model"), (KeyboardInterrupt(), STOPPED, "")],
)
def test_what_stopped_a_job_is_told_until_it_goes_on(
    tmp_path: Path, error: BaseException, state: str, told: str
) -> None:
    store = make(tmp_path, 1)
    with pytest.raises(type(error)), recording(store.path):
        raise error
    one, _ = status_of(tmp_path)
    assert (one.state, one.error) == (state, told)
    make(tmp_path, 1, measured=2, answered=2)
    with recording(store.path):
        pass
    one, _ = status_of(tmp_path)
    assert (one.state, one.error) == (FINISHED, "")


def test_a_run_of_one_process_has_a_row_of_its_own(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {"of": "status"}, STUDY)
    store.note("problems", 3)
    store.put(shard_name(MODEL, 0), Part({"none/whole/mean": np.zeros(2)}, []))
    store.put_table(answers_name(MODEL, 0), {"id": ["a"]})
    (one,) = status_of(store.path)
    assert (one.part, one.state, one.stage, one.problems) == ("", STOPPED, "merging", 3)
    store.put(merged_name(MODEL), Part({"none/whole/mean": np.zeros(2)}, []))
    assert status_of(store.path)[0].state == FINISHED


def test_a_part_that_cannot_be_read_now_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 1, measured=2, answered=2)

    def failing(_: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("fillerscope.store.manifest.read_steadily", failing)
    assert next((one.part, one.state) for one in status_of(tmp_path)) == ("1/2", UNREADABLE)


def test_a_damaged_part_does_not_hide_the_others(tmp_path: Path) -> None:
    make(tmp_path, 1, measured=2, answered=2)
    (make(tmp_path, 2).path / "manifest.json").write_text("{")
    one, two = status_of(tmp_path)
    assert (one.state, two.part, two.state) == (FINISHED, "2/2", DAMAGED)
    assert "manifest.json is damaged" in two.error
    (JobPart(1, 2).folder(tmp_path) / "study.json").write_text("{}")
    assert status_of(tmp_path)[0].state == DAMAGED


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run at"):
        status_of(tmp_path)


def test_a_record_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert JobRecord.read(tmp_path) is None
    for text in ("{", "[]", '{"host": "a", "other": 1}'):
        (tmp_path / JOB).write_text(text)
        assert JobRecord.read(tmp_path) is None


def test_a_record_is_short(tmp_path: Path) -> None:
    """Values that it should not have are made before they are refused."""
    whole = json.dumps(asdict(JobRecord.here()))
    (tmp_path / JOB).write_text(whole)
    assert JobRecord.read(tmp_path) is not None
    (tmp_path / JOB).write_text(whole + " " * LARGEST_JOB)
    assert JobRecord.read(tmp_path) is None


def test_the_number_that_a_scheduler_gave_is_kept() -> None:
    assert JobRecord.here({"SLURM_JOB_ID": "77"}).scheduled == "77"
    assert JobRecord.here({}).scheduled == ""


def test_a_number_of_problems_beyond_all_measure_takes_no_time(tmp_path: Path) -> None:
    make(tmp_path, 1, measured=2, answered=1, problems=6 * 10**15 + 2)
    status = status_of(tmp_path)[0]
    assert (status.problems, status.problems_total) == (3, 3 * 10**15 + 2)
    assert status.stage == f"measuring {MODEL}: 6 of {3 * 10**15 + 2}"


def test_a_study_without_models_does_not_hide_the_other_parts(tmp_path: Path) -> None:
    """No run has one."""
    make(tmp_path, 1)
    part = JobPart(2, 2)
    study = {key: value for key, value in STUDY.items() if key != "models"}
    RunStore.create(part.folder(tmp_path), {"of": "status"}, study, part).note("problems", 8)
    one, two = status_of(tmp_path)
    assert (one.state, two.state) == (STOPPED, DAMAGED)
    assert two.error == "a study that was run names its models"


@pytest.mark.parametrize("facts", [{"problems": "8"}, {"problems": -8}, {"problems": 8.5}, {"problems": True},
                                   {"problems": 10**30}, {"part": 7}, {"part": "9/2"}, {"part": "1"}])  # fmt: skip
def test_a_manifest_that_says_what_cannot_be_is_damaged(tmp_path: Path, facts: dict[str, Any]) -> None:
    store = make(tmp_path, 1, measured=1)
    for key, value in facts.items():
        store.note(key, value)
    assert [(one.part, one.state) for one in status_of(tmp_path)] == [("1/2", DAMAGED), ("2/2", ABSENT)]


def test_folders_of_other_numbers_of_parts_add_no_parts_that_are_missing(tmp_path: Path) -> None:
    make(tmp_path, 1)
    make(tmp_path, 2)
    for name in ("1-of-99999", "5-of-3", "1-of-1234567", "0-of-0"):
        (tmp_path / "parts" / name).mkdir()
        (tmp_path / "parts" / name / "manifest.json").write_text("{")
    found = status_of(tmp_path)
    assert sorted(one.part for one in found if one.state == STOPPED) == ["1/2", "2/2"]
    assert sorted(one.part for one in found if one.state == DAMAGED) == ["", "", "", "1/99999"]
    assert len(found) == 6


@pytest.mark.parametrize("changes", [{"pid": "x"}, {"born": "x"}, {"host": [1]}, {"scheduled": [1]}, {"error": 3},
                                     {"ended": "x"}])  # fmt: skip
def test_a_record_of_other_types_is_none(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = make(tmp_path, 1).path
    ended(folder, **changes)
    assert status_of(tmp_path)[0].pid is None
    ended(folder)
    assert status_of(tmp_path)[0].pid is not None


@pytest.mark.parametrize("pid", [10**30, -1])
def test_a_process_that_cannot_be_is_not_alive(tmp_path: Path, pid: int) -> None:
    ended(make(tmp_path, 1).path, pid=pid)
    assert status_of(tmp_path)[0].alive is False
