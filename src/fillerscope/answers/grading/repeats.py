r"""Removes a filler that a model repeats beside its answer: `42 / / / /`, `42////`, `42 he he he`, `(42 / / /)`.

A filler is a run of at least LEAST times the same unit: a symbol, with or without spaces between (Chinese characters
are written alike), or one to MOST_WORDS words with spaces between, in any case. Digits, letters without spaces and
brackets are part of no unit, so `333`, `x^{aaa}` and `1 1 1` stay; so do three joined dots, exclamation marks and
primes, and words that speak of the answer. Symbols that end no expression are a filler however few they are: `42 /`.
What is nothing but a filler stays, too. Takes time in proportion to the text. Does not know which filler the prompt
had.
"""

from __future__ import annotations

import re

LEAST = 3
LEAST_LETTERS = 8  # a single letter may be a variable, or part of a sequence: `H T T T`
LONGEST = 20  # characters of a word
MOST_WORDS = 3  # of a unit
BRACKETS = "()[]{}"
JOINED = ".!'"  # `0.3...`, `5!!!` and `f'''` mean something
CLOSING = "%!'|$"  # of `50% % % %` the first belongs to the answer
DANGLING = "/*+-=,~^&<>:;_#"  # after a space, no answer ends with these

_PIECE = re.compile(r"\S+")
_CHINESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_CLOSED = re.compile(r"[)\]}]+$")
_SYMBOLS = r"[^\w\s()\[\]{}$\\.]"
_WORDS = r"[^\W\d_]{2,20}"
_AT_START = re.compile(rf"(?:({_SYMBOLS})(?:\s*\1){{{LEAST - 1},}}|({_WORDS})(?:\s+\2){{{LEAST - 1},}}(?!\w))\s*")
_BETWEEN = re.compile(
    rf"\s(?:({_SYMBOLS})(?:[ \t]?\1){{{LEAST - 1},}}|({_WORDS})(?:[ \t]+\2){{{LEAST - 1},}})(?=\s)", re.IGNORECASE
)


def without_repeats(text: str, cut: bool = False) -> str:
    """The text without a filler at its end. `cut`: the last word may be incomplete."""
    bare = text.rstrip()
    closing = _CLOSED.search(bare)
    for end in ("", ".", closing[0] if closing else ""):
        whole = bare.removesuffix(end)
        for shorten in (_without_symbols, _without_words):
            kept = shorten(whole, cut).rstrip()
            if kept and kept != whole.rstrip() and not (closing and kept[-1] in BRACKETS):
                return kept + (end if end != "." else "")
    return text


def without_first_repeats(text: str) -> str:
    """The text without a filler at its start."""
    return text[match.end() :] if (match := _AT_START.match(text)) and match.end() < len(text) else text


def before_repeats(text: str) -> str:
    """The text up to a filler in it."""
    match = _BETWEEN.search(text)
    return text[: match.start()] if match and match.start() else text


def _without_symbols(text: str, cut: bool) -> str:
    symbol = text[-1:]
    kept = text.rstrip(symbol + " \t\r\n") if _is_symbol(symbol) else text
    run = text[len(kept) :]
    if symbol in DANGLING and run[:1].isspace() and not cut:  # more of the expression may be missing
        return kept
    if run.count(symbol) < LEAST or (symbol in JOINED and run.strip() == LEAST * symbol):
        return text
    return kept + run[0] if symbol in CLOSING and run[1].isspace() and not run[0].isspace() else kept


def _is_symbol(character: str) -> bool:
    is_word = character.isalnum() and (character.isnumeric() or not _CHINESE.match(character))
    return bool(character) and character not in BRACKETS and not is_word


def _without_words(text: str, cut: bool) -> str:
    pieces = list(_PIECE.finditer(text))
    words = [piece[0].casefold() for piece in pieces[-LEAST * MOST_WORDS :]]
    for size in range(1, MOST_WORDS + 1):
        if len(words) > size and _is_unit(words[-size - 1 : -1]) and _repeats(words[-1], words[-size - 1], cut):
            kept = _without_units(text, pieces, size)
            if kept != text:
                return kept
    return text


def _repeats(last: str, word: str, cut: bool) -> bool:
    """Whether the last word of a text is that word, though a sign may end it."""
    return last.rstrip(".,;:!?") == word.rstrip(".,;:!?") or (cut and word.startswith(last))


def _without_units(text: str, pieces: list[re.Match[str]], size: int) -> str:
    """The text without units of so many words; its last word is known to be like the one before it."""
    first = len(pieces) - 1 - size
    while first > 0 and pieces[first - 1][0].casefold() == pieces[first - 1 + size][0].casefold():
        first -= 1
    unit = [piece[0] for piece in pieces[first : first + size]]
    is_whole = pieces[-1][0].casefold().startswith(pieces[-1 - size][0].casefold().rstrip(".,;:!?"))
    count = (len(pieces) - first - (not is_whole)) // size
    return text[: pieces[first].start()] if count >= _least(unit) else text


def _is_unit(words: list[str]) -> bool:
    return all(map(_is_word, words)) and not any("answer" in word for word in words)


def _is_word(piece: str) -> bool:
    return len(piece) <= LONGEST and not any(each.isnumeric() or each in BRACKETS for each in piece)


def _least(unit: list[str]) -> int:
    letters = "".join(unit).strip(".,;:!?")
    return LEAST_LETTERS if len(letters) == len(unit) and letters.isalpha() else LEAST
