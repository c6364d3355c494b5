"""Sentences on accuracy: they claim what the adjusted p allows and no more, and none of them is nonsense."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.analysis.accuracy import Accuracy, Difference, compare
from fillerscope.analysis.findings.answers import ALPHA, answer_findings, points, verdict
from fillerscope.analysis.run import Run
from support.answered import VERDICTS, Key, Row, answer, build, drawn_at_random

SAID = {
    "a gain beyond noise",
    "a loss beyond noise",
    "not beyond noise",
    "not beyond noise once all comparisons are counted",
}


def solved(numbers: dict[str, int], failed: dict[str, range] | None = None) -> dict[str, list[str]]:
    """By condition, 40 verdicts: so many right ones, from the first problem on."""
    table = {name: ["right"] * n + ["wrong"] * (40 - n) for name, n in numbers.items()}
    for name, places in (failed or {}).items():
        for place in places:
            table[name][place] = "failed"
    return table


def run_of(folder: Path, table: dict[str, list[str]], samples: int = 1, models: tuple[str, ...] = ("a",)) -> Run:
    def draw(key: Key) -> Row:
        return answer(table[key[3]][key[1]], np.random.default_rng(key[1]), truncated=False)

    settings = {"temperature": 0.0 if samples == 1 else 0.5, "samples": samples}
    return build(folder, draw, len(table["none"]), models, conditions=list(table), shard=20, **settings)


def texts(run: Run) -> dict[str, str]:
    return {finding.name: finding.text for finding in answer_findings(run)}


def test_a_gain_a_loss_and_noise_are_called_so(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 29, "mful": 11, "random": 22}))
    said = texts(run)
    assert list(said) == [f"{kind}_{name}" for name in ("mless", "mful", "random") for kind in ("accuracy", "form")]
    assert said["accuracy_mless"].startswith(
        "Accuracy, mless, greedy: 72.5% against 50.0% without filler, +22.5 points ["
    )
    p = 2 * 0.5**9  # nine of nine
    assert (
        f"over 40 problems, 9 better and 0 worse, exact McNemar p = {p:.3g}, {3 * p:.3g} after Holm"
        in (said["accuracy_mless"])
    )
    assert "after Holm: a gain beyond noise. So many problems show a difference of" in said["accuracy_mless"]
    assert "-22.5 points" in said["accuracy_mful"]
    assert "after Holm: a loss beyond noise." in said["accuracy_mful"]
    assert "+5.0 points" in said["accuracy_random"]
    assert "p = 0.5, 0.5 after Holm: not beyond noise." in said["accuracy_random"]
    assert re.search(r"; one as large as was seen takes [0-9,]+ problems\.$", said["accuracy_random"])


def test_what_only_holds_before_the_adjustment_is_noise(tmp_path: Path) -> None:
    """p = 0.031 of one comparison is beyond noise; of two that are told together it is not."""
    numbers = {"none": 20, "mless": 26, "mful": 20}
    alone = run_of(tmp_path / "alone", solved({key: numbers[key] for key in ("none", "mless")}))
    assert "0.0312 after Holm: a gain beyond noise." in texts(alone)["accuracy_mless"]
    both = run_of(tmp_path / "both", solved(numbers))
    assert (
        "p = 0.0312, 0.0625 after Holm: not beyond noise once all comparisons are counted."
        in texts(both)["accuracy_mless"]
    )
    two = run_of(tmp_path / "two", solved({"none": 20, "mless": 26}), models=("a", "b"))
    assert (
        "p = 0.0312, 0.0625 after Holm: not beyond noise once all comparisons are counted."
        in texts(two)["accuracy_mless"]
    )
    shown = answer_findings(two, "b", compare(two, ["b"]))[0].text
    assert "0.0312 after Holm: a gain beyond noise." in shown, "as the table at hand says"


@given(st.floats(-1, 1), st.one_of(st.floats(0, 1), st.sampled_from([ALPHA, math.nan])))
def test_the_verdict_follows_the_adjusted_p(difference: float, adjusted: float) -> None:
    change = Difference(5, difference, difference, difference, 3, 2, 0.001, adjusted)
    row = Accuracy("a", "A", 0, 1, "mless", "", 5, 0, 0.5, 0, 1, 9, 0, 0, math.nan, {}, change)
    if math.isnan(adjusted):
        assert verdict(row).startswith("cannot be told")
    elif adjusted >= ALPHA:
        assert verdict(row) == "not beyond noise once all comparisons are counted"
    else:
        assert verdict(row) == f"a {'gain' if difference > 0 else 'loss'} beyond noise"
    assert verdict(replace(row, against=None)).startswith("cannot be told")


def test_several_samples_are_told_as_such(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 29}), samples=3)
    (accuracy, form) = answer_findings(run)
    assert (accuracy.name, form.name) == ("accuracy_mless_t0.5x3", "form_mless_t0.5x3")
    assert "Accuracy, mless, temperature 0.5, 3 samples a problem: 72.5% against 50.0%" in accuracy.text
    assert "permutation test p = 0.00391" in accuracy.text


def test_the_numbers_are_those_of_the_sentence(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 26}))
    none, mless = compare(run)
    accuracy, form = answer_findings(run)
    assert mless.against is not None
    assert accuracy.numbers == {
        "accuracy": 0.65, "baseline": 0.5, "difference": pytest.approx(0.15), "low": mless.against.difference_low,
        "high": mless.against.difference_high, "p": mless.against.p, "adjusted": mless.against.adjusted,
    }  # fmt: skip
    assert form.numbers == {
        "tokens": mless.tokens, "tokens_none": none.tokens, "cut_off": mless.cut_off, "cut_off_none": none.cut_off,
        "unanswered": mless.unanswered, "unanswered_none": none.unanswered,
    }  # fmt: skip
    assert f"{mless.tokens:.0f} tokens on average against {none.tokens:.0f}; {mless.cut_off:.1%} against" in form.text
    assert (accuracy.table, form.table) == ("accuracy", "accuracy")


# Where there is nothing, or next to nothing, to tell


def test_problems_that_failed_are_told_where_shares_and_difference_are_not_of_the_same(tmp_path: Path) -> None:
    table = solved({"none": 20, "mless": 20}, failed={"none": range(3), "mless": range(30, 32)})
    said = texts(run_of(tmp_path / "run", table))["accuracy_mless"]
    assert "52.6% against 45.9% without filler, +0.0 points [" in said
    assert "over 35 problems (5 more failed under one or the other), 0 better and 0 worse" in said


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("broken", ["none", "mless"])
def test_where_all_failed_no_number_is_told(tmp_path: Path, broken: str, samples: int) -> None:
    table = solved({"none": 20, "mless": 20}, failed={broken: range(40)})
    said = list(texts(run_of(tmp_path / "run", table, samples)).values())
    assert [text.partition(": ")[2] for text in said] == [
        "cannot be told: no problem was answered under both.",
        "cannot be told: all answers failed under one or the other.",
    ]


def test_answers_to_different_problems_are_no_pairs(tmp_path: Path) -> None:
    table = solved({"none": 20, "mless": 20}, failed={"none": range(20), "mless": range(20, 40)})
    accuracy, form = texts(run_of(tmp_path / "run", table)).values()
    assert accuracy == "Accuracy, mless, greedy: cannot be told: no problem was answered under both."
    assert "tokens on average against" in form


@pytest.mark.parametrize("samples", [1, 2])
def test_one_problem_has_no_interval_and_shows_nothing(tmp_path: Path, samples: int) -> None:
    said = texts(run_of(tmp_path / "run", {"none": ["wrong"], "mless": ["right"]}, samples))
    text = next(iter(said.values()))
    assert "100.0% against 0.0% without filler, +100.0 points over 1 problems, 1 better and 0 worse" in text
    assert text.partition("not beyond noise. ")[2].startswith("So few problems show no difference with 80% power")


def test_of_several_samples_that_all_change_alike_no_power_is_told(tmp_path: Path) -> None:
    said = texts(run_of(tmp_path / "run", solved({"none": 20, "mless": 20}), samples=2))["accuracy_mless_t0.5x2"]
    assert said.endswith("What so many problems could show cannot be told: all of them changed alike.")


def test_without_filler_nothing_is_said(tmp_path: Path) -> None:
    assert answer_findings(build(tmp_path / "run", drawn_at_random(0), conditions=["none"])) == []


def test_points_have_a_sign_and_nothing_is_not_minus_nothing() -> None:
    assert [points(share) for share in (0.1234, -0.5, 0, -0.0001)] == ["+12.3", "-50.0", "+0.0", "+0.0"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from(VERDICTS)] * 3), min_size=1, max_size=9),
    st.sampled_from([1, 2]),
)
def test_no_sentence_is_nonsense(
    tmp_path_factory: pytest.TempPathFactory, verdicts: list[tuple[str, ...]], samples: int
) -> None:
    names = ("none", "mless", "mful")
    table = {name: [row[place] for row in verdicts] for place, name in enumerate(names)}
    run = run_of(tmp_path_factory.mktemp("any") / "run", table, samples)
    accuracies = [finding for finding in answer_findings(run) if finding.name.startswith("accuracy")]
    for finding, row in zip(accuracies, compare(run)[1:], strict=True):
        assert row.against is not None
        claims = {claim for claim in SAID if claim in finding.text}
        assert claims == ({verdict(row)} if row.against.pairs else set())
    for finding in answer_findings(run):
        assert not re.search(r"\b(nan|inf|None)\b|  | ,|\.\.", finding.text), finding.text
        assert finding.text.endswith(".")


# Truncated answers


def truncated_run(folder: Path, limits: dict[str, range], table: dict[str, list[str]]) -> Run:
    """`limits`: by condition, the problems whose answers the token limit ended."""

    def draw(key: Key) -> Row:
        ended = key[1] in limits.get(key[3], range(0))
        return answer(table[key[3]][key[1]], np.random.default_rng(key[1]), truncated=ended)

    return build(folder, draw, len(table["none"]), conditions=list(table), shard=20, max_tokens=64)


def test_where_all_answers_are_truncated_nothing_else_comes_first(tmp_path: Path) -> None:
    everything = {name: range(40) for name in ("none", "mless")}
    run = truncated_run(tmp_path / "run", everything, solved({"none": 0, "mless": 0}))
    first = answer_findings(run)[0]
    assert first.name == "truncated_mless"
    assert first.text == (
        "Truncated answers, mless, greedy: 100% of the answers are truncated at 64 tokens, against 100% without "
        "filler: set generation.max_tokens to 128 or more; no problem was answered to the end under both."
    )


def test_the_difference_over_problems_answered_to_the_end(tmp_path: Path) -> None:
    """Under the filler the last ten answers are truncated and wrong; without it they are right."""
    table = solved({"none": 40, "mless": 30})
    run = truncated_run(tmp_path / "run", {"mless": range(30, 40)}, table)
    found = answer_findings(run)[0]
    assert found.numbers["p"] == pytest.approx(2 * 0.5**10)  # ten of ten
    assert "a difference of its own (p = 0.002)" in found.text
    assert "over the 30 problems answered to the end under both the difference is +0.0 points" in found.text
    assert answer_findings(run)[1].numbers["difference"] == pytest.approx(-0.25)


def test_a_tenth_is_not_spoken_of(tmp_path: Path) -> None:
    some = {name: range(4) for name in ("none", "mless")}
    run = truncated_run(tmp_path / "run", some, solved({"none": 20, "mless": 20}))
    assert [finding.name for finding in answer_findings(run)] == ["accuracy_mless", "form_mless"]


def test_no_answer_is_counted_twice(tmp_path: Path) -> None:
    """Truncated, without an answer at its end, and judged."""
    table = {"none": ["right"] * 8, "mless": ["cut off"] * 3 + ["no answer"] * 2 + ["right"] * 3}
    run = truncated_run(tmp_path / "run", {}, table)
    row = next(row for row in compare(run) if row.condition == "mless")
    assert (row.cut_off, row.unanswered) == (3 / 8, 2 / 8)
