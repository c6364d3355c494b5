"""The rule that decides claims: by problems, controls and untrained twins, and how often it errs."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fillerscope.analysis.findings.verdict import (
    ALPHA,
    CLAIMS,
    FAR,
    FEWEST,
    LEVEL,
    POWER,
    Claim,
    Decision,
    Degree,
    Twins,
    beyond_twins,
    confidence,
    decide,
    needed_problems,
    weakest,
)
from fillerscope.analysis.power import needed_n_mean

HOLDS, LITTLE, UNTESTED, FAILS, UNKNOWN = Degree


def claim(estimate: tuple[float, float, float] = (0.6, 0.58, 0.62), **changes: Any) -> Claim:
    """That something is below 1, which untrained models have at 0.9."""
    given = {"none": 1.0, "side": -1, "small": 0.05, "n": 12, "deviation": 0.03, "twins": (0.898, 0.9, 0.902)}
    return Claim(estimate, **(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "degree", "reason"),
    [
        ({}, HOLDS, ""),
        ({"n": 7}, UNKNOWN, "needs 8 problems"),
        ({"n": 30, "needs": 40}, UNKNOWN, "needs 40 problems"),
        ({"estimate": (nan, nan, nan)}, UNKNOWN, "nothing to measure it by"),
        ({"estimate": (0.6, nan, nan)}, UNKNOWN, "needs 8 problems"),
        ({"estimate": (1.2, 1.1, 1.3)}, FAILS, "the other way"),
        ({"estimate": (0.98, 0.96, 0.99)}, FAILS, "no change as large as 0.05"),  # surely below 1, and by nothing
        ({"estimate": (1.0, 0.97, 1.03)}, FAILS, "no change as large as 0.05"),
        ({"estimate": (1.0, 0.9, 1.1)}, UNKNOWN, "needs about 13 problems to tell a change of twice 0.05"),
        ({"estimate": (1.0, 0.9, 1.1), "deviation": 0.3}, UNKNOWN, "needs about 140 problems to tell a change of"),
        ({"twins": ()}, UNTESTED, "not held against untrained models: measure references: {twin: 3}"),
        ({"twins": (0.9,)}, UNTESTED, "not held against untrained models"),
        ({"estimate": (0.86, 0.85, 0.87)}, LITTLE, "beyond its references by less than 0.05"),
        ({"twins": (0.5, 0.52, 0.51)}, FAILS, "no more than in an untrained model"),
        ({"twins": (0.9, 0.59, 0.91)}, FAILS, "no more than in an untrained model"),  # one of them does it too
        ({"twins": (0.9, 0.7, 0.8)}, UNKNOWN, "beyond 3 untrained models, but too near to them to tell"),
        ({"twins": (0.9, 0.93, 0.87)}, UNKNOWN, "beyond 3 untrained models, needs about 4 of them"),
        ({"twin_spread": 0.05}, UNKNOWN, "beyond 3 untrained models, but too near"),
        ({"estimate": (0.86, 0.5, 0.95), "deviation": 0.1}, UNKNOWN, "3 untrained models, needs about 145 problems"),
    ],
)  # fmt: skip
def test_a_claim_is_decided(changes: dict[str, Any], degree: Degree, reason: str) -> None:
    found = decide(claim(**changes))
    assert found.degree is degree, found
    assert reason in found.reason
    assert bool(found.reason) is (degree is not HOLDS)


@pytest.mark.parametrize(
    ("paired", "degree", "reason"),
    [
        ((-0.2, -0.3, -0.1), HOLDS, ""),
        ((-0.03, -0.04, -0.02), LITTLE, "by less than 0.05"),
        ((0.0, -0.02, 0.02), FAILS, "no more than under positions"),
        ((0.3, 0.2, 0.4), FAILS, "no more than under positions"),
        ((-0.1, -0.3, 0.1), UNKNOWN, "cannot be told from what it is under positions"),
        ((nan, nan, nan), UNKNOWN, "cannot be compared with positions"),
    ],
)
def test_a_control_must_be_exceeded_by_the_paired_difference(
    paired: tuple[float, float, float], degree: Degree, reason: str
) -> None:
    found = decide(claim(controls={"random": (-0.2, -0.3, -0.1), "positions": paired}))
    assert (found.degree, reason in found.reason) == (degree, True), found


def test_no_control_stands_for_untrained_models() -> None:
    """In a model with random weights filler goes beyond every control: positions, knock-out and a sentence."""
    found = decide(claim(twins=(), controls={"positions": (-0.3, -0.4, -0.2), "random": (-0.2, -0.3, -0.1)}))
    assert found.degree is UNTESTED
    assert found.reason.startswith("beyond positions and random; not held against untrained models")
    both = decide(claim(twins=(0.5, 0.51, 0.52), controls={"positions": (-0.1, -0.3, 0.1)}))
    assert both.degree is FAILS, "what cannot be told of one reference is not needed where another decides"


@pytest.mark.parametrize(
    ("estimate", "twins", "degree"),
    [
        ((1.01, 0.98, 1.04), (0.7, 0.701, 0.702), HOLDS),
        ((1.01, 0.98, 1.04), (), UNTESTED),
        ((1.01, 0.98, 1.04), (0.99, 1.0, 1.01), FAILS),  # as near in untrained models
        ((0.945, 0.921, 0.969), (0.7, 0.701, 0.702), UNKNOWN),  # no evidence of a change is not evidence of none
        ((0.9, 0.88, 0.92), (0.7, 0.701, 0.702), FAILS),
        ((1.01, 0.98, 1.04), (1.4, 1.401, 1.402), HOLDS),
    ],
)
def test_no_change_is_claimed_of_a_whole_interval_nearer_than_twins(
    estimate: tuple[float, float, float], twins: tuple[float, ...], degree: Degree
) -> None:
    assert decide(claim(estimate, side=1, twins=twins, within=True)).degree is degree


def test_a_claim_that_goes_either_way_pays_for_both_sides() -> None:
    assert confidence(1) == confidence(-1) == pytest.approx(1 - 2 * LEVEL)
    assert confidence(0) == pytest.approx(1 - LEVEL)
    for estimate in ((0.6, 0.58, 0.62), (1.4, 1.38, 1.42)):
        assert decide(claim(estimate, side=0, twins=(0.998, 1.0, 1.002))).degree is HOLDS
    samples = np.random.default_rng(0).normal(1.2, 0.1, 20)
    wide, narrow = (Claim.of(samples, 1.0, side, 0.05).estimate for side in (0, 1))
    assert wide[1] < narrow[1] < narrow[0] == wide[0]


def test_levels_are_shared_by_all_claims() -> None:
    assert pytest.approx(ALPHA) == LEVEL * len(CLAIMS)
    assert 2.0**-FEWEST <= LEVEL < 2.0 ** (1 - FEWEST)


def test_one_more_twin_is_predicted_by_student_and_never_by_less_than_any_peak_allows() -> None:
    """Without an interval over problems, from the formula."""
    for twins in ((0.8, 0.9, 1.0), tuple(np.linspace(0.8, 1.0, 12))):
        count, spread = len(twins), float(np.std(twins, ddof=1))
        times = max(stats.t.ppf(1 - LEVEL, count - 1), FAR)
        found = beyond_twins(claim((0.3, 0.3, 0.3), twins=twins))
        assert found == pytest.approx(0.6 - times * spread * np.sqrt(1 + 1 / count))
    assert pytest.approx(LEVEL) == 4 / 9 / (1 + FAR**2)


def test_samples_make_a_claim() -> None:
    samples = np.array([0.5, nan, 0.7, 0.6, 0.65, 0.55, 0.6, 0.62, 0.58, 0.6])
    table = np.array([[0.9, 1.0, nan], [0.9, 1.2, nan], [0.9, 1.4, nan]])
    made = Claim.of(samples, 1.0, -1, 0.05, twins=Twins.of(table, 0), controls={"c": samples - 0.8})
    assert (made.n, made.twins) == (9, (0.9, 0.9, 0.9))
    assert made.twin_spread == pytest.approx(np.sqrt((0.0 + 0.04) / 2)), "layers that spread more count too"
    assert made.estimate[0] == pytest.approx(0.6)
    assert made.controls["c"][0] == pytest.approx(-0.2)
    assert made.deviation == pytest.approx(np.nanstd(samples, ddof=1))


def test_twins_over_several_layers_and_without_numbers() -> None:
    table = np.array([[0.5, 1.0, 2.0], [0.5, 3.0, 4.0], [nan, nan, nan]])
    found = Twins.of(table, [1, 2])
    assert found.values == (1.5, 3.5)
    assert found.spread == pytest.approx(np.sqrt((0 + 2 + 2) / 3) / np.sqrt(2))
    assert Twins.of(np.empty((0, 3)), 0) == Twins.of(table[2:], 0) == Twins.of(table, []) == Twins()


def test_the_number_of_problems_grows_with_spread_and_with_the_reach_of_twins() -> None:
    assert needed_problems(0.1, 1e-9) == FEWEST
    few, many = needed_problems(0.1, 0.1), needed_problems(0.1, 0.2)
    assert FEWEST < few < many
    assert needed_problems(0.1, 0.1, reach=0.08) > few
    assert many == pytest.approx(needed_n_mean(0.1, 0.2, POWER, 2 * LEVEL), rel=0.05), "as the noncentral t says"
    assert needed_problems(0.1, 0.1, reach=0.1) == needed_problems(0.1, nan) == inf


def test_a_claim_of_several_parts_is_as_good_as_the_weakest() -> None:
    parts = [Decision(degree, str(degree)) for degree in (HOLDS, LITTLE, UNTESTED, UNKNOWN, FAILS)]
    for count in range(1, 6):
        assert weakest(*parts[:count]) is parts[count - 1]


def test_words() -> None:
    assert decide(claim()).told == "holds on this model"
    assert decide(claim(twins=())).told.startswith("is not tested against its control (not held against untrained")
    assert decide(claim(n=3)).told == "cannot be told on this model (needs 8 problems)"
    assert "as large as 5%" in decide(claim((1.0, 0.99, 1.01), words="5%")).told


# Simulation: a small form of benchmarks/verdicts.py, written independently.

SHAPES = {
    "normal": lambda generator, shape: generator.normal(size=shape),
    "heavy tails": lambda generator, shape: generator.standard_t(3, shape),
    "skewed": lambda generator, shape: generator.lognormal(0, 0.5, shape),
    "skewed the other way": lambda generator, shape: -generator.lognormal(0, 0.5, shape),
}


@pytest.mark.parametrize("n", [6, 12, 48, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_models_like_their_twins_seldom_get_any_holds(shape: str, n: int) -> None:
    """Dilution is far from none in all of them: what differs are the weights and the problems."""
    generator, runs = np.random.default_rng(n), 60
    wrong = 0
    for _ in range(runs):
        decisions = []
        for _ in CLAIMS:
            weights, noise = (SHAPES[shape](generator, (size, 6)) for size in (4, n))
            twins = Twins.of(weights[1:], 0)
            decisions.append(decide(Claim.of(weights[0, 0] + noise[:, 0] - noise.mean(), -30.0, 1, 0.05, twins=twins)))
        wrong += any(one.degree in (HOLDS, LITTLE) for one in decisions)
        assert n >= FEWEST or {one.degree for one in decisions} == {UNKNOWN}
    assert wrong <= 0.05 * runs


@pytest.mark.parametrize("deviation", [0.05, 0.15, 0.3])
def test_a_planted_effect_holds_from_the_number_of_problems_that_is_named(deviation: float) -> None:
    """Twice `small`; a first run of 12 problems names the number, a second one has so many."""
    generator, runs, seen, named = np.random.default_rng(1), 150, 0, []
    for _ in range(runs):
        twins, n = Twins.of(0.001 * generator.normal(size=(3, 6)), 0), 12
        for _ in range(2):
            samples = 0.1 + deviation * generator.normal(size=n)
            found = decide(Claim.of(samples, 0.0, 1, 0.05, twins=twins))
            if found.degree is not UNKNOWN or "needs" not in found.numbers:
                break
            n = int(found.numbers["needs"])
        seen += found.degree in (HOLDS, LITTLE)
        named.append(n)
    assert seen >= 0.8 * runs
    assert np.median(named) <= max(13, 1.5 * needed_problems(0.1, deviation)), "no more than it must be"
