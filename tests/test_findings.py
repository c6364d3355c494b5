"""Sentences say what the numbers say, in whichever direction that is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.runs import Run
from fillerscope.conditions import Condition
from fillerscope.findings import Finding, _decided, findings
from synthetic import NONE, PEAK_RATIO, SPREAD_RATIO, Effect, Synthetic


def told(run: Run, **options: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(run, **options)}


def run_with(tmp_path: Path, mless: Effect, random: Effect | None = None, **options: object) -> Run:
    effects = {"mless": mless} | ({"random": random} if random else {})
    return Synthetic(effects=effects, **options).build(tmp_path / "run")  # type: ignore[arg-type]


def shown(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def test_a_fall_is_called_a_fall(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=0.7))
    finding = told(run)["first_layer"]
    assert finding.text.startswith("Layer 1, mless, original queries: what original tokens receive falls: 0.7")
    assert "4 of 4 heads fall and 0 rise" in finding.text
    assert "(n = 12)" in finding.text


def test_a_rise_is_called_a_rise(tmp_path: Path) -> None:
    finding = told(run_with(tmp_path, Effect(drop=1.4)))["first_layer"]
    assert "what original tokens receive rises: 1.3" in finding.text
    assert "0 of 4 heads fall and 4 rise" in finding.text


def test_no_change_is_called_that(tmp_path: Path) -> None:
    found = told(run_with(tmp_path, Effect(drop=1.0)))
    assert "receive does not change beyond noise: 1.000 [" in found["first_layer"].text
    assert "0 of 4 heads fall and 0 rise" in found["first_layer"].text
    assert "more than 5% away from it in no layer" in found["depth"].text


def test_heads_that_disagree_are_counted_apart(tmp_path: Path) -> None:
    drop = np.array([[0.5, 1.6, 0.7, 1.0]]) * np.ones((3, 1))
    finding = told(run_with(tmp_path, Effect(drop=drop)))["first_layer"]
    assert "2 of 4 heads fall and 1 rise" in finding.text
    assert (finding.numbers["falls"], finding.numbers["rises"]) == (2, 1)


def test_the_numbers_of_the_first_layer_are_those_of_the_depth_table(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=0.7))
    for queries in ("all", "original", "last"):
        finding = told(run, queries=queries)["first_layer"]
        expected = [float(bound[0]) for bound in depth_table(run, "mless", queries).values["drop"]]
        assert [finding.numbers[key] for key in ("value", "low", "high")] == pytest.approx(expected)
        assert shown(*expected) in finding.text


def test_depth_names_the_layers_that_moved(tmp_path: Path) -> None:
    drop = np.array([0.6, 0.8, 1.01, 1.5, 0.99, 0.7])[:, None] * np.ones((1, 4))
    run = run_with(tmp_path, Effect(drop=drop), layers=6)
    finding = told(run)["depth"]
    assert "away from it in layers 1-2, 4, 6; over the deeper half, layers 4 to 6," in finding.text
    assert finding.numbers["layers_moved"] == 4
    pair = [run.summary("received_original", name)[:, 3:].mean(axis=(1, 2)) for name in ("mless", "none")]
    assert finding.numbers["value"] == pytest.approx(float(np.exp(np.log(pair[0] / pair[1]).mean())))
    assert shown(*(finding.numbers[key] for key in ("value", "low", "high"))) in finding.text


def test_a_small_change_that_is_sure_is_still_small(tmp_path: Path) -> None:
    """The interval excludes 1 and lies within 5% of it: it falls, and no layer is called moved."""
    found = told(run_with(tmp_path, Effect(drop=np.full((3, 4), 0.98)), noise=0.001))
    assert "receive falls: 0.980" in found["first_layer"].text
    assert "in no layer" in found["depth"].text


@pytest.mark.parametrize(
    ("filler", "after", "words"),
    [
        (0.1, 1.0, "attention collapses on the filler and is higher again after it: "),
        (0.1, 0.01, "attention collapses on the filler and is not higher after it: "),
        (0.8, 1.0, "attention does not collapse on the filler and "),
        (9.0, 1.0, "attention does not collapse on the filler and is not higher after it: "),
    ],
)
def test_collapse_and_recovery(tmp_path: Path, filler: float, after: float, words: str) -> None:
    run = run_with(tmp_path, Effect(filler=filler))
    if after != 1.0:
        _scale(run, "received_after", "mless", after)
    finding = told(run)["collapse"]
    assert words in finding.text
    ratios = [
        run.summary("received_filler", "mless", "all")[:, 0].mean(-1) / run.summary(name, "mless", "all")[:, 0].mean(-1)
        for name in ("received_before", "received_after")
    ]
    expected = [float(np.exp(np.log(ratio).mean())) for ratio in ratios]
    assert [finding.numbers[key] for key in ("to_before", "to_after")] == pytest.approx(expected)
    numbers = finding.numbers
    for key in ("to_before", "to_after"):
        assert f"{shown(numbers[key], numbers[f'{key}_low'], numbers[f'{key}_high'])} times" in finding.text


def _scale(run: Run, metric: str, condition: str, factor: float) -> None:
    """Change what the run says about one number, in memory."""
    stored = run.summary

    def changed(name: str, condition_: str, queries: str = "original", model: str | None = None) -> object:
        values = stored(name, condition_, queries, model)
        return values * factor if (name, condition_) == (metric, condition) else values

    run.summary = changed  # type: ignore[method-assign,assignment]


def test_filler_before_everything_has_nothing_to_collapse_from(tmp_path: Path) -> None:
    start = Condition(name="start", kind="repeat", text=" /", count=8, position="start")
    found = told(Synthetic(conditions=(NONE, start)).build(tmp_path / "run"))
    assert "collapse" not in found
    assert "first_layer" in found


@pytest.mark.parametrize(
    ("mass", "words"),
    [
        (0.7, "it takes more attention than mless over all layers"),
        (0.2, "it takes less attention than mless over all layers"),
        (0.4, "the attention that it takes cannot be told apart from that of mless over all layers"),
    ],
)
def test_one_filler_against_another(tmp_path: Path, mass: float, words: str) -> None:
    recipe = Synthetic(effects={"mless": Effect(drop=0.8, mass=0.4), "random": Effect(drop=0.4, mass=mass)})
    run = recipe.build(tmp_path / "run")
    _jitter_mass(run)
    finding = told(run)["random_against_mless"]
    assert words in finding.text
    levels = [float(recipe.mass(name).mean()) for name in ("random", "mless")]
    assert f"({levels[0]:.3f} against {levels[1]:.3f}, difference" in finding.text
    assert finding.numbers["mass_gap"] == pytest.approx(levels[0] - levels[1], abs=1e-6)
    pair = [run.summary("received_original", name)[:, 0].mean(-1) for name in ("random", "mless")]
    ratio = float(np.exp(np.log(pair[0] / pair[1]).mean()))
    assert finding.numbers["value"] == pytest.approx(ratio)
    assert f"in layer 1 original tokens receive {ratio:.3f} [" in finding.text


def _jitter_mass(run: Run) -> None:
    """The jitter of both fillers is the same and cancels; a little noise of one of them makes an interval."""
    stored = run.summary
    noise = 0.01 * np.resize([1.0, -1.0], 12)[:, None, None]

    def changed(name: str, condition: str, queries: str = "original", model: str | None = None) -> object:
        values = stored(name, condition, queries, model)
        return values + noise if (name, condition) == ("filler_mass", "random") else values

    run.summary = changed  # type: ignore[method-assign,assignment]


def test_peaks(tmp_path: Path) -> None:
    drop = np.array([[0.5, 1.2, 0.6, 0.8]]) * np.ones((3, 1))  # the peak goes with it times 1.25
    finding = told(run_with(tmp_path, Effect(drop=drop)))["peaks"]
    assert "falls in 2 and rises in 1 of 4 heads" in finding.text
    ratio = float(np.exp(np.log(drop[0] * PEAK_RATIO).mean()))
    assert finding.numbers["ratio"] == pytest.approx(ratio, rel=1e-5)
    assert f"and is {ratio:.3f} of itself on average" in finding.text
    assert "stays on the same token in 75% of cases" in finding.text


@pytest.mark.parametrize(("drop", "word"), [(0.8, "shrinks"), (2.0, "grows"), (1 / SPREAD_RATIO, "does not change")])
def test_variability(tmp_path: Path, drop: float, word: str) -> None:
    finding = told(run_with(tmp_path, Effect(drop=np.full((3, 4), drop))))["spread"]
    assert f"the standard deviation over original tokens {word}" in finding.text
    assert finding.numbers["value"] == pytest.approx(drop * SPREAD_RATIO, rel=1e-5)


def test_reliability_of_the_ranking(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=0.7))
    finding = told(run)["reliability"]
    assert "repeats itself: rank correlation of random halves of the problems is 1.00" in finding.text
    assert finding.numbers["split_half"] == pytest.approx(head_table(run, "mless").reliability())


def test_a_ranking_of_noise_is_called_noise(tmp_path: Path) -> None:
    run = run_with(tmp_path, Effect(drop=1.0), problems=16, heads=9)
    generator, stored = np.random.default_rng(3), run.summary
    noise = generator.lognormal(0, 0.3, size=(16, 3, 9))

    def changed(name: str, condition: str, queries: str = "original", model: str | None = None) -> object:
        values = stored(name, condition, queries, model)
        return values * noise if (name, condition) == ("received_original", "mless") else values

    run.summary = changed  # type: ignore[method-assign,assignment]
    assert "is mostly noise: rank correlation" in told(run)["reliability"].text


def test_one_problem_proves_nothing(tmp_path: Path) -> None:
    found = told(run_with(tmp_path, Effect(drop=0.5), problems=1))
    assert "receive cannot be told from noise with so few problems: 0.5" in found["first_layer"].text
    assert "it cannot be told whether it takes more attention" in found["random_against_mless"].text
    assert "reliability" not in found
    assert not re.search(r"\bnan\b", " ".join(finding.text for finding in found.values()))


def test_every_filler_of_the_same_length_and_place_is_compared_with_the_first(tmp_path: Path) -> None:
    count = Synthetic().conditions[1].count
    others = (
        Condition(name="alike", kind="characters", count=count),
        Condition(name="longer", kind="characters", count=count + 1),
        Condition(name="elsewhere", kind="characters", count=count, position="end"),
    )
    found = told(Synthetic(conditions=(*Synthetic().conditions, *others)).build(tmp_path / "run"))
    assert [name for name in found if "against" in name] == ["random_against_mless", "alike_against_mless"]


def test_a_threshold_inside_the_interval_decides_nothing() -> None:
    assert _decided([0.4, 0.3, 0.6], 0.5, "below", "above") == ""
    assert _decided([0.4, 0.3, 0.45], 0.5, "below", "above") == "below"
    assert _decided([0.6, 0.55, 0.7], 0.5, "below", "above") == "above"


def test_without_filler_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert findings(Synthetic(conditions=(NONE,)).build(tmp_path / "run")) == []


def test_a_finding_is_a_record(tmp_path: Path) -> None:
    for finding in findings(run_with(tmp_path, Effect())):
        record = finding.record()
        assert set(record) == {"name", "text", "numbers", "table", "verdict"}
        assert record["table"] in ("profiles", "summaries", "heads", "depth")
        assert record["text"].endswith(".")
        assert "\n" not in record["text"]
