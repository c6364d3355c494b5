"""One question gives the numbers and answers of a study with that problem alone, and is refused where that is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.analysis.references import same_odds, uniform
from fillerscope.analysis.run import open_run
from fillerscope.analysis.trial import Trial
from fillerscope.answers.local import answer_check
from fillerscope.answers.request import Reply
from fillerscope.api import RunOptions, TrialOptions, run, try_question
from fillerscope.capture import row_samples
from fillerscope.errors import (
    ArgumentError,
    CaptureError,
    FigureError,
    GenerationError,
    ModelError,
    PromptError,
    StudyError,
)
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.study.study import Study
from support.tiny import tiny_model, tiny_tokenizer

QUESTION = "Anna has 3 apples and buys 4 more. How many apples does she have now?"
FILLER = '" /" x 12'


def loaded(family: str = "llama", **changes: Any) -> LoadedModel:
    return wrap(tiny_model(family, **changes), tiny_tokenizer(), family)


@pytest.fixture(scope="module")
def llama() -> LoadedModel:
    return loaded()


def study_of_one(family: str, folder: Path, condition: Any) -> Any:
    """A finished run of the one problem, with the model saved and loaded by name."""
    tiny_model(family).save_pretrained(folder / family)
    tiny_tokenizer().save_pretrained(folder / family)
    (folder / "one.jsonl").write_text(json.dumps({"id": "one", "question": QUESTION, "answer": "7"}) + "\n")
    study = Study.model_validate({
        "name": "one", "models": [str(folder / family)], "problems": {"source": str(folder / "one.jsonl")},
        "conditions": ["none", condition], "generation": {"max_tokens": 10}, "device": "cpu",
    })  # fmt: skip
    run(study, folder / "run")
    return open_run(folder / "run")[str(folder / family)]


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt_oss", "gpt2"])
def test_numbers_and_answers_are_those_of_a_study(family: str, tmp_path: Path) -> None:
    filler = {"name": "filler", "kind": "repeat", "text": " /", "count": 12}
    expected = study_of_one(family, tmp_path, filler)
    for head in (None, 2):
        trial = try_question(QUESTION, str(tmp_path / family), FILLER, layer=2, head=head, max_tokens=10, device="cpu")
        compare_numbers(trial, expected)
    columns = expected.answer_columns()
    assert [trial.plain.reply.text, trial.filled.reply.text] == columns["text"]
    assert [trial.plain.reply.finish, trial.filled.reply.finish] == columns["finish"]


def compare_numbers(trial: Trial, expected: Any) -> None:
    """All numbers of a trial of layer 2 against those of a run."""

    def cell(values: np.ndarray) -> np.ndarray:
        return values[1].mean(axis=0) if trial.view.head is None else values[1, trial.view.head - 1]

    for name, side in (("none", trial.plain), ("filler", trial.filled)):
        profile = expected.profile(name, "original", "whole")
        np.testing.assert_allclose(side.received, cell(profile.mean), rtol=1e-15, atol=1e-17)  # but for the last bit
    assert trial.plain.tokens == expected.tokens("none")
    assert trial.change.without == cell(expected.summary("received_original", "none")[0])
    assert trial.change.with_filler == cell(expected.summary("received_original", "filler")[0])
    assert trial.filled.mass == cell(expected.summary("filler_mass", "filler")[0])
    assert trial.filled.mass == pytest.approx(sum(trial.filled.received[np.array(trial.filled.spans) == "filler"]))
    odds = cell(same_odds(expected, "filler")[0]) / trial.change.without
    np.testing.assert_array_equal(trial.change.odds, odds)  # both missing, or both the same
    assert np.isnan(odds) == bool(trial.change.unknown)
    even, plain = (uniform(expected, name).received[0, 1] for name in ("filler", "none"))
    assert trial.change.uniform == pytest.approx(even / plain)


def test_a_window_shorter_than_the_prompt_and_a_learned_sink_have_no_equal_odds() -> None:
    sliding = try_question(QUESTION, loaded("gemma3_text"), FILLER, max_tokens=2)
    assert "the layer sees 8 tokens" in sliding.change.unknown
    assert "uniform attention would leave" in sliding.sentence
    sink = try_question(QUESTION, loaded("gpt_oss"), FILLER, layer=2, max_tokens=2)
    assert "learned sink" in sink.change.unknown
    assert "learned sink" in sink.sentence


def test_a_raw_text_is_measured_without_template_and_answers(llama: LoadedModel) -> None:
    trial = try_question("the quick brown fox", llama, FILLER, raw=True, queries="all")
    assert "".join(trial.plain.tokens) == "the quick brown fox"
    assert trial.filled.tokens[:12] == (" /",) * 12
    assert trial.plain.reply is None
    assert "it is known for original query rows alone" in trial.sentence


def test_the_system_text_is_in_the_prompt(llama: LoadedModel) -> None:
    trial = try_question("How many?", llama, FILLER, system="Be brief.", max_tokens=2)
    assert "Be brief." in "".join(trial.plain.tokens)
    assert "reason step by step" not in "".join(trial.plain.tokens)
    assert "reason step by step" not in "".join(try_question("Hi", llama, FILLER, system="", max_tokens=2).plain.tokens)


def test_prompts_longer_than_whole_matrices_take_the_checks_of_a_run(llama: LoadedModel) -> None:
    trial = try_question("the quick brown fox " * 120, llama, FILLER, max_tokens=2)
    assert len(trial.filled.tokens) > 512
    assert trial.change.odds < 1


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"layer": 99}, FigureError, "there is no layer 99: llama has layers 1 to 3"),
        ({"head": 5}, FigureError, "there is no head 5: llama has heads 1 to 4"),
        ({"queries": "none"}, FigureError, "queries are all, original, last, not 'none'"),
        ({"question": " \n"}, PromptError, "the question is empty"),
        ({"filler": "mles"}, StudyError, "'mles' is close to mless"),
        ({"filler": '" / /" x 3'}, PromptError, "3 is not a multiple"),
        ({"filler": "/ x 5000"}, PromptError, "the model takes 1024"),
        ({"question": "word " * 3000}, PromptError, "the model takes 1024"),
        ({"max_tokens": 0}, ArgumentError, "max_tokens.*not 0"),
        ({"device": "tpu"}, StudyError, "device.*not 'tpu'"),
    ],
)
def test_rubbish_is_refused_by_name(
    change: dict[str, Any], error: type[Exception], complaint: str, llama: LoadedModel
) -> None:
    given = {"question": QUESTION, "filler": FILLER} | change
    with pytest.raises(error, match=complaint) as refused:
        try_question(given.pop("question"), llama, given.pop("filler"), **given)
    assert "\n" not in str(refused.value)


def test_a_model_in_memory_is_asked_as_a_loaded_one_is(llama: LoadedModel) -> None:
    expected: Trial = try_question(QUESTION, llama, FILLER, max_tokens=4)
    llama.model.train()
    trial = try_question(QUESTION, llama.model, FILLER, tokenizer=llama.tokenizer, max_tokens=4)
    assert llama.model.training, "it keeps its mode"
    llama.model.eval()
    np.testing.assert_array_equal(trial.filled.received, expected.filled.received)
    assert trial.sentence == expected.sentence


def test_a_model_in_the_wrong_place_is_refused_in_one_line(llama: LoadedModel) -> None:
    with pytest.raises(PromptError, match=r"the question is a text and comes first, .* found LlamaForCausalLM"):
        try_question(llama.model, QUESTION)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="needs its tokenizer"):
        try_question(QUESTION, llama.model)
    with pytest.raises(ModelError, match="model is a transformers model"):
        try_question(QUESTION, llama.tokenizer, tokenizer=llama.model)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="leave tokenizer= out"):
        try_question(QUESTION, llama, tokenizer=llama.tokenizer)
    with pytest.raises(StudyError, match="is given by name and brings its tokenizer"):
        try_question(QUESTION, "smollm2-135m", tokenizer=llama.tokenizer)
    with pytest.raises(StudyError, match=r"a question asks for answers, and .* has no layer that makes logits"):
        try_question(QUESTION, llama.model.model, tokenizer=llama.tokenizer)


def test_every_option_is_in_the_help() -> None:
    assert not [name for name in TrialOptions.__annotations__ if f"`{name}" not in (try_question.__doc__ or "")]
    assert not [name for name in RunOptions.__annotations__ if f"`{name}" not in (run.__doc__ or "")]


def test_attention_that_is_not_the_models_own_is_refused(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = row_samples.captured_attention

    def wrong(module: Any, query: torch.Tensor, *rest: Any, **more: Any) -> Any:
        return exact(module, query * 1.01, *rest, **more)

    monkeypatch.setattr(row_samples, "captured_attention", wrong)
    with pytest.raises(CaptureError, match="cannot be measured exactly"):
        try_question(QUESTION, llama, FILLER, max_tokens=2)


def answered_by(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Engines that write another token than the stock model does."""
    for name in names:
        engine = answer_check.ENGINES[name]

        class Wrong(engine):  # type: ignore[misc, valid-type]
            def answer(self, *given: Any) -> list[Reply]:
                return [replace(reply, ids=(5,) * len(reply.ids)) for reply in super().answer(*given)]

        monkeypatch.setitem(answer_check.ENGINES, name, Wrong)


def test_wrong_answers_of_one_engine_are_written_by_the_other(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: Trial = try_question(QUESTION, llama, FILLER, max_tokens=6)
    answered_by(monkeypatch, "rows")
    trial = try_question(QUESTION, llama, FILLER, max_tokens=6)
    assert trial.plain.reply.ids == expected.plain.reply.ids


def test_answers_that_are_not_the_stock_models_are_refused(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    answered_by(monkeypatch, "rows", "alone")
    with pytest.raises(GenerationError, match=r"as the stock model does .rows: a token is .* alone: a token is"):
        try_question(QUESTION, llama, FILLER, max_tokens=6)
