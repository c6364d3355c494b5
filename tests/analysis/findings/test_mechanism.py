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

from fillerscope.analysis.findings.all import findings_of
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.attention import Finding, findings
from fillerscope.analysis.findings.attention_claims import controls_of
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.findings.verdict import Degree
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.run import Run
from fillerscope.cli.app import app
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.interventions import Knockout, Shift
from support.synthetic import MLESS, NONE, RANDOM, Effect, Mechanism, Synthetic, swept
from support.twinned import twinned

HOLDS, LITTLE, UNTESTED, FAILS, UNKNOWN = Degree
ALONE = {"conditions": (NONE, MLESS)}  # nothing that a claim could be held against but twins
UNTRAINED = Mechanism(  # what twins do: a little less of everything that is claimed
    lam=(0.9, 0.7), explained=(0.7, 0.9), direction=(0.6, 0.2), together=0.5, near_zero=(0.001, 0.0),
    variance=(1.02, 1.0),
)  # fmt: skip


def told(run: Run, condition: str | None = None) -> dict[str, Finding]:
    return {one.name: one for one in mechanism_findings(run, condition) + control_findings(run, condition)}


def run_with(folder: Path, mless: Mechanism | None = None, twin: Mechanism | None = None, **options: object) -> Run:
    settings = {"affine": True, "activations": True, "mechanisms": {"mless": mless or Mechanism()}}
    recipe = Synthetic(**(settings | options))  # type: ignore[arg-type]
    return twinned(recipe, twin, folder) if twin else recipe.build(folder / "run")


def decided(folder: Path, name: str, mless: Mechanism | None = None, **options: object) -> tuple[Degree | None, str]:
    finding = told(run_with(folder, mless, **options))[name]  # type: ignore[arg-type]
    return finding.verdict, finding.text


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
def test_scaling(tmp_path: Path, lam: float, twin: float, verdict: Degree, reason: str) -> None:
    run = run_with(tmp_path, Mechanism(lam=(lam, 0.98)), replace(UNTRAINED, lam=(twin, 0.7)), **ALONE)
    finding = told(run)["scaling"]
    assert finding.verdict is verdict
    shown = f" ({reason})" if reason else ""
    assert f"that lambda is below 1 in layer 1 {verdict} on this model{shown}: it is " in finding.text
    value, low, high = (float(bound[0]) for bound in affine_table(run, "mless").values["lambda_fit"])
    untrained = "" if lam > 1 else f" (in 3 untrained models: {twin + 0.013:.3f} to {twin + 0.017:.3f})"
    assert f"it is {value:.3f} [{low:.3f}, {high:.3f}]{untrained}" in finding.text
    assert "1 less the share of attention on the filler is 0.630" in finding.text
    assert f"fitted with an intercept it is {lam + 0.14:.3f}; " in finding.text
    assert "(n = 12)" in finding.text


def test_without_twins_nothing_is_claimed(tmp_path: Path) -> None:
    """However large the change: an untrained model shows one too."""
    inside = Mechanism(lam=(0.5, 1.0), direction=(0.95, 0.9), together=1.0, near_zero=(-0.2, 0.0), variance=(3.0, 1.0))
    found = told(run_with(tmp_path, inside, **ALONE))
    for name in ("scaling", "direction", "near_zero", "variance", "later"):
        assert found[name].verdict is UNTESTED, name
        assert (
            "is not tested against its control (not held against untrained models: measure references: {twin: 3})"
            in (found[name].text)
        )


def test_below_eight_problems_nothing_is_decided_either_way(tmp_path: Path) -> None:
    """With 30 layers and 6 problems no p after Holm over layers can be small, whatever happens in layer 1."""
    for change in (-0.071, -0.0016, 0.03):
        inside = Mechanism(near_zero=(change, 0.0))
        found = told(run_with(tmp_path / str(change), inside, UNTRAINED, problems=6, layers=30, **ALONE))
        for name in ("scaling", "direction", "near_zero", "variance", "later", "deeper"):
            assert found[name].verdict is UNKNOWN, name
            assert "cannot be told on this model (needs 8 problems)" in found[name].text
        assert "to count layers in which the share changes takes 11 problems" in found["near_zero"].text


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
    tmp_path: Path, lam: float, noise: float, verdict: Degree, reason: str
) -> None:
    run = run_with(tmp_path, Mechanism(lam=(0.6, lam)), UNTRAINED, noise=noise, **ALONE)
    finding = told(run)["later"]
    assert finding.verdict is verdict
    assert reason in finding.text
    far = {0.7: (2, 0), 1.2: (0, 2)}.get(lam, (0, 0))
    assert (finding.numbers["layers_below"], finding.numbers["layers_above"]) == far
    assert f"below 0.95 in {far[0]} and above 1.05 in {far[1]} of these 2" in finding.text
    assert finding.numbers["later"] == pytest.approx(lam + 0.015, rel=1e-6)
    assert f"on average over layers 2 to 3 (in 3 untrained models: {0.713:.3f} to {0.717:.3f})" in finding.text


def test_as_near_to_1_as_in_untrained_models_is_no_claim(tmp_path: Path) -> None:
    near = replace(UNTRAINED, lam=(0.9, 0.985))
    assert decided(tmp_path, "later", Mechanism(lam=(0.6, 0.985)), twin=near, **ALONE)[0] is FAILS


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
    tmp_path: Path, explained: float, twin: float, verdict: Degree, reason: str
) -> None:
    run = run_with(
        tmp_path,
        Mechanism(explained=(0.9, explained), together=0.7),
        replace(UNTRAINED, explained=(0.7, twin)),
        **ALONE,
    )
    finding = told(run)["deeper"]
    assert (finding.verdict, reason in finding.text) == (verdict, True)
    assert f"lambda and a bias explain {explained + 0.015:.3f} [" in finding.text
    assert "over problems lambda has a standard deviation of 0.020, and biases have 0.700 of their length in" in (
        finding.text
    )


def test_a_picture_that_explains_little_is_said_to(tmp_path: Path) -> None:
    little = told(run_with(tmp_path / "a", Mechanism(explained=(0.2, 0.1))))["scaling"].text
    assert "explain 22% of the variation of outputs, so little that lambda says little" in little
    assert "so little" not in told(run_with(tmp_path / "b"))["scaling"].text


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
    tmp_path: Path, direction: float, together: float, twin: float, verdict: Degree, reason: str
) -> None:
    inside = Mechanism(direction=(direction, 0.1), together=together)
    run = run_with(tmp_path, inside, replace(UNTRAINED, direction=(twin, 0.2)), **ALONE)
    finding = told(run)["direction"]
    assert (finding.verdict, reason in finding.text) == (verdict, True)
    assert f"that a bias in one direction is added {verdict} on this model" in finding.text
    assert f"the biases of different problems {together:.3f} of theirs" in finding.text
    assert "unrelated ones would have about 0.29" in finding.text
    assert finding.numbers["within"] == pytest.approx(direction + 0.015, rel=1e-6)
    assert finding.numbers["median_layer"] == pytest.approx(0.115, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "twin", "verdict", "reason"),
    [
        (-0.03, 0.001, HOLDS, ""),
        (-0.03, -0.04, FAILS, "no more than in an untrained model"),
        (-0.006, -0.002, LITTLE, "beyond its references by less than 0.5 points"),
        (0.03, 0.001, FAILS, "the other way"),
        (0.0, 0.001, FAILS, "no change as large as 0.5 points"),
        (-0.0018, 0.001, FAILS, "no change as large as 0.5 points"),  # surely fewer, and next to none
    ],
)
def test_near_zero(tmp_path: Path, change: float, twin: float, verdict: Degree, reason: str) -> None:
    inside, untrained = Mechanism(near_zero=(change, 0.0)), replace(UNTRAINED, near_zero=(twin, 0.0))
    run = run_with(tmp_path, inside, untrained, noise=0.01, **ALONE)
    finding = told(run)["near_zero"]
    assert (finding.verdict, reason in finding.text) == (verdict, True), finding.text
    assert f"that fewer of layer 1's are near zero {verdict} on this model" in finding.text
    assert finding.numbers["change"] == pytest.approx(change, abs=1e-6)
    table = activation_table(run, "mless")
    assert f"{table.without['near_zero'][0]:.2%} without and {table.under['near_zero'][0]:.2%} with" in finding.text
    assert f"p = {table.adjusted['near_zero'][0]:.3g} after Holm over 3 layers" in finding.text
    assert "(n = 12)" in finding.text


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
def test_variance(tmp_path: Path, ratio: float, twin: float, verdict: Degree, reason: str) -> None:
    inside, untrained = Mechanism(variance=(ratio, 1.0)), replace(UNTRAINED, variance=(twin, 1.0))
    finding = told(run_with(tmp_path, inside, untrained, noise=0.01, **ALONE))["variance"]
    assert (finding.verdict, reason in finding.text) == (verdict, True), finding.text
    assert f"that the variance of layer 1's activations rises {verdict} on this model" in finding.text
    assert f"it is {ratio:.3f} [" in finding.text
    assert f"untrained models: {twin * np.exp(-0.002):.3f} to {twin * np.exp(0.002):.3f}), and above 1" in finding.text


def test_a_wide_interval_around_nothing_decides_nothing(tmp_path: Path) -> None:
    degree, text = decided(tmp_path, "near_zero", Mechanism(near_zero=(0.0, 0.0)), twin=UNTRAINED, noise=0.5, **ALONE)
    assert degree is UNKNOWN
    assert "needs about 384 problems to tell a change of twice 0.5 points" in text


@pytest.mark.parametrize("change", [-0.003, 0.003])
def test_an_interval_with_one_end_beyond_half_a_point_decides_nothing(tmp_path: Path, change: float) -> None:
    finding = told(run_with(tmp_path, Mechanism(near_zero=(change, 0.0)), noise=0.1, **ALONE))["near_zero"]
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
        finding = told(run)[claim]
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
    finding = told(run_with(tmp_path, Mechanism(near_zero=(-0.03, 0.04)), layers=5))["near_zero"]
    assert "the share falls in 1, rises in 4 and does not change beyond noise in 0 of them" in finding.text
    assert (finding.numbers["falls"], finding.numbers["rises"]) == (1, 4)


def test_classes_of_tokens(tmp_path: Path) -> None:
    run = run_with(tmp_path, missing={"digits": (1, 2), "words": tuple(range(12))})
    finding = told(run)["near_zero_classes"]
    assert re.search(r"digits -5\.96 \[-6\.12, -5\.82\] points \(n = 10\); operators -9\.00 ", finding.text)
    assert "words none in any problem (n = 0); other -15.0" in finding.text
    assert finding.numbers["operators"] == pytest.approx(-0.09, abs=1e-6)
    assert "all " not in finding.text.split(":")[1]


def test_against_a_sentence_of_equal_length(tmp_path: Path) -> None:
    other = Mechanism(lam=(0.9, 1.0), near_zero=(0.01, 0.0), variance=(1.1, 1.0))
    longer = Condition(name="longer", kind="sentence", count=31)
    elsewhere = Condition(name="elsewhere", kind="sentence", count=30, position="end")
    words = Condition(name="words", kind="repeat", text=" he", count=30)
    run = run_with(tmp_path, mechanisms={"random": other}, conditions=(NONE, MLESS, RANDOM, longer, elsewhere, words))
    found = told(run)
    assert [name for name in found if "against" in name] == [
        "affine_mless_against_random",
        "activations_mless_against_random",
    ]
    affine, activity = found["affine_mless_against_random"], found["activations_mless_against_random"]
    assert "lambda 0.715 against 0.915, difference -0.200 [-0.200, -0.200]" in affine.text
    assert "direction within problems 0.815 against 0.815, difference 0.000 [" in affine.text
    assert affine.numbers["lambda"] == pytest.approx(-0.2, abs=1e-6)
    assert "the share near zero moves by -3.00 [" in activity.text
    assert "against +1.00 [" in activity.text
    assert activity.numbers["near_zero"] == pytest.approx(-0.04, abs=1e-6)
    assert activity.numbers["variance"] == pytest.approx(1.3 / 1.1, rel=1e-6)


def test_a_direction_that_differs_from_the_sentences_stands_beside_that_of_twins(tmp_path: Path) -> None:
    """The jitter of both is the same and cancels: the interval is a point. Twins have the same mechanism."""
    run = run_with(tmp_path, Mechanism(direction=(0.9, 0.3)), twins=(Effect(), Effect()))
    finding = told(run)["affine_mless_against_random"]
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
    found = told(run)
    assert [name for name in found if name.startswith("control")] == [f"control_{name}" for name in names]
    knockout, positions, arm = (found[f"control_{name}"] for name in names[:3])
    assert knockout.text.startswith("Control, knockout (Filler knocked out), layer 1: lambda 1.000 [")
    assert "The scaling of mless is not seen here: lambda differs by 0.285 [0.285, 0.285]." in knockout.text
    assert "The change near zero of mless is not seen here: the share differs by +3.00 [+3.00, +3.00]" in knockout.text
    assert "The change of variance of mless is not seen here: the variance is 0.769 [0.769, 0.769] ti" in knockout.text
    assert "under mless: lambda 0.715 [" in knockout.text
    assert "The change near zero of mless is turned round here: the share differs by +4.50 [" in positions.text
    assert "The change near zero goes farther than that of mless: the share differs by -3.00 [" in arm.text
    assert "The change of variance is that of mless within 5%: the variance is 1.000 [" in arm.text
    assert "lambda" not in arm.text, "ARM comes after the attention of its layer"
    assert arm.numbers["near_zero"] == pytest.approx(-0.06, abs=1e-6)
    assert "(n = 12)" in arm.text


def test_a_control_moves_what_the_filler_does_not(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"], PRESETS["scatter"]),
        mechanisms={"mless": Mechanism(near_zero=(0.0, 0.0)), "scatter": Mechanism(near_zero=(0.0, 0.0))},
    )  # fmt: skip
    found = told(run)
    assert "The change near zero is none beyond noise under mless, and another here: " in found["control_arm"].text
    assert "The change near zero is that of mless within 0.5 points: " in found["control_scatter"].text


def test_one_interval_that_holds_no_change_and_one_that_does_not_are_no_difference(tmp_path: Path) -> None:
    """The control's changes vary so much that it cannot be told from the filler's."""
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"]),
        mechanisms={"mless": Mechanism(near_zero=(-0.01, 0.0)), "arm": Mechanism(near_zero=(-0.003, 0.0))},
    )  # fmt: skip
    stored, noise = run.activations, np.random.default_rng(0).normal(0, 0.02, (12, 3))

    def noisy(metric: str, condition: str, cls: str = "all", model: str | None = None) -> Any:
        values = np.array(stored(metric, condition, cls, model))
        return values + noise - noise.mean(0) if (metric, condition) == ("near_zero", "arm") else values

    run.activations = noisy  # type: ignore[method-assign]
    text = told(run)["control_arm"].text
    assert re.search(r"near-zero share -0\.30 \[-[0-9.]+, \+[0-9.]+\] points", text)
    assert re.search(r"under mless: near-zero share -1\.00 \[-[0-9.]+, -[0-9.]+\] points", text)
    assert "The change near zero cannot be told from that of mless: the share differs by +0.70 [-" in text


def test_controls_are_not_compared_below_eight_problems(tmp_path: Path) -> None:
    for problems, compared in ((7, False), (8, True)):
        run = run_with(tmp_path / str(problems), conditions=(NONE, MLESS, PRESETS["arm"]), problems=problems)
        text = told(run)["control_arm"].text
        assert ("The change near zero cannot be compared: that needs 8 problems." in text) is not compared
        assert ("The change near zero is that of mless within 0.5 points: " in text) is compared


def test_a_control_that_does_less_is_said_to(tmp_path: Path) -> None:
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, PRESETS["arm"]), mechanisms={"arm": Mechanism(near_zero=(-0.02, 0.0))}
    )
    assert (
        "The change near zero of mless is smaller here: the share differs by +1.00 [" in told(run)["control_arm"].text
    )


def test_arm_is_looked_at_in_its_own_layer_and_sweeps_are_left_out(tmp_path: Path) -> None:
    deep = Condition(name="deep", intervention={"kind": "arm", "layers": [3]})
    cells = swept({"name": "many", "intervention": {"kind": "arm", "c": [0.1, 0.2]}})[1:]
    run = run_with(
        tmp_path, conditions=(NONE, MLESS, deep, *cells), mechanisms={"deep": Mechanism(near_zero=(0, -0.02))}
    )
    found = told(run)
    assert [name for name in found if name.startswith("control")] == ["control_deep"]
    assert found["control_deep"].text.startswith("Control, deep, layer 3: near-zero share -2.00 [")


def test_arm_in_several_layers_is_looked_at_in_the_first_of_them(tmp_path: Path) -> None:
    """What it does in the others comes on top of what the first has changed already."""
    both = Condition(name="both", intervention={"kind": "arm", "layers": [1, 3]})
    run = run_with(tmp_path, conditions=(NONE, MLESS, both), mechanisms={"both": Mechanism(near_zero=(-0.06, 0.02))})
    finding = told(run)["control_both"]
    assert finding.text.startswith("Control, both, layer 1: near-zero share -6.00 [")
    assert finding.numbers["near_zero"] == pytest.approx(-0.06, abs=1e-6)


def test_a_knock_out_in_some_layers_is_looked_at_in_the_first_of_them(tmp_path: Path) -> None:
    """In layer 1 it can do nothing; the layers may be given in any order."""
    some = MLESS.model_copy(update={"name": "some", "intervention": Knockout(kind="knockout", layers=(3, 2))})
    run = run_with(tmp_path, conditions=(NONE, MLESS, some), mechanisms={"some": Mechanism(near_zero=(0.0, -0.02))})
    assert told(run)["control_some"].text.startswith("Control, some (Meaningless tokens), layer 2: ")


@pytest.mark.parametrize("filler", [0.3, 9.0])
def test_looking_back(tmp_path: Path, filler: float) -> None:
    run = run_with(
        tmp_path, Mechanism(lookback=0.25), answering=True, right={"none": 0.5}, unanswered=(4,),
        effects={"mless": Effect(filler=filler)},
    )  # fmt: skip
    finding = told(run)["lookback"]
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
    found = told(run)
    for name in ("scaling", "direction", "near_zero", "variance", "later", "deeper"):
        assert found[name].verdict is UNKNOWN
    assert "cannot be compared: that needs 8 problems" in found["control_arm"].text
    assert not re.search(r"\bnan\b", " ".join(one.text for one in found.values()))


def test_a_model_of_one_layer_has_no_later_ones(tmp_path: Path) -> None:
    found = told(run_with(tmp_path, layers=1, **ALONE))
    assert found["scaling"].verdict is UNTESTED
    for name in ("later", "deeper"):
        assert found[name].verdict is UNKNOWN
        assert "cannot be told on this model (there is no deeper layer) (n = 12)." in found[name].text


def test_what_was_not_measured_is_not_spoken_of(tmp_path: Path) -> None:
    assert told(Synthetic(problems=2).build(tmp_path / "a")) == {}
    assert set(told(Synthetic(problems=4, affine=True, conditions=(NONE, MLESS)).build(tmp_path / "b"))) == {
        "scaling", "later", "deeper", "direction",
    }  # fmt: skip
    assert told(Synthetic(problems=2, affine=True, conditions=(NONE,)).build(tmp_path / "c")) == {}


def test_a_condition_may_be_named(tmp_path: Path) -> None:
    found = told(run_with(tmp_path, conditions=(NONE, MLESS, PRESETS["arm"])), "arm")
    assert found["scaling"].text.startswith("Scaling, arm: ")
    assert "there is no filler whose share of attention could be set against it" in found["scaling"].text
    assert "lookback" not in found


def test_every_finding_is_a_record_of_a_table_that_is_exported(tmp_path: Path) -> None:
    run = run_with(tmp_path, answering=True, right={"none": 0.5}, conditions=(NONE, MLESS, RANDOM, PRESETS["knockout"]))
    for finding in told(run).values():
        record = json.loads(json.dumps(finding.record()))
        assert record["table"] in ("affine", "activations", "lookback")
        assert record["text"].endswith(".")
        assert "\n" not in record["text"]
        assert record["numbers"]


def test_sentences_on_attention_speak_of_interventions_correctly(tmp_path: Path) -> None:
    arm = findings(Synthetic(conditions=(NONE, PRESETS["arm"]), problems=4).build(tmp_path / "a"))
    assert arm[0].text.startswith("Layer 1, arm, original queries: ")
    assert "of what they receive under none;" in arm[0].text
    assert not [one for one in arm if one.name == "collapse"]
    assert not re.search(r"\bnan\b", " ".join(one.text for one in arm))
    both = findings(Synthetic(conditions=(NONE, PRESETS["arm"], MLESS), problems=4).build(tmp_path / "b"))
    assert both[0].text.startswith("Layer 1, mless, ")
    text = Condition(name="text", kind="text", text="as it stands")  # without a count, like ARM
    third = findings(Synthetic(conditions=(NONE, text, PRESETS["arm"]), problems=4).build(tmp_path / "c"))
    assert not [one for one in (*both, *third) if "against" in one.name], "ARM has no filler to compare by mass"


def test_accuracies_under_interventions_are_set_against_none(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, MLESS, PRESETS["arm"]), right={"none": 0.5}, attention=False).build(
        tmp_path / "a"
    )
    said = {one.name: one.text for one in answer_findings(run)}
    assert " 50.0% against 50.0% without filler, " in said["accuracy_mless"]
    assert " 50.0% against 50.0% under none, " in said["accuracy_arm"]


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
    names = [one.name for one in findings_of(run_with(tmp_path), "tiny-a")]
    assert names.index("first_layer") < names.index("scaling") < names.index("near_zero")


@pytest.mark.parametrize(
    ("direction", "together", "verdict"), [(0.7, 0.8, HOLDS), (0.9, 0.8, FAILS), (0.7, 0.95, FAILS)]
)
def test_a_direction_must_be_more_than_that_of_moved_positions(
    tmp_path: Path, direction: float, together: float, verdict: Degree
) -> None:
    mechanisms = {
        "mless": Mechanism(direction=(0.8, 0.6), together=0.9),
        "positions": Mechanism(direction=(direction, 0.6), together=together),
    }
    run = run_with(tmp_path, twin=UNTRAINED, conditions=(NONE, MLESS, CONTROLS["positions"]), mechanisms=mechanisms)
    finding = told(run)["direction"]
    assert finding.verdict is verdict
    assert ("(no more than under positions)" in finding.text) is (verdict is FAILS)
    assert f"where positions alone are moved these are {direction + 0.015:.3f}, {together:.3f} and " in finding.text


def test_positions_moved_by_another_length_are_no_measure_of_it(tmp_path: Path) -> None:
    moved = Condition(name="moved", intervention=Shift(kind="shift", by=1))
    text = told(run_with(tmp_path, conditions=(NONE, MLESS, moved)))["direction"].text
    assert "what positions moved by as many tokens would do was not measured" in text
