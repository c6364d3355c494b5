"""The base of all sections of a study: what it does not know, it refuses."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is expected here, not yes, no, on, off, true or false")
    return value


def _without_booleans(schema: object) -> object:
    """A schema whose numbers refuse `yes` and `off`, which Python takes for 1 and 0."""
    if isinstance(schema, list):
        return [_without_booleans(part) for part in schema]
    if not isinstance(schema, dict) or schema.get("function") == {"type": "no-info", "function": _refuse_boolean}:
        return schema
    if schema.get("type") in ("int", "float"):
        return no_info_before_validator_function(_refuse_boolean, cast(CoreSchema, schema))
    return {key: _without_booleans(part) for key, part in schema.items()}


class Strict(BaseModel):
    """A model that refuses unknown keys and `yes` for a number, and cannot change after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        return cast(CoreSchema, _without_booleans(handler(source)))
