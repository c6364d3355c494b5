"""A new study for a model and a data set: what is recognised in the data is written out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fillerscope.errors import ProblemError, StudyError
from fillerscope.files import disk_errors, write_whole
from fillerscope.models.catalogue import DEFAULT
from fillerscope.problems.sources import read_problems
from fillerscope.store.schema import MANIFEST, STUDY
from fillerscope.study.data_sets import BUILTIN, Role, is_file
from fillerscope.study.starter import Starter
from fillerscope.study.study import ProblemsSpec

LIMIT = 100  # problems of a first study; fewer where the data has fewer
NO_ANSWERS = "--no-answers measures attention alone, and --field answer=COLUMN names their column"


@dataclass(frozen=True)
class NewStudy:
    """What a new study is made for. `answers` None: as the data allows."""

    path: Path
    model: str = DEFAULT
    source: str = BUILTIN
    fields: dict[Role, str] = field(default_factory=dict)
    limit: int | None = None
    answers: bool | None = None


def starter_for(new: NewStudy) -> Starter:
    """The text's settings, after a look at the data; an error where what is asked for is not in it."""
    data = read_problems(ProblemsSpec(source=new.source, limit=new.limit, fields=new.fields))
    unanswered = sum(not problem.answer.strip() for problem in data.problems)
    if new.answers and unanswered:
        raise ProblemError(f"{new.source}: {unanswered} of {len(data.problems)} problems have no answer; {NO_ANSWERS}")
    answers = None if unanswered else new.answers is not False
    recognised, fields, form = data.recognised, {}, ""
    if recognised is not None:
        fields = {role: columns[0] for role, columns in recognised.columns.items() if len(columns) == 1}
        form = recognised.form if recognised.form != "whole" and not unanswered else ""
    limit = new.limit or min(LIMIT, len(data.problems))
    source = _relative(new.source, new.path)
    return Starter(str(new.path), new.model, source, fields, form, limit, answers)


def write_study(new: NewStudy, force: bool = False) -> Starter:
    """Write a new study file; one that exists is overwritten only by force."""
    if run := next((folder for folder in new.path.resolve().parents if _is_run(folder)), None):
        raise StudyError(f"{new.path} is in the run folder {run}, which holds what was measured; choose another folder")
    if new.path.exists() and not force:
        raise StudyError(f"{new.path} exists already; choose another name, or --force to overwrite it")
    starter = starter_for(new)
    with disk_errors(StudyError, str(new.path), "choose another folder"):
        write_whole(new.path, [starter.text().encode()], sync=False)
    return starter


def _is_run(folder: Path) -> bool:
    return (folder / MANIFEST).exists() and (folder / STUDY).exists()


def _relative(source: str, study: Path) -> str:
    """A path of problems as the study file takes it: relative to its own folder."""
    if not is_file(source) or Path(source).is_absolute():
        return source
    return Path(os.path.relpath(source, study.parent)).as_posix()
