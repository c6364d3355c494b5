"""Which part of a study this job is for, where a scheduler started many of them: job arrays by their variables.

Slurm, Grid Engine, AWS Batch, Google Batch and Cloud Run say how many jobs there are. PBS, LSF and Kubernetes do not;
there the part is given by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fillerscope.errors import StudyError
from fillerscope.store.job_part import JobPart

ALL = "all"  # of --shard: everything, whatever a scheduler says


@dataclass(frozen=True)
class _Array:
    """The variables of one scheduler; those that it does not have are empty."""

    index: str
    first: str = ""  # 0 where there is none
    last: str = ""
    size: str = ""
    step: str = ""


ARRAYS = (
    _Array(
        "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT",
        "SLURM_ARRAY_TASK_STEP",
    ),
    _Array("SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", step="SGE_TASK_STEPSIZE"),  # "undefined" beside arrays
    _Array("AWS_BATCH_JOB_ARRAY_INDEX", size="AWS_BATCH_JOB_ARRAY_SIZE"),
    _Array("BATCH_TASK_INDEX", size="BATCH_TASK_COUNT"),
    _Array("CLOUD_RUN_TASK_INDEX", size="CLOUD_RUN_TASK_COUNT"),
)  # fmt: skip
UNCOUNTED = ("PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "JOB_COMPLETION_INDEX")


def chosen_part(given: str | None, environment: Mapping[str, str]) -> tuple[JobPart | None, str]:
    """The part that was asked for, else that of a job array, None for everything; and a line about it, or none."""
    if given is not None:
        return (None if given == ALL else JobPart.parse(given)), ""
    for array in ARRAYS:
        if environment.get(array.index, "").isdecimal():
            return _of_array(array, environment)
    for index in UNCOUNTED:
        number = environment.get(index, "0" if index == "LSB_JOBINDEX" else "")
        if number.isdecimal() and not (index == "LSB_JOBINDEX" and number == "0"):  # 0 there: no array
            return None, f"all of the study is measured: {index} does not say of how many; --shard 3/16 takes a part"
    return None, ""


def _of_array(array: _Array, environment: Mapping[str, str]) -> tuple[JobPart | None, str]:
    """The part of a job in an array that was submitted as a whole, from 0 or from 1."""
    index, first, last, size, step = (
        int(environment[name]) if environment.get(name, "").isdecimal() else None
        for name in (array.index, array.first, array.last, array.size, array.step)
    )
    assert index is not None
    first = first or 0
    spanned = None if last is None else last - first + 1
    count = size or spanned
    if count is None:
        return None, f"all of the study is measured: {array.index} comes without a count; --shard 3/16 takes a part"
    if first > 1 or (step or 1) != 1 or spanned not in (None, count) or not first <= index < first + count:
        raise StudyError(
            f"{array.index} is {index}, in an array that does not run from 0 or 1 without gaps, as where some jobs are "
            f"repeated: say which part of how many with --shard, such as --shard {max(1, index)}/16, or --shard all"
        )
    if count == 1:
        return None, ""
    part = JobPart(index - first + 1, count)
    return part, f"part {part} is measured, as {array.index} says; --shard all measures everything"
