"""What is recognised in a data set, and its first problems as they will be asked and graded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

from fillerscope.answers.grading.extract import extract_box
from fillerscope.answers.grading.normalise import tidy
from fillerscope.errors import ModelError, PromptError
from fillerscope.files import Json
from fillerscope.models.catalogue import DEFAULT
from fillerscope.models.description import load_tokenizer
from fillerscope.models.resolve import find
from fillerscope.problems.problem import Problem
from fillerscope.problems.readers import reader_of
from fillerscope.problems.recognise import Recognised
from fillerscope.problems.rows import BadRow
from fillerscope.problems.sources import MOST_RECORDED, ProblemSet, read_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.report.preview.prompts import PromptPreview
from fillerscope.study.conditions import PRESETS
from fillerscope.study.data_sets import BUILTIN, HUB, data_set, is_file
from fillerscope.study.overrides import data_path
from fillerscope.study.study import ProblemsSpec, PromptSpec

SHOWN = 3
FORMATS = {
    ".jsonl": "JSON Lines", ".json": "JSON", ".parquet": "Parquet", ".csv": "CSV", ".tsv": "TSV",
}  # fmt: skip


@dataclass(frozen=True)
class ProblemPreview:
    """A problem as it will be asked, and its reference in the one spelling that answers are compared with."""

    id: str
    question: str
    answer: str
    graded: str

    @classmethod
    def of(cls, problem: Problem) -> ProblemPreview:
        return cls(problem.id, problem.question, problem.answer, tidy(extract_box(problem.answer)))


@dataclass(frozen=True)
class DataPreview:
    """A data set: where it is, what was recognised in it, and its first problems."""

    source: str
    format: str
    count: int
    unanswered: int
    recognised: Recognised | None
    first: tuple[ProblemPreview, ...]
    rows: int = 0  # that were read
    skipped: tuple[BadRow, ...] = ()
    repeated: int = 0  # questions of earlier problems

    @classmethod
    def of(cls, spec: ProblemsSpec, data: ProblemSet) -> DataPreview:
        unanswered = sum(not problem.answer.strip() for problem in data.problems)
        first = tuple(map(ProblemPreview.of, data.problems[:SHOWN]))
        return cls(
            spec.source, format_of(spec.source), len(data.problems), unanswered, data.recognised, first, data.rows,
            data.skipped, data.repeated,
        )  # fmt: skip

    def record(self) -> Json:
        """The same for programs."""
        return {
            "source": self.source,
            "format": self.format,
            "problems": self.count,
            "rows": self.rows,
            "repeated": self.repeated,
            "skipped": len(self.skipped),
            "skipped_rows": [bad.record() for bad in self.skipped[:MOST_RECORDED]],
            "without_answer": self.unanswered,
            "recognised": self.recognised.record() if self.recognised else None,
            "first": [asdict(one) for one in self.first],
        }


@dataclass(frozen=True)
class FieldsPreview:
    """A data set with the prompt of its first problem; `note` says why there is none."""

    data: DataPreview
    model: str
    prompt: PromptPreview | None
    note: str = ""

    def record(self) -> Json:
        """The same for programs."""
        prompt = self.prompt.record() if self.prompt else None
        return self.data.record() | {"model": self.model, "prompt": prompt, "note": self.note}


def preview_data(spec: ProblemsSpec, model: str | None = None) -> FieldsPreview:
    """Look at a data set, with the tokenizer of a model; of the usual one where it is cached."""
    if is_file(spec.source):  # a link is what it leads to, as in a study
        resolved = data_path(spec.source) or ""
        reader_of(Path(resolved), resolved)
    data = read_problems(spec)
    preview, name = DataPreview.of(spec, data), model or DEFAULT
    try:
        return FieldsPreview(preview, name, _prompt(data.problems, name))
    except (ModelError, PromptError) as error:
        if model is not None and isinstance(error, ModelError):
            raise  # a filler that does not fit a tokenizer says nothing about the data
        return FieldsPreview(preview, name, None, str(error))


def _prompt(problems: Sequence[Problem], model: str) -> PromptPreview:
    tokenizer, condition = load_tokenizer(find(model)), PRESETS["mless"]
    maker = PromptMaker.of(tokenizer, PromptSpec(), "auto", seed=0)
    return PromptPreview.of(condition, maker.make(problems[0], condition), tokenizer)


def format_of(source: str) -> str:
    """What kind of source it is, for people."""
    if source == BUILTIN:
        return "built-in problems"
    if known := data_set(source):
        return f"data set hub:{known.repo}"
    return "data set on the hub" if source.startswith(HUB) else FORMATS.get(PurePath(source).suffix.lower(), "file")
