"""Flips by rounding and by filler, against the definitions worked out answer by answer."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.export import export
from fillerscope.analysis.findings.all import available_comparison, findings_of, missing_parts
from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.finding import Verdict
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.noise import Noise, noise_floor
from fillerscope.analysis.run import open_live_run, open_run
from fillerscope.cli.show_commands import show_comparison
from fillerscope.errors import FigureError, StoreError
from fillerscope.report.answer_payload import comparison
from fillerscope.report.html import render
from fillerscope.store.live import LiveStore
from fillerscope.store.schema import repeated_answers_name
from support.answered import AGAIN, Key, Row, answer, build, drawn_at_random

DRAW = drawn_at_random(4)


def by_hand(problems: int, samples: int, temperature: float, name: str) -> tuple[list[float], int, int, int]:
    """Each problem's share of verdicts that differ from the first answers; answers, flips and texts in all."""
    means, answers, flips, texts = [], 0, 0, 0
    for n in range(problems):
        pairs = [
            [DRAW(("a", n, temperature, condition, sample)) for condition in ("none", name)]
            for sample in range(samples)
        ]
        known = [(one, two) for one, two in pairs if "failed" not in (one["verdict"], two["verdict"])]
        changed = [(one["verdict"] == "right") != (two["verdict"] == "right") for one, two in known]
        means.append(float(np.mean(changed)) if known else float("nan"))
        answers, flips = answers + len(known), flips + sum(changed)
        texts += sum(one["text"] != two["text"] for one, two in known)
    return means, answers, flips, texts


@pytest.mark.parametrize(("temperature", "samples"), [(0.0, 1), (0.8, 3)])
def test_flips_are_counted_as_defined(tmp_path: Path, temperature: float, samples: int) -> None:
    run = build(tmp_path / "run", DRAW, 23, temperature=temperature, samples=samples, noise=True)
    rows = {row.condition: row for row in noise_floor(run[None]) if row.samples == samples}
    rounding = by_hand(23, samples, temperature, AGAIN)
    assert list(rows) == ["none", "mless", "mful"]
    for name, row in rows.items():
        means, *counts = rounding if name == "none" else by_hand(23, samples, temperature, name)
        assert [row.answers, row.flips, row.texts] == counts
        assert row.share == pytest.approx(np.nanmean(means))
        assert row.low < row.share < row.high
        if name != "none":
            gaps = np.array(means) - np.array(rounding[0])
            gaps = gaps[np.isfinite(gaps)]
            assert row.pairs == len(gaps) < 23
            assert row.difference == pytest.approx(gaps.mean())
            assert row.difference_low < row.difference < row.difference_high
            assert row.p == pytest.approx(flipped_signs(gaps))
    assert rows["mless"].adjusted == pytest.approx(holm(rows, "mless", "mful"))
    assert np.isnan(rows["none"].p)


def flipped_signs(gaps: Any) -> float:
    """Over every pattern of signs of those that are not zero."""
    moved = gaps[np.abs(gaps) > 1e-12]
    sums = [abs(float(np.dot(signs, moved))) for signs in product((-1, 1), repeat=len(moved))]
    return float(np.mean([one >= abs(moved.sum()) - 1e-9 for one in sums]))


def holm(rows: dict[str, Noise], one: str, other: str) -> float:
    first, second = rows[one].p, rows[other].p
    return min(1.0, 2 * first) if first <= second else min(1.0, max(first, 2 * second))


def test_the_second_answers_are_no_condition(tmp_path: Path) -> None:
    """Nothing else that a run says changes."""
    plain, noisy = build(tmp_path / "plain", DRAW), build(tmp_path / "noisy", DRAW, noise=True)
    assert repr(compare(noisy)) == repr(compare(plain))  # NaN is not itself
    assert noisy.conditions == plain.conditions
    assert noisy["a"].answer_columns() == plain["a"].answer_columns()
    added = [one.name for one in answer_findings(noisy[None], compare(noisy))][
        len(answer_findings(plain[None], compare(plain))) :
    ]
    assert added == ["noise_mless", "noise_mful"]
    assert noise_floor(plain[None]) == []
    with pytest.raises(FigureError, match="no noise floor"):
        plain["a"].again_columns()


def flips_as_asked(key: Key) -> Row:
    """Of 50 problems all are right without filler; rounding loses 4 of them, and mless 14."""
    _, number, _, condition, _ = key
    lost = {"again": 4, "mless": 14}.get(condition, 0)
    made = answer("wrong" if number < lost else "right", np.random.default_rng(number))
    return made | {"text": f"{number < lost}"}


def test_the_finding_tells_both_and_their_difference(tmp_path: Path) -> None:
    run = build(tmp_path / "run", flips_as_asked, 50, conditions=("none", "mless"), noise=True)
    (finding,) = [one for one in findings_of(run[None], available_comparison(run)) if one.name == "noise_mless"]
    assert finding.table == "noise"
    assert (finding.verdict, finding.condition) == (Verdict.HOLDS, "mless")
    assert (finding.numbers["flips_rounding"], finding.numbers["flips_filler"]) == (0.08, 0.28)
    assert (finding.estimates["difference"].value, finding.estimates["difference"].n) == (pytest.approx(0.2), 50)
    assert finding.facts["adjusted"] == pytest.approx(2 * 0.5**10)  # ten of ten
    assert "significantly more than the noise floor (p = 0.00195)" in finding.text
    assert "mless changes 14 of 50 verdicts (28.0%) and 14 texts; rounding alone" in finding.text
    told = comparison(run)["noise"]
    assert [row["flips"] for row in told] == [4, 14]
    assert told[1]["verdict"] == "significantly more than the noise floor (p = 0.00195)"
    assert comparison(build(tmp_path / "plain", DRAW))["noise"] == []


def test_without_conditions_rounding_is_told_alone(tmp_path: Path) -> None:
    run = build(tmp_path / "run", flips_as_asked, 50, conditions=("none",), noise={"dtype": "bfloat16"})
    (finding,) = answer_findings(run[None], compare(run))
    assert (finding.name, finding.verdict) == ("noise_none", None)
    assert finding.estimates["flips_rounding"].value == 0.08
    assert not finding.estimates["flips_filler"].is_known
    assert "rounding alone (computed in bfloat16) changes 4 of 50 verdicts (8.0%) and 4 texts." in finding.text


def test_tables_hold_the_floor_and_its_answers(tmp_path: Path) -> None:
    from pyarrow import parquet

    run = build(tmp_path / "run", DRAW, models=("a", "b"), noise=True)
    files = {path.stem: path for path in export(run, tmp_path / "tables")}
    assert parquet.read_table(files["noise"]).num_rows == 2 * 3
    again = parquet.read_table(files["answers_again"]).to_pydict()
    assert set(again["condition"]) == {"none"}
    assert len(again["id"]) == 2 * 11
    assert "noise" not in {path.stem for path in export(build(tmp_path / "plain", DRAW), tmp_path / "others")}


def test_a_floor_that_is_not_finished(tmp_path: Path) -> None:
    """In progress, as many problems as are there; else it is missing, and everything else can still be told."""
    run = build(tmp_path / "run", DRAW, noise=True)
    assert faults(run) == []
    (tmp_path / "run" / repeated_answers_name("a", 1)).unlink()
    part = noise_floor(open_live_run(tmp_path / "run")[None])
    assert [part[0].answers, part[0].flips, part[0].texts] == list(by_hand(4, 1, 0.0, AGAIN)[1:])
    stage = LiveStore.open(tmp_path / "run").progress()[-1]
    assert (stage.stage, stage.shards, stage.finished) == ("answering again", 1, False)
    broken = open_run(tmp_path / "run")
    with pytest.raises(StoreError, match="not finished"):
        noise_floor(broken[None])
    assert any("not finished" in reason for reason in missing_parts(broken[None]))
    assert {one.name for one in findings_of(broken[None], available_comparison(broken))} == {
        one.name for one in answer_findings(broken[None], compare(broken), noise=[])
    }
    (tmp_path / "run" / repeated_answers_name("a", 0)).unlink()
    assert noise_floor(open_live_run(tmp_path / "run")[None]) == []


def test_report_and_command_show_the_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build(tmp_path / "run", flips_as_asked, 50, conditions=("none", "mless"), noise=True)
    page = render(run)
    assert '<section id="noise"><h2>Noise floor</h2>' in page
    assert "Prompts without filler were answered twice (the second time: other neighbours in the batch)." in page
    assert 'id="table-noise"' in page
    show_comparison(run.path, [], None, verbose=True, json=False)
    shown = capsys.readouterr().out
    assert "A, greedy: verdicts that change" in shown
    assert "rounding alone (other neighbours in the batch)" in shown
    show_comparison(run.path, [], None, verbose=False, json=True)
    told = json.loads(capsys.readouterr().out)["noise"]["a"]
    assert [(row["condition"], row["flips"], row["pairs"]) for row in told] == [("none", 4, 0), ("mless", 14, 50)]
    assert '<section id="noise">' not in render(build(tmp_path / "plain", DRAW))
