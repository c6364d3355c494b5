"""A filler in one line: what it stands for, and what is refused by name."""

from __future__ import annotations

import pytest

from fillerscope.errors import StudyError
from fillerscope.study.conditions import PRESETS
from fillerscope.study.filler_text import filler_condition


@pytest.mark.parametrize("name", ["mless", "mful", "random"])
def test_a_ready_made_filler_is_the_condition_of_a_study(name: str) -> None:
    assert filler_condition(name) == PRESETS[name]
    assert filler_condition(f" {name} ") == PRESETS[name]


def test_a_ready_made_filler_of_another_length() -> None:
    assert filler_condition("random x 20") == PRESETS["random"].model_copy(update={"count": 20})


@pytest.mark.parametrize(
    ("written", "kind", "text", "count"),
    [
        ('" ..." x 55', "repeat", " ...", 55),
        ("' ...' x55", "repeat", " ...", 55),
        (" / x 7", "repeat", " /", 7),
        ("/ \u00d7 7", "repeat", "/", 7),
        ('"a\\n" x 3', "repeat", "a\n", 3),
        ('"2 x 3"', "text", "2 x 3", None),
        ('"word"', "text", "word", None),
        (" some words of mine", "text", " some words of mine", None),
        (" .", "text", " .", None),
        (".", "text", ".", None),
        ("  ", "text", "  ", None),
        ("Wait", "text", "Wait", None),
        ("rubbish", "text", "rubbish", None),
        ('"mles"', "text", "mles", None),
        (" mles", "text", " mles", None),
        ('" x 3', "repeat", '"', 3),
        ("\u2026 x 2", "repeat", "\u2026", 2),
    ],
)
def test_a_text_of_ones_own(written: str, kind: str, text: str, count: int | None) -> None:
    condition = filler_condition(written)
    assert (condition.kind, condition.text, condition.count) == (kind, text, count)
    assert condition.position == "before_question"


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "the filler is empty"),
        ('""', "the filler is empty"),
        ('"" x 5', "the filler is empty"),
        ("mles", "'mles' is close to mless; as a text of its own write '\"mles\"'"),
        ("Mless", "'Mless' is close to mless"),
        ("randm", "'randm' is close to random"),
        ("knockot", "'knockot' is close to knockout"),
        ("arm", "'arm' is a condition without visible filler"),
        ("knockout", "'knockout' is a condition without visible filler"),
        ("none", "'none' is a condition without visible filler"),
        ("/ x 0", "count: Input should be greater than or equal to 1"),
        ("/ x 999999999", "count: Input should be less than or equal to 100000"),
        (f"/ x {'9' * 5000}", "count: Input should be less than or equal to 100000"),
        ("random x 0", "count: Input should be"),
        ('" /" x -5', "count: Input should be greater than or equal to 1"),
        ("mless x -5", "count: Input should be greater than or equal to 1"),
        ("/ x -0", "count: Input should be greater than or equal to 1"),
    ],
)
def test_rubbish_is_refused_with_what_to_write(written: str, complaint: str) -> None:
    with pytest.raises(StudyError, match=complaint) as refused:
        filler_condition(written)
    assert "mless, mful, random, or a text and its number of tokens" in str(refused.value)
    assert "\n" not in str(refused.value)
