"""Filler recipes: each gives an exact number of token ids.

A recipe is one function and one line in RECIPES. Knows nothing of where the filler goes.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import numpy as np

from fillerscope.errors import PromptError
from fillerscope.files import digest_of
from fillerscope.prompts.tokenizer import Tokenizer, encode
from fillerscope.study.conditions import Condition

MOST_ROUNDS = 16  # of random characters, four for each token that is wanted

Recipe = Callable[[Condition, Tokenizer, np.random.Generator], list[int]]


def filler_ids(condition: Condition, tokenizer: Tokenizer, seed: int, problem: str) -> list[int]:
    """The filler of one prompt. `draw: once` gives every problem the same filler, `problem` its own."""
    drawn_for = problem if condition.draw == "problem" else ""
    return RECIPES[condition.kind](condition, tokenizer, generator(seed, condition.name, drawn_for))


def generator(seed: int, *names: str) -> np.random.Generator:
    """Random numbers that depend on the study's seed and on names, never on order or batch."""
    return np.random.default_rng([seed, int(digest_of(names)[:16], 16)])


def _none(condition: Condition, tokenizer: Tokenizer, random: np.random.Generator) -> list[int]:  # noqa: ARG001
    return []


def _repeat(condition: Condition, tokenizer: Tokenizer, random: np.random.Generator) -> list[int]:  # noqa: ARG001
    unit, count = _encode(tokenizer, condition.text), condition.count or 0
    if not unit or count % len(unit):
        raise PromptError(
            f"condition {condition.name!r}: {condition.text!r} is {len(unit)} tokens for this tokenizer, and "
            f"{count} is not a multiple of that; write {_advice(condition, tokenizer, len(unit))}"
        )
    return unit * (count // len(unit))


def _text(condition: Condition, tokenizer: Tokenizer, random: np.random.Generator) -> list[int]:  # noqa: ARG001
    ids, count = _encode(tokenizer, condition.text), condition.count
    if not ids:
        raise PromptError(f"condition {condition.name!r}: {_short(condition.text)} gives no tokens; write another text")
    if count is not None and len(ids) != count:
        raise PromptError(
            f"condition {condition.name!r}: {_short(condition.text)} gives {len(ids)} tokens and {count} were "
            f"asked for; write {_advice(condition, tokenizer, len(ids))}"
        )
    return ids


def _sentence(condition: Condition, tokenizer: Tokenizer, random: np.random.Generator) -> list[int]:
    """Sentences in a drawn order, as many as it takes, cut to the exact number of tokens."""
    ids: list[int] = []
    for index in random.permutation(len(sentences())):
        ids += _encode(tokenizer, " " + sentences()[index])
        if len(ids) >= (condition.count or 0):
            return ids[: condition.count]
    raise PromptError(
        f"condition {condition.name!r}: count is {condition.count}, and all sentences give {len(ids)} tokens; "
        "ask for fewer"
    )


def _characters(condition: Condition, tokenizer: Tokenizer, random: np.random.Generator) -> list[int]:
    """A random string, cut to the exact number of tokens. `text`, where given, is its alphabet."""
    alphabet = condition.text or string.ascii_letters + string.digits + string.punctuation
    count = condition.count or 0
    ids: list[int] = []
    for _ in range(MOST_ROUNDS):
        drawn = _encode(tokenizer, "".join(random.choice(list(alphabet), size=4 * count)))
        if not drawn:
            raise PromptError(f"condition {condition.name!r}: characters of {_short(alphabet)} give no tokens")
        ids += drawn
        if len(ids) >= count:
            return ids[:count]
    raise PromptError(
        f"condition {condition.name!r}: {MOST_ROUNDS * 4 * count:,} characters of {_short(alphabet)} give {len(ids):,} "
        f"tokens, and {count:,} are wanted; give another alphabet in `text`"
    )


RECIPES: dict[str, Recipe] = {
    "none": _none,
    "repeat": _repeat,
    "text": _text,
    "sentence": _sentence,
    "characters": _characters,
}


@cache
def sentences() -> list[str]:
    """The shipped sentences, of which the random sentence is drawn."""
    return files("fillerscope.prompts").joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return encode(tokenizer, text)


def _advice(condition: Condition, tokenizer: Tokenizer, tokens: int) -> str:
    """What to write instead: a count that fits, and a unit of one token where one is near."""
    count = condition.count or 0
    if condition.kind == "text":
        fits = f"count: {tokens}"
    else:
        fits = f"count: {max(1, round(count / max(tokens, 1))) * tokens}" if tokens else "a text that is not empty"
    core = _unit(condition.text).strip()
    for unit in (" " + core, core):
        if core and len(_encode(tokenizer, unit)) == 1:
            quoted = json.dumps(unit, ensure_ascii=False)  # as YAML reads it: a backslash would be lost in ''
            return f"{fits}, or `kind: repeat, text: {quoted}, count: {count}`, whose unit is one token"
    return fits


def _unit(text: str) -> str:
    """The shortest piece that gives `text` when repeated."""
    for size in range(1, len(text) + 1):
        if len(text) % size == 0 and text[:size] * (len(text) // size) == text:
            return text[:size]
    return text


def _short(text: str) -> str:
    return repr(text) if len(text) <= 24 else repr(text[:21] + "...")
