"""The JSON Schema of study files, for editors: what pydantic gives, and the short forms that a file may use.

A file may hold a name instead of a model or a condition, `on` and `off`, one value instead of a list of one, and lists
where a condition is swept. Rules between keys (samples need a temperature) are left to `Study.load`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from fillerscope.files import Json
from fillerscope.study.conditions import PRESETS
from fillerscope.study.study import Study
from fillerscope.study.sweeps import INSIDE, SWEPT

DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that editors of YAML read
SWITCH: Json = {"enum": [True, False, "on", "off"]}  # YAML 1.2, which editors read, has no `on` of its own
SWITCHED = (("Probes", "attention"), ("Probes", "activations"), ("GenerationSpec", "noise"))
NO_FILLER: Json = {"const": 0}  # in a list of counts, the baseline that every study has
NOTES = ("description", "default", "examples", "title")
LISTED = (
    ("GenerationSpec", "temperature"), ("GenerationSpec", "samples"), ("GenerationSpec", "k"),
    ("Redistribution", "layers"), ("Knockout", "layers"),
)  # fmt: skip


def schema_file() -> Traversable:
    """The schema as it is shipped."""
    return files("fillerscope.study").joinpath("schema.json")


def study_schema() -> Json:
    """The schema, made from the models."""
    schema = Study.model_json_schema()
    parts: dict[str, Json] = schema["$defs"]
    own: Json = schema["properties"]
    own["models"]["items"] = {"anyOf": [{"type": "string"}, own["models"]["items"]]}
    own["conditions"]["items"] = {"anyOf": [{"enum": list(PRESETS)}, own["conditions"]["items"]]}
    own["conditions"]["default"] = [one["name"] for one in own["conditions"]["default"]]
    for part, key in SWITCHED:
        _either(parts[part]["properties"], key, SWITCH)
    _either(parts["BatchSpec"]["properties"], "prefix", {"enum": [True, False]})
    for part, key in LISTED:
        _either(parts[part]["properties"], key, parts[part]["properties"][key]["items"])
    for part in ("Condition", "Redistribution", "Knockout", "Shift"):
        _sweep(parts[part]["properties"])
    _each(schema, _tidy)
    return {"$schema": DRAFT, **schema, "title": "A study of fillerscope"}


def _either(properties: Json, key: str, other: Json) -> None:
    """Let a key take another form as well."""
    notes = {note: properties[key][note] for note in NOTES if note in properties[key]}
    properties[key] = notes | {"anyOf": [*_forms(properties[key]), other]}


def _sweep(properties: Json) -> None:
    """Let the keys that can be swept take a list of what they take."""
    for key in (*SWEPT, *INSIDE):
        if key in properties:
            items = [form for form in _forms(properties[key]) if form != {"type": "null"}]
            _either(properties, key, {"type": "array", "items": {"anyOf": items}, "minItems": 1})
    if "count" in properties:
        properties["count"]["anyOf"][-1]["items"]["anyOf"].append(NO_FILLER)


def _forms(value: Json) -> list[Json]:
    """The alternatives of a property, without its notes."""
    form = {key: item for key, item in value.items() if key not in NOTES}
    forms: list[Json] = form["anyOf"] if set(form) == {"anyOf"} else [form]
    return forms


def _each(value: object, change: Callable[[Json], None]) -> None:
    if isinstance(value, dict):
        change(value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        _each(part, change)


def _tidy(part: Json) -> None:
    """Switches in words, no titles that only repeat a key, and nothing that editors do not know."""
    if part.get("type") == "boolean":
        del part["type"]
        part |= SWITCH
    if isinstance(part.get("title"), str):
        del part["title"]
    part.pop("discriminator", None)
