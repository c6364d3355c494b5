"""Each published claim is decided by the numbers, in whichever direction that is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.attention_claims import controls_of
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.run import Run
from fillerscope.cli.app import app
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.interventions import Knockout, Shift
from support.synthetic import MLESS, NONE, RANDOM, Effect, Mechanism, Synthetic, swept
from support.twinned import twinned

HOLDS, LITTLE, UNTESTED, FAILS, UNKNOWN = Verdict
ALONE = {"conditions": (NONE, MLESS)}  # nothing that a claim could be held against but twins
UNTRAINED = Mechanism(  # what twins do: a little less of everything that is claimed
    lam=(0.9, 0.7), explained=(0.7, 0.9), direction=(0.6, 0.2), together=0.5, near_zero=(0.001, 0.0),
    variance=(1.02, 1.0),
)  # fmt: skip


def findings_by_name(run: Run, condition: str | None = None) -> dict[str, Finding]:
    return {one.name: one for one in mechanism_findings(run[None], condition) + control_findings(run[None], condition)}


def run_with(folder: Path, mless: Mechanism | None = None, twin: Mechanism | None = None, **options: object) -> Run:
    settings = {"affine": True, "activations": True, "mechanisms": {"mless": mless or Mechanism()}}
    recipe = Synthetic(**(settings | options))  # type: ignore[arg-type]
    return twinned(recipe, twin, folder) if twin else recipe.build(folder / "run")


@pytest.mark.parametrize(
    ("lam", "twin", "verdict", "reason"),
    [
        (0.6, 0.9, HOLDS, ""),
        (0.86, 0.9, LITTLE, "beyond its references by less than 0.05"),
        (0.6, 0.5, FAILS, "no more than in an untrained model"),
        (1.2, 0.9, FAILS, "the other way"),
        (0.985, 0.9, FAILS, "no change as large as 0.05"),
        (0.88, 0.9, UNKNOWN, "beyond 3 untrained models, needs about 4 of them"),
    ],
)
def test_scaling(tmp_path: Path, lam: float, twin: float, verdict: Verdict, reason: str) -> None:
    run = run_with(tmp_path, Mechanism(lam=(lam, 0.98)), replace(UNTRAINED, lam=(twin, 0.7)), **ALONE)
    finding = findings_by_name(run)["scaling"]
    assert finding.verdict is verdict
    assert finding.text.startswith(f"Scaling, mless: {verdict}{f' ({reason})' if reason else ''}. Claim: lambda is ")
    first = finding.estimates["first"]
    assert first == affine_table(run[None], "mless").values["lambda_fit"].at(0, n=12)
    assert f"It is {first.ratio} (in 3 untrained models: {twin + 0.013:.3f} to {twin + 0.017:.3f})" in finding.text
    assert finding.facts["mass_first"] == pytest.approx(0.63, abs=1e-6)
    assert finding.facts["centred_first"] == pytest.approx(lam + 0.14, rel=1e-6)


def test_without_twins_nothing_is_claimed(tmp_path: Path) -> None:
    """However large the change: an untrained model shows one too."""
    inside = Mechanism(lam=(0.5, 1.0), direction=(0.95, 0.9), together=1.0, near_zero=(-0.2, 0.0), variance=(3.0, 1.0))
    found = findings_by_name(run_with(tmp_path, inside, **ALONE))
    for name in ("scaling", "direction", "near_zero", "variance", "later"):
        assert found[name].verdict is UNTESTED, name
        assert "(not compared with untrained models: measure references: {twin: 3})" in found[name].text


def test_below_eight_problems_nothing_is_decided_either_way(tmp_path: Path) -> None:
    """With 30 layers and 6 problems no p after Holm over layers can be small, whatever happens in layer 1."""
    for change in (-0.071, -0.0016, 0.03):
        inside = Mechanism(near_zero=(change, 0.0))
        found = findings_by_name(run_with(tmp_path / str(change), inside, UNTRAINED, problems=6, layers=30, **ALONE))
        for name in ("scaling", "direction", "near_zero", "variance", "later", "deeper"):
            assert found[name].verdict is UNKNOWN, name
            assert found[name].facts["needs"] == 8
        assert "To count layers in which the share changes takes 11 problems" in found["near_zero"].text


@pytest.mark.parametrize(
    ("lam", "noise", "verdict", "reason"),
    [
        (0.985, 0.02, HOLDS, ""),
        (
            0.93,
            0.04,
            UNKNOWN,
            "not wholly within 0.05 of 1, needs about ",
        ),  # few layers surely far is no proof
        (0.7, 0.02, FAILS, "farther from 1 than 0.05"),
        (1.2, 0.02, FAILS, "farther from 1 than 0.05"),
    ],
)
def test_near_1_later_takes_a_whole_interval(
    tmp_path: Path, lam: float, noise: float, verdict: Verdict, reason: str
) -> None:
    run = run_with(tmp_path, Mechanism(lam=(0.6, lam)), UNTRAINED, noise=noise, **ALONE)
    finding = findings_by_name(run)["later"]
    assert finding.verdict is verdict
    assert reason in finding.text
    far = {0.7: (2, 0), 1.2: (0, 2)}.get(lam, (0, 0))
    assert (finding.numbers["layers_below"], finding.numbers["layers_above"]) == far
    assert finding.numbers["later"] == pytest.approx(lam + 0.015, rel=1e-6)
    assert f"on average over layers 2 to 3 (in 3 untrained models: {0.713:.3f} to {0.717:.3f})" in finding.text


def test_as_near_to_1_as_in_untrained_models_is_no_claim(tmp_path: Path) -> None:
    near = replace(UNTRAINED, lam=(0.9, 0.985))
    run = run_with(tmp_path, Mechanism(lam=(0.6, 0.985)), near, **ALONE)
    assert findings_by_name(run)["later"].verdict is FAILS


@pytest.mark.parametrize(
    ("explained", "twin", "verdict", "reason"),
    [
        (0.2, 0.9, HOLDS, ""),
        (0.2, 0.1, FAILS, "no more than in an untrained model"),
        (0.8, 0.9, FAILS, "the other way"),
        (0.47, 0.9, FAILS, "no change as large as 0.05"),
    ],
)
def test_no_affine_relation_in_deeper_layers(
    tmp_path: Path, explained: float, twin: float, verdict: Verdict, reason: str
) -> None:
    run = run_with(
        tmp_path,
        Mechanism(explained=(0.9, explained), together=0.7),
        replace(UNTRAINED, explained=(0.7, twin)),
        **ALONE,
    )
    finding = findings_by_name(run)["deeper"]
    assert (finding.verdict, reason in finding.text) == (verdict, True)
    assert finding.estimates["explained"].value == pytest.approx(explained + 0.015, rel=1e-6)
    assert finding.facts["lambda_spread"] == pytest.approx(0.02, abs=5e-4)
    assert finding.facts["across"] == pytest.approx(0.7, rel=1e-5)


def test_a_picture_that_explains_little_is_said_to(tmp_path: Path) -> None:
    little = findings_by_name(run_with(tmp_path / "a", Mechanism(explained=(0.2, 0.1))))["scaling"].text
    assert "explain 22% of the variation of outputs, so little that lambda says little" in little
    assert "so little" not in findings_by_name(run_with(tmp_path / "b"))["scaling"].text


@pytest.mark.parametrize(
    ("direction", "together", "twin", "verdict", "reason"),
    [
        (0.8, 0.9, 0.6, HOLDS, ""),
        (0.64, 0.9, 0.6, LITTLE, "beyond its references by less than 0.05"),
        (0.8, 0.9, 0.95, FAILS, "no more than in an untrained model"),  # a repeated token has one value vector
        (0.2, 0.9, 0.6, FAILS, "the other way"),  # tokens of one problem disagree
        (0.8, 0.1, 0.6, FAILS, "it differs between problems"),
        (0.485, 0.9, 0.6, FAILS, "no change as large as 0.05"),
    ],
)
def test_one_direction(
    tmp_path: Path, direction: float, together: float, twin: float, verdict: Verdict, reason: str
) -> None:
    inside = Mechanism(direction=(direction, 0.1), together=together)
    run = run_with(tmp_path, inside, replace(UNTRAINED, direction=(twin, 0.2)), **ALONE)
    finding = findings_by_name(run)["direction"]
    assert (finding.verdict, reason in finding.text) == (verdict, True)
    assert finding.facts["across"] == pytest.approx(together, rel=1e-5)
    assert finding.facts["chance"] == pytest.approx(12**-0.5)
    assert finding.numbers["within"] == pytest.approx(direction + 0.015, rel=1e-6)
    assert finding.numbers["median_layer"] == pytest.approx(0.115, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "twin", "verdict", "reason"),
    [
        (-0.03, 0.001, HOLDS, ""),
        (-0.03, -0.04, FAILS, "no more than in an untrained model"),
        (-0.006, -0.002, LITTLE, "beyond its references by less than 0.5 percentage points"),
        (0.03, 0.001, FAILS, "the other way"),
        (0.0, 0.001, FAILS, "no change as large as 0.5 percentage points"),
        (-0.0018, 0.001, FAILS, "no change as large as 0.5 percentage points"),  # surely fewer, and next to none
    ],
)
def test_near_zero(tmp_path: Path, change: float, twin: float, verdict: Verdict, reason: str) -> None:
    inside, untrained = Mechanism(near_zero=(change, 0.0)), replace(UNTRAINED, near_zero=(twin, 0.0))
    run = run_with(tmp_path, inside, untrained, noise=0.01, **ALONE)
    finding = findings_by_name(run)["near_zero"]
    assert (finding.verdict, reason in finding.text) == (verdict, True), finding.text
    assert finding.numbers["change"] == pytest.approx(change, abs=1e-6)
    table = activation_table(run[None], "mless")
    assert (
        f"from {table.without['near_zero'][0]:.2%} to {table.under['near_zero'][0]:.2%} (n = 12; p = " in finding.text
    )
    assert finding.facts["adjusted"] == table.adjusted["near_zero"][0]


@pytest.mark.parametrize(
    ("ratio", "twin", "verdict", "reason"),
    [
        (1.3, 1.02, HOLDS, ""),
        (1.3, 1.4, FAILS, "no more than in an untrained model"),
        (0.8, 1.02, FAILS, "the other way"),
        (1.02, 0.99, FAILS, "no change as large as 5%"),
        (1.12, 1.08, LITTLE, "beyond its references by less than 5%"),
    ],
)
def test_variance(tmp_path: Path, ratio: float, twin: float, verdict: Verdict, reason: str) -> None:
    inside, untrained = Mechanism(variance=(ratio, 1.0)), replace(UNTRAINED, variance=(twin, 1.0))
    finding = findings_by_name(run_with(tmp_path, inside, untrained, noise=0.01, **ALONE))["variance"]
    assert (finding.verdict, reason in finding.text) == (verdict, True), finding.text
    assert finding.estimates["variance"].value == pytest.approx(ratio, rel=1e-5)
    assert f"untrained models: {twin * np.exp(-0.002):.3f} to {twin * np.exp(0.002):.3f})" in finding.text


def test_a_wide_interval_around_nothing_decides_nothing(tmp_path: Path) -> None:
    run = run_with(tmp_path, Mechanism(near_zero=(0.0, 0.0)), UNTRAINED, noise=0.5, **ALONE)
    finding = findings_by_name(run)["near_zero"]
    assert (finding.verdict, finding.facts["needs"]) == (UNKNOWN, 384)
    assert "needs about 384 problems to show a change of twice 0.5 percentage points" in finding.text


@pytest.mark.parametrize("change", [-0.003, 0.003])
def test_an_interval_with_one_end_beyond_half_a_point_decides_nothing(tmp_path: Path, change: float) -> None:
    finding = findings_by_name(run_with(tmp_path, Mechanism(near_zero=(change, 0.0)), noise=0.1, **ALONE))["near_zero"]
    reach = Synthetic(noise=0.01).reach()  # a tenth of the noise is that of the share
    low, high = (finding.numbers[name] for name in ("change_low", "change_high"))
    assert (low, high) == pytest.approx((change - reach, change + reach), abs=1e-6)
    assert finding.verdict is UNKNOWN


CONTROLS = {
    "positions": Condition(name="positions", intervention=Shift(kind="shift", by=MLESS.count or 0)),
    "knockout": MLESS.model_copy(update={"name": "knockout", "intervention": Knockout(kind="knockout")}),
    "random": RANDOM,
}


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("claim", ["scaling", "direction", "near_zero", "variance"])
def test_what_a_control_does_as_well_does_not_hold(tmp_path: Path, name: str, claim: str) -> None:
    none = Mechanism(lam=(1.0, 1.0), direction=(0.1, 0.1), together=0.2, near_zero=(0.0, 0.0), variance=(1.0, 1.0))
    strong = Mechanism(lam=(0.6, 0.98), direction=(0.9, 0.3), together=0.9)
    for control, verdict in ((none, HOLDS), (strong, FAILS)):
        run = run_with(
            tmp_path / verdict, twin=UNTRAINED, conditions=(NONE, MLESS, CONTROLS[name]),
            mechanisms={"mless": strong, name: control},
        )  # fmt: skip
        finding = findings_by_name(run)[claim]
        assert finding.verdict is verdict, finding.text
        assert (f"(no more than under {name})" in finding.text) is (verdict is FAILS)


def test_controls_of_another_length_place_or_layer_are_none(tmp_path: Path) -> None:
    others = (
        Condition(name="moved", intervention=Shift(kind="shift", by=1)),
        MLESS.model_copy(update={"name": "longer", "count": 31, "intervention": Knockout(kind="knockout")}),
        MLESS.model_copy(update={"name": "deep", "intervention": Knockout(kind="knockout", layers=(2,))}),
        Condition(name="words", kind="sentence", count=30, position="end"),
    )
    run = run_with(tmp_path, conditions=(NONE, MLESS, *others, *CONTROLS.values()))
    assert controls_of(run, "mless") == ["positions", "knockout", "random"]
    assert controls_of(run, "positions") == []


def test_layers_that_fall_and_rise_are_counted(tmp_path: Path) -> None:
    finding = findings_by_name(run_with(tmp_path, Mechanism(near_zero=(-0.03, 0.04)), layers=5))["near_zero"]
    assert "Layers in which it falls: 1; rises: 4; not significant (p >= 0.05): 0." in finding.text
    assert (finding.numbers["falls"], finding.numbers["rises"]) == (1, 4)


def test_classes_of_tokens(tmp_path: Path) -> None:
    run = run_with(tmp_path, missing={"digits": (1, 2), "words": tuple(range(12))})
    finding = findings_by_name(run)["near_zero_classes"]
    assert [(name, one.n) for name, one in finding.estimates.items()] == [
        ("digits", 10), ("operators", 12), ("words", 0), ("other", 12),
    ]  # fmt: skip
    assert finding.estimates["operators"].value == pytest.approx(-0.09, abs=1e-6)
    assert "digits -5.96 [-6.12, -5.82] (n = 10); operators -9.00 " in finding.text
    assert finding.text.endswith("No problem has tokens of words.")


def test_against_a_sentence_of_equal_length(tmp_path: Path) -> None:
    other = Mechanism(lam=(0.9, 1.0), near_zero=(0.01, 0.0), variance=(1.1, 1.0))
    longer = Condition(name="longer", kind="sentence", count=31)
    elsewhere = Condition(name="elsewhere", kind="sentence", count=30, position="end")
    words = Condition(name="words", kind="repeat", text=" he", count=30)
    run = run_with(tmp_path, mechanisms={"random": other}, conditions=(NONE, MLESS, RANDOM, longer, elsewhere, words))
    found = findings_by_name(run)
    assert [name for name in found if "against" in name] == [
        "affine_mless_against_random",
        "activations_mless_against_random",
    ]
    affine, activity = found["affine_mless_against_random"], found["activations_mless_against_random"]
    assert "lambda is 0.715 against 0.915, difference -0.200 [-0.200, -0.200]" in affine.text
    assert [affine.estimates[name].value for name in ("lambda", "direction")] == pytest.approx([-0.2, 0.0], abs=1e-6)
    assert "the share near zero moves by -3.00 [" in activity.text
    assert "against +1.00 [" in activity.text
    assert activity.numbers["near_zero"] == pytest.approx(-0.04, abs=1e-6)
    assert activity.numbers["variance"] == pytest.approx(1.3 / 1.1, rel=1e-6)


def test_a_direction_that_differs_from_the_sentences_stands_beside_that_of_twins(tmp_path: Path) -> None:
    """The jitter of both is the same and cancels: the interval is a point. Twins have the same mechanism."""
    run = run_with(tmp_path, Mechanism(direction=(0.9, 0.3)), twins=(Effect(), Effect()))
    finding = findings_by_name(run)["affine_mless_against_random"]
    assert finding.numbers["direction"] == pytest.approx(0.1, abs=1e-6)
    assert "difference 0.100 [0.100, 0.100] (in 2 untrained models: 0.100 to 0.100)" in finding.text


def test_controls_stand_beside_the_filler(tmp_path: Path) -> None:
    names = ("knockout", "positions", "arm", "gaussian")
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, *(PRESETS[name] for name in names)),
        mechanisms={
            "knockout": Mechanism(lam=(0.985, 1.0), near_zero=(0.0, 0.0), variance=(1.0, 1.0)),
            "positions": Mechanism(near_zero=(0.015, 0.0)), "arm": Mechanism(near_zero=(-0.06, 0.0)),
        },
    )  # fmt: skip
    found = findings_by_name(run)
    assert [name for name in found if name.startswith("control")] == [f"control_{name}" for name in names]
    knockout, positions, arm = (found[f"control_{name}"] for name in names[:3])
    assert (knockout.condition, knockout.facts["layer"]) == ("knockout", 1)
    assert knockout.text.startswith("Control knockout (Filler knocked out), layer 1. The scaling of mless does not ")
    differences = [knockout.estimates[name] for name in ("lambda_difference", "near_zero_difference", "variance_ratio")]
    assert [one.value for one in differences] == pytest.approx([0.285, 0.03, 1 / 1.3], abs=1e-6)
    assert "The change near zero of mless does not appear: " in knockout.text
    assert "The change of variance of mless does not appear: " in knockout.text
    assert "under mless: lambda 0.715 [" in knockout.text
    assert positions.estimates["near_zero_difference"].value == pytest.approx(0.045, abs=1e-6)
    assert "The change near zero of mless is turned round here: " in positions.text
    assert arm.estimates["near_zero_difference"].value == pytest.approx(-0.03, abs=1e-6)
    assert "The change near zero goes farther than that of mless: " in arm.text
    assert "The change of variance is that of mless within 5%: " in arm.text
    assert "lambda" not in arm.text, "ARM comes after the attention of its layer"
    assert arm.numbers["near_zero"] == pytest.approx(-0.06, abs=1e-6)
    assert "(n = 12)" in arm.text


def test_a_control_moves_what_the_filler_does_not(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"], PRESETS["scatter"]),
        mechanisms={"mless": Mechanism(near_zero=(0.0, 0.0)), "scatter": Mechanism(near_zero=(0.0, 0.0))},
    )  # fmt: skip
    found = findings_by_name(run)
    assert "The change near zero is not significant under mless, and another here: " in found["control_arm"].text
    assert "The change near zero is that of mless within 0.5 percentage points: " in found["control_scatter"].text


def test_one_interval_that_holds_no_change_and_one_that_does_not_are_no_difference(tmp_path: Path) -> None:
    """The control's changes vary so much that it cannot be told from the filler's."""
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"]),
        mechanisms={"mless": Mechanism(near_zero=(-0.01, 0.0)), "arm": Mechanism(near_zero=(-0.003, 0.0))},
    )  # fmt: skip
    stored, noise = run[None].activations, np.random.default_rng(0).normal(0, 0.02, (12, 3))

    def noisy(metric: str, condition: str, cls: str = "all") -> Any:
        values = np.array(stored(metric, condition, cls))
        return values + noise - noise.mean(0) if (metric, condition) == ("near_zero", "arm") else values

    run[None].activations = noisy  # type: ignore[method-assign]
    finding = findings_by_name(run)["control_arm"]
    own, difference = finding.estimates["near_zero"], finding.estimates["near_zero_difference"]
    assert (own.value, difference.value) == pytest.approx((-0.003, 0.007), abs=1e-6)
    assert (own.side(0.0), difference.side(0.0)) == (0, 0)
    assert findings_by_name(run)["near_zero"].estimates["change"].side(0.0) == -1
    assert "The change near zero is not significantly different from that of mless: " in finding.text


def test_controls_are_not_compared_below_eight_problems(tmp_path: Path) -> None:
    for problems, compared in ((7, False), (8, True)):
        run = run_with(tmp_path / str(problems), conditions=(NONE, MLESS, PRESETS["arm"]), problems=problems)
        text = findings_by_name(run)["control_arm"].text
        assert ("The change near zero cannot be compared: that needs 8 problems." in text) is not compared
        assert ("The change near zero is that of mless within 0.5 percentage points: " in text) is compared


def test_a_control_that_does_less_is_said_to(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"]), mechanisms={"arm": Mechanism(near_zero=(-0.02, 0.0))}
    )
    assert (
        "The change near zero of mless is smaller here: the share differs by +1.00 ["
        in findings_by_name(run)["control_arm"].text
    )


def test_arm_is_looked_at_in_its_own_layer_and_sweeps_are_left_out(tmp_path: Path) -> None:
    deep = Condition(name="deep", intervention={"kind": "arm", "layers": [3]})
    cells = swept({"name": "many", "intervention": {"kind": "arm", "c": [0.1, 0.2]}})[1:]
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, deep, *cells), mechanisms={"deep": Mechanism(near_zero=(0, -0.02))}
    )
    found = findings_by_name(run)
    assert [name for name in found if name.startswith("control")] == ["control_deep"]
    assert found["control_deep"].facts["layer"] == 3
    assert found["control_deep"].numbers["near_zero"] == pytest.approx(-0.02, abs=1e-6)


def test_arm_in_several_layers_is_looked_at_in_the_first_of_them(tmp_path: Path) -> None:
    """What it does in the others comes on top of what the first has changed already."""
    both = Condition(name="both", intervention={"kind": "arm", "layers": [1, 3]})
    run = run_with(tmp_path, conditions=(NONE, MLESS, both), mechanisms={"both": Mechanism(near_zero=(-0.06, 0.02))})
    finding = findings_by_name(run)["control_both"]
    assert finding.facts["layer"] == 1
    assert finding.numbers["near_zero"] == pytest.approx(-0.06, abs=1e-6)


def test_a_knock_out_in_some_layers_is_looked_at_in_the_first_of_them(tmp_path: Path) -> None:
    """In layer 1 it can do nothing; the layers may be given in any order."""
    some = MLESS.model_copy(update={"name": "some", "intervention": Knockout(kind="knockout", layers=(3, 2))})
    run = run_with(tmp_path, conditions=(NONE, MLESS, some), mechanisms={"some": Mechanism(near_zero=(0.0, -0.02))})
    assert findings_by_name(run)["control_some"].facts["layer"] == 2


@pytest.mark.parametrize("filler", [0.3, 9.0])
def test_looking_back(tmp_path: Path, filler: float) -> None:
    run = run_with(
        tmp_path, Mechanism(lookback=0.25), answering=True, right={"none": 0.5}, unanswered=(4,),
        effects={"mless": Effect(filler=filler)},
    )  # fmt: skip
    finding = findings_by_name(run)["lookback"]
    assert f"mless: a filler token receives {finding.numbers['factor']:.3f} [" in finding.text
    assert (finding.numbers["factor"] < 1) == (filler < 1)
    assert finding.numbers["answer"] == pytest.approx(finding.numbers["question"] / 4, rel=1e-4)
    assert finding.numbers["difference"] == pytest.approx(-0.75 * finding.numbers["question"], rel=1e-4)
    assert "most in layer 1 (" in finding.text
    assert "(n = 11)" in finding.text


def test_one_problem_decides_nothing_and_says_so(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, problems=1, answering=True, right={"none": 1.0}, conditions=(NONE, MLESS, RANDOM, PRESETS["arm"])
    )
    found = findings_by_name(run)
    for name in ("scaling", "direction", "near_zero", "variance", "later", "deeper"):
        assert found[name].verdict is UNKNOWN
    assert "cannot be compared: that needs 8 problems" in found["control_arm"].text
    assert not re.search(r"\bnan\b", " ".join(one.text for one in found.values()))


def test_a_model_of_one_layer_has_no_later_ones(tmp_path: Path) -> None:
    found = findings_by_name(run_with(tmp_path, layers=1, **ALONE))
    assert found["scaling"].verdict is UNTESTED
    for name in ("later", "deeper"):
        assert found[name].verdict is UNKNOWN
        assert "cannot be told (there is no deeper layer)." in found[name].text


def test_what_was_not_measured_is_not_spoken_of(tmp_path: Path) -> None:
    assert findings_by_name(Synthetic(problems=2).build(tmp_path / "a")) == {}
    affine = Synthetic(problems=4, affine=True, conditions=(NONE, MLESS)).build(tmp_path / "b")
    assert set(findings_by_name(affine)) == {
        "scaling", "later", "deeper", "direction",
    }  # fmt: skip
    assert findings_by_name(Synthetic(problems=2, affine=True, conditions=(NONE,)).build(tmp_path / "c")) == {}


def test_a_condition_may_be_named(tmp_path: Path) -> None:
    found = findings_by_name(run_with(tmp_path, conditions=(NONE, MLESS, PRESETS["arm"])), "arm")
    assert found["scaling"].text.startswith("Scaling, arm: ")
    assert "There is no filler whose share of attention could be compared with it" in found["scaling"].text
    assert "lookback" not in found


def test_every_finding_is_a_record_of_a_table_that_is_exported(tmp_path: Path) -> None:
    run = run_with(tmp_path, answering=True, right={"none": 0.5}, conditions=(NONE, MLESS, RANDOM, PRESETS["knockout"]))
    for finding in findings_by_name(run).values():
        record = json.loads(json.dumps(finding.record()))
        assert record["table"] in ("affine", "activations", "lookback")
        assert record["text"].endswith(".")
        assert "\n" not in record["text"]
        assert record["numbers"]


def test_sentences_on_attention_speak_of_interventions_correctly(tmp_path: Path) -> None:
    arm = attention_findings(Synthetic(conditions=(NONE, PRESETS["arm"]), problems=4).build(tmp_path / "a")[None])
    assert arm[0].text.startswith("Layer 1, arm, original queries: ")
    assert "of what they receive under none (n = 4)." in arm[0].text
    assert not [one for one in arm if one.name == "collapse"]
    assert not re.search(r"\bnan\b", " ".join(one.text for one in arm))
    both = attention_findings(
        Synthetic(conditions=(NONE, PRESETS["arm"], MLESS), problems=4).build(tmp_path / "b")[None]
    )
    assert both[0].text.startswith("Layer 1, mless, ")
    text = Condition(name="text", kind="text", text="as it stands")  # without a count, like ARM
    third = attention_findings(
        Synthetic(conditions=(NONE, text, PRESETS["arm"]), problems=4).build(tmp_path / "c")[None]
    )
    assert not [one for one in (*both, *third) if "against" in one.name], "ARM has no filler to compare by mass"


def test_accuracies_under_interventions_are_set_against_none(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, MLESS, PRESETS["arm"]), right={"none": 0.5}, attention=False).build(
        tmp_path / "a"
    )
    texts = {one.name: one.text for one in answer_findings(run[None], compare(run))}
    assert " 50.0% are right, against 50.0% without filler: " in texts["accuracy_mless"]
    assert " 50.0% are right, against 50.0% under none: " in texts["accuracy_arm"]


def test_the_command_prints_sentences_and_layers(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    shown = CliRunner().invoke(app, ["mechanism", str(run.path)])
    assert shown.exit_code == 0, shown.output
    assert "Tiny-A, mless against none, by layer" in shown.output
    assert "0.715 [0.702, 0.728]" in shown.output
    assert "0.00146" in shown.output
    assert "1. Scaling, mless: " in shown.output
    printed = json.loads(CliRunner().invoke(app, ["mechanism", str(run.path), "-c", "random", "--json"]).output)
    assert printed["condition"] == "random"
    assert [row["layer"] for row in printed["layers"]] == [1, 2, 3]
    assert printed["layers"][0]["variance_ratio"] == pytest.approx(1.3)
    assert [one["name"] for one in printed["findings"]][:2] == ["scaling", "later"]
    assert printed["findings"][0]["verdict"] == "not tested against its control"


def test_the_command_leaves_out_columns_without_numbers(tmp_path: Path) -> None:
    run = Synthetic(affine=True, conditions=(NONE, PRESETS["arm"]), problems=3).build(tmp_path / "run")
    shown = CliRunner().invoke(app, ["mechanism", str(run.path)]).output
    assert "lambda" in shown
    assert "1 - mass" not in shown
    assert "variance" not in shown.split("Brackets")[0]


def test_a_run_says_all_of_it_after_a_study(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    names = [one.name for one in findings_of(run["tiny-a"], available_comparison(run))]
    assert names.index("first_layer") < names.index("scaling") < names.index("near_zero")


@pytest.mark.parametrize(
    ("direction", "together", "verdict"), [(0.7, 0.8, HOLDS), (0.9, 0.8, FAILS), (0.7, 0.95, FAILS)]
)
def test_a_direction_must_be_more_than_that_of_moved_positions(
    tmp_path: Path, direction: float, together: float, verdict: Verdict
) -> None:
    mechanisms = {
        "mless": Mechanism(direction=(0.8, 0.6), together=0.9),
        "positions": Mechanism(direction=(direction, 0.6), together=together),
    }
    run = run_with(tmp_path, twin=UNTRAINED, conditions=(NONE, MLESS, CONTROLS["positions"]), mechanisms=mechanisms)
    finding = findings_by_name(run)["direction"]
    assert finding.verdict is verdict
    assert ("(no more than under positions)" in finding.text) is (verdict is FAILS)
    assert f"Where positions alone are moved these are {direction + 0.015:.3f}, {together:.3f} and " in finding.text


def test_positions_moved_by_another_length_are_no_measure_of_it(tmp_path: Path) -> None:
    moved = Condition(name="moved", intervention=Shift(kind="shift", by=1))
    text = findings_by_name(run_with(tmp_path, conditions=(NONE, MLESS, moved)))["direction"].text
    assert "What positions moved by as many tokens would do was not measured" in text
