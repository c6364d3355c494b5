"""A filler written in one line, such as `mless` or `" ..." x 55`, as a condition of a study."""

from __future__ import annotations

import re
from difflib import get_close_matches

import yaml
from pydantic import ValidationError

from fillerscope.errors import StudyError
from fillerscope.study.conditions import PRESETS, Condition

READY = tuple(name for name, one in PRESETS.items() if one.has_filler and one.intervention is None)
FORMS = f"{', '.join(READY)}, or a text and its number of tokens, such as '\" ...\" x 55'"
LONGEST_NUMBER = 18  # digits that are looked at: a filler has fewer tokens
CLOSE = 0.75  # how alike a word and a name are, as difflib counts, before the word is taken for the name misspelt
_COUNTED = re.compile(r"(?P<text>.+?)\s+[x\u00d7]\s*(?P<count>[-+]?\d+)\s*", re.DOTALL)
_QUOTED = re.compile(r"\s*(['\"]).*\1\s*", re.DOTALL)


def filler_condition(written: str) -> Condition:
    """The condition that a line stands for: a ready-made filler by its name, else a text as it stands.

    `" ..." x 55` repeats a text up to 55 tokens, and `mless x 20` is a ready-made one of another length. A word that
    is close to a name is refused unless it is in quotes, with a space before it or counted."""
    counted = _COUNTED.fullmatch(written)
    body, count = (counted["text"], int(counted["count"][:LONGEST_NUMBER])) if counted else (written, None)
    if body.strip() in PRESETS:
        return _ready(body.strip(), count)
    text = _unquoted(body)
    if not text:
        raise StudyError(f"the filler is empty; give {FORMS}")
    if count is None and text == body:
        _refuse_misspelt(text)
    return _checked({"name": "filler", "kind": "text" if count is None else "repeat", "text": text, "count": count})


def _ready(name: str, count: int | None) -> Condition:
    if name not in READY:
        raise StudyError(f"{name!r} is a condition without visible filler; give {FORMS}")
    return PRESETS[name] if count is None else _checked(PRESETS[name].model_dump() | {"count": count})


def _unquoted(text: str) -> str:
    """A text without the quotes around it; inside double quotes `\\n` and its like are what they are in YAML."""
    if not _QUOTED.fullmatch(text) or len(text.strip()) < 2:
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    return value if isinstance(value, str) else text.strip()[1:-1]


def _refuse_misspelt(word: str) -> None:
    close = get_close_matches(word.lower(), PRESETS, n=1, cutoff=CLOSE)
    if close and word.isidentifier():
        quoted = f"""'"{word}"'"""
        raise StudyError(f"{word!r} is close to {close[0]}; as a text of its own write {quoted}, else give {FORMS}")


def _checked(fields: dict[str, object]) -> Condition:
    try:
        return Condition.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "filler"
        raise StudyError(f"{where}: {first['msg'].removeprefix('Value error, ')}; give {FORMS}") from None
