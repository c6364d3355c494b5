"""The part of a study that a job array means, by the variables of its scheduler."""

from __future__ import annotations

import re

import pytest

from fillerscope.cli.scheduler import chosen_part
from fillerscope.errors import StudyError
from fillerscope.store.job_part import JobPart


def slurm(index: int, first: int, last: int, count: int, step: int = 1) -> dict[str, str]:
    """As Slurm sets them for a task of an array."""
    names = {"ID": index, "MIN": first, "MAX": last, "COUNT": count, "STEP": step}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in names.items()}


def grid_engine(index: str, first: str, last: str, step: str = "1") -> dict[str, str]:
    """As Grid Engine sets them; each is `undefined` for a job that is no array."""
    return {"SGE_TASK_ID": index, "SGE_TASK_FIRST": first, "SGE_TASK_LAST": last, "SGE_TASK_STEPSIZE": step}


ARRAYS = [
    (slurm(1, 1, 16, 16), "1/16"),
    (slurm(16, 1, 16, 16), "16/16"),
    (slurm(0, 0, 15, 16), "1/16"),
    (slurm(15, 0, 15, 16), "16/16"),
    (grid_engine("3", "1", "4"), "3/4"),
    ({"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "10"}, "1/10"),
    ({"AWS_BATCH_JOB_ARRAY_INDEX": "9", "AWS_BATCH_JOB_ARRAY_SIZE": "10"}, "10/10"),
    ({"BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": "4"}, "3/4"),
    ({"CLOUD_RUN_TASK_INDEX": "0", "CLOUD_RUN_TASK_COUNT": "4"}, "1/4"),
]


@pytest.mark.parametrize(("environment", "part"), ARRAYS)
def test_the_part_of_an_array_and_a_line_that_says_so(environment: dict[str, str], part: str) -> None:
    chosen, told = chosen_part(None, environment)
    index = next(iter(environment))
    assert str(chosen) == part
    assert told == f"part {part} is measured, as {index} says; --shard all measures everything"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        grid_engine("undefined", "undefined", "undefined", "undefined"),
        {"LSB_JOBINDEX": "0"},  # as LSF sets it for a job that is no array
        slurm(0, 0, 0, 1),  # an array of one
        {"AWS_BATCH_JOB_ID": "abc"},
    ],
)
def test_a_job_that_is_no_array_measures_everything_in_silence(environment: dict[str, str]) -> None:
    assert chosen_part(None, environment) == (None, "")


@pytest.mark.parametrize("index", ["PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "JOB_COMPLETION_INDEX"])
def test_a_scheduler_without_a_count_is_named_and_everything_measured(index: str) -> None:
    part, told = chosen_part(None, {index: "3"})
    assert part is None
    assert told == f"all of the study is measured: {index} does not say of how many; --shard 3/16 takes a part"


@pytest.mark.parametrize(
    "environment",
    [
        slurm(3, 3, 7, 2),  # --array=3,7
        slurm(3, 3, 4, 2),  # --array=3-4
        slurm(4, 0, 12, 4, step=4),  # --array=0-12:4
        slurm(5, 1, 5, 3, step=1),  # --array=1,3,5
        grid_engine("3", "3", "4"),
        grid_engine("3", "1", "5", "2"),
    ],
)
def test_a_part_is_not_guessed_where_some_jobs_are_repeated(environment: dict[str, str]) -> None:
    """They were parts of another number of jobs."""
    with pytest.raises(StudyError, match="as where some jobs are repeated: say which part of how many with --shard"):
        chosen_part(None, environment)
    assert chosen_part("3/16", environment) == (JobPart(3, 16), "")


def test_what_is_given_comes_first() -> None:
    assert chosen_part("2/4", slurm(1, 1, 16, 16)) == (JobPart(2, 4), "")
    assert chosen_part("all", slurm(1, 1, 16, 16)) == (None, "")
    with pytest.raises(StudyError, match=re.escape("a part is written as 3/16, the third of sixteen, not 'none'")):
        chosen_part("none", {})
