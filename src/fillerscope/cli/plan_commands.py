"""What a study will take, on the terminal: its work, time, memory and bytes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.cli import tables
from fillerscope.display import readable
from fillerscope.progress import TerminalProgress
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from fillerscope.measure.planning.model_plan import ModelPlan
    from fillerscope.measure.planning.study_plan import Memory, StudyPlan

COUNTED = {
    "weights": "weights", "passes": "a pass", "sums": "measured sums", "files": "shards on their way to disk",
    "prefill": "a prefill pass", "slots": "KV cache",
}  # fmt: skip


def show_plan(path: Path, study: Study, device: str | None, calibrate: bool, jobs: int, json: bool) -> None:
    """Plan a study and show it."""
    from fillerscope.measure.planning.study_plan import PlanOptions, plan_study

    with TerminalProgress(json) as reporter:
        plan = plan_study(study, PlanOptions(device or study.device, calibrate, jobs), reporter)
    if json:
        tables.print_json(plan.record())
        return
    how = "timed here" if plan.calibrated else "by peak rates"
    tables.lines([f"{study.name} on {plan.device}, {how}: {duration(plan.seconds)}"], style="bold")
    if jobs > 1:
        tables.lines([f"As {jobs} jobs: {duration(plan.longest_job)} for the longest of them"])
    columns = ("model", "prompts", "tokens", "passes", "answers", "their tokens", "time", "memory", "stored")
    tables.table("", columns, [_row(*pair) for pair in zip(plan.models, plan.memory, strict=True)])
    tables.table("Stages", ("model", "stage", "time", "stored"), [row for one in plan.models for row in _stages(one)])
    tables.lines(_told(plan))
    tables.lines([f"Next: fillerscope run {shlex.quote(str(path))}"])


def duration(seconds: float) -> str:
    """Seconds in words that fit their size."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _row(model: ModelPlan, memory: Memory) -> list[str]:
    taken = memory.process if memory.device is None else memory.device
    passes = sum(stage.passes for stage in model.stages.values())
    numbers = (model.prompts, model.prompt_tokens, passes, model.answers, model.answer_tokens)
    return [
        model.label, *(f"{number:,}" for number in numbers), duration(model.seconds), readable(taken),
        readable(model.bytes),
    ]  # fmt: skip


def _stages(model: ModelPlan) -> list[list[str]]:
    fixed = [[model.label, name, duration(seconds), ""] for name, seconds in model.fixed.items() if seconds]
    stages = [
        [model.label, name, duration(sum(one.seconds)), readable(one.bytes + one.merged)]
        for name, one in model.stages.items()
    ]
    return fixed + stages


def _told(plan: StudyPlan) -> list[str]:
    """What is counted, what was assumed and what is left out."""
    largest = max(plan.memory, key=lambda one: one.device or one.process)
    parts = [f"{COUNTED[name]} {readable(size)}" for name, size in largest.parts.items() if size]
    device = "" if plan.device_memory is None else f"{readable(plan.device_memory)} on the device, "
    failed = sum(model.failed for model in plan.models)
    return [
        f"Memory: {device}{readable(plan.process_memory)} of the process; in it {', '.join(parts)}.",
        f"Stored: {readable(plan.bytes)}.",
        *([f"{failed} problems have no prompts that the model takes."] if failed else []),
        *(f"{note[0].upper()}{note[1:]}." for note in plan.notes),
    ]
