"""Answers to raw prompts, after which many models go on with a question of their own.

What comes after the answer is none of it: its own answer would be graded in the place of the first.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from fillerscope.answers.request import Reply
from fillerscope.prompts.tokenizer import Tokenizer, decode, encode


def without_next(reply: Reply, heading: str, tokenizer: Tokenizer) -> Reply:
    """A reply up to the first line that begins with the heading of a question; all of it where there is no heading."""
    end = r"(?!\w)" if heading[-1:].isalnum() else ""
    found = re.search(rf"^[ \t]*{re.escape(heading)}{end}", reply.text, re.MULTILINE) if heading else None
    if found is None:
        return reply
    text = reply.text[: found.start()].rstrip()
    if not reply.ids:
        return replace(reply, text=text, tokens=len(encode(tokenizer, text)), finish="stop")
    count = _count(tokenizer, reply.ids, len(text))
    ids = reply.ids[: count + 1]  # the last one in the place of a stop token
    return replace(reply, text=text, tokens=count, finish="stop", ids=ids, uncut=reply.ids)


def _count(tokenizer: Tokenizer, ids: Sequence[int], characters: int) -> int:
    """How many tokens have so many characters."""

    def length(count: int) -> int:
        text = decode(tokenizer, ids[:count], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return len(text.rstrip("\ufffd"))

    return bisect_left(range(len(ids)), characters, key=length)
