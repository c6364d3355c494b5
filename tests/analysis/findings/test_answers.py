"""Findings on accuracy: they claim what the adjusted p allows and no more, and no text of them is nonsense."""

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
from fillerscope.analysis.findings.answers import SMALL, Comparison, answer_findings
from fillerscope.analysis.findings.claim import ALPHA
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.significance import significance
from fillerscope.analysis.run import Run
from support.answered import VERDICTS, Key, Row, answer, build, drawn_at_random

HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN


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


def found(run: Run) -> dict[str, Finding]:
    return {finding.name: finding for finding in answer_findings(run[None], compare(run))}


def test_a_gain_a_loss_and_noise_are_told_apart(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 29, "mful": 11, "random": 22}))
    by_name = found(run)
    names = ("mless", "mful", "random")
    assert list(by_name) == [f"{kind}_{name}" for name in names for kind in ("accuracy", "form")]
    gain, loss, noise = (by_name[f"accuracy_{name}"] for name in names)
    assert [one.verdict for one in (gain, loss, noise)] == [HOLDS, HOLDS, UNKNOWN]
    p = 2 * 0.5**9  # nine of nine
    assert (gain.facts["p"], gain.facts["adjusted"]) == pytest.approx((p, 3 * p))
    changes = [one.estimates["difference"] for one in (gain, loss, noise)]
    assert [change.value for change in changes] == pytest.approx([0.225, -0.225, 0.05])
    assert gain.condition == "mless"
    assert f"{changes[0].points()} percentage points, a significant gain (p = {3 * p:.2g})." in gain.text
    assert "a significant loss (p = " in loss.text
    assert "not significant (p = 0.5)." in noise.text
    assert re.search(r"; one as large as was seen takes [0-9,]+ problems\.$", noise.text)


def test_what_only_holds_before_the_adjustment_is_not_claimed(tmp_path: Path) -> None:
    """p = 0.031 of one comparison is significant; of two in one table it is not."""
    numbers = {"none": 20, "mless": 26, "mful": 20}

    def decided(finding: Finding) -> tuple[Verdict | None, float, float]:
        return finding.verdict, round(finding.facts["p"], 4), round(finding.facts["adjusted"], 4)

    alone = run_of(tmp_path / "alone", solved({key: numbers[key] for key in ("none", "mless")}))
    assert decided(found(alone)["accuracy_mless"]) == (HOLDS, 0.0312, 0.0312)
    both = run_of(tmp_path / "both", solved(numbers))
    assert decided(found(both)["accuracy_mless"]) == (UNKNOWN, 0.0312, 0.0625)
    two = run_of(tmp_path / "two", solved({"none": 20, "mless": 26}), models=("a", "b"))
    assert decided(found(two)["accuracy_mless"]) == (UNKNOWN, 0.0312, 0.0625)
    shown = answer_findings(two["b"], compare(two, ["b"]))[0]
    assert decided(shown) == (HOLDS, 0.0312, 0.0312), "as the given table says"


@given(st.floats(-1, 1), st.one_of(st.floats(0, 1), st.sampled_from([ALPHA, math.nan])))
def test_the_verdict_follows_the_adjusted_p(difference: float, adjusted: float) -> None:
    change = Difference(5, difference, difference, difference, 3, 2, 0.001, adjusted)
    row = Accuracy(
        "a", "A", 0, 1, "mless", "", 5, 0, 0, 0.5, 0, 1, 9, 0, math.nan, math.nan, 0, math.nan, {}, {}, change
    )  # fmt: skip
    one = Comparison(row, replace(row, against=None), change, "without filler", 64)
    if math.isnan(adjusted):
        assert one.verdict is UNKNOWN
        assert significance(change).startswith("cannot be told")
    elif adjusted >= ALPHA:
        assert one.verdict is (FAILS if abs(difference) <= SMALL else UNKNOWN)
        assert significance(change) == f"not significant (p = {adjusted:.2g})"
    else:
        assert one.verdict is HOLDS
        assert significance(change) == f"a significant {'gain' if difference > 0 else 'loss'} (p = {adjusted:.2g})"


def test_no_evidence_of_a_change_is_not_evidence_of_none(tmp_path: Path) -> None:
    few = run_of(tmp_path / "few", solved({"none": 20, "mless": 20}))
    assert found(few)["accuracy_mless"].verdict is UNKNOWN
    many = {name: ["right", "wrong"] * 200 for name in ("none", "mless")}
    assert found(run_of(tmp_path / "many", many))["accuracy_mless"].verdict is FAILS


def test_several_samples_are_named_and_tested_as_such(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 29}), samples=3)
    (accuracy, form) = answer_findings(run[None], compare(run))
    assert (accuracy.name, form.name) == ("accuracy_mless_t0.5x3", "form_mless_t0.5x3")
    assert accuracy.text.startswith("Accuracy, mless, temperature 0.5, 3 samples a problem: ")
    assert "permutation test p = 0.00391" in accuracy.text
    assert accuracy.facts["p"] == pytest.approx(0.00391, abs=5e-6)


def test_the_numbers_are_those_of_the_sentence(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 26}))
    none, mless = compare(run)
    accuracy, form = answer_findings(run[None], compare(run))
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


def test_failed_problems_are_in_no_difference_and_are_counted(tmp_path: Path) -> None:
    table = solved({"none": 20, "mless": 20}, failed={"none": range(3), "mless": range(30, 32)})
    finding = found(run_of(tmp_path / "run", table))["accuracy_mless"]
    assert (finding.facts["accuracy"], finding.facts["baseline"]) == pytest.approx((17 / 35, 17 / 35))
    assert (finding.estimates["difference"].value, finding.estimates["difference"].n) == (0.0, 35)
    assert "0 better and 0 worse of 35 problems (5 more failed under one or the other)" in finding.text


def test_the_rates_of_a_sentence_are_those_of_its_difference(tmp_path: Path) -> None:
    """Sixteen hard problems fail under the filler, and five others without it."""
    failed = {"mless": range(24, 40), "none": range(5)}
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 20}, failed))
    accuracy, form = found(run).values()
    assert "+0.0 [" in accuracy.text
    assert " 78.9% are right, against 78.9% without filler: 0 better and 0 worse of 19 problems (" in accuracy.text
    assert form.text.endswith("ended without an answer (over 24 and 35 problems).")


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("broken", ["none", "mless"])
def test_where_all_failed_there_is_no_number(tmp_path: Path, broken: str, samples: int) -> None:
    table = solved({"none": 20, "mless": 20}, failed={broken: range(40)})
    accuracy, form = found(run_of(tmp_path / "run", table, samples)).values()
    assert accuracy.verdict is UNKNOWN
    assert not accuracy.estimates["difference"].is_known
    assert [one.text.partition(": ")[2] for one in (accuracy, form)] == [
        "cannot be told: no problem was answered under both.",
        "cannot be told: all answers failed under one or the other.",
    ]


def test_answers_to_different_problems_are_no_pairs(tmp_path: Path) -> None:
    table = solved({"none": 20, "mless": 20}, failed={"none": range(20), "mless": range(20, 40)})
    accuracy, form = found(run_of(tmp_path / "run", table)).values()
    assert (accuracy.verdict, accuracy.estimates["difference"].n) == (UNKNOWN, 0)
    assert math.isfinite(form.facts["tokens"])
    assert "tokens on average against" in form.text


@pytest.mark.parametrize("samples", [1, 2])
def test_one_problem_has_no_interval_and_shows_nothing(tmp_path: Path, samples: int) -> None:
    findings = found(run_of(tmp_path / "run", {"none": ["wrong"], "mless": ["right"]}, samples))
    accuracy = next(iter(findings.values()))
    change = accuracy.estimates["difference"]
    assert (accuracy.verdict, change.value, change.n, change.has_interval) == (UNKNOWN, 1.0, 1, False)
    assert "So few problems show no difference with 80% power" in accuracy.text


def test_several_samples_that_all_change_alike_have_no_power(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved({"none": 20, "mless": 20}), samples=2)
    text = found(run)["accuracy_mless_t0.5x2"].text
    assert text.endswith("What so many problems could show is unknown: all of them changed alike.")


def test_without_filler_nothing_is_said(tmp_path: Path) -> None:
    run = build(tmp_path / "run", drawn_at_random(0), conditions=["none"])
    assert answer_findings(run[None], compare(run)) == []


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
    accuracies = [
        finding for finding in answer_findings(run[None], compare(run)) if finding.name.startswith("accuracy")
    ]
    for finding, row in zip(accuracies, compare(run)[1:], strict=True):
        assert row.against is not None
        assert significance(row.against) in finding.text
        assert (finding.verdict is HOLDS) == (row.against.adjusted < ALPHA)
    for finding in answer_findings(run[None], compare(run)):
        assert not re.search(r"\b(nan|inf|None)\b|  | ,|\.\.", finding.text), finding.text
        assert finding.text.endswith(".")


# Truncated answers


def truncated_run(
    folder: Path, limits: dict[str, range], table: dict[str, list[str]], tokens: dict[str, int] | None = None
) -> Run:
    """`limits`: by condition, the problems whose answers the token limit ended; `tokens`: after how many, if not 64."""

    def draw(key: Key) -> Row:
        ended = key[1] in limits.get(key[3], range(0))
        row = answer(table[key[3]][key[1]], np.random.default_rng(key[1]), truncated=ended)
        return row | {"tokens": (tokens or {}).get(key[3], 64)} if row["finish"] == "length" else row

    return build(folder, draw, len(table["none"]), conditions=list(table), shard=20, max_tokens=64)


def test_where_all_answers_are_truncated_nothing_else_comes_first(tmp_path: Path) -> None:
    everything = {name: range(40) for name in ("none", "mless")}
    run = truncated_run(tmp_path / "run", everything, solved({"none": 0, "mless": 0}))
    first = answer_findings(run[None], compare(run))[0]
    assert first.name == "truncated_mless"
    assert (first.facts["truncated"], first.facts["truncated_none"], first.facts["finished"]) == (1.0, 1.0, 0)
    assert not first.estimates["difference"].is_known
    assert "truncated at 64 tokens" in first.text
    assert "set generation.max_tokens to 128 or more. No problem was answered to the end under both." in first.text


def test_the_difference_over_problems_answered_to_the_end(tmp_path: Path) -> None:
    """Under the filler the last ten answers are truncated and wrong; without it they are right."""
    table = solved({"none": 40, "mless": 30})
    run = truncated_run(tmp_path / "run", {"mless": range(30, 40)}, table)
    truncated, accuracy, _ = answer_findings(run[None], compare(run))
    assert truncated.facts["p"] == pytest.approx(2 * 0.5**10)  # ten of ten
    assert "a significant difference (p = 0.002)" in truncated.text
    assert (truncated.estimates["difference"].value, truncated.estimates["difference"].n) == (0.0, 30)
    assert truncated.numbers["low"] == truncated.estimates["difference"].low
    assert accuracy.estimates["difference"].value == pytest.approx(-0.25)


def test_answers_that_the_models_context_ended_need_another_one(tmp_path: Path) -> None:
    """No larger limit makes room for them."""
    limits, table = {name: range(40) for name in ("none", "mless")}, solved({"none": 0, "mless": 0})
    run = truncated_run(tmp_path / "run", limits, table, {"none": 40, "mless": 27})
    text = answer_findings(run[None], compare(run))[0].text
    assert "100% of the answers are truncated after 27 to 40 tokens, by generation.max_tokens (64) or by the" in text
    assert "without filler; use less filler or a model with a longer context. No problem" in text
    assert "set generation.max_tokens" not in text
    same = truncated_run(tmp_path / "same", limits, table, {"none": 40, "mless": 40})
    assert "truncated after 40 tokens, by" in answer_findings(same[None], compare(same))[0].text


def test_where_only_some_reach_the_limit_both_remedies_are_named(tmp_path: Path) -> None:
    limits, table = {name: range(40) for name in ("none", "mless")}, solved({"none": 0, "mless": 0})
    run = truncated_run(tmp_path / "run", limits, table, {"mless": 27})
    text = answer_findings(run[None], compare(run))[0].text
    assert "truncated after 27 to 64 tokens, by generation.max_tokens (64) or by the model's context, against" in text
    assert "; set generation.max_tokens to 128 or more, and use less filler or a model with a longer context." in text


def test_shares_of_truncated_answers_are_those_of_the_pairs(tmp_path: Path) -> None:
    """Of the answers under the filler that did not fail, all are truncated, and none of the same problems without."""
    table = solved({"none": 20, "mless": 20}, failed={"mless": range(10, 40)})
    run = truncated_run(tmp_path / "run", {"mless": range(10), "none": range(20, 40)}, table)
    assert "100% of the answers are truncated at 64 tokens, against 0% without filler, a significant" in (
        answer_findings(run[None], compare(run))[0].text
    )


def test_a_tenth_is_not_spoken_of(tmp_path: Path) -> None:
    some = {name: range(4) for name in ("none", "mless")}
    run = truncated_run(tmp_path / "run", some, solved({"none": 20, "mless": 20}))
    assert [finding.name for finding in answer_findings(run[None], compare(run))] == ["accuracy_mless", "form_mless"]


def test_no_answer_is_counted_twice(tmp_path: Path) -> None:
    """Truncated, without an answer at its end, and judged."""
    table = {"none": ["right"] * 8, "mless": ["cut off"] * 3 + ["no answer"] * 2 + ["right"] * 3}
    run = truncated_run(tmp_path / "run", {}, table)
    row = next(row for row in compare(run) if row.condition == "mless")
    assert (row.cut_off, row.unanswered) == (3 / 8, 2 / 8)
