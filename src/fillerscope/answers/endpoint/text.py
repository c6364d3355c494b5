"""Conversion of prompts and answers between token ids and the text that a server takes and gives.

Knows nothing of servers but what they do to text: they put a BOS before it and leave special tokens in.
"""

from __future__ import annotations

from collections.abc import Sequence

from fillerscope.answers.local.stops import stop_ids
from fillerscope.prompts.tokenizer import Tokenizer, decode, encode


def prompt_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    """The text that a server tokenizes to exactly these ids; None where there is no such text.

    Servers add special tokens: where the ids begin with a BOS that the tokenizer adds by itself, the text has none.
    """
    text = decode(tokenizer, ids, clean_up_tokenization_spaces=False)
    for candidate in (text, text.removeprefix(tokenizer.bos_token or "")):
        if encode(tokenizer, candidate, add_special_tokens=True) == list(ids):
            return candidate
    return None


def turn_ends(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The stop tokens as text."""
    return tuple(tokenizer.convert_ids_to_tokens(sorted(stop_ids(None, tokenizer))))


def answer_text(tokenizer: Tokenizer, text: str, ends: tuple[str, ...]) -> tuple[str, str | None]:
    """An answer up to its first stop token, without special tokens, which some servers leave in; and what follows the
    stop token, None where there is none."""
    places = [place for end in ends if (place := text.find(end)) >= 0]
    beyond = None
    if places:
        text, found = text[: min(places)], text[min(places) :]
        beyond = max((found.removeprefix(end) for end in ends if found.startswith(end)), key=len)
    for special in _special_tokens(tokenizer):
        text = text.replace(special, "")
    return text, beyond


def token_count(tokenizer: Tokenizer, text: str, counted: int, ended: bool) -> int:
    """The number of tokens of an answer, without the stop token.

    Most servers count that one, and none says whether it does: where an answer that ended by itself was counted as
    exactly the tokens of its text, it was left out already. For a server that leaves it out, the result is one too
    small where the model spelled its words in unusual tokens. Where nothing was counted (0), the text is.
    """
    of_text = len(encode(tokenizer, text))
    if not counted:
        return of_text
    return counted - 1 if ended and counted != of_text else counted


def _special_tokens(tokenizer: Tokenizer) -> list[str]:
    """Special tokens, the longest first, so that none is removed from inside another."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
