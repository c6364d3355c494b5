"""The models that a study measures, and for what: each model, and its untrained twins after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fillerscope.study.study import ModelSpec, Study

if TYPE_CHECKING:
    from fillerscope.models.in_memory import ModelSource


@dataclass(frozen=True)
class Task:
    """A model, or an untrained twin of one, and the part of the study that it is for."""

    study: Study
    spec: ModelSpec
    folder: ModelSource

    @property
    def is_twin(self) -> bool:
        return self.folder.untrained is not None


def tasks_of(study: Study, spec: ModelSpec, folder: ModelSource) -> list[Task]:
    """The tasks of a model: itself, then its untrained twins."""
    twins = [
        Task(study.untrained, spec.model_copy(update={"name": name, "endpoint": None}), folder.twin(name, seed))
        for seed, name in enumerate(study.twins(spec.name), 1)
    ]
    return [Task(study, spec, folder), *twins]
