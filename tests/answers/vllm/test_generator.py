"""Answers of vLLM itself: those of the model here up to rounding, the same from the same seed, ended where they should.

On a machine without vLLM, what is said instead."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.run import open_run
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.request import Request
from fillerscope.answers.vllm.generator import VllmGenerator, require_vllm
from fillerscope.errors import GenerationError, StudyError
from fillerscope.measure.run_study import run_study
from fillerscope.models.loading import LoadedModel, load_folder
from fillerscope.models.resolve import ModelFolder, resolve
from fillerscope.report.methods.page import methods
from fillerscope.study.generation import Decoding
from support.studies import save_model, study_of
from support.tiny import tiny_tokenizer

SIZES = {"hidden_size": 256, "intermediate_size": 512}  # heads of 64, which vLLM's kernels take
GREEDY, DRAWN = Decoding(max_tokens=48), Decoding(max_tokens=24, temperature=1.1, top_p=0.9)
real = [pytest.mark.gpu, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")]


def requests() -> list[Request]:
    random = np.random.default_rng(0)
    start = tuple(range(40, 70))
    return [
        Request((*start, *random.integers(5, 500, n).tolist()), 900 + n, len(start)) for n in (3, 12, 40, 25, 33, 60)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return resolve(str(save_model(tmp_path_factory.mktemp("models") / "small", **SIZES)))


@pytest.fixture(scope="module")
def here(folder: ModelFolder) -> LoadedModel:
    return load_folder(folder, "bfloat16", "cuda")


@pytest.fixture(scope="module")
def engine(folder: ModelFolder, here: LoadedModel) -> Iterator[VllmGenerator]:
    assert here
    generator = VllmGenerator(folder, "bfloat16", tiny_tokenizer(), frozenset({2}), 64)
    yield generator
    generator.close()


class TestReal:
    pytestmark = real

    def test_greedy_answers_are_those_of_the_model(self, engine: VllmGenerator, here: LoadedModel) -> None:
        ticks: list[float] = []
        replies = engine.answer(requests(), GREEDY, ticks.append)
        assert sum(ticks) == len(requests())
        assert recheck(LocalGenerator(here, 1), requests(), replies, GREEDY, 0.4)["checked"] == 6

    def test_drawn_answers_come_from_their_seeds(self, engine: VllmGenerator) -> None:
        first = engine.answer(requests(), DRAWN, lambda _: None)
        assert engine.answer(requests()[::-1], DRAWN, lambda _: None)[::-1] == first
        others = [Request(one.ids, one.seed + 1) for one in requests()]
        assert engine.answer(others, DRAWN, lambda _: None) != first
        assert len({reply.ids for reply in engine.answer([requests()[0]] * 3, DRAWN, lambda _: None)}) == 1

    def test_an_answer_ends_with_a_stop_token_and_not_with_another(self, engine: VllmGenerator) -> None:
        written = engine.answer(requests()[:1], GREEDY, lambda _: None)[0]
        stop = written.ids[5]
        place = written.ids.index(stop)
        engine.stops = frozenset({stop})
        try:
            reply = engine.answer(requests()[:1], GREEDY, lambda _: None)[0]
        finally:
            engine.stops = frozenset({2})
        assert (reply.finish, reply.tokens, reply.ids) == ("stop", place, written.ids[: place + 1])
        assert reply.text == tiny_tokenizer().decode(written.ids[:place], skip_special_tokens=True)

    def test_the_context_ends_answers_and_refuses_prompts(self, engine: VllmGenerator) -> None:
        ids = [Request(tuple(5 + n % 400 for n in range(length))) for length in (1024, 1020, 2000)]
        full, near, beyond = engine.answer(ids, GREEDY, lambda _: None)
        assert (full.finish, beyond.finish) == ("failed", "failed")
        assert near.tokens <= 4

    def test_what_stops_a_call_leaves_nothing_behind(self, engine: VllmGenerator) -> None:
        def stop(_: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            engine.answer(requests(), GREEDY, stop)
        assert len(engine.answer(requests()[:2], GREEDY, lambda _: None)) == 2
        assert not engine.engine.has_unfinished_requests()


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_study_is_answered_and_its_answers_are_measured(
    folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    generation = {"engine": "vllm", "max_tokens": 12, "temperature": [0, 1.0], "samples": 2, "noise": True}
    study = study_of(
        folder.path, device="cuda", generation=generation, probes={"answering": True}, conditions=["none", "mless"],
        problems={"limit": 6}, batch={"shard": 3},
    )  # fmt: skip
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    store = run_study(study, tmp_path / "run")
    assert torch.cuda.mem_get_info()[0] > before - 2**30
    run = open_run(store.path)
    facts = run.model_runs[0].facts["answercheck"]
    assert facts["engine"] == "vllm"
    assert 0 < facts["difference"] <= facts["tolerance"]
    assert "vllm" in store.manifest["identity"]["libraries"]
    assert compare(run)
    assert "answers by vLLM" in str(methods(run))
    assert study.generation is not None
    ours = study.model_copy(update={"generation": study.generation.model_copy(update={"engine": "fillerscope"})})
    other = run_study(ours, tmp_path / "other")
    assert other.manifest["identity"] != store.manifest["identity"]
    assert "vllm" not in other.manifest["identity"]["libraries"]


@pytest.mark.gpu
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_model_that_vllm_does_not_know_is_refused_in_one_line(tmp_path: Path) -> None:
    strange = resolve(str(save_model(tmp_path / "strange", "gemma2", head_dim=24)))
    with pytest.raises(GenerationError, match="vLLM cannot answer with strange") as refused:
        VllmGenerator(strange, "bfloat16", tiny_tokenizer(), frozenset({2}), 8)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_a_machine_without_vllm_says_how_to_get_it(tmp_path: Path) -> None:
    study = study_of(save_model(tmp_path / "tiny"), generation={"engine": "vllm"})
    with pytest.raises(StudyError, match=r"vLLM is missing: pip install 'fillerscope\[vllm\]'"):
        run_study(study, tmp_path / "run")


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "cuda:all", "mps"])
def test_another_device_than_the_first_gpu_is_refused(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fillerscope.answers.vllm.generator.find_spec", lambda _: True)
    require_vllm("cuda")
    with pytest.raises(StudyError, match="CUDA_VISIBLE_DEVICES"):
        require_vllm(device)
