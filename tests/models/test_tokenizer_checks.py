"""Rules of a tokenizer that make texts longer and longer are refused before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.description import load_tokenizer
from fillerscope.models.resolve import ModelFolder
from fillerscope.models.tokenizer_checks import check_tokenizer


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def put(folder: Path, stage: str, rule: object) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {stage: rule}))


DOUBLING = replace({"String": "a"}, "aa")
ADDING = replace({"Regex": "x*"}, "a")
GROWING = {
    "doubled again and again": ("normalizer", {"type": "Sequence", "normalizers": [DOUBLING] * 40}),
    "sequences in sequences": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [DOUBLING] * 4}] * 4},
    ),
    "something between characters": ("normalizer", {"type": "Sequence", "normalizers": [ADDING] * 40}),
    "one long content": ("normalizer", replace({"String": "a"}, "a" * 1000)),
    "an empty pattern": ("normalizer", replace({"String": ""}, "a" * 100)),
    "while it is decoded": ("decoder", {"type": "Sequence", "decoders": [DOUBLING] * 40}),
    "bytes of bytes": ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 40}),
}


@pytest.mark.parametrize("what", GROWING)
def test_rules_that_make_a_text_many_times_as_long_are_refused(folder: Path, what: str) -> None:
    stage, rule = GROWING[what]
    put(folder, stage, rule)
    with pytest.raises(ModelError, match=rf"tokenizer\.json: the rules of its {stage} can make a text .* times as"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_usual_rules_are_taken(folder: Path) -> None:
    usual = [replace({"String": " "}, "_"), replace({"Regex": " {2,}"}, "_"), {"type": "NFKC"}, DOUBLING]
    put(folder, "normalizer", {"type": "Sequence", "normalizers": usual})
    tokenizer = load_tokenizer(ModelFolder(folder, "m", "m", ""))
    assert tokenizer.decode(tokenizer.encode("a  b")) == "aa__b"


@pytest.mark.parametrize("rule", [3, "x", [], {"type": "Sequence", "normalizers": [3, None]}, {"type": "Replace"}])
def test_what_is_no_rule_is_left_to_the_tokenizer(folder: Path, rule: object) -> None:
    put(folder, "normalizer", rule)
    check_tokenizer(folder)
    with pytest.raises(ModelError, match=r"the tokenizer in .* cannot be loaded"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))
