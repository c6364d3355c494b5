"""Assemble prompts at token level, with the place of every original token known.

Without filler the ids are exactly what the tokenizer's own chat template gives. Filler goes in as ids
between two of them, so no original token ever changes. Knows nothing of models or attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import PromptError
from fillerscope.problems.problem import Problem
from fillerscope.prompts.chat_template import RendererError, TemplateLimitError, apply_chat_template
from fillerscope.prompts.fillers import filler_ids, generator
from fillerscope.prompts.tokenizer import Tokenizer, decode, encode, refuse_beyond
from fillerscope.study.conditions import Condition
from fillerscope.study.interventions import Shift
from fillerscope.study.study import Example, PromptSpec

SPANS = ("system", "filler", "question", "tail")
SYSTEM, FILLER, QUESTION, TAIL = range(4)
BEYOND = 64  # characters after which a text that differs is another one
MOST_OTHER = 64  # tokens at the end of a text that are others where more follows; usually one to three
_UNTOLD = "so its tokens cannot be told from those that follow: change the prompt, or use another tokenizer"
_MARK = "\u2407Question\u2407"  # stands for the question while a template is taken apart
_SHOWN = "\u2407Shown {}\u2407"  # stands for the system text and worked examples meanwhile
_DATE = "26 Jul 2024"  # what templates that ask for it print as the date; see render_template.py for the others


@dataclass(frozen=True)
class Prompt:
    """Token ids and, for each, the span that it belongs to (an index into SPANS)."""

    ids: tuple[int, ...]
    spans: tuple[int, ...]
    gap: int = 0  # positions left empty before the question

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
    def question_and_tail(self) -> NDArray[np.bool_]:
        """[position], true for tokens of the question and the tail: the same tokens under every condition, all after
        the usual place of filler."""
        return np.isin(self.spans, (QUESTION, TAIL))

    @property
    def position_count(self) -> int:
        """How many positions it takes, those left empty included."""
        return len(self.ids) + self.gap

    @property
    def filler_start(self) -> int | None:
        return self.spans.index(FILLER) if FILLER in self.spans else None

    @property
    def filler(self) -> tuple[int, int]:
        """Where the filler starts and stops."""
        start = self.filler_start
        return (0, 0) if start is None else (start, start + self.spans.count(FILLER))

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

    tokenizer: Tokenizer
    spec: PromptSpec
    template: Literal["chat", "raw"]
    seed: int
    vocabulary: int | None = None  # token ids that the model takes; None where that is not known

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, spec: PromptSpec, template: str, seed: int, vocabulary: int | None = None
    ) -> PromptMaker:
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if template == "chat" and not has_template:
            raise PromptError("this tokenizer has no chat template; write `template: raw` in the study's prompt")
        return cls(tokenizer, spec, "chat" if template != "raw" and has_template else "raw", seed, vocabulary)

    def make(self, problem: Problem, condition: Condition, plain: Prompt | None = None) -> Prompt:
        """`plain` is the problem's prompt without filler, where somebody has it already."""
        plain = plain or self.plain(problem.question)
        if isinstance(condition.intervention, Shift):
            return replace(plain, gap=condition.intervention.by)
        filler = self._filler(condition, problem.id if condition.draw == "problem" else "")
        self._refuse_beyond(filler)
        return plain.insert(filler, self._place(plain, condition, problem.id)) if filler else plain

    def plain(self, question: str) -> Prompt:
        """The prompt without filler."""
        if not question.strip():
            raise PromptError("the question has no text; give it one, or leave the problem out")
        before, after = self._frame
        text = self._render(question)
        if not (text.startswith(before) and text.endswith(after)):
            raise PromptError("the chat template changes with the question; write `template: raw`")
        if text[len(before) : len(text) - len(after)].strip() != question.strip():
            raise PromptError(f"the chat template changes the question {question[:40]!r}; write `template: raw`")
        ids = self._encode(text)
        start, _ = self._boundary(ids, text[: len(before)])
        _, stop = self._boundary(ids, text[: len(text) - len(after)])
        if not start < stop:
            raise PromptError(f"the question {question[:40]!r} has no tokens of its own in the prompt")
        opening, closing = self._added(text, ids)
        sizes = {SYSTEM: len(opening) + start, QUESTION: stop - start, TAIL: len(ids) - stop + len(closing)}
        spans = tuple(span for span, size in sizes.items() for _ in range(size))
        self._refuse_beyond([*opening, *ids, *closing])
        return Prompt((*opening, *ids, *closing), spans)

    def _refuse_beyond(self, ids: Sequence[int]) -> None:
        if self.vocabulary is not None:
            refuse_beyond([ids], self.vocabulary)

    @cached_property
    def _filler(self) -> Callable[[Condition, str], list[int]]:
        """The filler of a condition and a problem, cached where it is the same for all problems."""
        return lru_cache(maxsize=64)(lambda condition, name: filler_ids(condition, self.tokenizer, self.seed, name))

    @cached_property
    def token_text(self) -> Callable[[int], str]:
        """A token as text, cached for no longer than this run: a tokenizer can be changed."""
        return lru_cache(maxsize=1 << 16)(partial(_token_text, self.tokenizer))

    @cached_property
    def _frame(self) -> tuple[str, str]:
        """The text before and after the question, the same for all questions."""
        parts = self._render(_MARK).split(_MARK)
        if len(parts) != 2:
            raise PromptError(f"the chat template shows the question {len(parts) - 1} times; write `template: raw`")
        if self.template == "chat":
            self._refuse_left_out()
        return parts[0], parts[1]

    def _refuse_left_out(self) -> None:
        """Refuse a template that leaves out the system text or a worked example, or changes it. Marks in their place
        are looked for too: a short text may stand in the template itself."""
        for spec in (self.spec, self._marked):
            text = self._rendered(self._turns(spec, _MARK))
            shown = [part for example in spec.examples for part in (example.question, example.answer)]
            is_whole = spec.system.strip() in text, _in_order(text, [*shown, _MARK])
            if not all(is_whole):
                what = "worked examples" if is_whole[0] else "the system text"
                raise PromptError(f"the chat template leaves out or changes {what}; write `template: raw`")

    def _render(self, question: str) -> str:
        return self._raw(question) if self.template == "raw" else self._rendered(self._turns(self.spec, question))

    def _rendered(self, turns: list[dict[str, str]]) -> str:
        try:
            return self._chat(turns)
        except (TemplateLimitError, RendererError):
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise PromptError(f"the chat template refuses a plain question: {reason}") from None

    def _turns(self, spec: PromptSpec, question: str) -> list[dict[str, str]]:
        """The turns; the first one begins with the system text where the template shows no turn of that."""
        if self._has_system_turn:
            return messages(spec.system, question, spec.examples)
        first, *others = messages("", question, spec.examples)
        return [{**first, "content": f"{spec.system}\n\n{first['content']}"}, *others]

    @cached_property
    def _has_system_turn(self) -> bool:
        """Whether the template shows a system text in a turn of its own, or there is none."""
        if not self.spec.system:
            return True
        try:
            return all(
                spec.system.strip() in self._chat(messages(spec.system, _MARK, spec.examples))
                for spec in (self.spec, self._marked)
            )
        except (TemplateLimitError, RendererError):
            raise
        except Exception:  # templates raise what they like, mostly on a role they do not know; some drop it
            return False

    @cached_property
    def _marked(self) -> PromptSpec:
        """The spec with marks in the place of its texts."""
        marks = map(_SHOWN.format, count())
        examples = tuple(Example(question=next(marks), answer=next(marks)) for _ in self.spec.examples)
        return self.spec.model_copy(update={"system": next(marks) if self.spec.system else "", "examples": examples})

    def _raw(self, question: str) -> str:
        before, after = (part.replace("{system}", self._raw_system) for part in self.spec.raw.split("{question}"))
        return before + question + after

    @cached_property
    def _raw_system(self) -> str:
        """The system text, and after it the worked examples in the study's format."""
        form = self.spec.raw.replace("{system}", "")
        gap = form[: len(form) - len(form.lstrip())] or "\n\n"
        asked = [form.lstrip().replace("{question}", example.question) for example in self.spec.examples]
        ends = ["" if text[-1:].isspace() else " " for text in asked]
        answers = [example.answer for example in self.spec.examples]
        examples = [f"{text}{end}{answer}" for text, end, answer in zip(asked, ends, answers, strict=True)]
        return gap.join([*([self.spec.system] if self.spec.system or not examples else []), *examples])

    @cached_property
    def heading(self) -> str:
        """The words before every question in a raw prompt, on its line; empty where nothing but signs is there, which
        answers have as well."""
        before = self.spec.raw.replace("{system}", "").partition("{question}")[0] if self.template == "raw" else ""
        heading = before.rpartition("\n")[2].strip()
        return heading if any(map(str.isalpha, heading)) else ""

    def _chat(self, turns: list[dict[str, str]]) -> str:
        return apply_chat_template(self.tokenizer, turns, add_generation_prompt=True, date_string=_DATE)

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        """Encode a text; the last texts are cached, since the text before the question comes again and again."""
        return lru_cache(maxsize=4)(self._encoded)

    def _encoded(self, text: str) -> list[int]:
        return encode(self.tokenizer, text)

    def _decode(self, ids: list[int]) -> str:
        return decode(self.tokenizer, ids, clean_up_tokenization_spaces=False)

    def _added(self, text: str, ids: list[int]) -> tuple[list[int], list[int]]:
        """Special tokens that the tokenizer puts before and after a raw text; a chat template writes its own."""
        if self.template == "chat":
            return [], []
        whole = encode(self.tokenizer, text, add_special_tokens=True)
        for at in range(len(whole) - len(ids) + 1):
            if whole[at : at + len(ids)] == ids:
                self._refuse_ended(closing := whole[at + len(ids) :])
                return whole[:at], closing
        raise PromptError("this tokenizer gives a text other tokens when it adds its special ones to it")

    def _refuse_ended(self, closing: Sequence[int]) -> None:
        """Refuse a tokenizer that ends every text: the model would answer after the end of the text."""
        end = self.tokenizer.eos_token_id
        if end is not None and end in closing:
            raise PromptError(
                f"this tokenizer ends every text with {self.token_text(end)!r}, and a prompt goes on with its answer: "
                "set add_eos_token to false in tokenizer_config.json, or take the token out of tokenizer.json's "
                "post_processor"
            )

    def _boundary(self, ids: list[int], head: str) -> tuple[int, int]:
        """How many of `ids` lie within `head`, a prefix of their text, and how many it takes to cover it.

        Found by encoding the prefix by itself and not from character offsets, which some tokenizers
        report wrongly. Where one token straddles the boundary, the two differ: it counts to the question.
        """
        alone = self._encode(head)
        shared = 0
        while shared < min(len(ids), len(alone)) and ids[shared] == alone[shared]:
            shared += 1
        if shared == len(alone):
            self._refuse_dropped_blanks(head, alone, ids[shared : shared + 1])
            return shared, shared
        goal, within = self._decode(alone), shared
        for stop in range(shared, min(shared + MOST_OTHER, len(ids)) + 1):
            text = self._decode(ids[:stop])
            if text.startswith(goal):
                return (stop if text == goal else within), stop
            if goal.startswith(text.rstrip("\ufffd")):  # the bytes of a character may be several tokens
                within = stop
            elif len(text) > len(goal) + BEYOND:  # another text, and more tokens do not make it the same
                break
        raise PromptError(f"the tokenizer splits {head[-40:]!r} otherwise where more follows; {_UNTOLD}")

    def _refuse_dropped_blanks(self, head: str, alone: list[int], following: list[int]) -> None:
        """Refuse a tokenizer that drops blanks at the end of a text and not within: they would be the question's."""
        if head[-1:].isspace() and self._decode(following).isspace() and not self._decode(alone)[-1:].isspace():
            raise PromptError(f"the tokenizer drops the blanks at the end of {head[-40:]!r}; {_UNTOLD}")

    def _place(self, plain: Prompt, condition: Condition, problem: str) -> int:
        if condition.position == "start":
            # Only what the tokenizer puts before every text must stay first; a turn marker need not.
            bare, whole = (encode(self.tokenizer, "a", add_special_tokens=add) for add in (False, True))
            count = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
            return count if list(plain.ids[:count]) == whole[:count] else 0
        start, stop = plain.question_start, plain.spans.count(QUESTION) + plain.question_start
        if condition.position == "random":
            random = generator(self.seed, condition.name, "position", problem)
            return int(random.integers(start, stop + 1))
        return start if condition.position == "before_question" else stop


def _in_order(text: str, parts: Sequence[str]) -> bool:
    """Whether a text has these parts one after the other, but for blanks around them."""
    place = 0
    for part in map(str.strip, parts):
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def messages(system: str, question: str, examples: Sequence[Example] = ()) -> list[dict[str, str]]:
    """The turns of one problem, as chat templates take them; worked examples are earlier turns."""
    turns = [{"role": "system", "content": system}] if system else []
    for example in examples:
        turns.append({"role": "user", "content": example.question})
        turns.append({"role": "assistant", "content": example.answer})
    return [*turns, {"role": "user", "content": question}]


def token_texts(tokenizer: Tokenizer, ids: tuple[int, ...]) -> list[str]:
    """Each token as text, for people to read."""
    return [_token_text(tokenizer, token) for token in ids]


def _token_text(tokenizer: Tokenizer, token: int) -> str:
    return decode(tokenizer, [token])
