"""The function of the library that plans a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fillerscope
from fillerscope.errors import ArgumentError, ModelError
from fillerscope.measure.planning.study_plan import PlanOptions, plan_study
from support.studies import save_model, study_of


def test_it_tells_what_the_command_tells(tmp_path: Path) -> None:
    study = study_of(save_model(tmp_path / "tiny"), device="cpu")
    told = fillerscope.plan(study, "h100", jobs=3).record()
    assert told == plan_study(study, PlanOptions("h100", jobs=3)).record()
    assert fillerscope.plan(study, calibrate=False).record() == plan_study(study, PlanOptions("cpu", False)).record()


@pytest.mark.parametrize("given", [{"jobs": 0}, {"jobs": "3"}, {"calibrate": "no"}, {"device": 7}, {"progress": 1}])
def test_arguments_of_another_kind_are_one_line(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(given))} is "):
        fillerscope.plan({"name": "x"}, **given)


def test_a_device_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no peak rates are known of 'abacus'"):
        fillerscope.plan(study_of(save_model(tmp_path / "tiny")), "abacus")
