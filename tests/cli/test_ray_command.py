"""`fillerscope run --engine ray` in real processes: options, kills, signals, a cluster of two nodes, a job."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from fillerscope.cli.ray_options import ray_choices
from fillerscope.errors import StudyError
from fillerscope.measure.run_study import run_study
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study
from support.chaos import cases
from support.ray_runs import files, needs_ray, processes_with, study_settings, wait_for

NONE: Any = {"workers": None, "cpus": None, "gpus": None, "address": None}
MARK = "FILLERSCOPE_CACHE"  # every process of a run has it in its environment


def test_ray_is_asked_for_by_name() -> None:
    assert ray_choices("local", NONE) is None
    assert ray_choices("ray", NONE | {"workers": 2}) == NONE | {"workers": 2}


@pytest.mark.parametrize(
    ("option", "told"),
    [("workers", "--workers"), ("cpus", "--num-cpus"), ("gpus", "--num-gpus"), ("address", "--address")],
)
def test_options_of_ray_without_ray_are_refused(option: str, told: str) -> None:
    with pytest.raises(StudyError, match=f"^{told} belongs to --engine ray"):
        ray_choices("local", NONE | {option: 1})


def test_another_engine_is_refused() -> None:
    with pytest.raises(StudyError, match="--engine takes local or ray, not 'spark'"):
        ray_choices("spark", NONE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study, with a cache that marks all processes of these tests."""
    path = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, str(path / "cache"))
        patch.delenv("RAY_ADDRESS", raising=False)
        (path / "study.yaml").write_text(yaml.safe_dump(study_settings(path)), encoding="utf-8")
        yield path


@pytest.fixture(scope="module")
def single(folder: Path) -> dict[str, bytes]:
    return files(run_study(Study.load(folder / "study.yaml"), folder / "single").path)


def words(folder: Path, out: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "fillerscope.cli", "run", str(folder / "study.yaml"), "--out", str(out),
        "--engine", "ray", *(options or ("--workers", "2")),
    ]  # fmt: skip


def start(folder: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """A run on Ray, in a group of processes of its own."""
    return subprocess.Popen(
        words(folder, out, *options), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def wait_for_shards(process: subprocess.Popen[str], out: Path, count: int, most: float = 300) -> None:
    def are_there() -> bool:
        return len(list(out.glob("shards/*/*.safetensors"))) >= count

    with suppress(AssertionError):
        wait_for(lambda: process.poll() is not None or are_there(), "no shard was written", most)
    if process.poll() is not None or not are_there():
        end(process.pid)
        raise AssertionError(f"no shard was written: {process.communicate(timeout=60)[1]}")


@pytest.fixture(autouse=True)
def _ended(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a failed test has left running is ended, so that the next one does not fail of it."""
    yield
    if "folder" in request.fixturenames:
        folder: Path = request.getfixturevalue("folder")
        for one in processes_with(MARK, str(folder / "cache")):
            if one.pid != os.getpid():
                with suppress(psutil.Error):
                    one.kill()


def assert_nothing_left(folder: Path) -> None:
    mark = str(folder / "cache")
    wait_for(lambda: all(one.pid == os.getpid() for one in processes_with(MARK, mark)), "processes are left", 60)


def finish(folder: Path, out: Path, *options: str) -> None:
    done = subprocess.run(words(folder, out, *options), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("everybody", [False, True], ids=["process", "group"])
def test_a_signal_ends_a_run_and_all_its_processes(
    folder: Path, single: dict[str, bytes], tmp_path: Path, number: signal.Signals, everybody: bool
) -> None:
    out = tmp_path / "run"
    process = start(folder, out)
    wait_for_shards(process, out, 1)
    (os.killpg if everybody else os.kill)(process.pid, number)
    _, error = process.communicate(timeout=120)
    if not everybody or number != signal.SIGTERM:  # where Ray's own processes end first, Ray ends the driver
        assert process.returncode == 128 + number, error
        assert "stopped. What is finished is kept; go on with: fillerscope run" in error.splitlines()[-1]
        assert not list(Path("/tmp").glob(f"fs-ray-*/session_*_{process.pid}"))
    assert process.returncode != 0
    assert_nothing_left(folder)
    finish(folder, out)
    assert files(out) == single


@needs_ray
@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_no_processes_and_resumes(
    folder: Path, single: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start(folder, out)
    wait_for_shards(process, out, 2)
    process.kill()
    process.communicate(timeout=60)
    assert_nothing_left(folder)
    listed = [out / name for name in RunStore.open(out).manifest["files"] if name.startswith("shards/")]
    before = {path: path.stat().st_mtime_ns for path in listed}  # the last one may be there and not be listed yet
    finish(folder, out)
    assert files(out) == single
    assert before
    assert {path: path.stat().st_mtime_ns for path in before} == before  # what was written stays


@pytest.fixture(scope="module")
def takes(folder: Path, single: dict[str, bytes]) -> float:
    """Seconds of a run that nothing happens to."""
    began = time.monotonic()
    finish(folder, folder / "timed")
    assert files(folder / "timed") == single
    return time.monotonic() - began


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The actors of a run; none where it has ended, or has not begun."""
    found = []
    with suppress(psutil.Error):
        for one in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "".join(one.cmdline()[:1]).startswith("ray::Worker"):
                    found.append(one)
    return found


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("seed", cases(fast=0, slow=1, long=20))
def test_a_worker_and_then_the_driver_may_be_killed_at_any_moment(
    folder: Path, single: dict[str, bytes], takes: float, tmp_path: Path, seed: int
) -> None:
    draw, out = random.Random(seed), tmp_path / "run"
    process = start(folder, out)
    wait_for(lambda: bool(workers_of(process)) or process.poll() is not None, "no worker was started")
    time.sleep(draw.uniform(0, takes / 2))
    for one in workers_of(process)[:1]:
        one.kill()
    time.sleep(draw.uniform(0, takes))
    process.kill()  # unless it has ended
    process.communicate(timeout=60)
    assert_nothing_left(folder)
    finish(folder, out)
    assert files(out) == single


@needs_ray
@pytest.mark.slow
def test_part_and_ray_do_not_go_together(folder: Path, tmp_path: Path) -> None:
    options = ["--workers", "1", "--shard", "1/2"]
    command = words(folder, tmp_path / "run", *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr == "fillerscope: --engine ray measures everything; leave --shard and --submit out\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def nodes(logs: Path) -> Iterator[tuple[str, list[int]]]:
    """A cluster with a token, as an administrator would start it: its address, and the nodes with a CPU each. The head
    has none."""
    base, port = Path("/tmp") / f"fs-nodes-{os.getpid()}-{secrets.token_hex(2)}", free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "5" * 64)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or "AUTH" in name}
        environment = ours | {
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4", "RAY_agent_register_timeout_ms": "300000",
        }  # fmt: skip
        started: list[int] = []

        def node(*options: str) -> None:
            temporary = f"--temp-dir={base}-{len(started)}"
            with (logs / f"node-{len(started)}.log").open("wb") as log:
                command = [str(Path(sys.executable).parent / "ray"), "start", "--block", temporary, *options]
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            started.append(process.pid)

        try:
            node("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")
            wait_for(lambda: answers(f"127.0.0.1:{port}"), "the head does not listen")
            time.sleep(10)
            for _ in range(2):
                node(f"--address=127.0.0.1:{port}", "--num-cpus=1")
            time.sleep(10)
            yield f"127.0.0.1:{port}", started[1:]
        except AssertionError as failure:
            failure.add_note(
                "".join(log.read_text(errors="replace")[-2000:] for log in sorted(logs.glob("node-*.log")))
            )
            raise
        finally:
            for pid in started:
                end(pid)
            for number in range(len(started)):
                shutil.rmtree(f"{base}-{number}", ignore_errors=True)


def end(pid: int) -> None:
    """Kill a process and all that it has started."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process]:
            one.kill()
        process.wait(60)


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


@needs_ray
@pytest.mark.slow
def test_a_node_that_dies_changes_no_byte(folder: Path, single: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with nodes(tmp_path) as (address, workers):
        process = start(folder, out, "--workers", "2", "--address", address)
        wait_for_shards(process, out, 1)
        end(workers[1])
        _, error = process.communicate(timeout=600)
        assert process.returncode == 0, error[-3000:]
    assert_nothing_left(folder)
    assert files(out) == single


@pytest.mark.slow
@needs_ray
def test_modules_beside_a_study_run_in_no_worker(folder: Path, tmp_path: Path) -> None:
    """Ray itself puts the folder in which it is started first on the import path of its workers."""
    shutil.copytree(folder / "tiny", tmp_path / "tiny")
    shutil.copy(folder / "problems.jsonl", tmp_path)
    study = yaml.safe_load((folder / "study.yaml").read_text()) | {"models": ["./tiny"], "figures": []}
    study |= {"problems": {"source": "problems.jsonl"}, "generation": None, "probes": {"attention": {"positions": 110}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    for module in ("fillerscope", "torch", "transformers", "yaml", "psutil", "numpy"):
        (tmp_path / f"{module}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{module}')\nraise SystemExit"
        )
    command = [
        str(Path(sys.executable).parent / "fillerscope"),
        "run",
        "study.yaml",
        "--engine",
        "ray",
        "--workers",
        "1",
    ]
    done = subprocess.run([*command, "--out", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
