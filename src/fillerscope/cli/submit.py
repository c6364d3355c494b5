"""Jobs for the parts of a study, submitted to Slurm, or started here, through submitit.

A job that runs into its time limit is put back into the queue, and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from fillerscope.cli import tables
from fillerscope.display import first_line
from fillerscope.errors import FillerscopeError, StudyError
from fillerscope.files import Json
from fillerscope.measure.run_part import run_part
from fillerscope.measure.run_study import RUNS
from fillerscope.progress import TerminalProgress
from fillerscope.store.join import join
from fillerscope.store.schema import PARTS_FOLDER
from fillerscope.study.study import Study

if TYPE_CHECKING:
    import submitit

CLUSTERS = ("slurm", "local")
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
TIMEOUT = 240  # minutes, where nobody says how long a job may take
MOST_TIMEOUTS = 100  # a job that was stopped so often is not put back


@dataclass(frozen=True)
class Submission:
    """How jobs are submitted: where to, how many, and with which options of submitit."""

    cluster: str
    jobs: int
    options: Sequence[str] = field(default=())  # such as partition=gpu

    def parameters(self) -> Json:
        """The options by the names of submitit: those that only Slurm has are prefixed there."""
        found: Json = {"timeout_min": TIMEOUT, "name": "fillerscope"}
        for option in self.options:
            key, equals, value = option.partition("=")
            if not equals or not key.isidentifier():
                raise StudyError(f"--job takes KEY=VALUE, such as partition=gpu, not {option!r}")
            found[key if key in SHARED else f"{self.cluster}_{key}"] = yaml.safe_load(value)
        return found


@dataclass(frozen=True)
class PartJob:
    """What the job of a part does. submitit sends it to the machine that does it."""

    study: Json
    part: str
    out: str
    accept_licence: bool

    def __call__(self) -> str:
        with TerminalProgress(False) as reporter:
            folder = run_part(self.study, self.part, self.out, progress=reporter, accept_licence=self.accept_licence)
        return str(folder)

    def checkpoint(self) -> object:
        """The same job once more, asked for by submitit when the time limit is near: it resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def merge_job(out: str) -> str:
    """What the last job does."""
    return str(join(Path(out), []).path)


def submit(study: Study, out: Path | None, submission: Submission, accept_licence: bool, json: bool) -> None:
    """Submit a job for each part, and one that merges them; say where to look."""
    run = (out or RUNS / study.name).absolute()
    record = study.model_dump(mode="json")
    parts = [f"{number}/{submission.jobs}" for number in range(1, submission.jobs + 1)]
    jobs = [PartJob(record, part, str(run), accept_licence) for part in parts]
    with _explained():
        numbers = _submitted(submission, run, jobs)
    if json:
        tables.print_json({"run": str(run), "jobs": numbers})
        return
    done = "are merged" if submission.cluster == "local" else "will be merged by the last"
    told = f"{submission.jobs} jobs ({', '.join(numbers[:2])}, ...), whose parts {done}: {run}"
    tables.lines([told, f"How far they are: fillerscope status {run}", f"What they say: {run / PARTS_FOLDER / 'logs'}"])


def _submitted(submission: Submission, run: Path, jobs: Sequence[Callable[[], str]]) -> list[str]:
    """The numbers of the jobs. Those that are started here are waited for."""
    executor = _executor(submission, run)
    started = executor.submit_array(jobs)
    numbers = [str(job.job_id) for job in started]
    if submission.cluster == "local":
        for job in started:
            job.result()
        merge_job(str(run))
        return numbers
    whole = numbers[0].partition("_")[0]
    executor.update_parameters(slurm_dependency=f"afterok:{whole}", gpus_per_node=0, name="fillerscope-merge")
    return [*numbers, str(executor.submit(merge_job, str(run)).job_id)]


def _executor(submission: Submission, run: Path) -> submitit.AutoExecutor:
    try:
        import submitit
    except ImportError:
        raise StudyError("submitit is missing, which submits jobs: pip install 'fillerscope[slurm]'") from None
    if submission.cluster not in CLUSTERS:
        raise StudyError(f"--submit takes {' or '.join(CLUSTERS)}, not {submission.cluster!r}")
    executor = submitit.AutoExecutor(
        run / PARTS_FOLDER / "logs", cluster=submission.cluster, slurm_max_num_timeout=MOST_TIMEOUTS
    )
    executor.update_parameters(**submission.parameters())
    return executor


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever submitit or sbatch does not like, in one line."""
    try:
        yield
    except (FillerscopeError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise StudyError(f"the jobs were not submitted: {first_line(error)}") from None
