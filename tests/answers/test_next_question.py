"""What a model writes after its answer to a raw prompt."""

from __future__ import annotations

import pytest

from fillerscope.answers.next_question import without_next
from fillerscope.answers.request import Reply
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.study import Example, PromptSpec
from support.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def reply(text: str, ids: bool) -> Reply:
    made = tuple(TOKENIZER.encode(text)) if ids else ()
    return Reply(text, len(TOKENIZER.encode(text)), "length", ids=made)


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "text alone"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (" 8\n\nQuestion: What is 6 + 6?\nAnswer: 12\n\nQuestion: 1", " 8"),
        (" é🙂 8\n  Question: What", " é🙂 8"),
        ("Question: What is 6 + 6?", ""),
        (" 8\nQuestion: ", " 8"),
    ],
)
def test_an_answer_ends_at_the_next_question(text: str, kept: str, ids: bool) -> None:
    cut = without_next(reply(text, ids), "Question:", TOKENIZER)
    assert (cut.text, cut.finish) == (kept, "stop")
    assert cut.tokens == len(TOKENIZER.encode(kept))
    assert TOKENIZER.decode(cut.ids[:-1]) == (kept if ids else "")
    assert len(cut.ids) == (cut.tokens + 1 if ids else 0), "the last one is no longer of the answer"


@pytest.mark.parametrize("heading", ["Q:", "问题\uff1a"])
def test_no_blank_is_needed_after_a_heading_that_ends_in_a_sign(heading: str) -> None:
    text = f" 8\n{heading}What is 6 + 6?"
    assert without_next(reply(text, False), heading, TOKENIZER).text == " 8"


@pytest.mark.parametrize("heading", ["Question:", "Q", ""])
@pytest.mark.parametrize("text", ["The Question: is 8", " 8", "", "Questions: 8", "Quite\nQuarter"])
def test_other_answers_are_whole(heading: str, text: str) -> None:
    assert without_next(reply(text, True), heading, TOKENIZER) == reply(text, True)


@pytest.mark.parametrize(
    ("raw", "heading"),
    [
        ("{system}\n\nQuestion: {question}\nAnswer:", "Question:"),
        ("{system}\n\n{question}\n", ""),
        ("Q: 1 + 1?\nA: 2\n\n Q: {question}\nA:", "Q:"),
        ("### {question}\n", ""),
        ("- {question}\n", ""),
        ("<|user|>{question}<|assistant|>", "<|user|>"),
        ("Solve this.\n{system}{question}", ""),
    ],
)
def test_the_heading_of_a_question_is_that_of_raw_prompts(raw: str, heading: str) -> None:
    assert PromptMaker.of(TOKENIZER, PromptSpec(raw=raw), "raw", 0).heading == heading
    assert PromptMaker.of(TOKENIZER, PromptSpec(raw=raw), "chat", 0).heading == ""


def test_worked_examples_have_the_same_heading() -> None:
    spec = PromptSpec(raw="{system}\n\nQuestion: {question}\nAnswer:", examples=(Example(question="1?", answer="1"),))
    made = PromptMaker.of(TOKENIZER, spec, "raw", 0)
    assert TOKENIZER.decode(made.plain("2?").ids).count(made.heading) == 2
