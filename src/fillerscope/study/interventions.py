"""Interventions inside a model, as data: ARM and its controls, filler knocked out, positions moved.

Knows nothing of tensors. Exact definitions are in docs/method.md.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fillerscope.files import Json
from fillerscope.study.arm_presets import USUAL, arm_preset
from fillerscope.study.generation import listed
from fillerscope.study.strict import Strict

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Layers = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(listed)]


class Redistribution(Strict):
    """ARM, after the nonlinearity of some layers' MLP; and two perturbations of its size without its rule.

    `arm` moves the elements nearest to zero, `scatter` as many at random, and `gaussian` adds noise to all of them.
    In L2, the change of each is as large as ARM's."""

    kind: Literal["arm", "scatter", "gaussian"] = Field(
        description="ARM, the same on random elements, or noise of its size.", examples=["arm"]
    )
    preset: str = Field(
        "", description="A model with published settings; what is given beside it goes before it.",
        examples=["Qwen2.5-Math-7B"],
    )  # fmt: skip
    benchmark: str = Field("", description="Whose settings the preset takes; empty: MATH-500.")
    follows: Literal["text", "code"] = Field(
        "text", description="What a preset does where the paper's text and released code differ."
    )
    layers: Layers = Field((1,), min_length=1, description="The layers that are changed, from 1.", examples=[[1, 2]])
    c: float = Field(
        0.13, ge=0, allow_inf_nan=False, description="How near to zero elements are moved. A list is a sweep.",
        examples=[0.1],
    )  # fmt: skip
    fraction: Share | None = Field(
        None, description="The share of elements that is moved; null: as `c` says. A list is a sweep.", examples=[0.25]
    )
    p1: float = Field(
        99.5, ge=0, le=100, allow_inf_nan=False, description="The percentile that draws reach. A list is a sweep.",
        examples=[95],
    )  # fmt: skip
    quantile_of: Literal["values", "sizes"] = Field(
        "values", description="Whose percentile: of a, or of |a|.", examples=["sizes"]
    )
    p_min: Share = Field(0.02, description="The least share that is moved. A list is a sweep.", examples=[0.0])
    p_max: Share = Field(0.25, description="The largest share that is moved. A list is a sweep.", examples=[0.5])
    at_least_one: bool = Field(False, description="Move one element even where the share says none.", examples=[True])
    mode: Literal["add", "replace"] = Field("add", description="Add to elements or replace them.", examples=["replace"])

    @model_validator(mode="before")
    @classmethod
    def _published(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        of_code = value.get("follows") == "code"
        if not value.get("preset"):
            if value.get("benchmark") or of_code:
                raise ValueError("`benchmark` and `follows` choose among published settings: name a model as `preset`")
            return value
        preset = arm_preset(value["preset"], value.get("benchmark"), of_code)
        own = {"fraction": None} if "c" in value else {}  # `c` counts only where no fraction is fixed
        return preset | own | value | {key: preset[key] for key in ("preset", "benchmark")}

    def as_given(self) -> Json:
        """What a file has to say for it: what neither defaults nor the preset give."""
        names = {"kind": self.kind, "preset": self.preset, "follows": self.follows}
        names |= {"benchmark": self.benchmark} if self.benchmark not in ("", USUAL) else {}
        usual = type(self).model_validate(names).model_dump()
        return names | {key: value for key, value in self.model_dump().items() if value != usual[key]}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p_min > self.p_max:
            raise ValueError(f"p_min is {self.p_min:g} and p_max {self.p_max:g}: p_min must not be the larger")
        return self


class Knockout(Strict):
    """The filler stays where it is, and no later token sees it in these layers (none given: in all)."""

    kind: Literal["knockout"] = Field(description="Hide the filler.", examples=["knockout"])
    layers: Layers = Field((), description="The layers in which it is hidden, from 1; empty: all.", examples=[[1]])

    def applies(self, layer: int) -> bool:
        """Whether it applies in a layer, counted from 0."""
        return not self.layers or layer + 1 in self.layers


class Shift(Strict):
    """No filler, and the question has the positions that it would have after so many tokens of filler."""

    kind: Literal["shift"] = Field(description="Move the question's positions.", examples=["shift"])
    by: int = Field(55, ge=1, le=100_000, description="By so many positions. A list is a sweep.", examples=[55])


Intervention = Annotated[Redistribution | Knockout | Shift, Field(discriminator="kind")]
