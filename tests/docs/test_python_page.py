"""The Python page: every public name is on it, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fillerscope
from support.tiny import tiny_model, tiny_tokenizer

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def test_every_public_name_is_on_the_page() -> None:
    names = set(fillerscope.__all__) - {"FillerscopeError"}  # with the errors
    shown = set(re.findall(r"^\.\. auto(?:function|class):: fillerscope\.(\w+)(?:\(.*)?$", PAGE, re.MULTILINE))
    assert names <= shown


def test_the_examples_of_models_in_memory_run() -> None:
    section = PAGE.partition("## Models in memory")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names = {"fillerscope": fillerscope, "model": tiny_model("llama"), "tokenizer": tiny_tokenizer()}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 3
    assert names["trial"].sentence.startswith("With 55 tokens of filler")
    np.testing.assert_allclose(names["matrix"].weights.sum(axis=1), 1, atol=1e-5)
