"""What is done inside a model, as data: ARM and its controls, filler knocked out, positions moved.

Knows nothing of tensors. What each of them does exactly is in docs/method.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fillerscope.asking import Strict, listed

# The published settings for MATH-500: how many elements are moved (by `c` or as a fixed fraction), and how far.
ARM_PRESETS: dict[str, dict[str, float]] = {
    "Qwen2.5-Math-1.5B": {"c": 0.13, "p1": 99.5},
    "Qwen2.5-Math-7B": {"c": 0.10, "p1": 95.0},
    "Qwen2.5-7B-Instruct": {"c": 0.10, "p1": 99.5},
    "Llama-3.1-8B-Instruct": {"c": 0.32, "p1": 90.0},
    "Gemma-3-4b-it": {"fraction": 0.25, "p1": 85.0},
    "Gemma-3-27b-it": {"fraction": 0.25, "p1": 85.0},
}

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Layers = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(listed)]


class Redistribution(Strict):
    """ARM, after the nonlinearity of some layers' MLP; and two perturbations of its size without its rule.

    `arm` moves the elements nearest to zero, `scatter` as many at random, and `gaussian` adds noise to all of them.
    In L2, the change of each is as large as ARM's."""

    kind: Literal["arm", "scatter", "gaussian"]
    preset: str = ""  # one of ARM_PRESETS; what is given beside it goes before it
    layers: Layers = Field((1,), min_length=1)
    c: float = Field(0.13, ge=0, allow_inf_nan=False)
    fraction: Share | None = None  # of the elements; None: as `c` says
    p1: float = Field(99.5, ge=0, le=100, allow_inf_nan=False)  # the percentile that positive draws reach
    p_min: Share = 0.02
    p_max: Share = 0.25
    mode: Literal["add", "replace"] = "add"

    @model_validator(mode="before")
    @classmethod
    def _published(cls, value: Any) -> Any:
        name = value.get("preset") if isinstance(value, dict) else None
        if not name:
            return value
        if not isinstance(name, str) or name not in ARM_PRESETS:
            raise ValueError(f"there are no published settings for {name!r}; there are for {', '.join(ARM_PRESETS)}")
        own = {"fraction": None} if "c" in value else {}  # `c` counts only where no fraction is fixed
        return ARM_PRESETS[name] | own | value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.p_min > self.p_max:
            raise ValueError(f"p_min is {self.p_min:g} and p_max {self.p_max:g}: p_min must not be the larger")
        return self


class Knockout(Strict):
    """The filler stays where it is, and no later token sees it in these layers (none given: in all)."""

    kind: Literal["knockout"]
    layers: Layers = ()

    def applies(self, layer: int) -> bool:
        """In a layer that is counted from 0."""
        return not self.layers or layer + 1 in self.layers


class Shift(Strict):
    """No filler, and the question stands at the positions that it would have behind so many tokens of filler."""

    kind: Literal["shift"]
    by: int = Field(55, ge=1, le=100_000)


Intervention = Annotated[Redistribution | Knockout | Shift, Field(discriminator="kind")]
