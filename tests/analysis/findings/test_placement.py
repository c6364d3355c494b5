"""A condition with filler at the end is told to leave most tokens as they are, with their number; others are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.findings.all import findings_of
from fillerscope.analysis.findings.placement import placement_findings
from fillerscope.store.layouts import Layouts
from fillerscope.study.conditions import PRESETS, Condition
from support.synthetic import NONE, Synthetic

END = Condition(name="late", kind="characters", count=9, position="end")
CELL = Condition(name="swept-end", kind="characters", count=3, position="end", sweep="swept")


def test_filler_at_the_end_leaves_the_tokens_before_it_as_they_are(tmp_path: Path) -> None:
    made = Synthetic(conditions=(NONE, PRESETS["mless"], END, CELL, PRESETS["arm"]))
    run = made.build(tmp_path / "run")
    (finding,) = placement_findings(run[None])
    tokens = np.mean([made.length(number) for number in made.measured])
    assert finding.numbers == {"behind": 5.0, "tokens": pytest.approx(tokens)}
    assert finding.text.startswith(
        f"Place, late, swept: of {tokens:.1f} original tokens 5.0 stand behind filler at the"
    )
    assert f"means over {len(made.measured)} problems" in finding.text
    assert "cannot see it: their rows of attention, outputs and activations are those without filler" in finding.text
    assert finding in findings_of(run[None], [])


def test_where_no_template_follows_nothing_stands_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Synthetic(conditions=(NONE, END)).build(tmp_path / "run")
    prompts = {"late": {"spans": [0, 2, 2, 1, 1]}}
    layouts = Layouts.of_records([{"status": "ok", "tokens": ["a"] * 3, "prompts": prompts}, {"status": "failed"}])
    monkeypatch.setattr(run[None], "layouts", lambda: layouts)
    (finding,) = placement_findings(run[None])
    assert finding.numbers == {"behind": 0.0, "tokens": 3.0}
    assert "of 3.0 original tokens none stands behind" in finding.text


@pytest.mark.parametrize("place", ["start", "before_question", "random"])
def test_other_places_are_not_spoken_of(tmp_path: Path, place: str) -> None:
    other = END.model_copy(update={"position": place})
    assert placement_findings(Synthetic(conditions=(NONE, other)).build(tmp_path / "run")[None]) == []


def test_an_intervention_has_no_place(tmp_path: Path) -> None:
    assert placement_findings(Synthetic(conditions=(NONE, PRESETS["arm"])).build(tmp_path / "run")[None]) == []
