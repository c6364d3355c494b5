"""A run folder opened for reading: its study, its conditions, and what was asked of its models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from fillerscope.analysis.answer_tables import AnswerTables
from fillerscope.errors import FigureError, StoreError
from fillerscope.files import Json
from fillerscope.problems.problem import repeated_questions
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import STUDY, AnsweredProblem
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.generation import NoiseSpec
from fillerscope.study.study import QUERIES, AttentionProbe, Study
from fillerscope.study.token_classes import class_names

ANSWER = "answer"  # the queries are the rows of the model's own answer


class StoredRun:
    """What is the same for all models of a run; of a run in progress, where `partial`, as much as has been written."""

    def __init__(self, store: RunStore, partial: bool = False) -> None:
        self.store, self.partial = store, partial
        if store.part is not None:
            told = "`fillerscope merge` makes the run of all parts"
            raise StoreError(f"{store.path} is part {store.part} of a run, not a run; {told}")

    def __dir__(self) -> list[str]:
        """Public names, which is what completion offers."""
        return [name for name in super().__dir__() if not name.startswith("_")]

    @property
    def path(self) -> Path:
        return self.store.path

    @cached_property
    def study(self) -> Study:
        try:
            study = Study.stored(self.store.study)
        except ValueError:
            raise StoreError(f"{self.path / STUDY} does not hold a study; run the study again") from None
        if not _is_measured(study, self.store.manifest["identity"].get("study", {})):
            raise StoreError(f"{self.path / STUDY} is not the study that was measured; run the study again")
        return study

    @property
    def models(self) -> list[str]:
        return [spec.name for spec in self.study.models]

    @property
    def conditions(self) -> list[str]:
        return [condition.name for condition in self.study.conditions]

    @property
    def fillers(self) -> list[str]:
        """The conditions that are not the baseline."""
        return [name for name in self.conditions if name != BASELINE]

    def needed_fillers(self) -> list[str]:
        """The same, for whatever is about nothing else."""
        if not self.fillers:
            raise FigureError("this run has no condition with filler; add one to the study, such as mless")
        return self.fillers

    @property
    def main(self) -> str:
        """The condition that is spoken of first: the first filler without an intervention, else the first condition."""
        fillers = self.needed_fillers()
        plain = [name for name in fillers if self.condition(name).has_filler and not self.condition(name).intervention]
        return (plain or fillers)[0]

    def condition(self, name: str) -> Condition:
        for condition in self.study.conditions:
            if condition.name == name:
                return condition
        raise FigureError(f"this run has no condition {name!r}; it has {', '.join(self.conditions)}")

    @property
    def has_attention(self) -> bool:
        return self.study.probes.attention is not None

    @property
    def has_answers(self) -> bool:
        return self.study.generation is not None

    @property
    def noise(self) -> NoiseSpec | None:
        """How prompts without filler were answered a second time, where they were."""
        return self.study.generation.noise if self.study.generation else None

    @property
    def attention(self) -> AttentionProbe:
        """How attention was counted."""
        if self.study.probes.attention is None:
            raise FigureError("this run did not measure attention: its study has `probes.attention` off")
        return self.study.probes.attention

    @property
    def queries(self) -> tuple[str, ...]:
        """Whose attention was counted."""
        return (*QUERIES, ANSWER) if self.study.probes.answering else QUERIES

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of tokens for which activations were counted: all of them together first."""
        if self.study.probes.activations is None:
            raise FigureError("this run did not look at activations: its study needs `probes: {activations: true}`")
        return class_names(self.study.probes.activations.classes)

    def problems(self) -> list[AnsweredProblem]:
        """Id, question, answer and meta of each problem that was to be answered."""
        return [problem.copy() for problem in self._tables.problems]

    def repeated(self) -> int:
        """How many problems have the question of an earlier one; a run without answers has only noted it."""
        if self.has_answers:
            return repeated_questions(problem["question"] for problem in self.problems())
        return int(self.store.manifest.get("data", {}).get("repeated", 0))

    @cached_property
    def _tables(self) -> AnswerTables:
        return AnswerTables(self.store, self.study, self.partial)


def _is_measured(study: Study, measured: Json) -> bool:
    """Whether a study says what the identity of its run does: the manifests of early formats have no checksum of it.
    Keys that a run made before does not have are what they are by default."""
    try:
        before, now = Study.model_validate({"name": study.name} | measured).measured(), study.measured()
    except ValueError:
        return False
    return all(before.get(key) == now.get(key) for key in measured)


def place_of(name: str, names: Sequence[str], noun: str) -> int:
    """The place of a name in a list; an error that lists them where it is not there."""
    if name not in names:
        raise FigureError(f"{noun} are {', '.join(names)}, not {name!r}")
    return names.index(name)
