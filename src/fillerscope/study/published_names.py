"""Which published name a model or a benchmark has, whoever owns it and however it is spelt.

Knows nothing of what was published about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a name may look like without owner, capitals and signs, and what it looks like in a table.
_ALSO = {
    "dsr1qwen7b": "deepseekr1distillqwen7b",
    "dsmath7binstruct": "deepseekmath7binstruct",
    "metallama318binstruct": "llama318binstruct",
}


def published_name(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that a model or benchmark has, or None. Other precision is another name."""
    own = plain(re.split(r"[/\\]", name.rstrip("/\\"))[-1])
    return next((known for known in names if plain(known) == _ALSO.get(own, own)), None)


def plain(name: str) -> str:
    """A name in lower case, letters and digits only."""
    return re.sub("[^a-z0-9]", "", name.lower())
