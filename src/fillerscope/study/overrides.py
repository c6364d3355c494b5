"""Ready studies by name, and changes to a study from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import ValidationError

from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.data_sets import DEFAULT_SPLIT, is_file
from fillerscope.study.study import ModelSpec, Study

DEMOS = ("demo", "demo-quick")


@dataclass(frozen=True)
class Changes:
    """Changes to a study from the command line. None leaves a setting as the study has it."""

    models: tuple[str, ...] = ()
    limit: int | None = None
    problems: str | None = None
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    device: str | None = None

    def apply(self, study: Study) -> Study:
        """Return a study with these changes, checked."""
        problems = study.problems.model_copy(update=_given(limit=self.limit, source=self.problems))
        update = _given(problems=problems, device=self.device)
        if self.models:
            update["models"] = tuple(ModelSpec.model_construct(name=name) for name in self.models)
            # The seeds' axis limits and first-token choices belong to the seeds' models.
            update["figures"] = tuple(f.model_copy(update={"y_max": (), "skip_first": ()}) for f in study.figures)
        figures = update.get("figures", study.figures)
        given = _given(layers=self.layers or None, heads=self.heads or None)
        update["figures"] = tuple(figure.model_copy(update=given) for figure in figures)
        if self.problems is not None:
            # A mapping, split or form belongs to the data it was written for.
            update["problems"] = problems.model_copy(
                update={"fields": {}, "split": DEFAULT_SPLIT, "answer_form": "auto"}
            )
        return _checked(study.model_copy(update=update))


def names() -> list[str]:
    """Names of the ready studies, without the demos."""
    ready = [item.name.removesuffix(".yaml") for item in _folder().iterdir() if item.name.endswith(".yaml")]
    return sorted(name for name in ready if name not in DEMOS)


def ready_study(name: str) -> Study:
    """One of the studies that ship with the package."""
    if name not in DEMOS and name not in names():
        raise StudyError(f"there is no ready study {name!r}; there are {', '.join(names())}")
    with as_file(_folder().joinpath(f"{name}.yaml")) as path:
        return Study.load(path)


def _checked(study: Study) -> Study:
    """Check a changed study: pydantic does not check copies."""
    try:
        return Study.model_validate(study.model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        where, value = ".".join(map(str, first["loc"])), first["input"]
        came = f", not {value!r}" if isinstance(value, str | int) else ""
        raise StudyError(f"{where}: {first['msg'].removeprefix('Value error, ')}{came}") from None


def _folder() -> Traversable:
    return files("fillerscope.study").joinpath("ready")


def _given(**values: object) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def data_path(text: str | None) -> str | None:
    """A path of problems from the command line, made absolute: it is relative to the current folder."""
    if text is None or not is_file(text):
        return text
    return str(Path(text).expanduser().resolve())
