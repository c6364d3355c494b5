"""What a study takes, told before anything runs; a function of the library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fillerscope.measure.planning.study_plan import PlanOptions, StudyPlan, plan_study
from fillerscope.progress import SILENT, Progress
from fillerscope.study.arguments import check_arguments
from fillerscope.study.study import Study, study_from


def plan(
    study: Study | Mapping[str, object] | str | Path,
    device: str | None = None,
    *,
    jobs: int = 1,
    calibrate: bool = True,
    progress: Progress = SILENT,
) -> StudyPlan:
    """Tell what a study takes: `plan("study.yaml").record()` has prompts, tokens, seconds, memory and bytes.

    From a short calibration on this machine, or from a table of peak rates with `calibrate=False` or a `device` of that
    table, such as "h100". `jobs` is how many share the work. `progress` is what it reports to, nobody by default.
    """
    check_arguments({"device": device, "calibrate": calibrate, "jobs": jobs, "progress": progress}, ("device",))
    checked = study_from(study)
    return plan_study(checked, PlanOptions(device or checked.device, calibrate, jobs), progress)
