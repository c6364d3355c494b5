"""Tokens as pieces: steps of the ramp, repeated filler as one piece, everything visible."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fillerscope.analysis.painted import RAMP, percent, pieces, scale_of, steps_of

QUESTION = "question"


def painted(tokens: list[str], spans: list[str], received: list[float]) -> list:
    values = np.array(received)
    return pieces(tokens, spans, values, scale_of(values), 0.5)


def test_steps_rise_by_factors_and_one_sink_does_not_pale_the_rest() -> None:
    values = np.array([0.9, 0.001, 0.01, 0.1, math.nan, 0.0])
    scale = scale_of(values)
    assert 0.01 < scale.high < 0.1
    assert steps_of(values, scale) == [len(RAMP) - 1, 0, 3, len(RAMP) - 1, None, 0]


def test_two_prompts_share_a_scale() -> None:
    scale = scale_of(np.array([1.0, 0.2, 0.2]), np.array([1.0, 0.4, 0.1]))
    assert 0.1 < scale.low < 0.2 < scale.high < 0.4


@pytest.mark.parametrize(("unit", "times"), [([" /"], 55), ([" .", " ,"], 4), ([" /"], 4)])
def test_repeated_filler_is_one_piece_with_its_number_and_total(unit: list[str], times: int) -> None:
    filler = unit * times
    spans = ["system", *["filler"] * len(filler), QUESTION]
    received = [0.5, *[0.01] * len(filler), 0.02]
    first, run, last = painted(["a", *filler, "b"], spans, received)
    assert (first.repeats, last.repeats, run.repeats) == (1, 1, times)
    assert run.text == "".join(unit)
    assert run.mass == 0.5
    assert run.received == pytest.approx(0.01)


def test_filler_that_does_not_repeat_and_repeated_words_of_the_question_stay_tokens() -> None:
    tokens = [" a", " b", " c", " d", " e", *[" no"] * 6]
    shown = painted(tokens, ["filler"] * 5 + [QUESTION] * 6, [0.1] * 11)
    assert [piece.text for piece in shown] == ["[", *tokens[:5], ": 50%]", *tokens[5:]]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.00683, "0.68%"), (0.0312, "3.1%"), (0.456, "46%"), (1.0, "100%"), (math.nan, "-"), (0.0, "0%")],
)
def test_shares_have_two_digits(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_line_break_is_seen_and_breaks_the_line() -> None:
    shown = painted(["a\n", "\n", "b"], [QUESTION] * 3, [0.1, 0.2, math.nan])
    assert [piece.text for piece in shown] == ["a\u21b5", "\u21b5", "b"]
    assert [piece.breaks for piece in shown] == [True, True, False]
    assert shown[-1].step is None


def test_no_numbers_at_all_give_no_steps() -> None:
    assert [piece.step for piece in painted(["a", "b"], [QUESTION] * 2, [math.nan, math.nan])] == [None, None]
