"""Findings on attention are decided by the numbers, in whichever direction that is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.run import Run
from fillerscope.study.conditions import Condition
from support.synthetic import NONE, PEAK_RATIO, SPREAD_RATIO, Effect, Synthetic


def findings_by_name(run: Run, **options: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in attention_findings(run[None], **options)}


def run_with(tmp_path: Path, mless: Effect, random: Effect | None = None, **options: object) -> Run:
    effects = {"mless": mless} | ({"random": random} if random else {})
    return Synthetic(effects=effects, **options).build(tmp_path / "run")  # type: ignore[arg-type]


def shown(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


LENGTH = 0.6  # the drop that length alone gives
TWINS = tuple(Effect(drop=np.full((3, 4), drop), filler=0.9, mass=0.4) for drop in (0.59, 0.6, 0.61))


def held(tmp_path: Path, drop: float, **options: object) -> Finding:
    """The first layer of a model that is held against length and three twins."""
    options = {"diluted": LENGTH, "twins": TWINS} | options
    return findings_by_name(run_with(tmp_path, Effect(drop=np.full((3, 4), drop)), **options))["first_layer"]


def test_a_fall_as_large_as_length_makes_it_is_no_effect(tmp_path: Path) -> None:
    finding = held(tmp_path, 0.6)
    assert finding.verdict is Verdict.FAILS
    assert finding.facts["odds"] == pytest.approx(0.6, rel=1e-5)
    assert (finding.facts["twin_low"], finding.facts["twin_high"]) == pytest.approx((0.59, 0.61), rel=1e-5)
    assert finding.estimates["beyond"].value == pytest.approx(1.0, rel=1e-5)
    assert f"Beyond length the ratio is {finding.estimates['beyond'].ratio}." in finding.text


@pytest.mark.parametrize(("drop", "way"), [(0.9, "less"), (0.3, "more")])
def test_a_fall_beyond_length_and_twins_is_an_effect(tmp_path: Path, drop: float, way: str) -> None:
    finding = held(tmp_path, drop)
    assert finding.verdict is Verdict.HOLDS
    assert f"holds. Claim: filler draws {way} attention than as many average tokens." in finding.text
    assert finding.numbers["beyond"] == pytest.approx(drop / LENGTH, rel=1e-5)
    counts = (4, 0) if way == "more" else (0, 4)
    assert (finding.numbers["heads_below"], finding.numbers["heads_above"]) == counts


def test_nothing_is_claimed_without_untrained_models(tmp_path: Path) -> None:
    for drop in (0.3, 0.9):
        finding = held(tmp_path / str(drop), drop, twins=())
        assert finding.verdict is Verdict.UNTESTED
        assert "references: {twin: 3}" in finding.text


def test_a_change_that_untrained_models_show_too_is_no_effect(tmp_path: Path) -> None:
    """Not what length alone gives, and within the range of twins."""
    twins = tuple(Effect(drop=np.full((3, 4), drop)) for drop in (0.8, 0.9, 1.0))
    assert held(tmp_path, 0.9, twins=twins).verdict is Verdict.FAILS


def test_a_sentence_of_the_same_length_stands_beside_and_denies_nothing(tmp_path: Path) -> None:
    same = Effect(drop=np.full((3, 4), 0.9))
    by_name = findings_by_name(run_with(tmp_path, same, same, diluted=LENGTH, twins=TWINS))
    assert by_name["first_layer"].verdict is Verdict.HOLDS
    assert by_name["random_against_mless"].numbers["value"] == pytest.approx(1.0)


def test_moved_positions_that_do_the_same_deny_the_effect(tmp_path: Path) -> None:
    positions = Condition(name="positions", intervention={"kind": "shift", "by": 30})
    conditions = (*Synthetic().conditions, positions)
    effects = {name: Effect(drop=np.full((3, 4), drop)) for name, drop in (("mless", 0.9), ("positions", 1.5))}
    run = Synthetic(conditions=conditions, effects=effects, diluted=LENGTH, twins=TWINS).build(tmp_path / "run")
    finding = findings_by_name(run)["first_layer"]
    assert finding.verdict is Verdict.FAILS
    assert "no more than under positions" in finding.text


def test_heads_are_held_against_the_heads_of_twins(tmp_path: Path) -> None:
    drop = np.array([[0.5, 0.9, 0.6, 0.605]]) * np.ones((3, 1))
    finding = findings_by_name(run_with(tmp_path, Effect(drop=drop), diluted=LENGTH, twins=TWINS))["first_layer"]
    assert (finding.numbers["heads_below"], finding.numbers["heads_above"]) == (1, 1)
    assert "1 of 4 heads lie below and 1 above all heads of the twins" in finding.text


def test_the_numbers_of_the_first_layer_are_those_of_the_depth_table(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=0.7))
    for queries in ("all", "original", "last"):
        finding = findings_by_name(run, queries=queries)["first_layer"]
        assert finding.numbers["layer"] == 1
        expected = [float(bound[0]) for bound in depth_table(run[None], "mless", queries).values["drop"]]
        assert [finding.numbers[key] for key in ("value", "low", "high")] == pytest.approx(expected)
        assert shown(*expected) in finding.text


def test_depth_names_the_layers_that_moved(tmp_path: Path) -> None:
    drop = np.array([0.6, 0.8, 1.01, 1.5, 0.99, 0.7])[:, None] * np.ones((1, 4))
    run = run_with(tmp_path, Effect(drop=drop), layers=6)
    finding = findings_by_name(run)["depth"]
    assert "away from 1 in layers 1-2, 4, 6. " in finding.text
    assert "Over the deeper half, layers 4 to 6," in finding.text
    assert finding.facts["layers_moved"] == 4
    pair = [run.summary("received_original", name)[:, 3:].mean(axis=(1, 2)) for name in ("mless", "none")]
    assert finding.numbers["value"] == pytest.approx(float(np.exp(np.log(pair[0] / pair[1]).mean())))
    assert shown(*(finding.numbers[key] for key in ("value", "low", "high"))) in finding.text


def test_a_small_change_that_is_sure_is_still_small(tmp_path: Path) -> None:
    """The interval excludes 1 and lies within 5% of it: no layer is called moved."""
    finding = findings_by_name(run_with(tmp_path, Effect(drop=np.full((3, 4), 0.98)), noise=0.001))["depth"]
    assert (finding.facts["layers_excluding_1"], finding.facts["layers_moved"]) == (3, 0)
    assert "away from 1 in no layer" in finding.text


def test_nothing_is_decided_beside_a_learned_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes of a row is a share that no reference knows."""
    run = run_with(tmp_path, Effect(drop=np.full((3, 4), 0.9)), diluted=LENGTH, twins=TWINS)
    assert findings_by_name(run)["first_layer"].verdict is Verdict.HOLDS
    monkeypatch.setattr(run[None], "has_sinks", lambda: True)
    monkeypatch.setattr("fillerscope.analysis.heads.SINK_MASS", "entropy")
    assert findings_by_name(run)["first_layer"].verdict is Verdict.UNKNOWN


def test_depth_counts_layers_beyond_what_length_gives(tmp_path: Path) -> None:
    drop = np.array([[0.6], [0.9], [0.6]]) * np.ones((1, 4))
    finding = findings_by_name(run_with(tmp_path, Effect(drop=drop), diluted=LENGTH, twins=TWINS))["depth"]
    assert finding.facts["layers_moved"] == 1
    assert "away from 1 in layer 2. " in finding.text
    assert "(untrained twins: 0.590 to 0.610)" in finding.text


@pytest.mark.parametrize(
    ("filler", "twin", "verdict"),
    [
        (0.1, 0.9, Verdict.HOLDS),
        (0.1, 0.05, Verdict.FAILS),  # untrained models show more of it
        (0.8, 0.9, Verdict.FAILS),
        (9.0, 0.9, Verdict.FAILS),
    ],
)
def test_collapse(tmp_path: Path, filler: float, twin: float, verdict: Verdict) -> None:
    twins = tuple(Effect(filler=twin * one, drop=1.0) for one in (0.99, 1.0, 1.01))
    run = run_with(tmp_path, Effect(filler=filler, drop=1.0), twins=twins)
    finding = findings_by_name(run)["collapse"]
    assert finding.verdict is verdict, finding.text
    ratios = [
        run.summary("received_filler", "mless", "all")[:, 0].mean(-1) / run.summary(name, "mless", "all")[:, 0].mean(-1)
        for name in ("received_before", "received_after")
    ]
    expected = [float(np.exp(np.log(ratio).mean())) for ratio in ratios]
    assert [finding.numbers[key] for key in ("to_before", "to_after")] == pytest.approx(expected)
    numbers = finding.numbers
    for key in ("to_before", "to_after"):
        assert f"{shown(numbers[key], numbers[f'{key}_low'], numbers[f'{key}_high'])} times" in finding.text


def test_a_collapse_is_not_claimed_without_untrained_models(tmp_path: Path) -> None:
    assert findings_by_name(run_with(tmp_path, Effect(filler=0.1)))["collapse"].verdict is Verdict.UNTESTED


def test_filler_before_everything_has_nothing_to_collapse_from(tmp_path: Path) -> None:
    start = Condition(name="start", kind="repeat", text=" /", count=8, position="start")
    by_name = findings_by_name(Synthetic(conditions=(NONE, start)).build(tmp_path / "run"))
    assert "collapse" not in by_name
    assert "first_layer" in by_name


def test_one_filler_against_another(tmp_path: Path) -> None:
    effects = {"mless": Effect(drop=0.8, mass=0.4), "random": Effect(drop=0.4, mass=0.7)}
    recipe = Synthetic(effects=effects, twins=TWINS)
    run = recipe.build(tmp_path / "run")
    _jitter_mass(run)
    finding = findings_by_name(run)["random_against_mless"]
    levels = [float(recipe.mass(name).mean()) for name in ("random", "mless")]
    assert f"takes {levels[0]:.3f} against {levels[1]:.3f} of the attention over all layers, difference" in finding.text
    assert "(untrained twins: 0.000 to 0.000)" in finding.text
    assert finding.numbers["mass_gap"] == pytest.approx(levels[0] - levels[1], abs=1e-6)
    pair = [run.summary("received_original", name)[:, 0].mean(-1) for name in ("random", "mless")]
    ratio = float(np.exp(np.log(pair[0] / pair[1]).mean()))
    assert finding.numbers["value"] == pytest.approx(ratio)
    assert f"In layer 1 original tokens receive {ratio:.3f} [" in finding.text


def _jitter_mass(run: Run) -> None:
    """The jitter of both fillers is the same and cancels; a little noise of one of them makes an interval."""
    stored = run.summary
    noise = 0.01 * np.resize([1.0, -1.0], 12)[:, None, None]

    def changed(name: str, condition: str, queries: str = "original", model: str | None = None) -> object:
        values = stored(name, condition, queries, model)
        return values + noise if (name, condition) == ("filler_mass", "random") else values

    run.summary = changed  # type: ignore[method-assign,assignment]


def test_peaks_beside_those_of_twins(tmp_path: Path) -> None:
    drop = np.array([[0.5, 1.2, 0.6, 0.8]]) * np.ones((3, 1))  # the peak goes with it times 1.25
    finding = findings_by_name(run_with(tmp_path, Effect(drop=drop), twins=TWINS))["peaks"]
    ratio = float(np.exp(np.log(drop[0] * PEAK_RATIO).mean()))
    assert finding.numbers["ratio"] == pytest.approx(ratio, rel=1e-5)
    assert f"is {ratio:.3f} of that under none on average over heads (untrained twins: 0.737 to 0.762)" in finding.text
    assert "stays on the same token in 75% of cases" in finding.text


def test_variability_beside_that_of_twins(tmp_path: Path) -> None:
    finding = findings_by_name(run_with(tmp_path, Effect(drop=np.full((3, 4), 0.8)), twins=TWINS))["spread"]
    assert finding.numbers["value"] == pytest.approx(0.8 * SPREAD_RATIO, rel=1e-5)
    assert "(untrained twins: 0.443 to 0.457)" in finding.text


def test_reliability_of_the_ranking(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=0.7))
    finding = findings_by_name(run)["reliability"]
    assert "repeats itself: rank correlation of random halves of the problems is 1.00" in finding.text
    assert finding.numbers["split_half"] == pytest.approx(head_table(run[None], "mless").reliability())


def test_a_ranking_of_noise_is_called_noise(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=1.0), problems=16, heads=9)
    generator, stored = np.random.default_rng(3), run.summary
    noise = generator.lognormal(0, 0.3, size=(16, 3, 9))

    def changed(name: str, condition: str, queries: str = "original", model: str | None = None) -> object:
        values = stored(name, condition, queries, model)
        return values * noise if (name, condition) == ("received_original", "mless") else values

    run.summary = changed  # type: ignore[method-assign,assignment]
    assert "is mostly noise: rank correlation" in findings_by_name(run)["reliability"].text


def test_one_problem_proves_nothing(tmp_path: Path) -> None:
    by_name = findings_by_name(run_with(tmp_path, Effect(drop=0.5), problems=1, diluted=LENGTH, twins=TWINS))
    assert by_name["first_layer"].verdict is Verdict.UNKNOWN
    assert re.search(r"needs \d+ problems", by_name["first_layer"].text)
    assert "reliability" not in by_name
    assert not re.search(r"\bnan\b", " ".join(finding.text for finding in by_name.values()))


def test_every_filler_of_the_same_length_and_place_is_compared_with_the_first(tmp_path: Path) -> None:
    count = Synthetic().conditions[1].count
    others = (
        Condition(name="alike", kind="characters", count=count),
        Condition(name="longer", kind="characters", count=count + 1),
        Condition(name="elsewhere", kind="characters", count=count, position="end"),
    )
    by_name = findings_by_name(Synthetic(conditions=(*Synthetic().conditions, *others)).build(tmp_path / "run"))
    assert [name for name in by_name if "against" in name] == ["random_against_mless", "alike_against_mless"]


def test_texts_are_compared_where_they_have_the_same_length(tmp_path: Path) -> None:
    """Texts as they are have no `count`: how long they are is seen in the prompts."""
    texts = {"first": "a b c", "alike": "d e f", "longer": "a b c d"}
    conditions = (NONE, *(Condition(name=name, kind="text", text=text) for name, text in texts.items()))
    by_name = findings_by_name(Synthetic(conditions=conditions).build(tmp_path / "run"))
    assert [name for name in by_name if "against" in name] == ["alike_against_first"]


def test_without_filler_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert attention_findings(Synthetic(conditions=(NONE,)).build(tmp_path / "run")[None]) == []


def test_a_finding_is_a_record(tmp_path: Path) -> None:
    for finding in attention_findings(run_with(tmp_path, Effect())[None]):
        record = finding.record()
        assert set(record) == {"name", "text", "numbers", "table", "verdict", "reason", "condition", "estimates"}
        assert record["condition"] in ("mless", "random")
        assert record["table"] in ("profiles", "summaries", "heads", "depth")
        assert record["text"].endswith(".")
        assert "\n" not in record["text"]
