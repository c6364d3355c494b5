"""A number with its interval: from samples or bounds, and written alike everywhere."""

from __future__ import annotations

from math import exp, nan

import numpy as np
import pytest

from fillerscope.analysis.estimate import Estimate, Estimates
from fillerscope.analysis.stats import ratio_interval, sample_interval

SAMPLES = np.array([0.1, 0.4, nan, 0.3, 0.2])


def test_the_mean_of_samples_without_those_that_are_missing() -> None:
    estimate = Estimate.of(SAMPLES)
    assert estimate.n == 4
    assert estimate.bounds == tuple(float(bound) for bound in sample_interval(SAMPLES))
    assert Estimate.of(SAMPLES, level=0.99).low < estimate.low


def test_a_ratio_is_a_geometric_mean_of_pairs() -> None:
    after, before = np.array([2.0, 0.5, 0.0, 2.0, 0.5]), np.ones(5)
    estimate = Estimate.ratio_of(after, before)
    assert (estimate.value, estimate.n) == (pytest.approx(1.0), 4)
    assert estimate.bounds == tuple(float(bound) for bound in ratio_interval(after, before))


def test_one_of_an_array() -> None:
    table = np.arange(24.0).reshape(4, 3, 2)
    one = Estimates.of(table).at(2, 1, n=4)
    assert one == Estimate.of(table[:, 2, 1])


def test_ways_to_write_one() -> None:
    estimate = Estimate(0.0783, -0.00004, 0.1791)
    assert estimate.ratio == "0.078 [0.000, 0.179]", "nothing is not minus nothing"
    assert estimate.points() == "+7.8 [+0.0, +17.9]"
    assert estimate.points(2) == "+7.83 [+0.00, +17.91]"
    assert estimate.percent() == "7.8 [0.0, 17.9]"
    assert estimate.plain(".2g") == "0.078 [-4e-05, 0.18]"


def test_what_is_missing_is_not_written() -> None:
    assert Estimate(0.5).ratio == "0.500"
    assert Estimate(-0.5, nan, -0.1).points() == "-50.0"
    assert [Estimate().ratio, Estimate().points(), Estimate(nan, 0.1, 0.2).percent()] == ["-"] * 3


@pytest.mark.parametrize(
    ("bounds", "side", "within"),
    [
        ((1.1, 1.05, 1.15), 1, False),
        ((0.9, 0.85, 0.95), -1, False),
        ((1.0, 0.95, 1.05), 0, True),
        ((1.05, 1.01, 1.09), 1, True),
        ((1.0, nan, nan), 0, False),
    ],
)
def test_an_interval_against_no_change(bounds: tuple[float, float, float], side: int, within: bool) -> None:
    estimate = Estimate(*bounds)
    assert (estimate.side(1.0), estimate.is_within(1.0, 0.1)) == (side, within)


def test_a_logarithm_becomes_a_ratio() -> None:
    assert Estimate(0.1, 0.0, 0.2, 5).exp() == Estimate(exp(0.1), 1.0, exp(0.2), 5)


def test_flat_numbers_carry_the_name() -> None:
    assert Estimate(2.0, 1.0, 3.0).numbers("drop") == {"drop": 2.0, "drop_low": 1.0, "drop_high": 3.0}
    columns = Estimates.of(np.ones((3, 2, 2))).columns("mass")
    assert {name: column.shape for name, column in columns.items()} == dict.fromkeys(
        ("mass", "mass_low", "mass_high"), (4,)
    )
