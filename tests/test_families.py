"""The table of docs/models.md, made again: every family is exact or refused by name, and none is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fillerscope.models.value_check import refuse_other_values
from support import families

# One of each kind: plain, hybrids of every sort, sinks, latent attention, experts, and what is refused.
SAMPLE = (
    "llama", "gemma3_text", "gpt2", "gpt_oss", "deepseek_v3", "qwen3_moe", "falcon_h1", "qwen3_next", "jamba", "lfm2",
    "diffllama", "bloom", "mamba", "doge", "modernbert-decoder",
)  # fmt: skip
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in families.FAMILIES if name not in SAMPLE]


@pytest.mark.parametrize("family", [*SAMPLE, *OTHERS])
def test_no_family_is_taken_for_one_with_other_weights(family: str, tmp_path: Path) -> None:
    """Names and layouts of weights that a family changes when it is loaded."""
    try:
        model = families.small_model(family)
    except Exception as error:
        pytest.skip(f"not built small: {error}")
    model.save_pretrained(tmp_path)
    refuse_other_values(type(model).from_pretrained(tmp_path, dtype=torch.bfloat16), tmp_path, family)


@pytest.mark.parametrize("family", [*SAMPLE, *OTHERS])
def test_a_family_is_exact_or_refused_by_name(family: str) -> None:
    try:
        model = families.small_model(family)
    except Exception as error:  # its class is not made by sizes alone
        pytest.skip(f"not built small: {error}")
    verdict = families.judge(family, model)
    assert verdict.wrong == ""
    assert verdict.attention in ("shared", "packed", "apart") or verdict.attention.startswith("refused: ")
    assert "Error:" not in verdict.attention + verdict.answers
