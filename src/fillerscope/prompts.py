"""Prompts assembled at token level, with the place of every original token kept.

Without filler the ids are exactly what the tokenizer's own chat template gives. Filler goes in as ids
between two of them, so no original token ever changes. Knows nothing of models or attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import PromptError
from fillerscope.fillers import filler_ids, generator
from fillerscope.problem import Problem
from fillerscope.study import Condition, PromptSpec

SPANS = ("system", "filler", "question", "tail")
SYSTEM, FILLER, QUESTION, TAIL = range(4)
_MARK = "\u2407QUESTION\u2407"  # stands for the question while a template is taken apart
_DATE = "26 Jul 2024"  # some templates print today's date: a prompt must not change overnight


@dataclass(frozen=True)
class Prompt:
    """Token ids and, for each, the span that it belongs to (an index into SPANS)."""

    ids: tuple[int, ...]
    spans: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.spans):
            raise PromptError(f"{len(self.ids)} ids with {len(self.spans)} spans: every token has one span")
        if not self.ids:
            raise PromptError("the prompt has no tokens; give a system text or a question")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def original(self) -> NDArray[np.bool_]:
        """[position], true where a token of the prompt without filler stands."""
        return np.asarray(np.array(self.spans) != FILLER)

    @property
    def positions(self) -> NDArray[np.int64]:
        """For every original token, its position in this prompt."""
        return np.flatnonzero(self.original)

    @property
    def filler_start(self) -> int | None:
        return self.spans.index(FILLER) if FILLER in self.spans else None

    @property
    def question_start(self) -> int:
        return self.spans.index(QUESTION)

    def insert(self, filler: list[int], at: int) -> Prompt:
        """A copy with filler before the token at position `at`."""
        ids = (*self.ids[:at], *filler, *self.ids[at:])
        return Prompt(ids, (*self.spans[:at], *[FILLER] * len(filler), *self.spans[at:]))


@dataclass(frozen=True)
class PromptMaker:
    """Turns a problem into prompts, one a condition."""

    tokenizer: Any
    spec: PromptSpec
    template: Literal["chat", "raw"]
    seed: int

    @classmethod
    def of(cls, tokenizer: Any, spec: PromptSpec, template: str, seed: int) -> PromptMaker:
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if template == "chat" and not has_template:
            raise PromptError("this tokenizer has no chat template; write `template: raw` in the study's prompt")
        return cls(tokenizer, spec, "chat" if template != "raw" and has_template else "raw", seed)

    def make(self, problem: Problem, condition: Condition) -> Prompt:
        plain = self.plain(problem.question)
        filler = filler_ids(condition, self.tokenizer, self.seed, problem.id)
        return plain.insert(filler, self._place(plain, condition, problem.id)) if filler else plain

    def plain(self, question: str) -> Prompt:
        """The prompt without filler."""
        before, after = self._frame()
        text = self._render(question)
        if not (text.startswith(before) and text.endswith(after)):
            raise PromptError("the chat template changes with the question; write `template: raw`")
        ids = self._encode(text)
        start = self._boundary(ids, text[: len(before)])
        stop = self._boundary(ids, text[: len(text) - len(after)], straddling="before")
        if not start < stop:
            raise PromptError(f"the question {question[:40]!r} has no tokens of its own in the prompt")
        spans = (*[SYSTEM] * start, *[QUESTION] * (stop - start), *[TAIL] * (len(ids) - stop))
        return Prompt(tuple(ids), spans)

    def _frame(self) -> tuple[str, str]:
        """What stands before and after the question, whatever the question."""
        parts = self._render(_MARK).split(_MARK)
        if len(parts) != 2:
            raise PromptError(f"the chat template shows the question {len(parts) - 1} times; write `template: raw`")
        return parts[0], parts[1]

    def _render(self, question: str) -> str:
        if self.template == "raw":
            return self.spec.raw.replace("{system}", self.spec.system).replace("{question}", question)
        try:
            return self._chat(messages(self.spec.system, question))
        except Exception as error:  # templates raise what they like, mostly on a role they do not know
            if not self.spec.system:
                raise PromptError(f"the chat template refuses a plain question: {error}") from None
        return self._chat(messages("", f"{self.spec.system}\n\n{question}"))

    def _chat(self, turns: list[dict[str, str]]) -> str:
        text: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, date_string=_DATE
        )
        return text

    def _encode(self, text: str) -> list[int]:
        # A chat template writes its own special tokens; a raw text gets the tokenizer's (a BOS, mostly).
        return list(self.tokenizer.encode(text, add_special_tokens=self.template == "raw"))

    def _boundary(self, ids: list[int], head: str, straddling: Literal["after", "before"] = "after") -> int:
        """How many of `ids` make up `head`, the beginning of their text.

        Found by encoding the beginning by itself and not from character offsets, which some tokenizers
        report wrongly. Where one token straddles the boundary it counts to the question.
        """
        alone = self._encode(head)
        if len(alone) > 1 and self.template == "raw":
            alone = _without_closing_special(alone, self._encode(""))
        shared = 0
        while shared < min(len(ids), len(alone)) and ids[shared] == alone[shared]:
            shared += 1
        if shared == len(alone) or straddling == "after":
            return shared
        return self._first_token_after(ids, shared, head)

    def _first_token_after(self, ids: list[int], shared: int, head: str) -> int:
        """The first position from which the decoded tokens cover all of `head`."""
        for stop in range(shared, len(ids) + 1):
            if len(self.tokenizer.decode(ids[:stop], skip_special_tokens=False)) >= len(head):
                return stop
        return len(ids)

    def _place(self, plain: Prompt, condition: Condition, problem: str) -> int:
        if condition.position == "start":
            # Only what the tokenizer puts before every text must stay first; a turn marker need not.
            opening = self.tokenizer.encode("", add_special_tokens=True)[:1]
            return 1 if list(plain.ids[:1]) == list(opening) else 0
        start, stop = plain.question_start, plain.spans.count(QUESTION) + plain.question_start
        if condition.position == "random":
            random = generator(self.seed, condition.name, "position", problem)
            return int(random.integers(start, stop + 1))
        return start if condition.position == "before_question" else stop


def messages(system: str, question: str) -> list[dict[str, str]]:
    """The turns of one problem, as chat templates take them."""
    turns = [{"role": "system", "content": system}] if system else []
    return [*turns, {"role": "user", "content": question}]


def _without_closing_special(ids: list[int], empty: list[int]) -> list[int]:
    """Drop an end-of-text token that the tokenizer adds to every text it encodes."""
    return ids[:-1] if len(empty) > 1 and ids[-1] == empty[-1] else ids


def token_texts(tokenizer: Any, ids: tuple[int, ...]) -> list[str]:
    """Each token as text, for people to read."""
    return [str(tokenizer.decode([token], skip_special_tokens=False)) for token in ids]
