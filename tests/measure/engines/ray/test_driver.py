"""A run on a real Ray cluster: the bytes of the local engine, whatever dies on the way."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.analysis.integrity import faults
from fillerscope.api import open_run
from fillerscope.errors import ModelError, StudyError
from fillerscope.measure.engines.ray import driver
from fillerscope.measure.engines.ray.cluster import RayOptions, cluster
from fillerscope.measure.engines.ray.worker import Call, Outcome, Worker
from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.models.catalogue import cache_folder
from fillerscope.models.in_memory import ModelInMemory
from fillerscope.store.contents import ANSWERING, MEASURING
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name, merged_name
from fillerscope.study.study import Study
from support.chaos import LONG, is_long
from support.progress import Heard
from support.ray_runs import files, needs_ray, study_settings
from support.studies import save_model
from support.tiny import tiny_model, tiny_tokenizer

pytestmark = needs_ray
CACHE = str(cache_folder())  # where weights are that were fetched before
CPUS = 0.5  # of a worker: four of them fit two


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _ray(_surroundings: None) -> Iterator[None]:
    """One cluster for all tests of a process: runs use the one that they find themselves connected to."""
    with cluster(RayOptions(workers=4, cpus=CPUS), "cpu", 1, 4):
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study.model_validate(study_settings(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def single(study: Study, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the run of one process."""
    return files(run_study(study, tmp_path_factory.mktemp("single") / "run").path)


def run_on_ray(study: Study, out: Path, workers: int, progress: Heard | None = None) -> Path:
    choices = RunChoices(ray=RayOptions(workers, CPUS))
    return run_study(study, out, progress or Heard(), choices).path


def failing(
    monkeypatch: pytest.MonkeyPatch, notes: Path, stage: str, shard: int | None, times: int, dies: bool
) -> None:
    """Let workers die, or fail, at one piece of work, the first `times` that it is tried."""
    notes.mkdir()

    class Failing(Worker):
        def call(self, call: Call) -> Outcome:
            if (call.stage, call.shard) == (stage, shard) and len(list(notes.iterdir())) < times:
                (notes / secrets.token_hex(4)).touch()
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                return Outcome(failure="RuntimeError: the device is broken")
            return super().call(call)

    monkeypatch.setattr(driver, "Worker", Failing)


def test_a_worker_that_is_killed_changes_no_byte(
    study: Study, single: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, tmp_path / "notes", MEASURING, 3, 2, dies=True)
    heard = Heard()
    assert files(run_on_ray(study, tmp_path / "run", 2, heard)) == single
    assert len(list((tmp_path / "notes").iterdir())) == 2
    assert any("measuring tiny, shard 4: runs again, as a worker died" in line for line in heard.lines)


@pytest.mark.slow
def test_attention_of_damaged_answers_waits_until_they_are_written_anew(
    study: Study, single: dict[str, bytes], tmp_path: Path
) -> None:
    """As after an interrupt while attention of answers was measured, with a file that was damaged since."""
    run = run_on_ray(study, tmp_path / "run", 2)
    store = RunStore.open(run)
    (model,) = store.manifest["models"]
    damaged = run / answers_name(model, 0)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    for file in run.glob("lookback/**/*.safetensors"):
        file.unlink()
    assert files(run_on_ray(study, tmp_path / "run", 2)) == single


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers_gives_the_bytes_of_one_process(
    study: Study, single: dict[str, bytes], tmp_path: Path, workers: int
) -> None:
    assert files(run_on_ray(study, tmp_path / "run", workers)) == single


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.skipif(not is_long(), reason=f"has not ended within 15 minutes beside other tests; set {LONG}=1")
def test_a_real_model_gives_the_bytes_of_one_process_with_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many threads as the driver has, and passes of one size, whatever memory is free at the moment: sums are
    rounded otherwise with another number. Without the affine probe: its last digits are not the same on busy cores."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", CACHE)
    record = {
        "name": "real", "models": ["smollm2-135m"], "problems": {"limit": 4}, "conditions": ["none", "mless"],
        "batch": {"shard": 1, "tokens": 2048}, "probes": {"activations": {}},
        "generation": {"max_tokens": 8, "recheck": 1}, "device": "cpu",
    }  # fmt: skip
    real = Study.model_validate(record)
    local = files(run_study(real, tmp_path / "local").path)
    for workers in (1, 2, 4):
        assert files(run_on_ray(real, tmp_path / str(workers), workers)) == local


@pytest.mark.slow
def test_several_models_and_their_twins_share_the_workers(tmp_path: Path) -> None:
    record = study_settings(tmp_path, references={"twin": 2})
    several = Study.model_validate(
        record | {"models": [record["models"][0], str(save_model(tmp_path / "other", "gpt2"))]}
    )
    local = run_study(several, tmp_path / "local").path
    assert files(run_on_ray(several, tmp_path / "run", 3)) == files(local)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [MEASURING, ANSWERING])
@pytest.mark.parametrize("dies", [True, False])
def test_a_shard_that_fails_three_times_is_stored_as_failed_and_the_run_goes_on(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, dies: bool
) -> None:
    failing(monkeypatch, tmp_path / "notes", stage, 3, 3, dies)
    heard = Heard()
    run = open_run(run_on_ray(study, tmp_path / "run", 2, heard))
    assert len(list((tmp_path / "notes").iterdir())) == 3
    assert any("shard 4: stored as failed, after 3 times" in line for line in heard.lines)
    assert faults(run) == []
    told = "a worker died" if dies else "the device is broken"
    if stage == MEASURING:
        records = run.store.get(merged_name(study.models[0].name), []).records
        assert [one["number"] for one in records if one["status"] == "failed"] == [0, 1, 3]
        assert told in next(one["error"] for one in records if one["number"] == 3)
    else:
        answers = run.store.get_table(answers_name(study.models[0].name, 3))
        assert set(answers["verdict"]) == {"failed"}
        assert told in answers["note"][0]


@pytest.mark.slow
def test_what_cannot_be_prepared_ends_the_run(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, tmp_path / "notes", MEASURING, None, 3, dies=False)
    with pytest.raises(ModelError, match=r"measuring tiny: failed on 3 workers, .* the device is broken"):
        run_on_ray(study, tmp_path / "run", 1)


@pytest.mark.slow
def test_an_error_of_the_user_ends_the_run_as_it_does_here(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Missing(Worker):
        def call(self, call: Call) -> Outcome:  # noqa: ARG002
            return Outcome(error=ModelError("no such weights; fetch them"))

    monkeypatch.setattr(driver, "Worker", Missing)
    with pytest.raises(ModelError, match=r"^no such weights; fetch them$"):
        run_on_ray(study, tmp_path / "run", 1)


@pytest.mark.slow
def test_a_machine_with_other_code_is_refused(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "versions", lambda _: {"fillerscope": "0.0+other"})
    with pytest.raises(ModelError, match=r"has fillerscope .*, not 0\.0\+other: install there what the driver has"):
        run_on_ray(study, tmp_path / "run", 1)


def test_a_model_in_memory_is_refused(study: Study, tmp_path: Path) -> None:
    source: Any = ModelInMemory.of(tiny_model("llama"), tiny_tokenizer(), study.models[0].name)
    with pytest.raises(StudyError, match="a model in memory cannot be sent to Ray's workers"):
        run_study(study, tmp_path / "run", Heard(), RunChoices(in_memory=source, ray=RayOptions(1)))
