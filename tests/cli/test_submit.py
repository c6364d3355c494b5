"""Jobs submitted to a scheduler: what submitit is told, and a real Slurm where there is one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fillerscope.analysis.export import export
from fillerscope.api import open_run
from fillerscope.cli.submit import Submission, _executor, submit
from fillerscope.errors import StoreError, StudyError
from fillerscope.study.study import Study
from support.slurm import running_slurm, slurm, wait_for, wait_until_done, why_not
from support.studies import CONDITIONS, save_model, write_study

SCRIPT = re.search(
    r"^```bash\n(#!/bin/bash\n.*?)^```",
    (Path(__file__).parents[2] / "docs/many-machines.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL,
)  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    return write_study(
        folder / "study.yaml", save_model(folder / "tiny"), problems={"limit": 6, "difficulty": [1]},
        conditions=CONDITIONS[:2], batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
    )  # fmt: skip


def test_options_have_the_names_that_submitit_knows() -> None:
    given = ("partition=gpu", "gpus_per_node=1", "timeout_min=30", "mem_gb=1.5", "exclusive=true")
    assert Submission("slurm", 4, given).parameters() == {
        "slurm_partition": "gpu", "gpus_per_node": 1, "timeout_min": 30, "mem_gb": 1.5, "slurm_exclusive": True,
        "name": "fillerscope", "slurm_setup": ["export PYTHONSAFEPATH=1"],
    }  # fmt: skip


def test_without_a_time_limit_jobs_have_ours_not_five_minutes() -> None:
    assert Submission("slurm", 4).parameters()["timeout_min"] >= 60


@pytest.mark.parametrize("option", ["partition", "=gpu", "my option=1"])
def test_an_option_without_a_value_is_refused(option: str) -> None:
    with pytest.raises(StudyError, match="--job takes KEY=VALUE, such as partition=gpu, not"):
        Submission("slurm", 4, (option,)).parameters()


def test_the_package_that_submits_is_named_where_it_is_missing(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(StudyError, match=re.escape("pip install 'fillerscope[slurm]'")):
        submit(Study.load(study), tmp_path, Submission("slurm", 2), False, False)


@pytest.mark.parametrize(
    ("submission", "told"),
    [
        (Submission("condor", 2), "--submit takes slurm or local, not 'condor'"),
        (Submission("local", 2, ("no_such=1",)), "the jobs were not submitted: .*no_such"),
    ],
)
def test_what_cannot_be_submitted_is_one_line(study: Path, tmp_path: Path, submission: Submission, told: str) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(StudyError, match=told) as caught:
        submit(Study.load(study), tmp_path, submission, False, False)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """fillerscope as jobs find it, with what they need in their environment."""
    folder = tmp_path_factory.mktemp("command")
    program = folder / "fillerscope"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m fillerscope.cli "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("FILLERSCOPE_CACHE", str(folder / "cache"))
        yield [str(program)]


@pytest.fixture(scope="module")
def single(command: list[str], study: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The export of a run of one process."""
    run = tmp_path_factory.mktemp("single") / "run"
    subprocess.run([*command, "run", study, "--out", run, "--shard", "all"], check=True)
    return tables(run)


def tables(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in export(open_run(run), run / "tables")}


@pytest.mark.slow
def test_jobs_on_this_machine(command: list[str], study: Path, single: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    run, here = tmp_path / "run", tmp_path / "received"
    here.mkdir()
    (here / "submitit.py").write_text("open('witness', 'w').close()")
    subprocess.run([*command, "run", study, "--out", run, "--submit", "local", "--jobs", "2"], check=True, cwd=here)
    assert tables(run) == single
    assert not (here / "witness").exists(), "code that lies where jobs are started was run"


def test_what_a_received_run_holds_is_not_loaded(tmp_path: Path) -> None:
    """submitit loads results as Python objects, which run code, by names that can be guessed."""
    pytest.importorskip("submitit")
    received = tmp_path / "run/parts/logs"
    received.mkdir(parents=True)
    folders = [Path(_executor(Submission("local", 1), tmp_path / "run").folder) for _ in range(2)]
    assert len({received, *folders}) == 3
    for folder in folders:
        assert folder.parent == received.parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["a\nb", "p%jq", "\x1b[31m"])
def test_names_that_slurm_reads_otherwise_are_refused(study: Path, tmp_path: Path, name: str) -> None:
    """A line break in the path of a log would begin a command of the job's script."""
    pytest.importorskip("submitit")
    with pytest.raises(
        StudyError, match="Slurm reads % and line breaks in names of folders; choose another with --out"
    ):
        submit(Study.load(study), tmp_path / name, Submission("local", 1), False, False)
    assert not list(tmp_path.iterdir())


def test_jobs_write_nothing_through_a_link_out_of_the_run(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "parts").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="parts would be written outside the run: a link leads there; remove it"):
        submit(Study.load(study), run, Submission("local", 1), False, False)
    assert not list(elsewhere.iterdir())


def test_jobs_are_not_submitted_where_others_can_exchange_them(study: Path) -> None:
    """A job loads what it does as Python objects, which run code."""
    pytest.importorskip("submitit")
    with tempfile.TemporaryDirectory() as name:  # the folders of pytest are closed to others
        run = Path(name).resolve()
        run.chmod(0o777)
        with pytest.raises(StudyError, match=f"other users can write to {run}, .*; choose another folder with --out"):
            submit(Study.load(study), run, Submission("local", 1), False, False)
        assert not list((run / "parts").iterdir())


needs_slurm = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.mark.slow
@needs_slurm
def test_the_script_of_the_docs_on_a_real_slurm(
    command: list[str], study: Path, single: dict[str, bytes], tmp_path: Path
) -> None:
    """One of its jobs is killed while it runs and repeated alone, which leaves gaps in the array."""
    assert command
    assert SCRIPT is not None
    text = SCRIPT[1].replace("my-study.yaml", str(study)).replace("/16", "/4").replace("1-16", "1-4")
    script = tmp_path / "array.sh"
    script.write_text(re.sub(r"^#SBATCH --(gpus-per-node|cpus-per-task)=.*\n", "", text, flags=re.MULTILINE))
    run = tmp_path / "runs/my-study"
    with running_slurm(tmp_path / "slurm") as environment:
        first = slurm(environment, "sbatch", "--parsable", f"--chdir={tmp_path}", str(script))
        wait_for((run / "parts/2-of-4/job.json").exists)
        slurm(environment, "scancel", "--full", "--signal=KILL", f"{first}_2")
        wait_until_done(environment)
        slurm(environment, "sbatch", "--parsable", f"--chdir={tmp_path}", "--array=2", str(script))
        wait_until_done(environment)
        merging = f"fillerscope merge {run}"
        slurm(environment, "sbatch", "--parsable", f"--chdir={tmp_path}", "--wrap", merging)
        wait_until_done(environment)
    assert tables(run) == single, "".join(file.read_text() for file in tmp_path.glob("*.txt"))


@pytest.mark.slow
@needs_slurm
def test_jobs_and_their_merge_on_a_real_slurm(
    command: list[str], study: Path, single: dict[str, bytes], tmp_path: Path
) -> None:
    pytest.importorskip("submitit")
    run = tmp_path / "run"
    with running_slurm(tmp_path / "slurm") as environment:
        words = [*command, "run", study, "--out", run, "--submit", "slurm", "--jobs", "3", "--job", "partition=main"]
        subprocess.run(words, env=environment, check=True)
        wait_until_done(environment)
    assert tables(run) == single
