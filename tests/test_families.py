"""The table of docs/models.md, made again: every family is exact or refused by name, and none is wrong."""

from __future__ import annotations

import pytest

from support import families

# One of each kind: plain, hybrids of every sort, sinks, latent attention, experts, and what is refused.
SAMPLE = (
    "llama", "gemma3_text", "gpt2", "gpt_oss", "deepseek_v3", "qwen3_moe", "falcon_h1", "qwen3_next", "jamba", "lfm2",
    "diffllama", "bloom", "mamba", "doge", "modernbert-decoder",
)  # fmt: skip
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in families.FAMILIES if name not in SAMPLE]


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
