"""Ready studies by name, and changes to a study from the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.conditions import BASELINE, PRESETS, Condition
from fillerscope.study.data_sets import DEFAULT_SPLIT, is_file
from fillerscope.study.interventions import Redistribution
from fillerscope.study.settings import Setting, unknown_key
from fillerscope.study.study import Study

DEMOS = ("demo", "demo-quick")


@dataclass(frozen=True)
class Changes:
    """Changes to a study from the command line. None, or nothing, leaves a setting as the study has it.

    Every option is short for a setting: `max_tokens=256` for `generation.max_tokens=256`. Settings come last.
    """

    models: tuple[str, ...] = ()
    limit: int | None = None
    problems: str | None = None
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    device: str | None = None
    conditions: tuple[str, ...] = ()  # the baseline comes by itself
    seed: int | None = None
    max_tokens: int | None = None
    settings: tuple[str, ...] = ()  # KEY=VALUE

    def apply(self, study: Study) -> Study:
        """Return a study with these changes, checked."""
        wanted = [*self._options(study), *map(Setting.read, self.settings)]
        figures = [setting for setting in wanted if setting.is_of("figures")]
        data = _data(study)
        _forget_data(data, wanted)
        for setting in wanted:
            if setting not in figures:
                _refuse_in_sweep(setting, data)
                _resolved(setting, study).put_into(data)
        data["figures"] = _fitting(data, wanted)
        for setting in figures:
            setting.put_into(data)
        return _checked(data)

    def _options(self, study: Study) -> list[Setting]:
        """The options as settings."""
        every = range(len(study.figures))
        conditions = [BASELINE, *(name for name in self.conditions if name != BASELINE)] if self.conditions else None
        given = {
            "models": list(self.models) or None,
            "problems.limit": self.limit,
            "problems.source": self.problems,
            "conditions": conditions,
            "seed": self.seed,
            "generation.max_tokens": self.max_tokens,
            "device": self.device,
            **{f"figures.{number}.layers": self.layers or None for number in every},
            **{f"figures.{number}.heads": self.heads or None for number in every},
        }
        return [Setting(key, value) for key, value in given.items() if value is not None]


def _data(study: Study) -> Json:
    """A study as it would be read from a file."""
    data = cast(Json, _with_lists(study.model_dump() | {"conditions": [*map(_condition, study.conditions)]}))
    if study.probes.activations is not None:  # written as pairs, to keep their order
        data["probes"]["activations"]["classes"] = dict(study.probes.activations.classes)
    return data


def _with_lists(value: object) -> object:
    """Data with lists in place of tuples, as a file would have them: their items can be set."""
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _forget_data(data: Json, wanted: Sequence[Setting]) -> None:
    """Leave out the mapping and the split of other data: they belong to the data they were written for."""
    if any(setting.key == "problems.source" for setting in wanted):
        data["problems"] |= {"fields": {}, "split": DEFAULT_SPLIT, "answer_form": "auto"}


def _resolved(setting: Setting, study: Study) -> Setting:
    """A setting with the study's own conditions in place of their names, and paths of problems made absolute."""
    if setting.key == "conditions" and isinstance(setting.value, list):
        return Setting(setting.key, [cell for item in setting.value for cell in _conditions(item, study)])
    if setting.key == "problems.source" and isinstance(setting.value, str):
        return Setting(setting.key, data_path(setting.value))
    if setting.key == "problems" and isinstance(setting.value, dict) and isinstance(setting.value.get("source"), str):
        return Setting(setting.key, setting.value | {"source": data_path(setting.value["source"])})
    return setting


def _conditions(item: object, study: Study) -> list[object]:
    """The conditions of the study that a name stands for: one, or all cells of a sweep; others are left as they are."""
    own = [one for one in study.conditions if item in (one.name, one.sweep)] if isinstance(item, str) and item else []
    if not own and isinstance(item, str) and item not in PRESETS:
        there = dict.fromkeys([*(one.name for one in study.conditions), *PRESETS])
        raise StudyError(f"there is no condition {item!r}; the study and the ready-made ones have {', '.join(there)}")
    return [*map(_condition, own)] or [item]


def _condition(condition: Condition) -> Json:
    """A condition as it would be read from a file. What a preset gives is left to it: another may be named."""
    data = condition.model_dump()
    if isinstance(condition.intervention, Redistribution):
        data["intervention"] = condition.intervention.as_given()
    return data


def _refuse_in_sweep(setting: Setting, data: Json) -> None:
    """Raise where a condition is meant by its number, and a sweep before it, or of which it is a cell, makes several
    of one: the numbers of a file are others, and a cell has the name of its own values."""
    first, _, rest = setting.key.partition(".")
    number = rest.partition(".")[0]
    if first != "conditions" or not number.isdecimal():
        return
    sweep = next((one["sweep"] for one in data["conditions"][: int(number) + 1] if _is_cell(one)), None)
    if sweep is not None:
        raise StudyError(
            f"{setting.key}: the sweep {sweep!r} stands for several conditions, so that a number may mean one or "
            "another; set `conditions` as a whole, or change the study file"
        )


def _is_cell(condition: object) -> bool:
    return isinstance(condition, dict) and bool(condition.get("sweep"))


def _fitting(data: Json, wanted: Sequence[Setting]) -> list[Json]:
    """The figures without what belonged to conditions or models that the study no longer has."""
    figures = list(data["figures"])
    if any(setting.is_of("conditions") for setting in wanted):
        left = [one.name for one in _checked(data | {"figures": []}).conditions]
        figures = [one | {"conditions": [name for name in one["conditions"] if name in left]} for one in figures]
    if any(setting.is_of("models") for setting in wanted):
        # The limits of axes and the choice of the first token belong to the models they were written for.
        figures = [one | {"y_max": (), "skip_first": ()} for one in figures]
    return figures


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


def _checked(data: Json) -> Study:
    """The study of some data; what is wrong with it is named with its place."""
    try:
        return Study.model_validate(data)
    except ValidationError as error:
        # A misspelt key comes first: that another is missing may only follow from it.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise StudyError(_explained(first)) from None


def _explained(error: ErrorDetails) -> str:
    where, value = ".".join(map(str, error["loc"])), error["input"]
    if error["type"] == "extra_forbidden":
        inside = ".".join(map(str, error["loc"][:-1]))
        return f"{inside}: {unknown_key(Study, error['loc'])}" if inside else unknown_key(Study, error["loc"])
    came = f", not {value!r}" if isinstance(value, str | int | float) else ""
    return f"{where}: {error['msg'].removeprefix('Value error, ')}{came}"


def _folder() -> Traversable:
    return files("fillerscope.study").joinpath("ready")


def data_path(text: str | None) -> str | None:
    """A path of problems from the command line, made absolute: it is relative to the current folder."""
    if text is None or not is_file(text):
        return text
    return os.path.realpath(os.path.expanduser(text))  # unlike `resolve`, no error where links lead in a circle
