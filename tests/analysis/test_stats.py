"""Intervals and tests against scipy and statsmodels, their coverage by simulation, rankings that repeat themselves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as reference
from scipy.special import gammaln, ndtr, xlogy
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from fillerscope.analysis import stats
from fillerscope.analysis.stats import (
    accuracy_interval,
    holm,
    mcnemar_exact,
    mean_interval,
    paired_interval,
    pass_at_k,
    permutation_test,
    permutation_tests,
    rank_correlation,
    ratio_interval,
    sample_interval,
    split_half,
    wilson_interval,
)
from fillerscope.store.moments import Moments
from support.grid import some_fast
from support.intervals import interval_of_mean

Floats = NDArray[np.float64]


def draws(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape)


def positive(*shape: int, seed: int = 0) -> Floats:
    return np.exp(draws(*shape, seed=seed))


def student(samples: Floats, level: float) -> tuple[float, float]:
    low, high = reference.t.interval(level, len(samples) - 1, loc=samples.mean(), scale=reference.sem(samples))
    return float(low), float(high)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 3, 30, 1000])
def test_the_interval_of_a_mean_is_its_definition(n: int, level: float) -> None:
    samples = np.stack([3 + draws(n, seed=n), positive(n, seed=n), -positive(n, seed=n + 1), draws(n) ** 3], axis=1)
    mean, low, high = sample_interval(samples, level)
    np.testing.assert_allclose(mean, samples.mean(0), rtol=1e-12)
    for item in range(4):
        np.testing.assert_allclose((low[item], high[item]), interval_of_mean(samples[:, item], level), rtol=1e-9)
    same = mean_interval(Moments.of(samples, np.isfinite(samples)), level)
    np.testing.assert_array_equal(same, (low, high))


@pytest.mark.parametrize("samples", [[1.0, 4.0], [1.0, 2.0, 3.0], [-3.0, -1.0, 0.0, 1.0, 3.0]])
def test_samples_that_lie_evenly_have_students_interval(samples: list[float]) -> None:
    np.testing.assert_allclose(sample_interval(np.array(samples))[1:], student(np.array(samples), 0.95), rtol=1e-9)


def test_the_interval_reaches_as_far_as_students_and_farther_on_the_long_side() -> None:
    for n in (5, 12, 100):
        samples = np.exp(np.linspace(-2, 2, n))
        (mean, low, high), (below, above) = sample_interval(samples), student(samples, 0.95)
        assert low == pytest.approx(below, rel=1e-9)
        assert 1.05 < (high - mean) / (above - mean) < 2.5 + 1e-9


samples_drawn = st.tuples(st.integers(2, 20), st.integers(0, 2**32)).map(
    lambda drawn: np.stack([draws(drawn[0], seed=drawn[1]), positive(drawn[0], seed=drawn[1] + 1)], axis=1)
)


@settings(deadline=None)
@given(samples=samples_drawn, shift=st.floats(-100, 100), scale=st.floats(1e-6, 1e6))
def test_the_interval_moves_and_grows_with_the_samples(samples: Floats, shift: float, scale: float) -> None:
    found = np.array(sample_interval(samples))
    np.testing.assert_allclose(sample_interval(samples + shift), found + shift, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sample_interval(samples * scale), found * scale, rtol=1e-9)
    np.testing.assert_allclose(sample_interval(-samples), -found[[0, 2, 1]], rtol=1e-9)
    np.testing.assert_allclose(sample_interval(samples[::-1]), found, rtol=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 0.1 + 0.2, -1e8])
def test_equal_samples_have_their_value_for_an_interval(value: float) -> None:
    np.testing.assert_allclose(sample_interval(np.full((7, 2), value)), np.full((3, 2), value), rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_missing_column_leaves_the_others_alone() -> None:
    samples = positive(9, 3, seed=17)
    expected = np.array(sample_interval(samples))
    samples[:, 1] = np.nan
    found = np.array(sample_interval(samples))
    assert np.isnan(found[:, 1]).all()
    np.testing.assert_array_equal(found[:, [0, 2]], expected[:, [0, 2]])


def test_counts_may_differ_from_cell_to_cell() -> None:
    samples = positive(30, 2, seed=18)
    samples[2:, 0] = np.nan
    low, high = mean_interval(Moments.of(samples, np.isfinite(samples)))
    np.testing.assert_allclose((low[0], high[0]), student(samples[:2, 0], 0.95), rtol=1e-9)
    np.testing.assert_allclose((low[1], high[1]), interval_of_mean(samples[:, 1]), rtol=1e-9)


def test_missing_samples_are_left_out() -> None:
    samples = draws(12, 2)
    samples[[0, 5, 7], 1] = np.nan
    kept = samples[np.isfinite(samples[:, 1]), 1]
    mean, low, high = sample_interval(samples)
    np.testing.assert_allclose((mean[1], low[1], high[1]), (kept.mean(), *interval_of_mean(kept)), rtol=1e-9)
    np.testing.assert_allclose((low[0], high[0]), interval_of_mean(samples[:, 0]), rtol=1e-9)


def test_below_two_samples_there_is_no_interval() -> None:
    samples = np.array([[1.0, np.nan, 1.0], [np.nan, np.nan, 2.0]])
    mean, low, high = sample_interval(samples)
    np.testing.assert_array_equal(mean, [1.0, np.nan, 1.5])
    np.testing.assert_array_equal(np.isnan(low), [True, True, False])
    np.testing.assert_array_equal(np.isnan(high), [True, True, False])


Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]
DRAWN: dict[str, tuple[Draw, float]] = {  # how samples are drawn, and their true mean
    "normal": (lambda generator, shape: generator.normal(size=shape), 0.0),
    "heavy tails": (lambda generator, shape: generator.standard_t(3, shape), 0.0),
    "lognormal": (lambda generator, shape: generator.lognormal(size=shape), np.exp(0.5)),
    "gamma": (lambda generator, shape: generator.gamma(0.5, size=shape), 0.5),
    "outliers": (lambda generator, shape: generator.normal(size=shape) + 5 * (generator.random(shape) < 0.05), 0.25),
}


@pytest.mark.parametrize("n", [12, 48, 100])
@pytest.mark.parametrize("name", DRAWN)
def test_the_interval_covers_as_often_as_it_says(name: str, n: int) -> None:
    """Student's alone covers 85, 90 and 92% of lognormal samples."""
    draw, mean = DRAWN[name]
    _, low, high = sample_interval(draw(np.random.default_rng(n), (n, 20_000)))
    assert 0.932 < ((low < mean) & (high > mean)).mean() < 0.97


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("n", [12, 48, 100])
def test_the_interval_of_a_ratio_covers_as_often_as_it_says(n: int, skewed: bool) -> None:
    """What is covered is the geometric mean of the ratios over all problems: of logarithms that are skewed too."""
    before, noise = positive(n, 20_000, seed=2), draws(n, 20_000, seed=n)
    after = before * 0.8 * np.exp(0.3 * (np.exp(noise) - np.exp(0.5) if skewed else noise))
    _, low, high = ratio_interval(after, before)
    assert 0.932 < ((low < 0.8) & (high > 0.8)).mean() < 0.97


def test_a_ratio_is_the_geometric_mean_with_its_interval_on_the_logs() -> None:
    after, before = positive(20, seed=4), positive(20, seed=5)
    ratio, low, high = ratio_interval(after, before)
    np.testing.assert_allclose(ratio, reference.gmean(after / before), rtol=1e-12)
    np.testing.assert_allclose((low, high), np.exp(interval_of_mean(np.log(after / before))), rtol=1e-9)


def test_halving_weighs_as_much_as_doubling() -> None:
    assert ratio_interval(np.array([2.0, 0.5]), np.ones(2))[0] == pytest.approx(1)


pairs = st.tuples(st.integers(2, 20), st.integers(0, 2**32)).map(
    lambda drawn: (positive(drawn[0], 3, seed=drawn[1]), positive(drawn[0], 3, seed=drawn[1] + 1))
)
scales = st.floats(1e-6, 1e6)


@settings(deadline=None)
@given(pair=pairs, scale=scales)
def test_a_ratio_does_not_depend_on_the_scale(pair: tuple[Floats, Floats], scale: float) -> None:
    after, before = pair
    np.testing.assert_allclose(ratio_interval(after * scale, before * scale), ratio_interval(after, before), rtol=1e-9)
    scaled = ratio_interval(after * scale, before)
    np.testing.assert_allclose(scaled, scale * np.array(ratio_interval(after, before)), rtol=1e-9)


@settings(deadline=None)
@given(pair=pairs)
def test_the_inverse_ratio_has_the_inverse_interval(pair: tuple[Floats, Floats]) -> None:
    after, before = pair
    ratio, low, high = ratio_interval(after, before)
    np.testing.assert_allclose(ratio_interval(before, after), (1 / ratio, 1 / high, 1 / low), rtol=1e-9)


@settings(deadline=None)
@given(pair=pairs)
def test_the_ratio_lies_inside_its_interval(pair: tuple[Floats, Floats]) -> None:
    ratio, low, high = ratio_interval(*pair)
    assert ((low < ratio) & (ratio < high)).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [(np.nan, 1.0), (1.0, np.nan), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (-1.0, 1.0)])
def test_pairs_that_have_no_ratio_are_left_out(bad: tuple[float, float]) -> None:
    after, before = positive(9, seed=6), positive(9, seed=7)
    expected = ratio_interval(after, before)
    with_bad = ratio_interval(np.append(after, bad[0]), np.append(before, bad[1]))
    np.testing.assert_allclose(with_bad, expected, rtol=1e-12)


def test_no_pairs_give_no_ratio() -> None:
    assert np.isnan(ratio_interval(np.array([0.0, np.nan]), np.array([1.0, 1.0]))).all()


def test_a_ranking_with_a_strong_signal_repeats_itself() -> None:
    signal = np.arange(30)[None, :]
    assert split_half(signal + 0.5 * draws(40, 30)) > 0.98


def test_a_ranking_of_noise_does_not() -> None:
    assert np.mean([abs(split_half(draws(40, 200, seed=seed))) for seed in range(4)]) < 0.1


def test_reliability_grows_with_the_number_of_samples() -> None:
    signal = draws(1, 100, seed=8)
    samples = signal + 3 * draws(200, 100, seed=9)
    found = [split_half(samples[:n]) for n in (6, 30, 200)]
    assert found == sorted(found)
    assert found[0] < 0.5 < found[2]


def test_the_two_halves_share_no_sample() -> None:
    """One outlying sample moves one half only. Were it in both, they would agree."""
    samples = draws(9, 50, seed=10)
    samples[4] += 1000 * draws(50, seed=11)
    assert abs(split_half(samples)) < 0.3


def test_split_half_is_the_definition() -> None:
    samples, seed = draws(7, 5, seed=12), 3
    generator, expected = np.random.default_rng(seed), []
    for _ in range(10):
        order = generator.permutation(7)
        halves = samples[order[:3]].mean(0), samples[order[3:6]].mean(0)
        expected.append(reference.spearmanr(*halves).statistic)
    assert split_half(samples, splits=10, seed=seed) == pytest.approx(np.mean(expected))
    assert split_half(samples) == split_half(samples)


def test_an_item_with_a_missing_sample_is_left_out_of_the_ranking() -> None:
    samples = draws(10, 6, seed=13)
    expected = split_half(np.delete(samples, 2, axis=1))
    samples[3, 2] = np.nan
    assert split_half(samples) == expected
    samples[3, 2] = -np.inf
    assert split_half(samples) == expected


@pytest.mark.parametrize("shape", [(3, 9), (9, 2), (0, 9), (4, 0)])
def test_too_few_samples_or_items_have_no_reliability(shape: tuple[int, int]) -> None:
    assert np.isnan(split_half(draws(*shape)))


def test_four_samples_of_three_items_are_enough() -> None:
    assert np.isfinite(split_half(draws(4, 3)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=30))
def test_rank_correlation_is_spearmans_with_ties(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs, dtype=np.float64).T
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert np.isnan(rank_correlation(a, b))
    else:
        assert rank_correlation(a, b) == pytest.approx(reference.spearmanr(a, b).statistic, abs=1e-12)


def test_rank_correlation_sees_the_order_alone() -> None:
    a = draws(50, seed=14)
    assert rank_correlation(a, np.exp(3 * a)) == pytest.approx(1)
    assert rank_correlation(a, -(a**3)) == pytest.approx(-1)
    assert np.isnan(rank_correlation(a, np.append(a[1:], np.nan)))


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_of_a_share_is_wilsons(level: float) -> None:
    successes, n = np.array([0, 1, 15, 29, 30, 123]), np.array([30, 30, 30, 30, 30, 456])
    expected = proportion_confint(successes, n, 1 - level, method="wilson")
    np.testing.assert_allclose(wilson_interval(successes, n, level), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.filterwarnings("error")
def test_a_share_of_nothing_has_no_interval() -> None:
    low, high = wilson_interval([0, 1], [0, 2])
    np.testing.assert_array_equal(np.isnan([low, high]), [[True, False], [True, False]])
    assert np.isnan(wilson_interval(0, 0)).all()


@pytest.mark.parametrize("n", [30, 100, 500])
def test_wilsons_interval_covers_as_often_as_it_says_on_average_over_shares(n: int) -> None:
    shares = np.linspace(0.05, 0.95, 901)[:, None]
    low, high = wilson_interval(np.arange(n + 1), np.full(n + 1, n))
    covered = (reference.binom.pmf(np.arange(n + 1), n, shares) * ((low <= shares) & (shares <= high))).sum(axis=1)
    assert 0.94 < covered.mean() < 0.96


discordant = st.integers(0, 60)


@settings(deadline=None)
@given(gained=discordant, lost=discordant)
def test_mcnemar_is_the_binomial_test_of_the_discordant_pairs(gained: int, lost: int) -> None:
    p = mcnemar_exact([gained, lost], [lost, gained])
    assert p[0] == p[1]
    assert p[0] == pytest.approx(mcnemar([[7, gained], [lost, 3]], exact=True).pvalue if gained + lost else 1)
    if gained + lost:
        assert p[0] == pytest.approx(reference.binomtest(gained, gained + lost).pvalue)


def test_mcnemar_takes_many_pairs_and_none() -> None:
    expected = [reference.binomtest(50_600, 100_000).pvalue, 2.0**-999, 1, 1]
    np.testing.assert_allclose(mcnemar_exact([50_600, 1000, 0, 8], [49_400, 0, 0, 8]), expected, rtol=1e-9)


def every_flip(differences: Floats) -> float:
    """The p of the sign-flip test from all patterns, with ties told by nine decimals."""
    sums = np.array([np.dot(signs, differences) for signs in product((-1, 1), repeat=len(differences))])
    return float((np.abs(sums.round(9)) >= abs(differences.sum().round(9))).mean())


sixteenths = st.integers(-16, 16).map(lambda step: step / 16)
tenths_apart = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(lambda pair: pair[0] / 10 - pair[1] / 10)
no_common_step = st.tuples(st.integers(-3, 3), st.integers(-3, 3)).map(lambda pair: pair[0] + pair[1] * 2**0.5)


@settings(deadline=None)
@given(st.one_of(st.lists(values, min_size=1, max_size=9) for values in (sixteenths, tenths_apart, no_common_step)))
def test_few_differences_are_flipped_in_every_way(drawn: list[float]) -> None:
    differences = np.array(drawn)
    p = permutation_test(differences, seeded())
    assert p == pytest.approx(every_flip(differences))
    assert p == pytest.approx(permutation_test(-0.37 * differences, seeded(1)))


def test_a_permutation_test_of_right_and_wrong_is_mcnemars() -> None:
    for gained, lost, same in ((3, 0, 5), (9, 2, 0), (40, 25, 300), (700, 600, 10)):
        differences = np.repeat([1, -1, 0], [gained, lost, same])
        assert permutation_test(differences, seeded()) == pytest.approx(float(mcnemar_exact(gained, lost)), rel=1e-9)


def test_a_common_step_makes_the_permutation_test_exact_for_many() -> None:
    differences = seeded(1).choice([-3, -2, 0, 2, 3, 5], 40) / 16
    p = permutation_test(differences, seeded())
    assert p == permutation_test([*differences, 0.1 + 0.2 - 0.3], seeded(1), draws=1)  # rounding is no difference
    flips = seeded(2).choice([-1, 1], (400_000, 40)) @ (16 * differences)
    assert p == pytest.approx((np.abs(flips) >= abs(16 * differences.sum())).mean(), abs=0.001)


def test_differences_without_a_common_step_are_flipped_at_random() -> None:
    differences = draws(60, seed=3) + 0.25
    expected = reference.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=40_000, rng=seeded(4)
    )
    p = permutation_test(differences, seeded(5), draws=40_000)
    assert p == pytest.approx(expected.pvalue, abs=0.006)
    assert 0.01 < p < 0.2
    assert permutation_test(differences, seeded(5), draws=500) != permutation_test(differences, seeded(6), draws=500)


def test_a_random_flip_counts_what_was_observed() -> None:
    assert permutation_test(1 + draws(200, seed=6) ** 2, seeded(), draws=99) == 1 / 100


def test_random_flips_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = draws(50, seed=3) + 0.1
    whole = permutation_test(differences, seeded(), draws=20_000)
    monkeypatch.setattr(stats, "BLOCK", 7000)
    assert permutation_test(differences, seeded(), draws=20_000) == pytest.approx(whole, abs=0.02)
    assert permutation_test(differences[:8], seeded()) == pytest.approx(every_flip(differences[:8]))


def test_no_difference_is_no_evidence_and_no_data_is_no_answer() -> None:
    assert permutation_test(np.zeros(5), seeded()) == 1
    assert np.isnan(permutation_test([], seeded()))
    assert np.isnan(permutation_test([1.0, np.nan], seeded()))


def answered_twice(
    replications: int, n: int, samples: int, gain: float, concentration: float, shared: float, seed: int
) -> Floats:
    """Differences of means of samples: two beta-distributed chances a problem, alike for a share of problems."""
    generator, grid = seeded(seed), np.linspace(0, 1, 4001)[1:-1]
    rank = generator.random((replications, n))
    other = np.where(generator.random(rank.shape) < shared, rank, generator.random(rank.shape))
    means, found = (0.5, 0.5 + gain), []
    for mean, place in zip(means, (rank, other), strict=True):
        chances = np.interp(place, grid, reference.beta.ppf(grid, mean * concentration, (1 - mean) * concentration))
        found.append(generator.binomial(samples, chances) / samples)
    return found[1] - found[0]


NULLS = [(30, 4, 0.03), (30, 16, 0.04), (100, 4, 0.04), (500, 4, 0.04)]


@pytest.mark.parametrize("null", some_fast(NULLS, (30, 4, 0.03)))
def test_the_permutation_test_rejects_as_many_true_nulls_as_it_says(null: tuple[int, int, float]) -> None:
    """Thirty differences in steps of a quarter have few sums: an exact test of them rejects fewer."""
    n, samples, lowest = null
    differences = answered_twice(4000, n, samples, 0.0, 1.0, 0.5, seed=n)
    p = np.array([permutation_test(row, seeded()) for row in differences])
    assert lowest < (p <= 0.05).mean() < 0.06


@pytest.mark.parametrize("discordance", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("n", [30, 100, 500])
def test_mcnemars_test_rejects_no_more_true_nulls_than_it_says(n: int, discordance: float) -> None:
    """An exact test of few discordant pairs rejects fewer than one in twenty; with many it comes near."""
    pairs = seeded(n).binomial(n, discordance, 20_000)
    gained = seeded(n + 1).binomial(pairs, 0.5)
    rejected = (mcnemar_exact(gained, pairs - gained) <= 0.05).mean()
    assert rejected < 0.05
    assert rejected > (0.03 if n * discordance >= 40 else 0.0)


def tables(n: int) -> NDArray[np.int64]:
    """Every number of gained and lost problems among n."""
    return np.array([(gained, lost) for gained in range(n + 1) for lost in range(n + 1 - gained)])


def graded(table: NDArray[np.int64], n: int) -> Floats:
    """The differences of right and wrong that a table of gained and lost stands for."""
    place, gained, changed = np.arange(n), table[:, :1], table.sum(axis=1, keepdims=True)
    return np.where(place < gained, 1.0, np.where(place < changed, -1.0, 0.0))


def chances(table: NDArray[np.int64], n: int, discordance: float, difference: float) -> Floats:
    counts = np.column_stack([table, n - table.sum(axis=1)])
    shares = np.array([discordance + difference, discordance - difference, 2 - 2 * discordance]) / 2
    return np.exp(gammaln(n + 1) - gammaln(counts + 1).sum(axis=1) + xlogy(counts, shares).sum(axis=1))


def covers(interval: tuple[Floats, Floats], truth: float) -> NDArray[np.bool_]:
    return (interval[0] <= truth + 1e-9) & (interval[1] >= truth - 1e-9)


MARGIN = 0.004  # of the resamples, which all rows share, and of the simulation
GRADED = [(0.1, 0.0), (0.1, 0.05), (0.2, 0.0), (0.2, 0.05), (0.2, 0.15), (0.4, 0.0), (0.4, 0.05), (0.4, 0.15)]


@pytest.mark.parametrize("n", some_fast([30, 100], 30))
def test_the_interval_of_a_paired_difference_covers_as_often_as_it_says(n: int) -> None:
    """Summed over every outcome. Of 30 problems a tenth or a fifth are three or six discordant pairs: few outcomes
    are likely, none of the usual bootstraps keeps within a point of 95% for all truths, and this one errs on the
    safe side."""
    table = tables(n)
    interval = paired_interval(graded(table, n), seeded(7), draws=4000)
    for discordance, difference in GRADED:
        covered = chances(table, n, discordance, difference) @ covers(interval, difference)
        highest = 0.98 if n == 30 and discordance < 0.4 else 0.96
        assert 0.94 - MARGIN < covered < highest + MARGIN, (discordance, difference)


@pytest.mark.parametrize("truth", some_fast([(0.1, 0.05), (0.2, 0.0), (0.4, 0.15)], (0.4, 0.15)))
def test_the_interval_of_a_paired_difference_covers_for_many_problems(truth: tuple[float, float]) -> None:
    discordance, difference = truth
    up = (discordance + difference) / 2
    table = seeded(8).multinomial(500, [up, discordance - up, 1 - discordance], 4000)[:, :2]
    interval = paired_interval(graded(table, 500), seeded(9), draws=2000)
    assert 0.94 - MARGIN < covers(interval, difference).mean() < 0.96 + MARGIN


SAMPLED = [(n, samples, gain) for n in (30, 100) for samples, gain in ((4, 0.0), (4, 0.05), (16, 0.15), (16, 0.05))]
SAMPLED += [(500, 4, 0.05), (500, 16, 0.15)]


@pytest.mark.parametrize("drawn", some_fast(SAMPLED, (30, 4, 0.05), (30, 16, 0.15), (100, 4, 0.0)))
def test_the_interval_of_a_difference_of_means_covers_as_often_as_it_says(drawn: tuple[int, int, float]) -> None:
    """With a gain of 0.05 most problems are always or never solved in both conditions. Few differ, some by much:
    30 of them give more than 95%."""
    n, samples, gain = drawn
    concentration, shared = (0.2, 0.9) if gain == 0.05 else (1.0, 0.5)
    differences = answered_twice(5000, n, samples, gain, concentration, shared, seed=n)
    covered = covers(paired_interval(differences, seeded(10), draws=2000), gain).mean()
    assert 0.94 - MARGIN < covered < (0.97 if n == 30 and gain == 0.05 else 0.96) + MARGIN


ANSWERED = [(n, *kind) for n in (30, 100, 500) for kind in ((4, 0.9, 1.0), (16, 0.5, 0.3))]


@pytest.mark.parametrize("answered", some_fast(ANSWERED, ANSWERED[0], ANSWERED[3]))
def test_the_interval_of_an_accuracy_covers_as_often_as_it_says(answered: tuple[int, int, float, float]) -> None:
    n, samples, accuracy, concentration = answered
    generator = seeded(n)
    chance = generator.beta(accuracy * concentration, (1 - accuracy) * concentration, (4000, n))
    interval = accuracy_interval(generator.binomial(samples, chance) / samples, seeded(11), draws=2000)
    assert 0.94 - MARGIN < covers(interval, accuracy).mean() < 0.96 + MARGIN


def by_hand(values: Floats, imagined: Floats, copies: int, level: float) -> Floats:
    """The definition: problems and imagined ones drawn from one urn, percentiles widened as Student's t is."""
    n = len(values)
    urn = np.append(np.repeat(values, copies), imagined)
    means = seeded(12).choice(urn, (60_000, n)).mean(axis=1)
    tail = ndtr(-np.sqrt(n / (n - 1)) * reference.t.ppf(0.5 + level / 2, n - 1))
    return np.quantile(means, [tail, 1 - tail])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_bootstrap_intervals_are_their_definition(level: float) -> None:
    values = seeded(13).beta(2, 1, 15)
    centred = values - values.mean()
    out = np.sqrt((centred**4).sum() / (centred**2).sum())
    expected = by_hand(values, values.mean() + np.array([-out, out]), 2, level)
    np.testing.assert_allclose(paired_interval(values, seeded(), 60_000, level), expected, atol=0.004)
    expected = by_hand(values, np.array([0.0, 1.0]), 4, level)
    np.testing.assert_allclose(accuracy_interval(values, seeded(), 60_000, level), expected, atol=0.004)


def test_for_many_problems_the_interval_is_the_percentile_bootstraps() -> None:
    values = 0.1 * draws(1500, seed=14) + 0.2
    expected = reference.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=seeded())
    for interval in (paired_interval(values, seeded()), accuracy_interval(values, seeded())):
        np.testing.assert_allclose(interval, expected.confidence_interval, atol=0.0008)


differences_drawn = st.tuples(st.integers(2, 30), st.integers(0, 2**32)).map(
    lambda drawn: np.clip(0.15 * draws(drawn[0], seed=drawn[1]), -0.45, 0.45)
)


@settings(deadline=None, max_examples=40)
@given(differences=differences_drawn, shift=st.floats(-0.1, 0.1))
def test_the_interval_holds_the_mean_and_moves_with_the_data(differences: Floats, shift: float) -> None:
    low, high = paired_interval(differences, seeded(), draws=500, span=(-9, 9))
    assert low < differences.mean() < high
    shifted = paired_interval(differences + shift, seeded(), draws=500, span=(-9, 9))
    np.testing.assert_allclose(shifted, (low + shift, high + shift), atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(differences=differences_drawn)
def test_swapping_the_conditions_turns_everything_round(differences: Floats) -> None:
    low, high = paired_interval(differences, seeded(), draws=10_000)
    swapped = paired_interval(-differences, seeded(1), draws=10_000)
    np.testing.assert_allclose(swapped, (-high, -low), atol=0.1 * (high - low))
    assert permutation_test(differences, seeded()) == permutation_test(-differences, seeded())


def test_an_interval_stays_within_what_is_possible() -> None:
    nearly = np.append(np.ones(29), 0)
    low, high = paired_interval(nearly, seeded())
    assert 0.8 < low < 29 / 30 < high == 1
    assert paired_interval(-nearly, seeded())[0] == -1
    low, high = accuracy_interval(nearly, seeded())
    assert 0.8 < low < 29 / 30 < high == 1


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("n", [2, 30, 500])
def test_equal_differences_are_no_certainty(n: int, level: float) -> None:
    """As many problems as Clopper and Pearson's bound for none in n may differ without having been seen."""
    unseen = reference.binomtest(0, n).proportion_ci(level).high
    np.testing.assert_allclose(paired_interval(np.zeros(n), seeded(), 10, level), (-unseen, unseen))
    np.testing.assert_allclose(paired_interval(np.ones(n), seeded(), 10, level), (1 - 2 * unseen, 1))
    np.testing.assert_allclose(accuracy_interval(np.ones(n), seeded(), 10, level), (1 - unseen, 1))
    np.testing.assert_allclose(accuracy_interval(np.zeros(n), seeded(), 10, level), (0, unseen))
    rounded = accuracy_interval(np.where(np.arange(n) % 2, 0.3, 0.1 + 0.2), seeded(), 10, level)
    np.testing.assert_allclose(rounded, (0.3 - 0.3 * unseen, 0.3 + 0.7 * unseen))


@pytest.mark.filterwarnings("error")
def test_one_problem_or_a_missing_one_has_no_interval() -> None:
    for interval in (paired_interval, accuracy_interval):
        assert np.isnan(interval([0.5], seeded())).all()
        assert np.isnan(interval([], seeded())).all()
        assert interval(np.zeros((3, 1)), seeded())[0].shape == (3,)
        low, high = interval([[0.5, 0.2, 0.1], [0.5, np.nan, 0.1]], seeded())
        np.testing.assert_array_equal(np.isnan([low, high]), [[False, True], [False, True]])


def test_rows_share_their_resamples_and_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = draws(2, 3, 20, seed=15)
    low, high = paired_interval(rows, seeded(), span=(-9, 9))
    assert low.shape == high.shape == (2, 3)
    np.testing.assert_allclose(paired_interval(rows[1, 2], seeded(), span=(-9, 9)), (low[1, 2], high[1, 2]))
    monkeypatch.setattr(stats, "BLOCK", 4000)
    np.testing.assert_allclose(paired_interval(rows, seeded(), span=(-9, 9)), (low, high), atol=0.05)
    assert sum(len(block) for block in stats._resamples(20, 2, 1234, seeded())) == 1234


@pytest.mark.parametrize("p", [[0.04], [0.01, 0.04, 0.03, 0.005], [0.2, 0.2, 0.9, 0.001], [0.0, 1.0, 0.3, 0.02, 0.02]])
def test_holm_is_statsmodels_and_does_not_count_what_is_missing(p: list[float]) -> None:
    expected = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)
    np.testing.assert_allclose(holm([np.nan, *p, np.nan]), [np.nan, *expected, np.nan], rtol=1e-12)
    assert holm([]).shape == (0,)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_the_bounds(drawn: list[float]) -> None:
    p, adjusted = np.array(drawn), holm(drawn)
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
    assert ((adjusted >= p) & (adjusted <= 1) & (adjusted <= len(p) * p)).all()
    assert adjusted.min() == min(1, len(p) * p.min())


solved = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


@settings(deadline=None)
@given(solved)
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(drawn: tuple[int, int, int]) -> None:
    n, correct, k = drawn
    hits = [any(sample < correct for sample in subset) for subset in combinations(range(n), k)]
    assert pass_at_k(n, correct, k) == pytest.approx(np.mean(hits), abs=1e-12)


@settings(deadline=None)
@given(st.integers(1, 200), st.data())
def test_pass_at_k_rises_with_k_and_with_correct_samples(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    by_correct = pass_at_k(np.full(n + 1, n), np.arange(n + 1), k)
    assert (np.diff(by_correct) >= 0).all()
    assert by_correct[0] == 0
    assert by_correct[-1] == 1
    correct = data.draw(st.integers(0, n))
    by_k = [float(pass_at_k(n, correct, size)) for size in range(1, n + 1)]
    assert (np.diff(by_k) >= -1e-12).all()
    assert by_k[0] == pytest.approx(correct / n)


def test_pass_at_k_is_stable_and_unbiased_and_knows_its_limits() -> None:
    assert pass_at_k(10**6, 1, 1000) == pytest.approx(1e-3, rel=1e-9)
    assert pass_at_k(10**6, 10**5, 100) == pytest.approx(1 - 0.9**100, rel=1e-4)
    np.testing.assert_array_equal(pass_at_k([3, 4, 0], [3, 0, 0], 4), [np.nan, 0, np.nan])
    correct = seeded(16).binomial(10, 0.3, 100_000)
    assert pass_at_k(np.full(100_000, 10), correct, 4).mean() == pytest.approx(1 - 0.7**4, abs=0.003)


@pytest.mark.parametrize("n", [1, 5, 13, 14, 40])
def test_many_rows_are_tested_like_one(n: int) -> None:
    """Exactly alike where every pattern is tried; within what 10,000 draws leave open otherwise."""
    rows = np.random.default_rng(n).normal(0.4, 1.0, (6, n))
    found = permutation_tests(rows, np.random.default_rng(0))
    alone = [permutation_test(row, np.random.default_rng(1)) for row in rows]
    np.testing.assert_allclose(found, alone, atol=1e-9 if n <= 13 else 0.02)


def test_a_row_with_a_missing_difference_has_no_p() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0], [0.0, 0.0, 0.0]])
    found = permutation_tests(rows, np.random.default_rng(0))
    assert found[0] == 0.25
    assert np.isnan(found[1])
    assert found[2] == 1.0
    assert np.isnan(permutation_tests(np.zeros((2, 0)), np.random.default_rng(0))).all()
