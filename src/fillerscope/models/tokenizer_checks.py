"""Checks of a tokenizer.json before it is loaded: rules that make texts longer and longer end a process.

The tokenizer's own library does not bound them, and running out of memory in it cannot be caught.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import parse_json, read_limited

MOST_GROWTH = 64  # times a text may grow; those of published models keep its length, or double it
_STAGES = ("normalizer", "pre_tokenizer", "decoder")
_CHILDREN = ("normalizers", "pretokenizers", "decoders")
_GROWING = {"ByteLevel": 2.0, "Precompiled": 2.0}  # each time they are applied


def check_tokenizer(folder: Path) -> None:
    """Refuse a tokenizer whose rules would make a text many times as long."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return
    try:
        rules = parse_json(read_limited(path))
    except (OSError, ValueError) as error:
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: tokenizer.json: {first_line(error)}") from error
    for stage in _STAGES if isinstance(rules, dict) else ():
        if (growth := _growth(rules.get(stage))) > MOST_GROWTH:
            raise ModelError(
                f"{path}: the rules of its {stage} can make a text {growth:.3g} times as long, and {MOST_GROWTH} times "
                "is the most; use the tokenizer that was published with the model"
            )


def _growth(rule: object) -> float:
    """How many times as long a text can become by a rule, or by one rule after another."""
    if not isinstance(rule, dict):
        return 1.0
    children = [child for key in _CHILDREN if isinstance(rule.get(key), list) for child in rule[key]]
    if children:
        return math.prod(map(_growth, children))
    if rule.get("type") == "Replace":
        return _growth_of_replacing(rule.get("pattern"), rule.get("content"))
    return _GROWING.get(str(rule.get("type")), 1.0)


def _growth_of_replacing(pattern: object, content: object) -> float:
    new = len(str(content))
    if isinstance(pattern, dict) and isinstance(pattern.get("String"), str) and pattern["String"]:
        return max(1.0, new / len(pattern["String"]))
    expression = str(pattern.get("Regex", "")) if isinstance(pattern, dict) else ""
    return max(1.0, float(new) + _matches_nothing(expression))


def _matches_nothing(expression: str) -> bool:
    """Whether a pattern matches between characters, so that something is added and nothing taken away."""
    try:
        return re.compile(expression).match("") is not None
    except re.error:  # written for another engine
        return False
