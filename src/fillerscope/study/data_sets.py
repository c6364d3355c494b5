"""Data sets by one word, and what kind of source a study names.

Only data: where a data set is on the hub, which split is meant and what its columns are. Nothing here fetches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fillerscope.study.published_names import plain

Role = Literal["id", "question", "answer"]
BUILTIN = "builtin"
HUB = "hub:"
DEFAULT_SPLIT = "test"


@dataclass(frozen=True)
class DataSet:
    """A data set on the hub. `fields` names its columns by their roles."""

    name: str
    repo: str
    fields: Mapping[Role, str]
    split: str = DEFAULT_SPLIT  # what the split `test` of a study stands for


_MATH: dict[Role, str] = {"id": "id", "question": "problem", "answer": "answer"}
DATA_SETS = {
    one.name: one
    for one in (
        DataSet("gsm8k", "openai/gsm8k", {"question": "question", "answer": "answer"}),
        DataSet("math500", "HuggingFaceH4/MATH-500", _MATH | {"id": "unique_id"}),
        DataSet("aime24", "HuggingFaceH4/aime_2024", _MATH, split="train"),  # the only split it has
        DataSet("aime25", "math-ai/aime25", _MATH),
    )
}
_ALSO = {"aime2024": "aime24", "aime2025": "aime25"}
_WORD = re.compile(r"[A-Za-z0-9 _-]+")  # a path or a file has other characters


def data_set(source: str) -> DataSet | None:
    """The data set that a word stands for, however it is spelt (MATH-500, aime_2024); None for other sources."""
    name = plain(source) if _WORD.fullmatch(source) else ""
    return DATA_SETS.get(_ALSO.get(name, name))


def is_file(source: str) -> bool:
    """Whether a source is the path of a file: neither built in nor on the hub."""
    return source != BUILTIN and not source.startswith(HUB) and data_set(source) is None
