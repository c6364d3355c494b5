"""How much longer the rules of a tokenizer.json can make a text, read from the rules alone.

Every figure is an upper bound in characters, or in tokens for post-processors. A rule is told by its keys as well as by
its type: the tokenizer's own library takes rules without a type.
"""

from __future__ import annotations

import base64
import math
import re
import unicodedata
from collections.abc import Iterator

from fillerscope.files import Json

_CHILDREN = ("normalizers", "pretokenizers", "processors", "decoders")
# By type: a character has up to 4 bytes, CJK characters get spaces around them, words a mark or a space before them.
_GROWING = {"ByteLevel": 4.0, "BertNormalizer": 3.0, "Metaspace": 2.0, "WordPiece": 2.0, "BPEDecoder": 2.0, "CTC": 2.0}
# Patterns of which each part takes a character or more, so that nothing is replaced where there is nothing. Others may
# mean something else to the tokenizer's library than to Python's, and are taken for ones that match between characters.
_TAKES = re.compile(
    r"(?:(?:\\[sSdDwWnrt.]|\[\^?[^][\\^&]+\]|[^][(){}*+?|\\^$.])(?:\+|\{[1-9][0-9]{0,3}(?:,[0-9]*)?\})?)+"
)


def text_growth(rule: object) -> float:
    """How many times as long a text can become by a rule, or by one rule after another."""
    return math.prod(map(_growth_by_one, _single_rules(rule)))


def token_growth(rule: object) -> float:
    """How many times as many tokens a text can have after a post-processor; one that adds tokens has one before it."""
    return math.prod(map(_growth_by_template, _single_rules(rule)))


def rule_tokens(rule: object) -> Iterator[str]:
    """The texts of the tokens that a post-processor adds."""
    for one in _single_rules(rule):
        for token in _values(one.get("special_tokens")):
            yield from map(str, _listed(token.get("tokens") if isinstance(token, dict) else None))
        for key in ("sep", "cls"):
            yield from map(str, _listed(one.get(key)))


def _single_rules(rule: object) -> Iterator[Json]:
    """The rules of a sequence, and of all sequences in it."""
    waiting = [rule]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(child for key in _CHILDREN for child in _listed(one.get(key)))


def _growth_by_one(rule: Json) -> float:
    growth = _GROWING.get(str(rule.get("type")), 1.0)
    if rule.get("add_prefix_space"):
        growth *= 2
    if "content" in rule and "pattern" in rule:
        growth *= _growth_by_replacing(rule["pattern"], rule["content"])
    if "prepend" in rule:  # to each piece between two added tokens, which can be as short as a character
        growth *= 1 + _width(str(rule["prepend"]))
    if "precompiled_charsmap" in rule:
        growth *= _longest_replacement(rule["precompiled_charsmap"])
    return growth


def _growth_by_replacing(pattern: object, content: object) -> float:
    new = _width(str(content))
    given = pattern if isinstance(pattern, dict) else {}
    if isinstance(given.get("String"), str) and given["String"]:
        return max(1.0, new / len(given["String"]))
    return max(1.0, new + (new > 0 and not _TAKES.fullmatch(str(given.get("Regex", "")))))


def _width(text: str) -> int:
    """The length of a text, also after a later rule has taken its characters apart."""
    # One by one: a text of marks takes the square of its length.
    return sum(max(1, len(unicodedata.normalize("NFKD", character))) for character in text)


def _longest_replacement(charsmap: object) -> float:
    """The longest text that a character is replaced by: after the size of an index and the index come texts that end
    with a null byte."""
    try:
        content = base64.b64decode(str(charsmap))
    except ValueError:
        return 1.0  # the tokenizer's library refuses it
    texts = content[4 + int.from_bytes(content[:4], "little") :].decode(errors="replace").split("\0")
    return max(1.0, *map(_width, texts))


def _growth_by_template(rule: Json) -> float:
    added = {key: _listed(_ids(token)) for key, token in _items(rule.get("special_tokens"))}
    return max(1.0, *(sum(_places(piece, added) for piece in _listed(rule.get(key))) for key in ("single", "pair")))


def _places(piece: object, added: dict[str, list[object]]) -> int:
    """How many tokens a piece of a template stands for: those of a special token, or all of the text once."""
    special = piece.get("SpecialToken") if isinstance(piece, dict) else None
    return len(added.get(str(special.get("id")), ())) if isinstance(special, dict) else 1


def _ids(token: object) -> object:
    return token.get("ids") if isinstance(token, dict) else None


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _values(value: object) -> list[object]:
    return [inner for _, inner in _items(value)]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
