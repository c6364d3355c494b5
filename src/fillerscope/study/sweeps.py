"""Sweeps: a condition with lists of values becomes one condition for every combination.

Works on data read from a file, before it is checked. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import product
from math import prod

from fillerscope.files import Json

SWEPT = ("text", "count", "position")
WORD = 24  # letters of a name, of a text
INSIDE = ("c", "p1", "fraction", "p_min", "p_max", "layers", "by")  # of an intervention


def expand(value: object) -> list[object]:
    """The cells of a sweep, each named after what it has of its own; anything else is left as it is."""
    lists = swept(value)
    if not isinstance(value, dict) or not lists or not all(lists.values()):
        return [value]  # whoever checks conditions refuses an empty list, and knows its place
    cells = [dict(zip(lists, combination, strict=True)) for combination in product(*lists.values())]
    cells = [cell for cell in cells if cell.get("count") != 0]  # no filler is the baseline, which every study has
    return [value | _own(value, cell) | _name(value, cell) for cell in cells]


def _own(value: Json, cell: Json) -> Json:
    """What a cell has in place of the lists: those of its intervention stay inside it."""
    inside = {key: item for key, item in cell.items() if key in INSIDE}
    outside = {key: item for key, item in cell.items() if key not in INSIDE}
    return outside | ({"intervention": value["intervention"] | inside} if inside else {})


def size(value: object) -> int:
    """How many combinations a sweep has, without writing them out."""
    return max(1, prod(map(len, swept(value).values())))


def places(values: Sequence[object]) -> list[int]:
    """For every cell of all sweeps together, the place of the value that it comes from."""
    return [place for place, value in enumerate(values) for _ in expand(value)]


def swept(value: object) -> Json:
    """The lists of a sweep, by key. Layers are a list themselves: they are swept where they hold lists."""
    if not isinstance(value, dict):
        return {}
    outer = {key: value[key] for key in SWEPT if _is_list(value.get(key))}
    inner = value.get("intervention")
    if not isinstance(inner, dict):
        return outer
    lists = {key: inner[key] for key in INSIDE if _is_list(inner.get(key))}
    return outer | {key: items for key, items in lists.items() if key != "layers" or any(map(_is_list, items))}


def _name(value: Json, cell: Json) -> dict[str, str]:
    if not isinstance(value.get("name"), str):
        return {}
    own = "-".join(_word(key, item) for key, item in cell.items())
    return {"name": f"{value['name']}-{own}", "sweep": value["name"]}


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _word(key: str, item: object) -> str:
    """A piece of a name: letters and digits as they are, a sign by what Unicode calls it."""
    if key in INSIDE:
        return key + re.sub("[^0-9.]+", "-", str(item)).strip("-")
    if key != "text":
        return re.sub("[^A-Za-z0-9.]+", "-", str(item))
    letters = str(item).strip()[: 10 * WORD]  # the more there are, the longer it takes to name them
    words = [letter if letter.isascii() and letter.isalnum() else _sign(letter) for letter in letters]
    return re.sub("-+", "-", "".join(words)).strip("-")[:WORD] or "blank"


def _sign(letter: str) -> str:
    return "-" if letter.isspace() else f"-{unicodedata.name(letter, 'sign').lower().replace(' ', '-')}-"
