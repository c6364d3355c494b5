"""Jobs for the parts of a study, submitted to Slurm, or started here, through submitit.

A job that runs into its time limit is put back into the queue, and goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import yaml

from fillerscope.cli import tables
from fillerscope.display import command, first_line
from fillerscope.errors import FillerscopeError, StudyError
from fillerscope.files import Json, disk_errors
from fillerscope.measure.run_part import run_part
from fillerscope.measure.run_study import RUNS
from fillerscope.models.folders import refuse_exchangeable
from fillerscope.progress import TerminalProgress
from fillerscope.store.addresses import is_address
from fillerscope.store.inside import inside
from fillerscope.store.join import join
from fillerscope.store.schema import PARTS_FOLDER
from fillerscope.study.study import Study

if TYPE_CHECKING:
    import submitit

CLUSTERS = ("slurm", "local")
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
TIMEOUT = 240  # minutes, where nobody says how long a job may take
MOST_TIMEOUTS = 100  # a job that was stopped so often is not put back
SAFE_PATH = "PYTHONSAFEPATH"  # keeps jobs, which inherit it, from importing modules that lie where they are started


@dataclass(frozen=True)
class Submission:
    """How jobs are submitted: where to, how many, and with which options of submitit."""

    cluster: str
    jobs: int
    options: Sequence[str] = field(default=())  # such as partition=gpu

    def parameters(self) -> Json:
        """The options by the names of submitit: those that only Slurm has are prefixed there."""
        found: Json = {"timeout_min": TIMEOUT, "name": "fillerscope", "slurm_setup": [f"export {SAFE_PATH}=1"]}
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
    if out is not None and is_address(out):
        raise StudyError(
            "--submit keeps the logs of jobs on a disk that they share: give a folder with --out, or start the jobs by "
            f"a script of your own, each with --shard N/{submission.jobs} --out and the address"
        )
    run = (out or RUNS / study.name).absolute()
    record = study.model_dump(mode="json")
    parts = [f"{number}/{submission.jobs}" for number in range(1, submission.jobs + 1)]
    jobs = [PartJob(record, part, str(run), accept_licence) for part in parts]
    with _explained():
        executor = _executor(submission, run)
        numbers = _submitted(executor, submission.cluster, jobs, str(run))
    if json:
        tables.print_json({"run": str(run), "jobs": numbers})
        return
    done = "are merged" if submission.cluster == "local" else "will be merged by the last"
    told = f"{submission.jobs} jobs ({', '.join(numbers[:2])}, ...), whose parts {done}: {run}"
    tables.lines([told, f"How far they are: {command('status', run)}", f"What they say: {executor.folder}"])


def _new_logs(run: Path) -> Path:
    """A new folder for what submitit writes. It loads what lies there as Python objects, which run code, so a folder
    that came with the run is not used, nor one that others can exchange."""
    if "%" in str(run) or not str(run).isprintable():
        raise StudyError(f"{str(run)!r}: Slurm reads % and line breaks in names of folders; choose another with --out")
    parts = inside(run / PARTS_FOLDER, run)
    parts.mkdir(parents=True, exist_ok=True)
    with disk_errors(StudyError, f"to {parts}", "choose another folder with --out"):
        refuse_exchangeable(parts)
        return Path(mkdtemp(prefix="logs-", dir=parts))


def _submitted(executor: submitit.AutoExecutor, cluster: str, jobs: Sequence[Callable[[], str]], run: str) -> list[str]:
    """The numbers of the jobs. Those that are started here are waited for."""
    started = executor.submit_array(jobs)
    numbers = [str(job.job_id) for job in started]
    if cluster == "local":
        for job in started:
            job.result()
        merge_job(run)
        return numbers
    whole = numbers[0].partition("_")[0]
    executor.update_parameters(slurm_dependency=f"afterok:{whole}", gpus_per_node=0, name="fillerscope-merge")
    return [*numbers, str(executor.submit(merge_job, run).job_id)]


def _executor(submission: Submission, run: Path) -> submitit.AutoExecutor:
    try:
        import submitit
    except ImportError:
        raise StudyError("submitit is missing, which submits jobs: pip install 'fillerscope[slurm]'") from None
    if submission.cluster not in CLUSTERS:
        raise StudyError(f"--submit takes {' or '.join(CLUSTERS)}, not {submission.cluster!r}")
    os.environ[SAFE_PATH] = "1"
    executor = submitit.AutoExecutor(_new_logs(run), cluster=submission.cluster, slurm_max_num_timeout=MOST_TIMEOUTS)
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
