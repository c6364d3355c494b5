"""A whole study answered by a real server: the same answers as here, and nothing lost when the server dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.noise import SERVER, noise_floor
from fillerscope.analysis.run import open_run
from fillerscope.errors import GenerationError
from fillerscope.measure.run_study import run_study
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name
from fillerscope.study.generation import NoiseSpec
from fillerscope.study.study import Study
from support.server import Served, llama_cpp, proxy, slow, write_gguf
from support.studies import save_model, settings
from support.tiny import tiny_model, tiny_tokenizer

pytest.importorskip("openai")
pytest.importorskip("xllamacpp")

SHARDS = 3  # of eight problems, three in each


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tiny_model("llama"), tiny_tokenizer(), tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def here(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    """What the model answers without a server."""
    return answers(run_study(study(str(folder)), tmp_path_factory.mktemp("here") / "run"), folder)


@pytest.fixture
def server(weights: Path) -> Iterator[Served]:
    with llama_cpp(weights) as served:
        yield served


def study(model: Any) -> Study:
    asked = {"probes": {"attention": False}, "generation": {"max_tokens": 8}, "models": [model]}
    return Study.model_validate(settings("unused", **asked))


def served_by(url: str, folder: Path) -> Study:
    return study({"name": str(folder), "endpoint": {"url": url, "retries": 0, "concurrency": 2}})


def answers(store: RunStore, folder: Path) -> list[dict[str, list[Any]]]:
    return [store.get_table(answers_name(str(folder), index)) for index in range(SHARDS)]


def assert_alike(there: list[dict[str, list[Any]]], here: list[dict[str, list[Any]]]) -> None:
    """Every column, but that a server's count may hold the token that ends the turn where its text cannot tell."""
    for one, other in zip(there, here, strict=True):
        counts = zip(one["tokens"], other["tokens"], strict=True)
        assert all(0 <= a - b <= 1 for a, b in counts)
        assert one | {"tokens": []} == other | {"tokens": []}


def test_a_server_gives_the_answers_of_the_model_it_serves(
    server: Served, folder: Path, here: list[dict[str, list[Any]]], tmp_path: Path
) -> None:
    assert sum(len(table["text"]) for table in here) == 8 * 5
    assert any(text for table in here for text in table["text"])
    there = answers(run_study(served_by(server.url, folder), tmp_path / "there"), folder)
    assert_alike(there, here)


def test_replicas_of_which_one_dies_give_the_run_of_one_server(
    server: Served, weights: Path, folder: Path, tmp_path: Path
) -> None:
    """The same folder, the same numbers: which replica answered is in neither."""
    alone = run_study(served_by(server.url, folder), tmp_path / "alone")
    said: list[str] = []
    with llama_cpp(weights) as mortal, proxy(server.url, always=slow(0.05)) as staying:

        class Killing:
            def stage(self, text: str, done: float, total: int | None) -> None:  # noqa: ARG002
                if done >= 2:
                    mortal.kill()

            def say(self, text: str) -> None:
                said.append(text)

        endpoint = {"url": server.url, "retries": 0, "concurrency": 2}
        shared = study({"name": str(folder), "endpoint": endpoint | {"replicas": [mortal.url, staying.url]}})
        run = run_study(shared, tmp_path / "shared", Killing())
    assert mortal.process.returncode
    assert run.manifest["identity"] == alone.manifest["identity"]
    assert answers(run, folder) == answers(alone, folder)
    assert [line for line in said if "a replica has gone" in line and mortal.url in line]


def test_a_server_is_asked_again_for_its_noise_floor(server: Served, folder: Path, tmp_path: Path) -> None:
    asked = served_by(server.url, folder)
    assert asked.generation
    noisy = asked.generation.model_copy(update={"noise": NoiseSpec()})
    run = open_run(run_study(asked.model_copy(update={"generation": noisy}), tmp_path / "run").path)
    floor = noise_floor(run[None])[0]
    assert (floor.way, floor.answers, floor.condition) == (SERVER, 8, "none")
    assert "the server alone, asked again, changes" in answer_findings(run[None], compare(run))[-1].text


def test_a_server_killed_in_mid_run_leaves_a_run_that_goes_on(
    server: Served, weights: Path, folder: Path, here: list[dict[str, list[Any]]], tmp_path: Path
) -> None:
    answered: list[Any] = []

    def kill_after_twenty(asked: Any, answer: Any) -> None:  # noqa: ARG001 - both are given
        answered.append(asked)
        if len(answered) == 20:
            server.kill()

    with proxy(server.url, alter=kill_after_twenty) as door:
        asked = served_by(door.url, folder)
        with pytest.raises(GenerationError, match="run again to resume"):
            run_study(asked, tmp_path / "run")
        kept = [RunStore.open(tmp_path / "run").has(answers_name(str(folder), index)) for index in range(SHARDS)]
        assert kept == [True, False, False], "one shard of fifteen answers was finished"
        first = (tmp_path / "run" / answers_name(str(folder), 0)).read_bytes()
        with llama_cpp(weights) as again:
            door.target, door.alter = again.url, None
            store = run_study(asked, tmp_path / "run")
    assert_alike(answers(store, folder), here)
    assert (tmp_path / "run" / answers_name(str(folder), 0)).read_bytes() == first, "and is not answered again"
