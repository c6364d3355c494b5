"""Data sets by one word."""

from __future__ import annotations

from pathlib import Path

import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems import hub_download
from fillerscope.problems.sources import load_problems
from fillerscope.study.data_sets import DATA_SETS, data_set, is_file
from fillerscope.study.overrides import data_path
from fillerscope.study.published import benchmark
from fillerscope.study.study import ProblemsSpec, Study
from support.hub import Hub, serving, use


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


ROW = b'{"question": "q", "problem": "p", "id": 7, "answer": "so\\n#### 18"}\n'


def test_the_split_and_columns_of_a_data_set_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both configurations of GSM8K, and AIME 2024, which has a split train alone."""
    files = {"main/test.jsonl": ROW, "main/train.jsonl": ROW.replace(b"18", b"19"), "socratic/test.jsonl": b""}
    with serving(Hub(files)) as stand_in:
        use(stand_in, tmp_path / "gsm8k", monkeypatch)
        (gsm,) = load_problems(ProblemsSpec(source="gsm8k"))
        (train,) = load_problems(ProblemsSpec(source="gsm8k", split="train"))
    assert (gsm.question, gsm.answer, train.answer) == ("q", "18", "19")
    assert [file for file, _ in stand_in.ranges] == ["main/test.jsonl", "main/train.jsonl"]
    assert any("openai/gsm8k" in path for path in stand_in.paths)
    with serving(Hub(dict.fromkeys(["data/train.jsonl", "data/old.jsonl"], ROW))) as stand_in:
        use(stand_in, tmp_path / "aime", monkeypatch)
        (aime,) = load_problems(ProblemsSpec(source="aime24"))
    assert (aime.id, aime.question) == ("7", "p")
    assert [file for file, _ in stand_in.ranges] == ["data/train.jsonl"]
    assert any("HuggingFaceH4/aime_2024" in path for path in stand_in.paths)


def test_without_the_hub_the_error_says_what_file_to_put_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(hub_download, "list_files", fail)
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
