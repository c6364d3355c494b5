"""Tokenizers that transformers builds by rules of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

import fillerscope
from fillerscope.models.tokenizer_rules import FILE, other_splits
from fillerscope.report.methods.page import as_text, methods
from support.progress import Heard
from support.studies import save_model, study_of

SAID = "transformers splits texts by rules of its Qwen2Tokenizer, and not of tokenizer.json (a sample text has "


@pytest.mark.parametrize(("family", "said"), [("llama", ""), ("qwen3", ""), ("qwen2", SAID)])
def test_rules_other_than_those_of_the_file(family: str, said: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", family)
    found = other_splits(AutoTokenizer.from_pretrained(folder), folder)
    assert found.startswith(said) if said else not found


def test_the_same_rules_in_the_file(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "qwen2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rules = json.loads((folder / FILE).read_text())
    rules["normalizer"] = json.loads(tokenizer.backend_tokenizer.normalizer.__getstate__())
    rules["pre_tokenizer"] = json.loads(tokenizer.backend_tokenizer.pre_tokenizer.__getstate__())
    (folder / FILE).write_text(json.dumps(rules))
    assert not other_splits(tokenizer, folder)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert other_splits(tokenizer, folder)
    (folder / FILE).unlink()
    assert not other_splits(tokenizer, folder)


def test_a_run_says_so_and_its_methods_too(tmp_path: Path) -> None:
    heard = Heard()
    study = study_of(save_model(tmp_path / "model", "qwen2"), problems={"limit": 2})
    run = fillerscope.run(study, tmp_path / "run", progress=heard)
    (said,) = [line for line in heard.lines if SAID in line]
    assert said.partition(": ")[2] in as_text(methods(run))
