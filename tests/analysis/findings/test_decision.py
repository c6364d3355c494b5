"""The rule that decides claims: by problems, controls and untrained twins, and how often it errs."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.claim import ALPHA, CLAIMS, FEWEST, LEVEL, Claim, Evidence, Twins
from fillerscope.analysis.findings.decision import Decision, decide, weakest
from fillerscope.analysis.findings.finding import Verdict
from fillerscope.analysis.findings.twin_reach import FAR, POWER, beyond_twins, needed_problems
from fillerscope.analysis.power import needed_n_mean

HOLDS, LITTLE, UNTESTED, FAILS, UNKNOWN = Verdict


Bounds = tuple[float, float, float]
BELOW = Claim(none=1.0, side=-1, small=0.05)


def evidence(
    bounds: Bounds = (0.6, 0.58, 0.62), twins: tuple[float, ...] = (0.898, 0.9, 0.902), claim: Claim = BELOW,
    n: int = 12, controls: dict[str, Bounds] | None = None, **changes: Any,
) -> Evidence:  # fmt: skip
    """On the claim that something is below 1, which untrained models have at 0.9."""
    paired = {name: Estimate(*paired) for name, paired in (controls or {}).items()}
    spread = changes.pop("spread", 0.0)
    given = {"deviation": 0.03} | changes
    return Evidence(claim, Estimate(*bounds, n), twins=Twins(twins, spread), controls=paired, **given)


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({}, HOLDS, ""),
        ({"n": 7}, UNKNOWN, "needs 8 problems"),
        ({"n": 30, "claim": replace(BELOW, needs=40)}, UNKNOWN, "needs 40 problems"),
        ({"bounds": (nan, nan, nan)}, UNKNOWN, "nothing to measure it by"),
        ({"bounds": (0.6, nan, nan)}, UNKNOWN, "needs 8 problems"),
        ({"bounds": (1.2, 1.1, 1.3)}, FAILS, "the other way"),
        ({"bounds": (0.98, 0.96, 0.99)}, FAILS, "no change as large as 0.05"),  # surely below 1, and by nothing
        ({"bounds": (1.0, 0.97, 1.03)}, FAILS, "no change as large as 0.05"),
        ({"bounds": (1.0, 0.9, 1.1)}, UNKNOWN, "needs about 13 problems to show a change of twice 0.05"),
        ({"bounds": (1.0, 0.9, 1.1), "deviation": 0.3}, UNKNOWN, "needs about 140 problems to show a change of"),
        ({"twins": ()}, UNTESTED, "not compared with untrained models: measure references: {twin: 3}"),
        ({"twins": (0.9,)}, UNTESTED, "not compared with untrained models"),
        ({"bounds": (0.86, 0.85, 0.87)}, LITTLE, "beyond its references by less than 0.05"),
        ({"twins": (0.5, 0.52, 0.51)}, FAILS, "no more than in an untrained model"),
        ({"twins": (0.9, 0.59, 0.91)}, FAILS, "no more than in an untrained model"),  # one of them does it too
        ({"twins": (0.9, 0.7, 0.8)}, UNKNOWN, "beyond 3 untrained models by "),
        ({"twins": (0.9, 0.93, 0.87)}, UNKNOWN, "beyond 3 untrained models, needs about 4 of them"),
        ({"spread": 0.05}, UNKNOWN, "beyond 3 untrained models by "),
        ({"bounds": (0.86, 0.5, 0.95), "deviation": 0.1}, UNKNOWN, "3 untrained models, needs about 145 problems"),
    ],
)  # fmt: skip
def test_a_claim_is_decided(changes: dict[str, Any], verdict: Verdict, reason: str) -> None:
    decision = decide(evidence(**changes))
    assert decision.verdict is verdict, decision
    assert reason in decision.reason
    assert bool(decision.reason) is (verdict is not HOLDS)


@pytest.mark.parametrize(
    ("paired", "verdict", "reason"),
    [
        ((-0.2, -0.3, -0.1), HOLDS, ""),
        ((-0.03, -0.04, -0.02), LITTLE, "by less than 0.05"),
        ((0.0, -0.02, 0.02), FAILS, "no more than under positions"),
        ((0.3, 0.2, 0.4), FAILS, "no more than under positions"),
        ((-0.1, -0.3, 0.1), UNKNOWN, "not significantly different from positions"),
        ((nan, nan, nan), UNKNOWN, "cannot be compared with positions"),
    ],
)
def test_a_control_must_be_exceeded_by_the_paired_difference(
    paired: tuple[float, float, float], verdict: Verdict, reason: str
) -> None:
    decision = decide(evidence(controls={"random": (-0.2, -0.3, -0.1), "positions": paired}))
    assert (decision.verdict, reason in decision.reason) == (verdict, True), decision


def test_no_control_stands_for_untrained_models() -> None:
    """In a model with random weights filler goes beyond every control: positions, knock-out and a sentence."""
    alone = decide(evidence(twins=(), controls={"positions": (-0.3, -0.4, -0.2), "random": (-0.2, -0.3, -0.1)}))
    assert alone.verdict is UNTESTED
    assert alone.reason.startswith("beyond positions and random; not compared with untrained models")
    both = decide(evidence(twins=(0.5, 0.51, 0.52), controls={"positions": (-0.1, -0.3, 0.1)}))
    assert both.verdict is FAILS, "what cannot be told of one reference is not needed where another decides"


@pytest.mark.parametrize(
    ("bounds", "twins", "verdict"),
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
    bounds: Bounds, twins: tuple[float, ...], verdict: Verdict
) -> None:
    near = Claim(none=1.0, side=1, small=0.05, within=True)
    assert decide(evidence(bounds, twins, near)).verdict is verdict


def test_a_claim_that_goes_either_way_pays_for_both_sides() -> None:
    either, above = replace(BELOW, side=0), replace(BELOW, side=1)
    assert above.confidence == BELOW.confidence == pytest.approx(1 - 2 * LEVEL)
    assert either.confidence == pytest.approx(1 - LEVEL)
    for bounds in ((0.6, 0.58, 0.62), (1.4, 1.38, 1.42)):
        assert decide(evidence(bounds, (0.998, 1.0, 1.002), either)).verdict is HOLDS
    samples = np.random.default_rng(0).normal(1.2, 0.1, 20)
    wide, narrow = (Evidence.of(claim, samples).estimate for claim in (either, above))
    assert wide.low < narrow.low < narrow.value == wide.value


def test_levels_are_shared_by_all_claims() -> None:
    assert pytest.approx(ALPHA) == LEVEL * len(CLAIMS)
    assert 2.0**-FEWEST <= LEVEL < 2.0 ** (1 - FEWEST)


def test_one_more_twin_is_predicted_by_student_and_never_by_less_than_any_peak_allows() -> None:
    """Without an interval over problems, from the formula."""
    for twins in ((0.8, 0.9, 1.0), tuple(np.linspace(0.8, 1.0, 12))):
        count, spread = len(twins), float(np.std(twins, ddof=1))
        times = max(stats.t.ppf(1 - LEVEL, count - 1), FAR)
        beyond = beyond_twins(evidence((0.3, 0.3, 0.3), twins))
        assert beyond == pytest.approx(0.6 - times * spread * np.sqrt(1 + 1 / count))
    assert pytest.approx(LEVEL) == 4 / 9 / (1 + FAR**2)


def test_samples_make_a_claim() -> None:
    samples = np.array([0.5, nan, 0.7, 0.6, 0.65, 0.55, 0.6, 0.62, 0.58, 0.6])
    table = np.array([[0.9, 1.0, nan], [0.9, 1.2, nan], [0.9, 1.4, nan]])
    made = Evidence.of(BELOW, samples, Twins.of(table, 0), {"c": samples - 0.8})
    assert (made.n, made.twins.values) == (9, (0.9, 0.9, 0.9))
    assert made.twins.spread == pytest.approx(np.sqrt((0.0 + 0.04) / 2)), "layers that spread more count too"
    assert made.estimate.value == pytest.approx(0.6)
    assert made.controls["c"].value == pytest.approx(-0.2)
    assert made.deviation == pytest.approx(np.nanstd(samples, ddof=1))


def test_twins_over_several_layers_and_without_numbers() -> None:
    table = np.array([[0.5, 1.0, 2.0], [0.5, 3.0, 4.0], [nan, nan, nan]])
    found = Twins.of(table, [1, 2])
    assert found.values == (1.5, 3.5)
    assert found.spread == pytest.approx(np.sqrt((0 + 2 + 2) / 3) / np.sqrt(2))
    assert Twins.of(np.empty((0, 3)), 0) == Twins.of(table[2:], 0) == Twins.of(table, []) == Twins()


def test_the_number_of_problems_grows_with_spread_and_with_the_reach_of_twins() -> None:
    assert needed_problems(BELOW, 0.1, 1e-9) == FEWEST
    few, many = needed_problems(BELOW, 0.1, 0.1), needed_problems(BELOW, 0.1, 0.2)
    assert FEWEST < few < many
    assert needed_problems(BELOW, 0.1, 0.1, reach=0.08) > few
    assert many == pytest.approx(needed_n_mean(0.1, 0.2, POWER, 2 * LEVEL), rel=0.05), "as the noncentral t says"
    assert needed_problems(BELOW, 0.1, 0.1, reach=0.1) == needed_problems(BELOW, 0.1, nan) == inf


def test_a_claim_of_several_parts_is_as_good_as_the_weakest() -> None:
    parts = [Decision(verdict, str(verdict)) for verdict in (HOLDS, LITTLE, UNTESTED, UNKNOWN, FAILS)]
    for count in range(1, 6):
        assert weakest(*parts[:count]) is parts[count - 1]


def test_a_decision_is_written_with_its_reason() -> None:
    assert decide(evidence()).text == "holds"
    assert decide(evidence(n=3)).text == "cannot be told (needs 8 problems)"
    assert "as large as 5%" in decide(evidence((1.0, 0.99, 1.01), claim=replace(BELOW, small_text="5%"))).text


def test_the_problems_that_a_decision_needs_are_a_number() -> None:
    assert decide(evidence(n=3)).numbers["needs"] == FEWEST
    assert decide(evidence((1.0, 0.9, 1.1))).numbers["needs"] == 13


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
            samples = weights[0, 0] + noise[:, 0] - noise.mean()
            decisions.append(decide(Evidence.of(Claim(-30.0, 1, 0.05), samples, twins)))
        wrong += any(one.verdict in (HOLDS, LITTLE) for one in decisions)
        assert n >= FEWEST or {one.verdict for one in decisions} == {UNKNOWN}
    assert wrong <= 0.05 * runs


@pytest.mark.parametrize("deviation", [0.05, 0.15, 0.3])
def test_a_planted_effect_holds_from_the_number_of_problems_that_is_named(deviation: float) -> None:
    """Twice `small`; a first run of 12 problems names the number, a second one has so many."""
    generator, runs, seen, named = np.random.default_rng(1), 150, 0, []
    for _ in range(runs):
        twins, n = Twins.of(0.001 * generator.normal(size=(3, 6)), 0), 12
        for _ in range(2):
            samples = 0.1 + deviation * generator.normal(size=n)
            found = decide(Evidence.of(Claim(0.0, 1, 0.05), samples, twins))
            if found.verdict is not UNKNOWN or "needs" not in found.numbers:
                break
            n = int(found.numbers["needs"])
        seen += found.verdict in (HOLDS, LITTLE)
        named.append(n)
    assert seen >= 0.8 * runs
    assert np.median(named) <= max(13, 1.5 * needed_problems(BELOW, 0.1, deviation)), "no more than it must be"
