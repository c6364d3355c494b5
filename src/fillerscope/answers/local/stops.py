"""Stop tokens: those that end a model's turn."""

from __future__ import annotations

from operator import index

from torch import nn

from fillerscope.prompts.chat_template import apply_chat_template
from fillerscope.prompts.tokenizer import Tokenizer, encode

_MARK = "\u2407ANSWER\u2407"


def stop_ids(model: nn.Module | None, tokenizer: Tokenizer) -> frozenset[int]:
    """The stop tokens of the generation config, the tokenizer and the chat template."""
    settings = getattr(model, "generation_config", None)
    named = getattr(settings, "eos_token_id", None)
    listed = named if isinstance(named, list | tuple) else [named]
    tokens = {*listed, tokenizer.eos_token_id, _end_of_turn(tokenizer)}
    return frozenset(index(token) for token in tokens if token is not None)  # of 2.9, int() would make 2


def _end_of_turn(tokenizer: Tokenizer) -> int | None:
    """The special token that the chat template puts after an answer."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
    try:
        text = apply_chat_template(tokenizer, turns)
    except Exception:  # templates raise what they like
        return None
    after = encode(tokenizer, text.rpartition(_MARK)[2].lstrip())
    return after[0] if after and after[0] in tokenizer.all_special_ids else None
