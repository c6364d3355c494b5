"""A study on a model that two processes share, started by torchrun, against the same in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import StudyError
from fillerscope.measure.run_study import run_study
from fillerscope.measure.shared_model import refuse_unshared
from fillerscope.models.tensor_parallel import STARTED
from fillerscope.store.schema import METRICS
from fillerscope.study.study import Study
from support.studies import save_model, settings

ROUNDING = 5e-6  # of the largest number of a kind: sums over hidden dimensions are added up in another order
CONDITIONS = ["none", "mless", "knockout", "positions"]


def study_settings(model: Path, **changes: Any) -> dict[str, Any]:
    usual = {"problems": {"limit": 4}, "conditions": CONDITIONS, "batch": {"shard": 1, "tokens": 512}, "figures": []}
    return settings(model, **(usual | changes))


def torchrun(folder: Path, study: dict[str, Any], out: Path, processes: int = 2) -> subprocess.CompletedProcess[str]:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(study))
    command = Path(sys.executable).parent / "fillerscope"
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [*start, "--no-python", str(command), "run", str(file), "--out", str(out), "--json"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def assert_alike(one: Run, other: Run) -> None:
    mine, theirs = one[None], other[None]
    assert mine.records() == theirs.records()
    for condition in mine.conditions:
        profiles = [run.head_profile(condition, 1, None).mean for run in (mine, theirs)]
        np.testing.assert_allclose(profiles[0], profiles[1], atol=1e-6, rtol=0)
        for metric in METRICS:
            numbers = [run.summary(metric, condition) for run in (mine, theirs)]
            size = np.nanmax(np.abs(numbers[0]), initial=1e-30)
            np.testing.assert_allclose(numbers[0] / size, numbers[1] / size, atol=ROUNDING, rtol=0, err_msg=metric)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "qwen3"])
def test_two_processes_measure_what_one_does(family: str, tmp_path: Path) -> None:
    study = study_settings(save_model(tmp_path / "tiny", family))
    single = run_study(Study.model_validate(study), tmp_path / "single")
    done = torchrun(tmp_path, study, tmp_path / "shared")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == str(tmp_path / "shared")  # one process tells
    shared = open_run(tmp_path / "shared")
    assert shared.store.verify() == []
    assert_alike(open_run(single.path), shared)
    identity = shared.store.manifest["identity"]
    assert identity.pop("tensor parallel") == 2
    assert identity == single.manifest["identity"]
    if family == "llama":  # resumed, with other shards missing than the first ones
        before = {name: (shared.path / name).read_bytes() for name in shared.store.manifest["files"]}
        (shared.path / sorted(name for name in before if name.startswith("shards/"))[2]).unlink()
        assert torchrun(tmp_path, study, tmp_path / "shared").returncode == 0
        assert {name: (shared.path / name).read_bytes() for name in before} == before


@pytest.mark.slow
def test_processes_that_find_other_weights_are_refused(tmp_path: Path) -> None:
    """Each looks for the model on its own machine."""
    for number in range(2):
        save_model(tmp_path / f"node{number}" / "model", seed=number)
    study = study_settings(Path("./model"))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    command = f"cd node$RANK && exec {Path(sys.executable).parent / 'fillerscope'} run ../study.yaml --out ../run"
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    done = subprocess.run(
        [*start, "bash", "-c", command], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "the processes that share the model do not find the same" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "processes", "told"),
    [("llama", 4, "has 4 heads and 2 of keys, which 4 processes cannot share evenly"),
     ("gpt2", 2, "transformers has no plan by which 2 processes share the heads of GPT2Attention")],
)  # fmt: skip
def test_a_model_that_cannot_be_shared_is_refused(family: str, processes: int, told: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, study_settings(save_model(tmp_path / "tiny", family)), tmp_path / "run", processes)
    assert done.returncode != 0
    assert told in done.stderr
    assert not list((tmp_path / "run").glob("shards/*/*"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"generation": {"max_tokens": 4}}, "answers are written by one process"),
     ({"probes": {"affine": True}}, "the affine picture needs all heads in one process"),
     ({"probes": {"activations": {}}}, "activations are shared among processes: leave `probes.activations` out"),
     ({"references": {"twin": 2}}, "untrained twins are drawn by one process"),
     ({"conditions": ["none", "arm"]}, "activations are shared among processes: leave the conditions with ARM")],
)  # fmt: skip
def test_what_one_process_alone_can_do_is_refused(
    changes: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study.model_validate(study_settings(tmp_path / "tiny") | changes)
    refuse_unshared(study, on_ray=False)  # by one process
    monkeypatch.setenv(STARTED, "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(StudyError, match=rf"^with tensor parallelism \(2 processes\) {told}"):
        refuse_unshared(study, on_ray=False)
    with pytest.raises(StudyError, match="leave --engine ray out"):
        refuse_unshared(Study.model_validate(study_settings(tmp_path / "tiny")), on_ray=True)
