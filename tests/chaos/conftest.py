"""Processes that can be killed, and a study for them with the bytes that it gives undisturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.forks import Forks, finishing, outcome
from support.studies import CONDITIONS, save_model, write_study


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One without a chat template: the process that renders templates takes longer to start than a run takes."""
    folder = save_model(tmp_path_factory.mktemp("plain") / "tiny-llama")
    (folder / "chat_template.jinja").unlink()
    return folder


@pytest.fixture(scope="session")
def study(plain_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards, the second one smaller."""
    return write_study(
        tmp_path_factory.mktemp("study") / "study.yaml", plain_model, problems={"limit": 3, "difficulty": [1]},
        conditions=[CONDITIONS[0], CONDITIONS[4]], batch={"shard": 2, "tokens": 512},
        figures=[{"name": "depth"}],
    )  # fmt: skip


@pytest.fixture(scope="session")
def undisturbed(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert forks.run(*finishing(study, run)) == 0
    found = outcome(run)
    assert len([name for name in found if name.startswith("tables")]) == 5
    assert len([name for name in found if name.endswith(".safetensors")]) == 3
    return found
