"""Conditions: a change in the prompt or inside the model. Ready-made conditions have a name."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from fillerscope.files import Json
from fillerscope.study.interventions import Intervention, Knockout, Redistribution, Shift
from fillerscope.study.strict import Strict
from fillerscope.study.sweeps import SWEPT, expand, size

BASELINE = "none"  # the condition that all others are compared with: the prompt as it is
MOST_CONDITIONS = 10_000  # each is a row of every table
MOST_FILLER = 3_000_000  # tokens, of all conditions: the prompts of a problem are in memory together
KINDS = ("repeat", "text", "sentence", "characters")


class Condition(Strict):
    """A filler recipe with the place where the filler goes, an intervention, or both."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60, description="What tables and figures call it.",
        examples=["dots"],
    )  # fmt: skip
    kind: Literal["none", "repeat", "text", "sentence", "characters"] = Field(
        "none",
        description="The filler: `text` repeated, `text` as it is, random sentences, or random characters.",
        examples=["repeat"],
    )
    text: str = Field(
        "", description="What is repeated or inserted; of characters, the alphabet. A list is a sweep.", examples=[" ."]
    )
    count: int | None = Field(
        None, ge=1, le=100_000, description="How many tokens of filler, exactly. A list is a sweep.", examples=[55]
    )
    position: Literal["start", "before_question", "end", "random"] = Field(
        "before_question", description="Where the filler goes. A list is a sweep.", examples=["end"]
    )
    draw: Literal["once", "problem"] = Field(
        "once", description="Whether drawn filler is the same for all problems.", examples=["problem"]
    )
    intervention: Intervention | None = Field(None, description="What is done inside the model.")
    label: str = Field("", description="What figures call it; empty: its name.", examples=["Dots"])
    sweep: str = Field("", description="Written by fillerscope: the condition with lists that this one is a cell of.")

    @field_validator(*SWEPT, mode="before")
    @classmethod
    def _not_empty(cls, value: object) -> object:
        if value == [] or value == ():
            raise ValueError("the list is empty; give the values that the sweep goes through")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind in ("repeat", "text") and not self.text:
            raise ValueError(f"a condition of kind {self.kind} needs `text`")
        if self.kind in ("repeat", "sentence", "characters") and self.count is None:
            raise ValueError(f"a condition of kind {self.kind} needs `count`, the number of tokens")
        if not self.has_filler and self.intervention is None and self.name != BASELINE:
            raise ValueError(f"a condition needs a `kind` ({', '.join(KINDS)}) or an `intervention`")
        if not self.has_filler and (unused := [key for key in SWEPT if getattr(self, key) != _default(key)]):
            raise ValueError(f"`{unused[0]}` is of filler, and there is none: give a `kind` as well, or leave it out")
        if self.kind == "sentence" and self.text:
            raise ValueError("sentences are drawn, and `text` is not used: leave it out, or write `kind: text`")
        if isinstance(self.intervention, Knockout) and not self.has_filler:
            raise ValueError("a knock-out needs filler to hide: give the condition a `kind`, such as repeat")
        if isinstance(self.intervention, Shift) and self.has_filler:
            raise ValueError("a shift stands for filler that is not there: leave `kind` out")
        return self

    @property
    def has_filler(self) -> bool:
        return self.kind != "none"

    @property
    def is_baseline(self) -> bool:
        return not self.has_filler and self.intervention is None


def _default(key: str) -> object:
    return Condition.model_fields[key].default


_SLASHES: Json = {"kind": "repeat", "text": " /", "count": 55}
PRESETS = {
    condition.name: condition
    for condition in (
        Condition(name=BASELINE, kind="none", label="None"),
        Condition(name="mless", label="Meaningless tokens", **_SLASHES),
        Condition(name="mful", kind="repeat", text=" he", count=55, label="Meaningful tokens"),
        Condition(name="random", kind="sentence", count=55, label="Random sentence"),
        Condition(name="arm", intervention=Redistribution(kind="arm"), label="ARM"),
        Condition(name="scatter", intervention=Redistribution(kind="scatter"), label="ARM on random elements"),
        Condition(name="gaussian", intervention=Redistribution(kind="gaussian"), label="Noise of ARM's size"),
        Condition(name="knockout", intervention=Knockout(kind="knockout"), label="Filler knocked out", **_SLASHES),
        Condition(name="positions", intervention=Shift(kind="shift"), label="Positions only"),
    )
}
USUAL = tuple(PRESETS[name] for name in (BASELINE, "mless", "mful", "random"))  # where a study names none


def expanded(value: object) -> object:
    """A list of conditions with the cells of every sweep in its place."""
    if not isinstance(value, list | tuple):
        return value
    if (count := sum(map(size, value))) > MOST_CONDITIONS:
        raise ValueError(f"{count} conditions, and {MOST_CONDITIONS} is the most; give the sweeps fewer values")
    return [cell for item in value for cell in expand(item)]


def ready_made(value: object) -> object:
    """A name alone stands for a ready-made condition."""
    if isinstance(value, str) and value not in PRESETS:
        raise ValueError(f"{value!r} is not a ready-made condition; there are {', '.join(PRESETS)}")
    return PRESETS[value] if isinstance(value, str) else value
