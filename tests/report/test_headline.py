"""What is to be remembered of a run: it comes out either way, says no more than the numbers, and survives any run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis import export
from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.all import available_comparison, findings_of, missing_parts
from fillerscope.analysis.findings.answers import SMALL, answer_findings
from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.run import Run, open_run
from fillerscope.report.headline import Headline, headline
from fillerscope.store.schema import answers_name, merged_name
from fillerscope.study.conditions import PRESETS
from support.answered import Key, Row, answer, build
from support.synthetic import MLESS, NONE, RANDOM, Effect, Mechanism, Synthetic, swept

HOSTILE = "<script>alert('&')</script>\x1b[31m"


def tile(found: Headline, label: str) -> tuple[str, str]:
    return next((fact.value, fact.note) for fact in found.facts if _keyed(fact.label) == label)


def labels(found: Headline) -> list[str]:
    return [_keyed(fact.label) for fact in found.facts]


def _keyed(label: str) -> str:
    """The label of a tile with the condition's key alone in place of its whole name."""
    return re.sub(r", [^,]* \(([\w-]+)\)$", r", \1", label)


def solved(folder: Path, right: dict[str, int], problems: int = 40, **options: Any) -> Run:
    """Answers alone: of so many problems the first ones are right."""

    def draw(key: Key) -> Row:
        verdict = "right" if key[1] < right[key[3]] else "wrong"
        return answer(verdict, np.random.default_rng(key[1]), truncated=False)

    return build(folder, draw, problems, conditions=list(right), shard=problems, **options)


def lose(run: Run, name: str) -> Run:
    """The same run as somebody sees it before this file was written."""
    (run.path / name).unlink()
    return open_run(run.path)


# Attention


HELD: dict[str, Any] = {
    "diluted": 0.6,
    "twins": tuple(Effect(drop=np.full((3, 4), drop), filler=0.9) for drop in (0.59, 0.6, 0.61)),
}  # what length alone and untrained twins give


@pytest.mark.parametrize(
    ("drop", "noise", "held", "tone", "words"),
    [
        (0.9, 0.02, HELD, "change", "filler draws less attention than as many average tokens"),
        (0.3, 0.02, HELD, "change", "filler draws more attention than as many average tokens"),
        (0.6, 0.02, HELD, "no change", "no effect beyond length (no change as large as 5%)."),
        (0.9, 0.02, {}, "cannot be told", "whether filler has an effect cannot be told (nothing to measure it by)."),
        (0.9, 0.02, {"diluted": 0.6}, "cannot be told", "no effect is claimed, because untrained models were not"),
        (0.6, 0.5, HELD, "cannot be told", "whether filler has an effect cannot be told (needs about "),
    ],
)
def test_attention_alone(
    tmp_path: Path, drop: float, noise: float, held: dict[str, Any], tone: str, words: str
) -> None:
    effects = {"mless": Effect(drop=np.full((3, 4), drop))}
    found = headline(Synthetic(effects=effects, noise=noise, **held).build(tmp_path / "run"))
    assert found.tone == tone
    assert words in found.verdict
    assert f"Original tokens receive {drop:.3f} [" in found.verdict
    assert ("length alone would give 0.600" in found.verdict) == ("diluted" in held)
    assert ("untrained twins give 0.590 to 0.610" in found.verdict) == ("twins" in held)
    assert found.verdict.startswith("Tiny-A under mless (' /' repeated, 30 tokens, before the question): ")
    assert "Accuracy" not in found.verdict
    assert found.left_out == []


def test_the_tile_of_layer_1_has_the_interval_and_its_references(tmp_path: Path) -> None:
    recipe = Synthetic(**HELD)
    found = headline(recipe.build(tmp_path / "run"))
    # heads weigh by what they receive: 1 + 0.05 head
    weights = 1 + 0.05 * np.arange(recipe.heads)
    ratio = float((recipe.drop("mless")[0] * weights).sum() / weights.sum())
    low, high = ratio * np.exp(-recipe.reach()), ratio * np.exp(recipe.reach())
    value, note = tile(found, "Attention in layer 1, mless")
    assert value == f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
    assert note == "length alone would give 0.600, untrained twins give 0.590 to 0.610; effect: holds"
    assert tile(found, "Problems") == ("12", "12 measured")


def test_one_problem_tells_nothing(tmp_path: Path) -> None:
    found = headline(Synthetic(problems=1, right={"none": 0.0, "mless": 1.0}).build(tmp_path / "run"))
    assert found.tone == "cannot be told"
    assert "whether filler has an effect cannot be told (nothing to measure it by). " in found.lines[0]
    assert found.lines[1].startswith("Accuracy: not significant. 100.0% against 0.0% ")
    assert "+100.0 percentage points (p = 1 " in found.lines[1]
    assert tile(found, "Attention in layer 1, mless")[1] == "effect: cannot be told"
    assert "nan" not in json.dumps([found.verdict, *found.facts])


# Accuracy


def test_a_significant_gain_is_called_one(tmp_path: Path) -> None:
    found = headline(solved(tmp_path / "run", {"none": 20, "mless": 29, "mful": 22}))
    p = 2 * 0.5**9 * 2  # nine of nine, one of two comparisons
    assert found.tone == "change"
    assert found.lines[0].startswith("Accuracy: a significant gain. 72.5% against 50.0% without filler, +22.5 [")
    assert f" (p = {p:.2g} after Holm over 2 comparisons; paired over 40 problems)." in found.lines[0]
    assert re.search(r"The other comparison, mful, \+5\.0 \[.*\] percentage points, is not signif.*\.$", found.verdict)
    value, note = tile(found, "Accuracy, mless")
    assert re.fullmatch(r"\+22\.5 \[\+.*\] percentage points", value)
    assert note == f"a significant gain (p = {p:.2g})"
    assert tile(found, "Accuracy, mful")[1].startswith("not significant (p = 0.5); 40 problems show ")
    assert tile(found, "Problems") == ("40", "all answers judged")


def test_others_that_are_significant_are_named(tmp_path: Path) -> None:
    found = headline(solved(tmp_path / "run", {"none": 20, "mless": 21, "mful": 2}))
    assert found.tone == "cannot be told"
    assert "+2.5 [" in found.verdict
    assert re.search(r"Significant: mful, -45\.0 \[.*\] percentage points\.$", found.verdict)
    assert tile(found, "Accuracy, mful")[1].startswith("a significant loss (p = ")


def test_no_change_is_claimed_only_where_the_whole_interval_is_small(tmp_path: Path) -> None:
    few = headline(solved(tmp_path / "few", {"none": 20, "mless": 20}))
    assert few.tone == "cannot be told"
    many = headline(solved(tmp_path / "many", {"none": 200, "mless": 200}, problems=400))
    assert many.tone == "no change"
    assert f"not significant, and no change of more than {100 * SMALL:g} percentage points. " in many.verdict


def test_a_change_that_adjusting_takes_away_is_not_claimed(tmp_path: Path) -> None:
    right = {"none": 20, "mless": 26, "mful": 20, "random": 20}
    found = headline(solved(tmp_path / "run", right))
    assert found.tone == "cannot be told"  # p = 0.031 alone
    assert "Accuracy: not significant. " in found.verdict
    assert "(p = 0.094 after Holm over 3" in found.verdict
    assert found.verdict.endswith("Of 2 other comparisons none is significant.")


def test_answers_of_every_drawing_are_kept_apart(tmp_path: Path) -> None:
    run = solved(tmp_path / "run", {"none": 20, "mless": 29}, temperature=[0.5, 1.0], samples=2)
    found = headline(run)
    assert "Accuracy (temperature 0.5, 2 samples a problem): a significant gain. 72.5%" in found.verdict
    assert "Significant: mless, temperature 1, 2 samples a problem, +22.5 [" in found.verdict
    assert labels(found).count("Accuracy, mless") == 1


def test_failed_answers_are_counted_and_not_judged(tmp_path: Path) -> None:
    run = Synthetic(right={"none": 0.5, "mless": 1.0}, unjudged=tuple(range(12))).build(tmp_path / "run")
    found = headline(run)
    assert "Accuracy: whether it changes cannot be told: no problem was answered under both." in found.verdict
    assert found.tone == "cannot be told"
    assert tile(found, "Accuracy, mless")[0] == "no difference known"
    assert tile(found, "Problems") == ("12", "12 measured; 24 answers failed")
    assert "Truncated answers, mless" not in labels(found)


def test_rates_are_over_the_problems_of_their_difference(tmp_path: Path) -> None:
    """Of ten answers under the filler that did not fail, as many are right as of the same ones without."""

    def draw(key: Key) -> Row:
        failed = key[3] == "mless" and key[1] >= 10
        verdict = "failed" if failed else "right" if key[1] % 2 and key[1] < 10 else "wrong"
        return answer(verdict, np.random.default_rng(0), truncated=key[1] >= 10)

    found = headline(build(tmp_path / "run", draw, 20, conditions=["none", "mless"], shard=20))
    assert "50.0% against 50.0% without filler, +0.0 [" in found.verdict
    assert "paired over 10 problems" in found.verdict
    assert tile(found, "Truncated answers, mless")[0] == "0% against 0%"
    assert "Truncated answers:" not in found.verdict


def test_attention_comes_before_accuracy_which_sets_the_tone(tmp_path: Path) -> None:
    found = headline(Synthetic(right={"none": 0.5, "mless": 0.5}).build(tmp_path / "run"))
    assert [line.partition(":")[0] for line in found.lines[:2]] == ["Attention in layer 1", "Accuracy"]
    assert found.verdict == f"{found.subject}: {' '.join(found.lines)}"
    assert found.tone == "cannot be told"


def test_cells_of_sweeps_are_left_to_figures(tmp_path: Path) -> None:
    cells = swept({"name": "long", "kind": "repeat", "text": " /", "count": [5, 20]})[1:]
    right = {"none": 0.5, "long-5": 0.5}
    beside = headline(Synthetic(conditions=(NONE, MLESS, *cells), right=right).build(tmp_path / "beside"))
    assert [name for name in labels(beside) if name.startswith("Accuracy")] == ["Accuracy, mless"]
    alone = headline(Synthetic(conditions=(NONE, *cells), right=right).build(tmp_path / "alone"))
    assert [name for name in labels(alone) if name.startswith("Accuracy")] == ["Accuracy, long-5"]


# The mechanism


MECHANISM = ("scaling", "later", "deeper", "direction", "near_zero", "variance")


def claims_tile(run: Run, verdicts: dict[str, Verdict | None]) -> tuple[str, str]:
    """The tile where findings of these names have these verdicts; their prose may say anything."""
    prose = "it holds, does not hold and cannot be told"
    findings = [Finding(name, prose, "affine", verdict=verdict) for name, verdict in verdicts.items()]
    return tile(headline(run, findings=findings), "Published claims")


def test_claims_are_counted_as_they_were_decided(tmp_path: Path) -> None:
    run = Synthetic(attention=False, right={"none": 0.5}).build(tmp_path / "run")
    value, note = claims_tile(run, dict(zip(MECHANISM, (*Verdict, Verdict.FAILS), strict=True)))
    assert value == "1 of 6 hold, 1 by little, 1 not tested, 1 cannot be told"
    assert note == (
        "scaling: holds; near 1 later: holds by little; nothing affine deeper: not tested against its control; "
        "one direction: does not hold; fewer near zero: cannot be told; more variance: does not hold"
    )
    assert claims_tile(run, {"scaling": Verdict.FAILS, "direction": None})[0] == "0 of 1 hold"


def test_claims_without_untrained_models_are_not_said_to_hold(tmp_path: Path) -> None:
    inside = Mechanism(lam=(0.5, 1.0), direction=(0.9, 0.1), together=0.9, near_zero=(-0.0018, 0.02), variance=(0.9, 1))
    recipe = Synthetic(
        affine=True, activations=True, mechanisms={"mless": inside}, conditions=(NONE, MLESS), noise=0.01
    )
    value, note = tile(headline(recipe.build(tmp_path / "run")), "Published claims")
    assert value.startswith("0 of 7 hold, 4 not tested")
    assert "fewer near zero: does not hold; more variance: does not hold" in note
    assert "scaling: not tested against its control; near 1 later: not tested against its control" in note


def test_an_intervention_alone_decides_no_claim(tmp_path: Path) -> None:
    conditions = (NONE, PRESETS["arm"])
    recipe = Synthetic(conditions=conditions, affine=True, activations=True, right={"none": 0.5})
    found = headline(recipe.build(tmp_path / "run"))
    assert found.verdict.startswith("Tiny-A under arm (ARM in layer 1, c 0.13, p1 99.5, add): ")
    assert "of what they receive under none" in found.verdict
    assert "without filler" not in found.verdict
    assert "Published claims" not in labels(found)


def test_where_the_answer_looks_has_a_tile(tmp_path: Path) -> None:
    run = Synthetic(right={"none": 0.5}, answering=True).build(tmp_path / "run")
    numbers = next(one for one in findings_of(run[None], available_comparison(run)) if one.name == "lookback").numbers
    value, note = tile(headline(run), "Answer on the filler, mless")
    assert value == f"{numbers['answer']:.3f} [{numbers['answer_low']:.3f}, {numbers['answer_high']:.3f}]"
    assert f"receives {numbers['factor']:.3f} [" in note


# Any run


def test_without_a_filler_there_is_nothing_to_say(tmp_path: Path) -> None:
    found = headline(Synthetic(conditions=(NONE,), right={"none": 0.5}).build(tmp_path / "run"))
    assert found.verdict == "Tiny-A: Nothing to compare, because the study has no condition beside none."
    assert (found.tone, labels(found)) == ("cannot be told", ["Problems"])


def test_every_model_has_a_headline_of_its_own(tmp_path: Path) -> None:
    names = {"tiny-a": "Tiny-A", "tiny-b": HOSTILE}
    right = {"none": 0.5, "tiny-a mless": 0.5, "tiny-b mless": 1.0}
    run = Synthetic(labels=names, right=right, problems=24).build(tmp_path / "run")
    first, second = (headline(run, model) for model in run.models)
    assert (first.tone, second.tone) == ("cannot be told", "change")
    assert second.verdict.startswith(f"{HOSTILE} under mless (")  # as it is: escaping is the page's job
    assert second.label == HOSTILE
    assert "after Holm over 4 comparisons" in first.verdict  # of both models
    assert first == headline(run)


def test_a_run_in_progress_tells_what_is_there(tmp_path: Path) -> None:
    recipe = Synthetic(right={"none": 0.5, "mless": 1.0}, problems=24, labels={"tiny-a": "A", "tiny-b": "B"})
    run = lose(recipe.build(tmp_path / "run"), answers_name("tiny-b", 4))
    whole, part = headline(run, "tiny-a"), headline(run, "tiny-b")
    assert "100.0% against 50.0%" in whole.verdict
    assert "after Holm over 2 comparisons" in whole.verdict
    assert whole.left_out == []
    assert "Accuracy" not in part.verdict
    assert part.tone == "cannot be told"
    assert [line for line in part.left_out if "is not finished for tiny-b" in line] == part.left_out != []
    run = lose(run, merged_name("tiny-b"))
    nothing = headline(run, "tiny-b")
    assert nothing.verdict.startswith("B: Nothing can be told yet; ")
    assert nothing.facts == []
    assert findings_of(run["tiny-b"], available_comparison(run)) == []


def test_what_is_damaged_is_left_out_and_said_so(tmp_path: Path) -> None:
    run = Synthetic(right={"none": 0.5}).build(tmp_path / "run")
    file = run.path / answers_name("tiny-a", 0)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    run = open_run(run.path)
    assert "the file is damaged" in missing_parts(run[None])[0]
    assert "Accuracy" not in headline(run).verdict


# Findings of one model


@pytest.fixture(scope="module")
def everything(shared: Callable[[str, Callable[[Path], Any]], Path]) -> Run:
    """All that can be measured, of two models. Nobody changes it."""
    conditions = (NONE, MLESS, RANDOM, PRESETS["arm"], PRESETS["knockout"], PRESETS["positions"])
    recipe = Synthetic(
        conditions=conditions, right={"none": 0.5}, affine=True, activations=True, answering=True,
        labels={"tiny-a": "A", "tiny-b": "B"},
    )  # fmt: skip
    return open_run(shared("everything", recipe.build))


def test_findings_come_in_the_order_in_which_they_are_shown(everything: Run, tmp_path: Path) -> None:
    run = everything
    table = compare(run)
    inside = mechanism_findings(run["tiny-b"]) + control_findings(run["tiny-b"])
    wanted = attention_findings(run["tiny-b"]) + inside + answer_findings(run["tiny-b"], table)
    assert [one.text for one in findings_of(run["tiny-b"], table)] == [one.text for one in wanted]
    assert [one.text for one in findings_of(run["tiny-b"], available_comparison(run))] == [one.text for one in wanted]
    assert available_comparison(Synthetic().build(tmp_path / "attention")) == []


def tables() -> Iterator[str]:
    for group in (export.ATTENTION, export.AFFINE, export.ACTIVATIONS, export.LOOKBACK, export.ANSWERS):
        yield from group


def test_every_finding_names_a_table_that_is_exported(everything: Run, tmp_path: Path) -> None:
    run = everything
    found = findings_of(run[None], available_comparison(run))
    named = {one.table for one in found}
    assert named == {"depth", "summaries", "affine", "activations", "lookback", "accuracy"}
    assert named <= set(tables())
    written = {path.stem for path in export.export(run, tmp_path / "tables")}
    assert named <= written
