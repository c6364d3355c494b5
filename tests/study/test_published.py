"""What was published stands as it was printed, and is shown beside nothing else."""

from __future__ import annotations

import pytest

from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.published import ACCURACY, POSITION, SOURCE, accuracy, accuracy_at, benchmark

NONE, MLESS, MFUL = PRESETS["none"], PRESETS["mless"], PRESETS["mful"]
MATH, AIME = "hub:HuggingFaceH4/MATH-500", "hub:HuggingFaceH4/aime_2024"


@pytest.mark.parametrize(
    ("model", "source", "without", "with_filler"),
    [
        ("Qwen/Qwen2.5-Math-1.5B", MATH, 0.639, 0.659),
        ("Qwen/Qwen2.5-Math-7B", MATH, 0.723, 0.746),
        ("meta-llama/Llama-3.1-8B-Instruct", MATH, 0.418, 0.421),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", MATH, 0.527, 0.531),
        ("deepseek-ai/deepseek-math-7b-instruct", MATH, 0.395, 0.421),
        ("Qwen/Qwen2.5-32B-Instruct", MATH, 0.813, 0.817),
        ("Qwen/Qwen2.5-Math-7B", AIME, 0.231, 0.233),
        ("meta-llama/Llama-3.1-8B-Instruct", AIME, 0.079, 0.099),
    ],
)
def test_the_published_accuracies(model: str, source: str, without: float, with_filler: float) -> None:
    assert accuracy(model, source, NONE) == pytest.approx(without)
    assert accuracy(model, source, MLESS) == pytest.approx(with_filler)
    assert accuracy(model, source, MFUL) is None, "only to be read off a picture"


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2.5-Math-7B",
        "qwen2.5-math-7b",
        "someone/QWEN2.5_Math_7B",
        "/models/Qwen2.5-Math-7B",
        "models/Qwen2.5-Math-7B/",
    ],
)
def test_a_model_is_known_by_any_owner_and_spelling(name: str) -> None:
    assert accuracy(name, MATH, NONE) == 0.723


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-7B",
        "Qwen/Qwen2.5-Math-7B-Instruct",
        "Qwen2.5-Math-7B-Q4_K_M.gguf",
        "Qwen2.5-Math-7B/other",
        "",
        "/",
    ],
)
def test_another_model_is_not_taken_for_it(name: str) -> None:
    assert accuracy(name, MATH, NONE) is None
    assert accuracy_at(name, MATH, NONE) is None


def test_llama_under_its_older_name() -> None:
    assert accuracy("meta-llama/Meta-Llama-3.1-8B-Instruct", MATH, NONE) == 0.418


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (MATH, "MATH-500"),
        ("/data/math500.jsonl", "MATH-500"),
        ("/data/MATH_500/test.parquet", "MATH-500"),
        ("C:\\data\\math-500.json", "MATH-500"),
        ("hub:Maxwell-Jia/AIME_2024", "AIME 2024"),
        ("aime24.jsonl", "AIME 2024"),
        ("hub:openai/gsm8k", None),
        ("/home/math500/work/rows.jsonl", None),
        ("hub:owner/aime_2025", None),
        ("builtin", None),
    ],
)
def test_a_benchmark_is_told_by_its_name(source: str, expected: str | None) -> None:
    assert benchmark(source) == expected


@pytest.mark.parametrize(
    "change", [{"text": " ?"}, {"count": 54}, {"position": "end"}, {"kind": "sentence", "text": ""}, {"kind": "text"}]
)
def test_another_filler_is_not_the_published_one(change: dict[str, object]) -> None:
    other = Condition.model_validate(MLESS.model_dump() | change)
    assert accuracy("Qwen2.5-Math-7B", MATH, other) is None
    assert accuracy("Qwen2.5-Math-7B", MATH, Condition.model_validate(MLESS.model_dump() | {"text": "/ "})) == 0.746


def test_filler_that_is_hidden_is_not_the_published_one() -> None:
    assert accuracy("Qwen2.5-Math-7B", "hub:x/MATH-500", PRESETS["knockout"]) is None
    assert accuracy_at("Qwen2.5-Math-7B", "hub:x/MATH-500", PRESETS["knockout"]) is None


def test_the_published_places() -> None:
    places = ("start", "before_question", "end", "random")
    conditions = [Condition.model_validate(MLESS.model_dump() | {"position": place}) for place in places]
    found = [accuracy_at("Qwen/Qwen2.5-Math-7B", MATH, condition) for condition in (NONE, *conditions)]
    assert found == pytest.approx([0.724, 0.696, 0.750, 0.0, 0.512])
    assert accuracy_at("Qwen/Qwen2.5-Math-1.5B", MATH, NONE) is None
    assert accuracy_at("Qwen/Qwen2.5-Math-7B", AIME, NONE) is None
    assert accuracy_at("Qwen/Qwen2.5-Math-7B", MATH, MFUL) is None


def test_the_source_is_named_and_the_numbers_are_per_cent() -> None:
    assert "2510.01032" in SOURCE
    tables = [pair for table in ACCURACY.values() for pair in table.values()]
    assert all(1 < value < 100 for pair in tables for value in pair)
    assert all(0 <= value < 100 for table in POSITION.values() for row in table.values() for value in row.values())
