"""Every number of the comparison computed again, by plain counting, scipy and exhaustion."""

from __future__ import annotations

import math
from itertools import combinations, product
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fillerscope.analysis.accuracy import Accuracy, compare, groups_of
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from support.answered import CONDITIONS, VERDICTS, Key, Row, answer, build, drawn_at_random
from support.synthetic import Synthetic

DRAW = drawn_at_random(5)
MODELS = ("a", "b")
METAS: list[dict[str, Any]] = [
    {"level": 10}, {"level": 9}, {"level": 10}, {}, {"level": 9}, {"level": "hard"}, {"level": 9}, {"level": 10},
    {"subject": "algebra"}, {"level": 10}, {"level": "10"},
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("accuracy") / "run"
    return build(folder, DRAW, models=MODELS, metas=METAS, temperature=[0, 0.7], samples=[3, 1], k=[1, 2, 3])


@pytest.fixture(scope="module")
def rows(run: Run) -> list[Accuracy]:
    return compare(run)


# Plain counting


def marks(model: str, temperature: float, condition: str, samples: int, numbers: range | list[int]) -> list[list[bool]]:
    """By problem, of the samples that did not fail, which are right."""
    every = [[DRAW((model, n, temperature, condition, s)) for s in range(samples)] for n in numbers]
    return [[row["verdict"] == "right" for row in problem if row["verdict"] != "failed"] for problem in every]


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def gaps_of(row: Accuracy, numbers: range | list[int] = range(11)) -> list[float]:
    pairs = zip(
        marks(row.model, row.temperature, row.condition, row.samples, numbers),
        marks(row.model, row.temperature, "none", row.samples, numbers),
        strict=True,
    )
    return [share(after) - share(before) for after, before in pairs if after and before]


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The shares p that a score test of hits among n does not reject, as roots of a quadratic equation."""
    z = stats.norm.ppf(0.975)
    return tuple(sorted(np.roots([n + z**2, -(2 * hits + z**2), hits**2 / n]).real))


def sign_flips(gaps: list[float]) -> float:
    """Of all patterns of signs, how many are as far out."""
    sums = np.array(list(product([1, -1], repeat=len(gaps)))) @ gaps
    return float(np.mean(np.abs(sums) >= abs(sum(gaps)) - 1e-9))


def holm_by_hand(p: list[float]) -> list[float]:
    adjusted = []
    for own in p:
        steps = [(len(p) - sum(other < lower for other in p)) * lower for lower in p if lower <= own]
        adjusted.append(min(1.0, max(steps)))
    return adjusted


def test_there_is_a_row_for_every_cell_in_order(rows: list[Accuracy]) -> None:
    cells = [(0.0, 1), (0.7, 1), (0.7, 3)]
    assert [(row.model, row.temperature, row.samples, row.condition) for row in rows] == [
        (model, *cell, condition) for model in MODELS for cell in cells for condition in CONDITIONS
    ]
    assert {(row.label, row.group) for row in rows} == {("A", ""), ("B", "")}
    assert [row.against is None for row in rows] == [row.condition == "none" for row in rows]


def test_accuracy_and_what_failed(rows: list[Accuracy]) -> None:
    for row in rows:
        found = marks(row.model, row.temperature, row.condition, row.samples, range(11))
        judged = [share(problem) for problem in found if problem]
        assert (row.n, row.failed) == (len(judged), 11 - len(judged))
        assert row.accuracy == pytest.approx(math.fsum(judged) / len(judged))
        if row.samples == 1:
            assert (row.low, row.high) == pytest.approx(wilson(round(sum(judged)), len(judged)), abs=1e-12)
        else:
            assert 0 <= row.low < row.accuracy < row.high <= 1
    assert any(row.failed for row in rows)  # there is something to leave out


def test_pass_at_k_is_the_chance_among_all_choices_of_k(rows: list[Accuracy]) -> None:
    """Over the problems of which so many samples were judged under every condition."""
    for row in rows:
        found = {name: marks(row.model, row.temperature, name, row.samples, range(11)) for name in CONDITIONS}
        assert list(row.passes) == list(row.passes_n) == [k for k in (1, 2, 3) if k <= row.samples]
        for k, value in row.passes.items():
            shared = [n for n in range(11) if all(len(problems[n]) >= k for problems in found.values())]
            own = [found[row.condition][n] for n in shared]
            chances = [np.mean([any(chosen) for chosen in combinations(problem, k)]) for problem in own]
            assert (value, row.passes_n[k]) == (pytest.approx(np.mean(chances)), len(shared))
    assert any(0 < row.passes_n[3] < row.n for row in rows if row.samples == 3)


def test_pass_at_k_of_two_conditions_is_over_the_same_problems(tmp_path: Path) -> None:
    """One sample of each hard problem fails under the filler. Its pass@4 is not that of the easy ones alone, beside
    that of all problems."""

    def draw(key: Key) -> Row:
        verdict = "right" if key[1] < 5 else "failed" if (key[3], key[4]) == ("mless", 3) else "wrong"
        return answer(verdict, np.random.default_rng(0))

    names = ("none", "mless")
    none, mless = compare(build(tmp_path / "run", draw, 10, conditions=names, temperature=1, samples=4))
    assert none.passes == mless.passes == {1: 0.5, 4: 1.0}
    assert none.passes_n == mless.passes_n == {1: 10, 4: 5}
    assert (mless.n, mless.failed, mless.failed_answers, none.failed_answers) == (10, 0, 5, 0)


def test_a_condition_without_enough_samples_takes_pass_at_k_from_no_other(tmp_path: Path) -> None:
    def draw(key: Key) -> Row:
        return answer("failed" if (key[3], key[4]) == ("mless", 0) else "right", np.random.default_rng(0))

    none, mless = compare(
        build(tmp_path / "run", draw, 3, conditions=("none", "mless"), temperature=1, samples=4, k=[1, 4])
    )
    assert (none.passes, none.passes_n) == ({1: 1.0, 4: 1.0}, {1: 3, 4: 3})
    assert (mless.passes[1], mless.passes_n) == (1.0, {1: 3, 4: 0})
    assert math.isnan(mless.passes[4])


def test_without_k_the_usual_ones_are_told_as_far_as_samples_go(tmp_path: Path) -> None:
    run = build(tmp_path / "run", DRAW, problems=2, temperature=1, samples=[1, 5])
    assert [list(row.passes) for row in compare(run)] == [[1]] * 3 + [[1, 4]] * 3


def test_pairs_hold_only_what_was_answered_under_both(rows: list[Accuracy]) -> None:
    for row in rows:
        if row.against is None:
            continue
        gaps, change = gaps_of(row), row.against
        assert change.pairs == len(gaps)
        assert change.difference == pytest.approx(math.fsum(gaps) / len(gaps))
        assert (change.gained, change.lost) == (sum(gap > 1e-9 for gap in gaps), sum(gap < -1e-9 for gap in gaps))
        assert change.difference_low < change.difference < change.difference_high
        assert change.paired_accuracy - change.paired_baseline == pytest.approx(change.difference)
    compared = [row for row in rows if row.against]
    assert any(row.against.pairs < row.n for row in compared)  # failed without filler, not with it
    assert any(row.against.pairs < 11 - row.failed for row in compared)


def test_the_tests_are_mcnemar_for_one_sample_and_sign_flips_for_several(rows: list[Accuracy]) -> None:
    for row in rows:
        if row.against is None:
            continue
        gaps, change = gaps_of(row), row.against
        if row.samples == 1:
            discordant = change.gained + change.lost
            exact = stats.binomtest(change.gained, discordant).pvalue if discordant else 1.0
            assert change.p == pytest.approx(exact)
        assert change.p == pytest.approx(sign_flips(gaps))  # of differences of one these two are the same


def power_of(n: float, effect: float) -> float:
    """Chance that a t test of n differences rejects, in either tail; `effect` is in standard deviations."""
    limit, shift = stats.t.ppf(0.975, n - 1), abs(effect) * math.sqrt(n)
    return float(stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift))


def test_what_several_samples_could_have_shown_is_told_from_how_the_problems_at_hand_vary(rows: list[Accuracy]) -> None:
    several = [(row.against, stdev(gaps_of(row))) for row in rows if row.against and row.samples > 1]
    assert len(several) == 4
    for change, spread in several:
        assert power_of(change.pairs, change.detectable / spread) == pytest.approx(0.8, abs=1e-4)
        effect = change.difference / spread
        assert power_of(change.needed - 1, effect) < 0.8 <= power_of(change.needed, effect)


def test_p_is_adjusted_over_all_rows_at_hand(run: Run, rows: list[Accuracy]) -> None:
    for table in (rows, compare(run, ["b"]), compare(run, by="level")):
        changes = [row.against for row in table if row.against]
        tested = [change.p for change in changes if change.pairs]
        adjusted = [change.adjusted for change in changes if change.pairs]
        assert adjusted == pytest.approx(holm_by_hand(tested))
    alone = [row.against.adjusted for row in compare(run, ["b"]) if row.against]
    among = [row.against.adjusted for row in rows if row.against and row.model == "b"]
    assert all(a <= b for a, b in zip(alone, among, strict=True))


def test_a_table_is_the_same_each_time(run: Run, rows: list[Accuracy]) -> None:
    assert repr(compare(run)) == repr(rows)
    assert repr(compare(run, ["a", "b", "a"])) == repr(rows), "a model that is named twice is not two"


# Groups


def test_problems_are_grouped_by_what_is_known_of_them(run: Run) -> None:
    """Numbers before words, in their own order; what is written alike is one group; the rest is not lost."""
    groups = groups_of(run, "level")
    assert groups == {"level 9": [1, 4, 6], "level 10": [0, 2, 7, 9, 10], "level hard": [5], "level not given": [3, 8]}
    assert list(groups) == ["level 9", "level 10", "level hard", "level not given"]
    assert sorted(number for numbers in groups.values() for number in numbers) == list(range(11))


def test_rows_of_groups_are_of_their_problems_alone(run: Run) -> None:
    groups = groups_of(run, "level")
    rows = compare(run, ["a"], by="level")
    assert len(rows) == 3 * 4 * 3
    for row in rows:
        numbers = groups[row.group]
        judged = [m for m in marks("a", row.temperature, row.condition, row.samples, numbers) if m]
        assert row.n + row.failed == len(numbers)
        assert row.failed_answers == row.samples * len(numbers) - sum(
            len(m) for m in marks("a", row.temperature, row.condition, row.samples, numbers)
        )
        assert row.n == len(judged)
        if judged:
            assert row.accuracy == pytest.approx(np.mean([share(problem) for problem in judged]))
        else:
            assert math.isnan(row.accuracy)
        if row.against:
            gaps = gaps_of(row, numbers)
            assert row.against.pairs == len(gaps)
            assert row.against.difference == pytest.approx(np.mean(gaps)) if gaps else math.isnan(row.against.p)


def test_an_unknown_field_is_named_with_those_there_are(run: Run) -> None:
    with pytest.raises(FigureError, match=r"^the problems have no field 'colour'; they have level, subject$"):
        compare(run, by="colour")


def test_what_the_run_does_not_have_is_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FigureError, match=r"^this run has no model 'c'; it has a, b$"):
        compare(run, ["c"])
    with pytest.raises(FigureError, match=r"^this run has no answers; give `generation` in its study"):
        compare(Synthetic(problems=2).build(tmp_path / "run"))


# Ends of the range


def test_where_all_failed_there_is_a_row_without_numbers(tmp_path: Path) -> None:
    """Under one condition: the others are told as ever, and the family of tests is theirs."""

    def draw(key: Key) -> Row:
        return DRAW(key) if key[3] != "mless" else answer("failed", np.random.default_rng(0))

    none, mless, mful = compare(build(tmp_path / "run", draw))
    assert (mless.n, mless.failed, none.n) == (0, 11, 11 - none.failed)
    assert np.isnan([mless.accuracy, mless.low, mless.high, mless.tokens, mless.passes[1]]).all()
    assert mless.against is not None
    assert (mless.against.pairs, mless.against.gained, mless.against.lost) == (0, 0, 0)
    assert np.isnan([mless.against.p, mless.against.adjusted, mless.against.difference]).all()
    assert mful.against is not None
    assert mful.against.adjusted == mful.against.p


def test_without_filler_there_is_the_baseline_alone(tmp_path: Path) -> None:
    (row,) = compare(build(tmp_path / "run", DRAW, conditions=["none"]))
    assert row.against is None


@pytest.mark.parametrize("samples", [1, 2])
def test_where_nothing_changes_nothing_is_claimed(tmp_path: Path, samples: int) -> None:
    """Problems that all change alike do not tell how much others would vary."""
    draw = drawn_at_random(1)
    run = build(tmp_path / "run", lambda key: draw((*key[:3], "any", key[4])), temperature=1, samples=samples)
    for row in compare(run)[1:]:
        assert row.against is not None
        assert (row.against.difference, row.against.p, row.against.adjusted) == (0, 1, 1)
        assert row.against.difference_low < 0 < row.against.difference_high
        assert math.isnan(row.against.detectable) if samples > 1 else 0 < row.against.detectable < 1
        assert not math.isfinite(row.against.needed)


def test_a_record_is_flat(rows: list[Accuracy]) -> None:
    for row in rows:
        record = row.record()
        assert not any(isinstance(value, dict | list) for value in record.values())
        assert record["accuracy"] == row.accuracy
        assert record["pairs"] == (row.against.pairs if row.against else 0)
        assert record["pass@1"] == row.passes[1]
        assert record["pass@1_n"] == row.passes_n[1]
        assert set(record) == set(rows[0].record()) | {f"pass@{k}{end}" for k in row.passes for end in ("", "_n")}


VERDICT = st.sampled_from(VERDICTS)
ANSWERED_TWICE = given(
    st.lists(st.tuples(*[st.tuples(VERDICT, VERDICT)] * 2), min_size=1, max_size=7), st.sampled_from([1, 2])
)


@settings(max_examples=8, deadline=None)
@ANSWERED_TWICE
def test_seen_from_the_other_condition_gains_are_losses(
    tmp_path_factory: pytest.TempPathFactory, verdicts: list[Any], samples: int
) -> None:
    check_both_ways(tmp_path_factory, verdicts, samples)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@ANSWERED_TWICE
def test_seen_from_the_other_condition_gains_are_losses_in_many_runs(
    tmp_path_factory: pytest.TempPathFactory, verdicts: list[Any], samples: int
) -> None:
    check_both_ways(tmp_path_factory, verdicts, samples)


def check_both_ways(tmp_path_factory: pytest.TempPathFactory, verdicts: list[Any], samples: int) -> None:
    """Two conditions that change their names; and every answer is in exactly one count."""
    seen = []
    for names in (("none", "mless"), ("mless", "none")):
        table = {(n, c, s): row[names.index(c)][s] for n, row in enumerate(verdicts) for c in names for s in (0, 1)}
        run = build(
            tmp_path_factory.mktemp("swapped") / "run",
            lambda key, table=table: answer(table[key[1], key[3], key[4]], np.random.default_rng(0)),
            problems=len(verdicts), conditions=["none", "mless"], shard=7, temperature=1, samples=samples,
        )  # fmt: skip
        baseline, row = compare(run)
        assert row.against is not None
        assert row.n + row.failed == baseline.n + baseline.failed == len(verdicts)
        assert row.against.pairs <= min(row.n, baseline.n)
        assert row.against.gained + row.against.lost <= row.against.pairs
        seen.append((baseline.accuracy, row.accuracy, row.against))
    (before, after, one), (after_too, before_too, other) = seen
    np.testing.assert_equal((before, after), (before_too, after_too))
    assert (one.gained, one.lost, one.pairs) == (other.lost, other.gained, other.pairs)
    np.testing.assert_allclose([one.difference, one.p, one.adjusted], [-other.difference, other.p, other.adjusted])
    np.testing.assert_allclose([one.detectable, one.needed], [other.detectable, other.needed])
