"""Sections of a study refuse `yes` where a number is meant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from fillerscope.study.conditions import Condition
from fillerscope.study.generation import EndpointSpec, GenerationSpec
from fillerscope.study.interventions import Redistribution, Shift
from fillerscope.study.sections import (
    ActivationProbe,
    AttentionProbe,
    BatchSpec,
    FigureSpec,
    ProblemsSpec,
    References,
)
from fillerscope.study.strict import Strict
from fillerscope.study.study import Study


def numbers(model: type[Strict]) -> Iterator[tuple[type[Strict], str]]:
    """The fields of a section that JSON Schema calls numbers or lists of them."""
    for name, part in model.model_json_schema()["properties"].items():
        kinds = {option.get("type") for option in [part, part.get("items", {}), *part.get("anyOf", [])]}
        if kinds & {"integer", "number"} and "boolean" not in kinds:
            yield model, name


@pytest.mark.parametrize(
    ("model", "field"),
    [
        pair
        for section in (
            ProblemsSpec, AttentionProbe, ActivationProbe, References, BatchSpec, FigureSpec, GenerationSpec,
            EndpointSpec, Condition, Redistribution, Shift, Study,
        )
        for pair in numbers(section)
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [True, False])
def test_yes_is_no_number(model: type[Strict], field: str, value: bool) -> None:
    for given in (value, [value]):
        with pytest.raises(ValidationError) as refused:
            model.model_validate({field: given})
        assert field in {place for error in refused.value.errors() for place in error["loc"]}
