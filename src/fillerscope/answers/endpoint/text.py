"""Prompts and answers as the text that goes over the wire, held against the tokenizer on this side.

Knows nothing of servers: only what they do to text, which is to put a BOS before it and to leave special tokens in.
"""

from __future__ import annotations

from collections.abc import Sequence

from fillerscope.answers.local.stops import stop_ids
from fillerscope.prompts.tokenizer import Tokenizer


def prompt_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    """The text that is read as exactly these ids by a tokenizer that adds its special tokens, as servers do.

    Where the ids begin with a BOS which the tokenizer adds by itself, the text has none. None: there is no such text.
    """
    text = str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
    for candidate in (text, text.removeprefix(tokenizer.bos_token or "")):
        if tokenizer(candidate, verbose=False)["input_ids"] == list(ids):
            return candidate
    return None


def turn_ends(tokenizer: Tokenizer) -> tuple[str, ...]:
    """What ends an answer, as text."""
    return tuple(tokenizer.convert_ids_to_tokens(sorted(stop_ids(None, tokenizer))))


def answer_text(tokenizer: Tokenizer, text: str, ends: tuple[str, ...]) -> str:
    """An answer up to the end of its turn, without special tokens: some servers leave them in."""
    for end in ends:
        text = text.partition(end)[0]
    for special in _special_tokens(tokenizer):
        text = text.replace(special, "")
    return text


def token_count(tokenizer: Tokenizer, text: str, counted: int, ended: bool) -> int:
    """The tokens of an answer without the one that ends its turn.

    Most servers count that one, and none says whether it does: where an answer that ended by itself was counted as
    exactly the tokens of its text, it was left out already. A server that leaves it out is believed one too few
    where the model wrote its words in unusual pieces. Where nothing was counted (0), the text is.
    """
    of_text = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    if not counted:
        return of_text
    return counted - 1 if ended and counted != of_text else counted


def _special_tokens(tokenizer: Tokenizer) -> list[str]:
    """Longest first, so that none is cut out of the middle of another."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(added | set(tokenizer.all_special_tokens), key=len, reverse=True)
