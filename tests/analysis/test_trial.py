"""The sentence of a trial: its numbers, its reference or why there is none, and whether the answer changed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fillerscope.analysis.trial import Change, Side, Trial, View
from fillerscope.answers.request import Reply
from fillerscope.errors import FigureError
from fillerscope.study.conditions import PRESETS
from fillerscope.study.filler_text import filler_condition

CHANGE = Change(0.04, 0.03, 0.6, 0.62, 0.63, "")


def side(filler: int, reply: Reply | None) -> Side:
    spans = ("system", *["filler"] * filler, "question", "tail")
    return Side(("a",) * len(spans), spans, np.full(len(spans), 0.1), reply)


def trial(plain: Reply | None = None, filled: Reply | None = None, change: Change = CHANGE) -> Trial:
    return Trial("name", "Label", View(2), PRESETS["mless"], side(0, plain), side(55, filled), change)


def test_the_sentence_has_the_share_that_is_kept_and_what_length_would_leave() -> None:
    text = trial().sentence
    assert text == (
        'With 55 tokens of filler (" /" repeated), the original tokens after the first receive 75% of the '
        "attention that they received in layer 2 (length alone would leave 60%)."
    )
    assert "layer 2, head 3 (" in replace(trial(), view=View(2, 3)).sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"odds": math.nan, "unknown": "WHY"},
            "(uniform attention would leave 62%; for rows that keep their odds: WHY)",
        ),
        ({"odds": math.nan, "uniform": math.nan, "unknown": "WHY"}, "would leave is not known: WHY)"),
        ({"without": 0.0}, "layer 2 has nothing to compare"),
        ({"without": math.nan}, "layer 2 has nothing to compare"),
    ],
)
def test_a_missing_reference_or_number_is_said(changes: dict[str, float | str], words: str) -> None:
    assert words in trial(change=replace(CHANGE, **changes)).sentence  # type: ignore[arg-type]


STOP, OTHER, CUT, CUT_OTHER = (
    Reply("a", 1, "stop"),
    Reply("b", 1, "stop"),
    Reply("a", 1, "length"),
    Reply("b", 1, "length"),
)


@pytest.mark.parametrize(
    ("plain", "filled", "words"),
    [
        (STOP, STOP, "the answer did not change."),
        (STOP, OTHER, "the answer changed."),
        (CUT, OTHER, "the answer changed (truncated without filler)."),
        (STOP, CUT, "the answer did not change (truncated with filler)."),
        (CUT, CUT, "both answers were truncated and are the same so far."),
        (CUT, CUT_OTHER, "both answers were truncated and differ."),
        (STOP, Reply("", 0, "failed", "no room"), "an answer failed (no room)."),
    ],
)
def test_answers_are_compared(plain: Reply, filled: Reply, words: str) -> None:
    assert trial(plain, filled).sentence.endswith(f"; {words}")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("random x 55", "55 tokens of filler (random sentences)"),
        ('"some \x1b words"', '55 tokens of filler ("some \ufffd words")'),
        (f'"{"x " * 40}"', f'55 tokens of filler ("{("x " * 40)[:29]}\u2026")'),
    ],
)
def test_a_filler_in_words(written: str, words: str) -> None:
    assert replace(trial(), condition=filler_condition(written)).filler == words


def test_the_record_is_what_the_sentence_says() -> None:
    record = trial(STOP, CUT).record()
    assert (record["kept"], record["kept_same_odds"], record["filler_tokens"]) == (pytest.approx(0.75), 0.6, 55)
    assert record["with"]["answer"] == {"text": "a", "tokens": 1, "finish": "length"}
    assert len(record["with"]["tokens"]) == 58


@pytest.mark.parametrize("view", [View(0), View(4), View(1, 0), View(1, 5), View(1, None, "answer")])
def test_what_the_model_does_not_have_is_refused(view: View) -> None:
    with pytest.raises(FigureError):
        view.refuse_missing(3, 4, "Label")
