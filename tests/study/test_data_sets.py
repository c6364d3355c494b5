"""Data sets by one word."""

from __future__ import annotations

from pathlib import Path

import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems import hub, hub_download
from fillerscope.problems.sources import load_problems
from fillerscope.study.data_sets import DATA_SETS, data_set, is_file
from fillerscope.study.overrides import data_path
from fillerscope.study.published import benchmark
from fillerscope.study.study import ProblemsSpec, Study


@pytest.mark.parametrize(
    ("word", "name"),
    [("gsm8k", "gsm8k"), ("GSM8K", "gsm8k"), ("MATH-500", "math500"), ("aime_2024", "aime24"), ("AIME 2025", "aime25")],
)
def test_a_word_stands_for_a_data_set_in_any_spelling(word: str, name: str) -> None:
    assert data_set(word) is DATA_SETS[name]
    assert not is_file(word)
    assert data_path(word) == word


@pytest.mark.parametrize("source", ["gsm8k.jsonl", "./gsm8k", "data/gsm8k", "gsm9k", ""])
def test_other_words_and_paths_are_files(source: str) -> None:
    assert data_set(source) is None
    assert is_file(source)


def test_what_was_published_on_a_data_set_is_found_by_its_word() -> None:
    assert [benchmark(name) for name in DATA_SETS] == [None, "MATH-500", "AIME 2024", None]


def test_a_study_file_keeps_the_word(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("name: a\nmodels: [b]\nproblems: {source: gsm8k}\n")
    assert Study.load(path).problems.source == "gsm8k"


def test_the_split_and_columns_of_a_data_set_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of the hub holds both configurations of GSM8K, and AIME 2024, which has a split train alone."""
    asked: list[str] = []

    def fetched(repo: str, file: str, _progress: object) -> Path:
        asked.append(f"{repo}/{file}")
        path = tmp_path / file.replace("/", "-")
        path.write_text('{"question": "q", "problem": "p", "id": 7, "answer": "so\\n#### 18"}\n')
        return path

    files = ["main/test.jsonl", "main/train.jsonl", "socratic/test.jsonl", "data/train.jsonl", "data/old.jsonl"]
    monkeypatch.setattr(hub, "_listed", lambda repo: files[:3] if "gsm8k" in repo else files[3:])
    monkeypatch.setattr(hub, "_fetched", fetched)
    (gsm,) = load_problems(ProblemsSpec(source="gsm8k"))
    assert (gsm.question, gsm.answer) == ("q", "18")
    (aime,) = load_problems(ProblemsSpec(source="aime24"))
    assert (aime.id, aime.question) == ("7", "p")
    load_problems(ProblemsSpec(source="gsm8k", split="train"))
    expected = ["openai/gsm8k/main/test.jsonl", "HuggingFaceH4/aime_2024/data/train.jsonl"]
    assert asked == [*expected, "openai/gsm8k/main/train.jsonl"]


def test_without_the_hub_the_error_says_what_file_to_put_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(hub_download, "reach", fail)
    with pytest.raises(ProblemError) as caught:
        load_problems(ProblemsSpec(source="gsm8k"))
    message = str(caught.value)
    assert message.startswith(
        "gsm8k: cannot download hub:openai/gsm8k from the hub (no route to host); check the network"
    )
    assert message.endswith(
        "without the hub, save its problems as gsm8k.jsonl beside the study, an object with question and answer a "
        "line, and write `source: gsm8k.jsonl`"
    )
