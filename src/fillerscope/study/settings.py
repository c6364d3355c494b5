"""Settings as they are typed, `generation.max_tokens=256`: read, put into a study's data, and unknown keys explained.

Knows nothing of what the keys mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.arguments import shown
from fillerscope.study.yaml_lines import parse_yaml, repeated_key

EXAMPLE = "generation.max_tokens=256"
LONGEST_NUMBER = 18  # digits of the number of an item


@dataclass(frozen=True)
class Setting:
    """A value for a place in a study, which is a dotted path; items of lists are numbered from 0."""

    key: str
    value: Any

    @classmethod
    def read(cls, text: str) -> Setting:
        """Read KEY=VALUE; the value is YAML."""
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise StudyError(f"--set takes KEY=VALUE, such as {EXAMPLE}, not {text!r}")
        try:
            root, data = parse_yaml(value)
            if root is not None and (twice := repeated_key(root)) is not None:
                raise StudyError(f"--set {key}: key {twice.value!r} is given twice; remove one")
            return cls(key.strip(), data)
        except (yaml.YAMLError, ValueError, AttributeError, RecursionError) as error:
            reason = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise StudyError(f"--set {key}: {value!r} is not valid YAML: {reason}; quote it if it is a text") from None

    def is_of(self, *keys: str) -> bool:
        """Whether it sets one of these places, or something inside one of them."""
        return any(self.key == key or self.key.startswith(f"{key}.") for key in keys)

    def put_into(self, data: Json) -> None:
        """Set the value in the data of a study; sections on the way that are off are made."""
        *path, last = self.key.split(".")
        place: Any = data
        for depth, step in enumerate(path):
            at = _index(place, step, path[:depth])
            if isinstance(place, dict):
                place[at] = {} if place.get(at) is None else place[at]
            place = place[at]
        place[_index(place, last, path)] = self.value


def _index(place: object, step: str, path: Sequence[str]) -> Any:
    """How a step is written for the mapping or the list that it goes into."""
    where = ".".join(path)
    if isinstance(place, dict):
        return step
    if not isinstance(place, list | tuple):
        raise StudyError(f"{where} is {place!r}, which has no key {step!r}; set {where} itself")
    if not step.isdecimal() or len(step) > LONGEST_NUMBER or int(step) >= len(place):
        there = f"number 0 to {len(place) - 1}" if place else "none yet"
        raise StudyError(
            f"{where} is a list, and has no item {step!r}: its items are {there}; or set {where} as a whole"
        )
    return int(step)


def first_fault(error: ValidationError) -> str:
    """What is wrong with settings that were given to a function: the key, what was expected, what came."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"there is no setting {where!r}; check the spelling, or leave it out"
    said = f"{first['msg'].removeprefix('Value error, ')}, not {shown(first['input'])}"
    return f"{where}: {said}" if where else said


def unknown_key(model: type[BaseModel], path: Sequence[str | int]) -> str:
    """What to say of a key that a model does not have, with the one that was probably meant."""
    *inside, last = [step for step in path if isinstance(step, str)]
    schema = model.model_json_schema()
    known = [key.rpartition(".") for key in _keys(schema, schema)]
    beside = [leaf for section, _, leaf in known if section == ".".join(inside)]
    if last in beside or not beside:  # a key of another kind of intervention, or a place without keys of its own
        return f"unknown key {last!r}; check the spelling, or remove it"
    if near := difflib.get_close_matches(last, beside, 1):
        return f"unknown key {last!r}; did you mean {'.'.join(map(str, [*path[:-1], near[0]]))}?"
    elsewhere = [f"{section}.{leaf}" for section, _, leaf in known if leaf == last]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else f"there are {', '.join(beside)}"
    return f"unknown key {last!r}; {hint}"


def _keys(part: Json, schema: Json) -> Iterator[str]:
    """The dotted paths of all keys below a part of a JSON Schema, without the numbers of items."""
    for name, below in part.get("properties", {}).items():
        yield name
        for reference in _references(below):
            section = schema["$defs"][reference.rpartition("/")[2]]
            yield from (f"{name}.{key}" for key in _keys(section, schema))


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for key, item in value.items():
            yield from _references(item) if key in ("anyOf", "oneOf", "allOf", "items") else ()
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
