"""The part of JSON Schema that the schema of study files uses, as a validator of a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None),
}  # fmt: skip
NOTES = {"$schema", "$defs", "title", "description", "default", "examples"}


def complaints(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> Iterator[str]:
    """Whatever is wrong with a value, each with its place. A keyword that is not known here is an error."""
    for keyword, wanted in schema.items():
        if keyword not in NOTES:
            yield from CHECKS[keyword](value, wanted, schema, root, at)


def _ref(value: Any, wanted: str, _schema: Any, root: Any, at: str) -> Iterator[str]:
    yield from complaints(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, at)


def _type(value: Any, wanted: str, *rest: Any) -> Iterator[str]:
    if not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted in ("integer", "number")):
        yield f"{rest[-1]}: not {wanted}"


def _properties(value: Any, wanted: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in wanted:
            yield from complaints(item, wanted[key], root, f"{at}.{key}")
        elif schema.get("additionalProperties") is False:
            yield f"{at}: unknown key {key}"


def _additional(value: Any, wanted: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(value, dict) and "properties" not in schema:
        for key, item in value.items():
            yield from complaints(item, wanted, root, f"{at}.{key}")


def _names(value: Any, wanted: Any, _schema: Any, root: Any, at: str) -> Iterator[str]:
    for key in value if isinstance(value, dict) else ():
        yield from complaints(key, wanted, root, f"{at}.{key}")


def _items(value: Any, wanted: Any, _schema: Any, root: Any, at: str) -> Iterator[str]:
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from complaints(item, wanted, root, f"{at}[{number}]")


def _some(value: Any, wanted: Any, _schema: Any, root: Any, at: str) -> Iterator[str]:
    if all(any(True for _ in complaints(value, one, root, at)) for one in wanted):
        yield f"{at}: fits no alternative"


def _one(value: Any, wanted: Any, _schema: Any, root: Any, at: str) -> Iterator[str]:
    if sum(not any(True for _ in complaints(value, one, root, at)) for one in wanted) != 1:
        yield f"{at}: fits none or several alternatives"


def _simple(fits: Any) -> Any:
    def check(value: Any, wanted: Any, _schema: Any, _root: Any, at: str) -> Iterator[str]:
        if not fits(value, wanted):
            yield f"{at}: {value!r} does not fit {wanted!r}"

    return check


def _among(value: Any, wanted: list[Any]) -> bool:
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in wanted)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


CHECKS: dict[str, Any] = {
    "$ref": _ref, "type": _type, "properties": _properties, "additionalProperties": _additional,
    "propertyNames": _names, "items": _items, "anyOf": _some, "oneOf": _one, "enum": _simple(_among),
    "const": _simple(lambda value, wanted: _among(value, [wanted])),
    "required": _simple(lambda value, keys: not isinstance(value, dict) or set(keys) <= value.keys()),
    "pattern": _simple(lambda value, wanted: not isinstance(value, str) or re.search(wanted, value)),
    "minimum": _simple(lambda value, least: not _number(value) or value >= least),
    "maximum": _simple(lambda value, most: not _number(value) or value <= most),
    "exclusiveMinimum": _simple(lambda value, below: not _number(value) or value > below),
    "minLength": _simple(lambda value, least: not isinstance(value, str) or len(value) >= least),
    "maxLength": _simple(lambda value, most: not isinstance(value, str) or len(value) <= most),
    "minItems": _simple(lambda value, least: not isinstance(value, list) or len(value) >= least),
    "maxItems": _simple(lambda value, most: not isinstance(value, list) or len(value) <= most),
}  # fmt: skip
