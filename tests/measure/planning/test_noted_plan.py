"""What a plan said is the first guess of the run's progress, and nothing that lies in its place can do harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fillerscope.measure.planning.noted_plan import _note_of, note_plan, noted_plan
from fillerscope.measure.planning.study_plan import plan_study
from fillerscope.measure.run_study import run_study
from fillerscope.progress import Plan, Silent
from fillerscope.store.contents import ANSWERING, MEASURING
from fillerscope.study.study import Study
from support.studies import save_model, study_of


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))


class Told(Silent):
    """Keeps the plan that it is told of."""

    def plan(self, stages: Plan) -> None:
        self.stages = stages


def told(study: Study, out: Path) -> dict[str, float | None]:
    """Seconds of all units of the stages that a run announces, by kind."""
    progress = Told()
    run_study(study, out, progress=progress)
    return {
        one.kind.split()[0]: None if one.seconds is None else one.seconds * one.units
        for one in progress.stages.values()
    }


def test_a_run_starts_with_what_its_plan_said(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tiny")
    study = study_of(str(folder), problems={"limit": 4}, generation={"max_tokens": 4})
    assert told(study, tmp_path / "unplanned") == {"measuring": None, "answering": None}
    (model,) = plan_study(study).models
    expected = {
        name.split()[0]: sum(model.stages[stage].seconds)
        for name, stage in (("measuring", MEASURING), ("answering", ANSWERING))
    }
    found = told(study, tmp_path / "planned")
    assert found == pytest.approx(expected)
    other = study.model_copy(update={"seed": 7})
    assert noted_plan(other) == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"m": 3}', '{"m": {"measuring": "long"}}', "[" * 100_000, '{"m": null}']
)
def test_a_note_that_is_none_is_passed_over(text: str) -> None:
    study = study_of("tiny")
    note_plan(study, {"m": {"measuring": 3.0}})
    assert noted_plan(study) == {"m": {"measuring": 3.0}}
    _note_of(study).write_text(text, encoding="utf-8")
    assert noted_plan(study) == {}


@pytest.mark.parametrize("spoil", [lambda note: note.chmod(0o666), lambda note: note.parent.chmod(0o777)])
def test_a_note_that_others_can_write_to_is_not_believed(spoil: Callable[[Path], None]) -> None:
    study = study_of("tiny")
    note_plan(study, {"m": {"measuring": 3.0}})
    spoil(_note_of(study))
    assert noted_plan(study) == {}
