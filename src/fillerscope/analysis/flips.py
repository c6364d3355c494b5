"""The problems whose verdict changed between two conditions, with both answers."""

from __future__ import annotations

from dataclasses import dataclass

from fillerscope.analysis.answers import answers
from fillerscope.analysis.model_run import ModelRun
from fillerscope.files import Json
from fillerscope.study.conditions import BASELINE


@dataclass(frozen=True)
class Flip:
    """One sample of one problem, answered under two conditions. `before` and `after` are fields by name."""

    id: str
    sample: int
    question: str
    reference: str
    before: Json
    after: Json

    @property
    def direction(self) -> str:
        return "gained" if self.after["verdict"] == "right" else "lost"

    def record(self) -> Json:
        """For programs and tables."""
        return {
            "id": self.id, "sample": self.sample, "direction": self.direction, "question": self.question,
            "reference": self.reference, "before": self.before, "after": self.after,
        }  # fmt: skip


def flips(run: ModelRun, condition: str, against: str = BASELINE, temperature: float | None = None) -> list[Flip]:
    """Samples that are right under one condition alone, gained ones first; failed answers are left out."""
    given = answers(run, temperature)
    before, after = (given.of(run.condition(name).name) for name in (against, condition))
    changed = before.given & after.given & (before.right != after.right)
    problems = run.problems()
    flipped = [
        Flip(
            problems[i]["id"], int(sample) + 1, problems[i]["question"], problems[i]["answer"],
            *({name: array[i, sample] for name, array in sheet.fields.items()} for sheet in (before, after)),
        )
        for i, sample in zip(*changed.nonzero(), strict=True)
    ]  # fmt: skip
    return sorted(flipped, key=lambda flip: flip.direction)
