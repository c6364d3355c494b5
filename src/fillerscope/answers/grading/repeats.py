r"""Removes a filler that a model repeats at the end of its text: `42 / / / /`, `42////`, `42 he he he`.

A filler is a run of at least LEAST times the same unit: a symbol, with or without spaces between (Chinese characters
are written alike), or a word with spaces between. Digits, letters without spaces and brackets are part of no unit, so
`333`, `x^{aaa}` and `1 1 1` stay; so do three joined dots, exclamation marks and primes. What is nothing but a filler
stays, too. Takes time in proportion to the text. Does not know which filler the prompt had.
"""

from __future__ import annotations

import re

LEAST = 3
LEAST_LETTERS = 8  # a single letter may be a variable, or part of a sequence: `H T T T`
LONGEST = 20  # characters of a word
BRACKETS = "()[]{}"
JOINED = ".!'"  # `0.3...`, `5!!!` and `f'''` mean something
CLOSING = "%!'|$"  # of `50% % % %` the first belongs to the answer

_PIECE = re.compile(r"\S+")
_CHINESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


def without_repeats(text: str, cut: bool = False) -> str:
    """The text without a filler at its end. `cut`: the last word may be incomplete."""
    bare = text.rstrip()
    for whole in (bare, bare.removesuffix(".")):
        for shorten in (_without_symbols, lambda whole: _without_words(whole, cut)):
            kept = shorten(whole).rstrip()
            if kept and kept != whole.rstrip():
                return kept
    return text


def _without_symbols(text: str) -> str:
    symbol = text[-1:]
    kept = text.rstrip(symbol + " \t\r\n") if _is_symbol(symbol) else text
    run = text[len(kept) :]
    if run.count(symbol) < LEAST or (symbol in JOINED and run.strip() == LEAST * symbol):
        return text
    return kept + run[0] if symbol in CLOSING and run[1].isspace() and not run[0].isspace() else kept


def _is_symbol(character: str) -> bool:
    is_word = character.isalnum() and (character.isnumeric() or not _CHINESE.match(character))
    return bool(character) and character not in BRACKETS and not is_word


def _without_words(text: str, cut: bool) -> str:
    pieces = list(_PIECE.finditer(text))
    if len(pieces) < LEAST:
        return text
    unit, last = pieces[-2][0], pieces[-1][0]
    if not _is_word(unit) or not (last == unit or (cut and unit.startswith(last))):
        return text
    first = len(pieces) - 2
    while first > 0 and pieces[first - 1][0] == unit:
        first -= 1
    count = len(pieces) - first - (last != unit)
    return text[: pieces[first].start()] if count >= _least(unit) else text


def _is_word(piece: str) -> bool:
    return len(piece) <= LONGEST and not any(each.isnumeric() or each in BRACKETS for each in piece)


def _least(unit: str) -> int:
    letters = unit.strip(".,;:!?")
    return LEAST_LETTERS if len(letters) == 1 and letters.isalpha() else LEAST
