"""Intervals against scipy, their coverage by simulation, and whether a ranking repeats itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as reference

from fillerscope.stats import mean_interval, rank_correlation, ratio_interval, sample_interval, split_half

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
def test_the_interval_of_a_mean_is_students(n: int, level: float) -> None:
    samples = 3 + draws(n, 4, seed=n)
    mean, low, high = sample_interval(samples, level)
    np.testing.assert_allclose(mean, samples.mean(0), rtol=1e-12)
    for item in range(4):
        np.testing.assert_allclose((low[item], high[item]), student(samples[:, item], level), rtol=1e-9)
    same = mean_interval(np.full(4, n), samples.std(0, ddof=1), samples.mean(0), level)
    np.testing.assert_allclose(same, (low, high), rtol=1e-9)


def test_counts_may_differ_from_cell_to_cell() -> None:
    low, high = mean_interval(np.array([2, 30]), np.array([1.0, 1.0]), np.array([0.0, 0.0]))
    expected = [reference.t.ppf(0.975, n - 1) / np.sqrt(n) for n in (2, 30)]
    np.testing.assert_allclose(high, expected, rtol=1e-9)
    np.testing.assert_allclose(low, -high)


def test_missing_samples_are_left_out() -> None:
    samples = draws(12, 2)
    samples[[0, 5, 7], 1] = np.nan
    kept = samples[np.isfinite(samples[:, 1]), 1]
    mean, low, high = sample_interval(samples)
    np.testing.assert_allclose((mean[1], low[1], high[1]), (kept.mean(), *student(kept, 0.95)), rtol=1e-9)
    np.testing.assert_allclose((low[0], high[0]), student(samples[:, 0], 0.95), rtol=1e-9)


def test_below_two_samples_there_is_no_interval() -> None:
    samples = np.array([[1.0, np.nan, 1.0], [np.nan, np.nan, 2.0]])
    mean, low, high = sample_interval(samples)
    np.testing.assert_array_equal(mean, [1.0, np.nan, 1.5])
    np.testing.assert_array_equal(np.isnan(low), [True, True, False])
    np.testing.assert_array_equal(np.isnan(high), [True, True, False])
    np.testing.assert_array_equal(np.isnan(mean_interval(np.array([0, 1]), np.zeros(2), np.zeros(2))), True)


def test_the_interval_covers_as_often_as_it_says() -> None:
    samples = 5 + 2 * draws(30, 20_000, seed=1)
    _, low, high = sample_interval(samples)
    assert 0.94 < ((low < 5) & (high > 5)).mean() < 0.96


def test_the_interval_of_a_ratio_covers_as_often_as_it_says() -> None:
    before = positive(30, 20_000, seed=2)
    after = before * 0.8 * np.exp(0.3 * draws(30, 20_000, seed=3))
    _, low, high = ratio_interval(after, before)
    assert 0.94 < ((low < 0.8) & (high > 0.8)).mean() < 0.96


def test_a_ratio_is_the_geometric_mean_with_its_interval_on_the_logs() -> None:
    after, before = positive(20, seed=4), positive(20, seed=5)
    ratio, low, high = ratio_interval(after, before)
    np.testing.assert_allclose(ratio, reference.gmean(after / before), rtol=1e-12)
    np.testing.assert_allclose((low, high), np.exp(student(np.log(after / before), 0.95)), rtol=1e-9)


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
