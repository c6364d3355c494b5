"""The run that the library gives: its methods are what the commands are, and a notebook shows it as a page.

Apart from `run` and `model_run`, because tables are made of runs. What a method needs is imported when it is called, so
that opening a run stays quick. Figures and reports stand above this package; `api` adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fillerscope.analysis import model_run, run
from fillerscope.analysis.rows import Rows
from fillerscope.errors import FigureError, FillerscopeError
from fillerscope.files import Json
from fillerscope.study.arguments import check_arguments
from fillerscope.study.conditions import BASELINE

if TYPE_CHECKING:
    from fillerscope.analysis.accuracy import Accuracy
    from fillerscope.analysis.findings.finding import Finding
    from fillerscope.analysis.flips import Flip
    from fillerscope.analysis.heads import HeadTable

COMPARED = ("label", "condition", "n", "accuracy", "low", "high", "difference", "adjusted")
FLIPPED = ("id", "sample", "direction", "question", "reference", "before", "after")
LAYERED = ("layer", "lambda_fit", "lambda_mass", "explained", "direction", "near_zero_difference", "variance_ratio")
FOUND = ("verdict", "condition", "text")


@dataclass(frozen=True, repr=False)
class Mechanism:
    """What a run says of the published mechanism under one condition: findings, and a row for each layer."""

    model: str
    condition: str
    findings: Rows[Finding]
    layers: Rows[Json]

    def __repr__(self) -> str:
        return "\n\n".join(repr(rows) for rows in (self.findings, self.layers) if rows)

    def _repr_html_(self) -> str:
        return self.findings._repr_html_() + (self.layers._repr_html_() if self.layers else "")


class ModelRun(model_run.ModelRun):
    """One model of a run, or one of its untrained twins. Without a condition the first filler is meant."""

    def __init__(self, run: run.Run, name: str) -> None:
        super().__init__(run, name)
        self._run = run

    def heads(self, condition: str | None = None, queries: str = "original") -> HeadTable:
        """Every head under a filler condition against none, to be ranked."""
        from fillerscope.analysis.heads import head_table

        return head_table(self, condition or self.main, queries)

    def compare(self, by: str | None = None) -> Rows[Accuracy]:
        """Accuracy under each condition, and each filler against none; by groups of problems where `by` is a field."""
        from fillerscope.analysis.accuracy import compare

        return Rows(f"{self.label}: accuracy under each condition", compare(self._run, [self.name], by), COMPARED)

    def flips(
        self, condition: str | None = None, against: str = BASELINE, temperature: float | None = None
    ) -> Rows[Flip]:
        """The problems whose verdict differs between two conditions, with both answers."""
        from fillerscope.analysis.flips import flips

        name = condition or self.main
        if name == against:
            raise FigureError(f"{name!r} does not differ from itself; name two conditions, by condition and against")
        return Rows(f"{self.label}: {against} to {name}", flips(self, name, against, temperature), FLIPPED)

    def findings(self) -> Rows[Finding]:
        """All findings on the model; of a run in progress, those that can be told already."""
        from fillerscope.analysis.findings.all import available_comparison, findings_of
        from fillerscope.analysis.findings.brief import brief

        return Rows(f"What {self.label} shows", findings_of(self, available_comparison(self._run)), FOUND, brief)

    def mechanism(self, condition: str | None = None) -> Mechanism:
        """The published claims about the mechanism, decided, and what was measured of it in each layer."""
        from fillerscope.analysis.findings.brief import brief
        from fillerscope.analysis.findings.controls import control_findings
        from fillerscope.analysis.findings.mechanism import mechanism_findings
        from fillerscope.analysis.mechanism import mechanism_rows

        name = self.condition(condition).name if condition else self.main
        layers = mechanism_rows(self, name)
        known = [key for key in LAYERED if any(key in row for row in layers)]
        found = mechanism_findings(self, name) + control_findings(self, name)
        return Mechanism(
            self.name, name, Rows(f"{self.label}: mechanism under {name}", found, FOUND, brief),
            Rows(f"{self.label}, {name} against {BASELINE}, by layer", layers, known),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<ModelRun {self.label} of {self.path.resolve().name}>"


class Run(run.Run):
    """A finished run, opened for reading. What asks for one of its models means the first where none is named."""

    def __getitem__(self, model: str | None) -> ModelRun:
        return cast(ModelRun, super().__getitem__(model))

    def _model_run(self, name: str) -> ModelRun:
        return ModelRun(self, name)

    def heads(self, condition: str | None = None, queries: str = "original", model: str | None = None) -> HeadTable:
        """`ModelRun.heads` of a model."""
        return self[model].heads(condition, queries)

    def compare(self, by: str | None = None, models: Sequence[str] = ()) -> Rows[Accuracy]:
        """Accuracy of all models, or of some; p is adjusted over all rows. `by` groups problems by a field."""
        check_arguments({"models": models})
        from fillerscope.analysis.accuracy import compare

        return Rows("Accuracy under each condition", compare(self, list(models), by), COMPARED)

    def flips(
        self,
        condition: str | None = None,
        against: str = BASELINE,
        temperature: float | None = None,
        model: str | None = None,
    ) -> Rows[Flip]:
        """`ModelRun.flips` of a model."""
        return self[model].flips(condition, against, temperature)

    def findings(self, model: str | None = None) -> Rows[Finding]:
        """`ModelRun.findings` of a model."""
        return self[model].findings()

    def mechanism(self, condition: str | None = None, model: str | None = None) -> Mechanism:
        """`ModelRun.mechanism` of a model."""
        return self[model].mechanism(condition)

    def verify(self) -> list[str]:
        """A line for each file that is missing or damaged, or for problems that do not add up."""
        from fillerscope.analysis.integrity import faults

        return self.store.verify() or faults(self)

    def __repr__(self) -> str:
        from fillerscope.analysis.notebook import summary

        try:
            return f"<Run {summary(self)}>"
        except FillerscopeError as error:  # of a run that is damaged, or has no study yet
            return f"<Run {self.path.name}: {error}>"

    def _repr_html_(self) -> str:
        from fillerscope.analysis.notebook import page

        return page(self)
