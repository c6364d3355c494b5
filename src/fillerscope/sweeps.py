"""A condition with lists in it, as the conditions that it stands for: one for every combination.

Works on what was read from a file, before it is checked. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

SWEPT = ("text", "count", "position")


def expand(value: Any) -> list[Any]:
    """The cells of a sweep, each named after what it has of its own; anything else is left as it is."""
    lists = _lists(value)
    if not all(lists.values()) or not lists:
        return [value]  # whoever checks conditions refuses an empty list, and knows its place
    cells = [dict(zip(lists, combination, strict=True)) for combination in product(*lists.values())]
    cells = [cell for cell in cells if cell.get("count") != 0]  # no filler is the baseline, which is there anyway
    return [value | cell | _name(value, cell) for cell in cells]


def size(value: Any) -> int:
    """How many combinations a sweep has, without writing them out."""
    return max(1, prod(map(len, _lists(value).values())))


def places(values: Sequence[Any]) -> list[int]:
    """For every cell of all sweeps together, the place of the value that it comes from."""
    return [place for place, value in enumerate(values) for _ in expand(value)]


def _lists(value: Any) -> dict[str, Any]:
    return {key: value[key] for key in SWEPT if _is_list(value.get(key))} if isinstance(value, dict) else {}


def _name(value: dict[str, Any], cell: dict[str, Any]) -> dict[str, str]:
    if not isinstance(value.get("name"), str):
        return {}
    own = "-".join(_word(key, item) for key, item in cell.items())
    return {"name": f"{value['name']}-{own}", "sweep": value["name"]}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _word(key: str, item: Any) -> str:
    """A piece of a name: letters and digits as they are, a sign by what Unicode calls it."""
    if key != "text":
        return re.sub("[^A-Za-z0-9.]+", "-", str(item))
    words = [letter if letter.isascii() and letter.isalnum() else _sign(letter) for letter in str(item).strip()]
    return re.sub("-+", "-", "".join(words)).strip("-")[:24] or "blank"


def _sign(letter: str) -> str:
    return "-" if letter.isspace() else f"-{unicodedata.name(letter, 'sign').lower().replace(' ', '-')}-"
