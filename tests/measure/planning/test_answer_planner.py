"""Answers are planned in the groups in which a run writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fillerscope.measure.planning.decoding import Lengths
from fillerscope.measure.planning.model_plan import StagePlan
from fillerscope.measure.planning.rates import Rates
from fillerscope.measure.planning.study_plan import PlanOptions, StudyPlan, plan_study
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN
from support.studies import save_model, study_of

ANSWERED: dict[str, Any] = {"probes": {"attention": False}, "generation": {"max_tokens": 24, "noise": True}}
SHARDS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


def planned(folder: Path, device: str, jobs: int = 1) -> StudyPlan:
    return plan_study(study_of(folder, **ANSWERED), PlanOptions(device, calibrate=False, jobs=jobs))


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets seconds of a decode step, of grading an answer and of starting the graders; nothing else takes time."""

    def given(step: float, grade: float, grader: float) -> None:
        lengths = Lengths((), (), 24)
        peak = Rates(0.0, 0.0, lambda *_: step, 0.0, 0.0, 0.0, grade=grade, grader=grader, lengths=lengths)
        monkeypatch.setattr(Rates, "peak", lambda *_: peak)

    return given


def stage(plan: StudyPlan, name: str = ANSWERING) -> StagePlan:
    return plan.models[0].stages[name]


@pytest.mark.parametrize("name", [ANSWERING, ANSWERING_AGAIN])
def test_a_gpu_takes_the_steps_of_one_group(folder: Path, name: str, rates: Any) -> None:
    rates(1.0, 0.0, 0.0)
    alone, together = (stage(planned(folder, device), name) for device in ("cpu", "h100"))
    assert sum(together.seconds) < 0.6 * sum(alone.seconds)
    assert together.seconds == [together.seconds[0]] * SHARDS  # shared evenly
    assert together.bytes == alone.bytes  # a file for each shard all the same


def test_jobs_have_groups_of_their_own(folder: Path, rates: Any) -> None:
    rates(1.0, 0.0, 0.0)
    one, three = (planned(folder, "h100", jobs) for jobs in (1, SHARDS))
    assert sum(stage(three).seconds) == pytest.approx(sum(stage(planned(folder, "cpu")).seconds))
    assert three.longest_job < three.seconds > one.seconds


def test_a_gpu_writes_while_answers_are_graded(folder: Path, rates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grading of the last group alone is waited for."""
    monkeypatch.setattr("fillerscope.measure.answer_groups.AT_ONCE", 1)  # groups of a shard
    rates(1.0, 0.0, 0.0)
    steps = stage(planned(folder, "h100")).seconds
    rates(1.0, 0.01, 5.0)
    seconds, answers = stage(planned(folder, "h100")).seconds, [15, 15, 10]
    assert seconds == pytest.approx([*steps[:-1], steps[-1] + 0.01 * answers[-1]])
    rates(1.0, 100.0, 5.0)
    seconds = stage(planned(folder, "h100")).seconds
    assert seconds == pytest.approx([steps[0], 100 * 15, 100 * 15 + 100 * 10])


def test_a_processor_grades_besides(folder: Path, rates: Any) -> None:
    rates(1.0, 0.0, 0.0)
    steps = sum(stage(planned(folder, "cpu")).seconds)
    rates(1.0, 0.01, 5.0)
    assert sum(stage(planned(folder, "cpu")).seconds) == pytest.approx(steps + 40 * 0.01 + 5)
