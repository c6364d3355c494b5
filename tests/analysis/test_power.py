"""Power against enumeration, simulation and statsmodels; what is detectable and needed against power itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multinomial
from statsmodels.stats.power import TTestPower

from fillerscope.analysis import power
from fillerscope.analysis.power import (
    detectable_difference,
    detectable_mean,
    mcnemar_power,
    mean_power,
    needed_n,
    needed_n_mean,
)
from fillerscope.analysis.stats import mcnemar_exact, permutation_test


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 25), st.floats(0, 1), st.floats(-1, 1), st.sampled_from([0.2, 0.05, 1e-6]))
def test_mcnemars_power_is_the_chance_of_all_tables_that_it_rejects(
    n: int, discordance: float, sided: float, alpha: float
) -> None:
    difference = discordance * sided
    tables = np.array([(gained, lost) for gained in range(n + 1) for lost in range(n + 1 - gained)])
    rejected = tables[mcnemar_exact(tables[:, 0], tables[:, 1]) <= alpha]
    chance = np.array([(discordance + difference) / 2, (discordance - difference) / 2, 1 - discordance]).clip(0)
    counts = np.column_stack([rejected, n - rejected.sum(axis=1)])
    expected = multinomial.pmf(counts, n, chance / chance.sum()).sum()
    assert mcnemar_power(n, discordance, difference, alpha) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("n", "discordance", "difference"), [(200, 0.2, 0.09), (3000, 0.3, -0.025), (10**5, 0.3, 0.004)]
)
def test_mcnemars_power_is_how_often_it_rejects(n: int, discordance: float, difference: float) -> None:
    up = (discordance + difference) / 2
    drawn = np.random.default_rng(0).multinomial(n, [up, discordance - up, 1 - discordance], 40_000)
    rejected = (mcnemar_exact(drawn[:, 0], drawn[:, 1]) <= 0.05).mean()
    assert mcnemar_power(n, discordance, difference) == pytest.approx(rejected, abs=0.008)
    assert 0.3 < rejected < 0.95


@pytest.mark.parametrize("discordance", [0.02, 0.3, 0.9])
def test_the_approximation_takes_over_smoothly(discordance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    n = int(2000 / discordance)
    differences = np.array([0, 1, 2, 2.8, 4]) * np.sqrt(discordance / n)
    exact = [mcnemar_power(n, discordance, difference) for difference in differences]
    monkeypatch.setattr(power, "MANY_PAIRS", 100)
    near = [mcnemar_power(n, discordance, difference) for difference in differences]
    np.testing.assert_allclose(near, exact, atol=0.001)
    assert near != exact


@pytest.mark.filterwarnings("error")
def test_the_approximation_holds_for_large_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = mcnemar_power(240, 0.9, 0.3, alpha=0.001)
    monkeypatch.setattr(power, "MANY_PAIRS", 100)
    assert mcnemar_power(240, 0.9, 0.3, alpha=0.001) == pytest.approx(exact, abs=0.004)
    assert mcnemar_power(10**6, 1, 1) == 1


def test_discordance_is_raised_to_the_difference() -> None:
    assert mcnemar_power(50, 0.0, 0.2) == mcnemar_power(50, 0.2, 0.2) > 0.9
    assert mcnemar_power(50, 0.0, 0.0) == 0
    assert needed_n(0.2, 0.0) == needed_n(0.2, 0.2)


@pytest.mark.parametrize("goal", [0.5, 0.8, 0.95])
@pytest.mark.parametrize(("n", "discordance"), [(30, 0.2), (100, 0.0), (500, 0.1), (9000, 0.2), (100_000, 0.4)])
def test_the_detectable_difference_is_the_smallest_with_the_power(n: int, discordance: float, goal: float) -> None:
    difference = detectable_difference(n, discordance, goal)
    assert mcnemar_power(n, discordance, difference) >= goal > mcnemar_power(n, discordance, 0.999 * difference)
    assert detectable_difference(n, discordance, goal, alpha=0.01) > difference


@pytest.mark.parametrize(("difference", "discordance"), [(0.5, 0.5), (-0.05, 0.2), (0.01, 0.05), (0.004, 0.3)])
@pytest.mark.parametrize("goal", [0.5, 0.8])
def test_the_needed_number_has_the_power_and_one_fewer_has_not(
    difference: float, discordance: float, goal: float
) -> None:
    n = int(needed_n(difference, discordance, goal))
    assert mcnemar_power(n, discordance, difference) >= goal > mcnemar_power(n - 1, discordance, difference)
    assert detectable_difference(n, discordance, goal) <= abs(difference) * 1.0001
    assert needed_n(difference, discordance, goal, alpha=0.001) > n


def test_what_cannot_be_detected() -> None:
    assert np.isnan(detectable_difference(5, 0.5))  # five pairs, all gained, have p = 0.0625
    assert 0.9 < detectable_difference(6, 0.5) < 1
    assert np.isnan(detectable_difference(0, 0.5))
    assert needed_n(0.0, 0.1) == needed_n(1e-9, 0.1) == needed_n_mean(0.0, 0.1) == np.inf
    for missing in (
        detectable_difference(30, np.nan),
        needed_n(np.nan, 0.1),
        needed_n(0.1, np.nan),
        detectable_mean(1, 0.2),
        detectable_mean(30, np.nan),
        needed_n_mean(np.nan, 0.1),
        needed_n_mean(0.1, np.nan),
    ):
        assert np.isnan(missing)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("n", [2, 5, 30, 1000])
def test_the_power_of_a_mean_is_that_of_the_t_test(n: int, alpha: float) -> None:
    for effect in np.array([0, 0.5, 2, 4]) / np.sqrt(n):
        expected = TTestPower().power(effect, n, alpha)
        assert mean_power(n, 0.3, -0.3 * effect, alpha) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("goal", [0.5, 0.8])
def test_detectable_and_needed_means_are_statsmodels(goal: float) -> None:
    for n in (5, 30, 1000):
        effect = TTestPower().solve_power(nobs=n, alpha=0.05, power=goal)
        assert detectable_mean(n, 0.3, goal) == pytest.approx(0.3 * effect, rel=1e-4)
    for difference in (0.4, 0.05, 0.01):
        n = TTestPower().solve_power(effect_size=difference / 0.3, alpha=0.05, power=goal)
        assert needed_n_mean(-difference, 0.3, goal) == np.ceil(n)


def test_means_at_the_edge() -> None:
    assert detectable_mean(100_000, 1.0) == pytest.approx(2.8016 / np.sqrt(100_000), rel=1e-3)
    assert mean_power(2, 1.0, 1e9) == needed_n_mean(1.0, 0.0) - 1 == 1
    assert mean_power(2, 0.0, 0.0) == mean_power(1, 1.0, 5.0) == detectable_mean(3, 0.0) == 0


def test_the_sign_flip_test_has_the_power_of_the_t_test() -> None:
    generator = np.random.default_rng(1)
    rows = np.round(16 * generator.normal(0.1, 0.2, (1500, 40))) / 16
    rejected = np.mean([permutation_test(row, generator) <= 0.05 for row in rows])
    assert mean_power(40, 0.2, 0.1) == pytest.approx(rejected, abs=0.03)


@pytest.mark.parametrize(
    "search",
    [
        lambda: detectable_difference(9900, 0.2),
        lambda: detectable_difference(100_000, 0.3),
        lambda: needed_n(0.001, 0.01),
    ],
    ids=["exact", "approximate", "problems"],
)
def test_large_numbers_take_few_evaluations_of_short_sums(
    search: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search halves its interval, and a sum leaves out numbers of pairs that never occur."""
    sizes: list[int] = []
    chance, evaluated = power._at_most, power.mcnemar_power
    calls: list[int] = []
    monkeypatch.setattr(power, "_at_most", lambda k, n, share: sizes.append(n.size) or chance(k, n, share))
    monkeypatch.setattr(power, "mcnemar_power", lambda n, *rest: calls.append(n) or evaluated(n, *rest))
    assert 0 < search() < np.inf
    assert 5 < len(calls) < 60
    assert len(sizes) < 2 * len(calls) + 20, "the limits of the test are worked out once"
    assert max(sizes, default=0) < 2500
