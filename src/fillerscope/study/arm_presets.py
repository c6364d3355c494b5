"""The published settings of ARM, by model and benchmark, and where the released code departs from the paper's text.

From the paper and the parameters in its released code (docs/method.md has the differences). Where neither has settings
of a model for a benchmark, there is no preset.
"""

from __future__ import annotations

from fillerscope.files import Json
from fillerscope.study.published_names import published_name

USUAL = "MATH-500"  # the benchmark where none is named

# How many elements are moved (by `c` or as a fixed fraction), and how far.
ARM_PRESETS: dict[str, dict[str, dict[str, float]]] = {
    "Qwen2.5-Math-1.5B": {
        "MATH-500": {"c": 0.13, "p1": 99.5},
        "AIME 2024": {"c": 0.13, "p1": 99.5},
        "AIME 2025": {"c": 0.13, "p1": 99.5},
    },
    "Qwen2.5-Math-7B": {
        "MATH-500": {"c": 0.10, "p1": 95.0},
        "AIME 2024": {"c": 0.05, "p1": 90.0},
        "AIME 2025": {"c": 0.13, "p1": 99.5},
    },
    "Qwen2.5-7B-Instruct": {
        "MATH-500": {"c": 0.10, "p1": 99.5},
        "AIME 2025": {"c": 0.10, "p1": 99.5},
    },
    "Qwen2.5-32B-Instruct": {
        "AIME 2024": {"c": 0.13, "p1": 99.5},
        "AIME 2025": {"c": 0.05, "p1": 99.0},
    },
    "Llama-3.1-8B-Instruct": {
        "MATH-500": {"c": 0.32, "p1": 90.0},
        "AIME 2024": {"c": 0.32, "p1": 90.0},
    },
    "Gemma-3-4b-it": {
        "MATH-500": {"fraction": 0.25, "p1": 85.0},
        "AIME 2024": {"fraction": 0.25, "p1": 85.0},
        "AIME 2025": {"fraction": 0.25, "p1": 85.0},
    },
    "Gemma-3-27b-it": {
        "MATH-500": {"fraction": 0.25, "p1": 85.0},
        "AIME 2024": {"fraction": 0.25, "p1": 96.5},
        "AIME 2025": {"fraction": 0.25, "p1": 70.0},
    },
}

# What the released code does otherwise: for every model, and for some.
_RELEASED: Json = {"mode": "replace", "at_least_one": True}
_RELEASED_FOR: dict[str, Json] = {
    "Llama-3.1-8B-Instruct": {"p_min": 0.2},
    "Gemma-3-4b-it": {"quantile_of": "sizes"},
    "Gemma-3-27b-it": {"quantile_of": "sizes"},
}


def arm_preset(model: object, benchmark: object, of_code: bool) -> Json:
    """All settings of a preset, with its names as they were published. `of_code`: as the released code has them."""
    name = published_name(model, ARM_PRESETS) if isinstance(model, str) else None
    if name is None:
        raise ValueError(f"there are no published settings for {model!r}; there are for {', '.join(ARM_PRESETS)}")
    known = ARM_PRESETS[name]
    wanted = benchmark or USUAL
    task = published_name(wanted, known) if isinstance(wanted, str) else None
    if task is None:
        raise ValueError(
            f"there are no published settings of {name} for {wanted!r}; there are for {', '.join(known)}: "
            "name one of these as `benchmark`"
        )
    released = _RELEASED | _RELEASED_FOR.get(name, {}) if of_code else {}
    return {**known[task], **released, "preset": name, "benchmark": task}
