"""What a manifest may note about a model: it comes from anybody, and everybody reads it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Thresholds = Annotated[list[FiniteFloat], Field(min_length=1)]


class _Noted(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Check(_Noted):
    difference: FiniteFloat
    tolerance: Annotated[FiniteFloat, Field(gt=0)]
    tokens: Count = 0
    layer: Count = 0
    head: Count = 0


class _RowCheck(_Check):
    layout: str = ""
    windows: list[Count | None] = []
    sinks: bool = False


class _AnswerCheck(_Check):
    engine: str = ""
    prompts: Count = 0


class _Recheck(_Noted):
    checked: Count
    same: Count
    margins: list[float]  # infinite where a token could not have been chosen at all


class _Calibration(_Noted):
    """Empty where no prompt could be made."""

    eps: Thresholds = [0.0]
    median: Thresholds = [0.0]
    edges: Annotated[list[FiniteFloat], Field(min_length=2)] = [0.0, 1.0]
    tokens: Count = 0
    problems: Count = 0


class _ModelFacts(_Noted):
    label: str = ""
    template: str = ""
    tokenizer: str = ""
    batch_tokens: Annotated[Count, Field(gt=0)] = 1
    selfcheck: _Check | None = None
    rowcheck: _RowCheck | None = None
    answercheck: _AnswerCheck | None = None
    recheck: _Recheck | None = None
    calibration: _Calibration | None = None


def damaged_fact(facts: object) -> str:
    """Which of the facts that a manifest notes about a model cannot be; empty where all can."""
    try:
        _ModelFacts.model_validate(facts)
    except ValidationError as error:
        return ".".join(map(str, error.errors()[0]["loc"])) or "facts"
    return ""
