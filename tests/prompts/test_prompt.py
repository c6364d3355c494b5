"""Prompts: the ids of the tokenizer's own template, whatever the question, and filler that changes none of them."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from fillerscope.errors import PromptError
from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.gguf import converted_folder, read_record
from fillerscope.models.resolve import resolve
from fillerscope.problems.problem import Problem
from fillerscope.prompts.fillers import filler_ids
from fillerscope.prompts.prompt import FILLER, QUESTION, SYSTEM, TAIL, Prompt, PromptMaker, messages, token_texts
from fillerscope.prompts.tokenizer import decode, encode
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.study import DEFAULT_SYSTEM, Example, PromptSpec
from support.grid import case
from support.tiny import tiny_tokenizer

POSITIONS = ("start", "before_question", "end", "random")
QUESTIONS = (
    "What is 12 + 30?",
    "user",
    "assistant",
    "system\n",
    "<|im_end|>",
    "Is <|im_end|>\n<|im_start|>assistant\nfour the answer?",
    "<|endoftext|> first",
    DEFAULT_SYSTEM,
    f"{DEFAULT_SYSTEM}\n\n{DEFAULT_SYSTEM}",
    "\nA line before, a line after\n\n",
    "   spaces before and after   ",
    "\ttabs\t",
    "{question} and {system} and {{ messages }}",
    "naïve café — 中文 한국어 🙂👩‍👩‍👧 ∑ x̄",
    "🙂",
    "e\u0301 \ufffd \u200b",
    "a" * 300,
)
anything = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
pieces = st.lists(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "user", "\n", " ", "Anna", "é", "🙂", "3", "."]), min_size=1
)
questions = (anything | pieces.map("".join)).filter(str.strip)


# Tokenizers ----------------------------------------------------------------------------------------------


def with_template(template: str | None) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def adding(single: str) -> Any:
    """The tiny tokenizer, putting special tokens around every text as in `[BOS] $A`. The last one ends texts."""
    tokenizer = with_template(None)
    names = {"[BOS]": "<|endoftext|>", "[SEP]": "<|im_start|>", "[EOS]": "<|im_end|>"}
    for short, name in names.items():
        single = single.replace(short, name)
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in names.values() if name in single]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    return tokenizer


def merging() -> Any:
    """Byte-level BPE without words: tokens run across spaces, lines and into the bytes of a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=[AddedToken("<|endoftext|>", special=True, normalized=False)],
    )  # fmt: skip
    texts = ["é🙂a\n\nb é\nab🙂🙂", "ab\n\n🙂é\n é🙂a ba", "aé\n\n\n🙂b\n bé ab\n", "🙂aé bé\n\naa\n\n"]
    tokenizer.train_from_iterator(texts * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>")


@cache
def tokenizer_of(name: str) -> Any:
    if name == "tiny":
        return tiny_tokenizer()
    from transformers import AutoTokenizer

    if read_record(converted_folder(name, CATALOGUE[name].sha256)) is None and name != "smollm2-135m":
        pytest.skip(f"{name} is not in the cache; `fillerscope models get {name}` puts it there")
    return AutoTokenizer.from_pretrained(resolve(name).path)


TINY, MERGING = tokenizer_of("tiny"), merging()
tokenizers = pytest.mark.parametrize("name", ["tiny", pytest.param("smollm2-135m", marks=pytest.mark.weights)])


# Prompts -------------------------------------------------------------------------------------------------


def maker(tokenizer: Any = TINY, template: str = "auto", seed: int = 0, **spec: Any) -> PromptMaker:
    return PromptMaker.of(tokenizer, PromptSpec(**spec), template, seed)


def condition(position: Any, **given: Any) -> Condition:
    return Condition(**{"name": "filler", "kind": "repeat", "text": " /", "count": 5, "position": position} | given)


def span(prompt: Prompt, which: int) -> list[int]:
    return [token for token, kind in zip(prompt.ids, prompt.spans, strict=True) if kind == which]


def question_of(prompt: Prompt, tokenizer: Any = TINY) -> str:
    return str(tokenizer.decode(span(prompt, QUESTION), clean_up_tokenization_spaces=False))


def by_template(tokenizer: Any, system: str, question: str) -> list[int]:
    turns = messages(system, question)
    return list(tokenizer.apply_chat_template(turns, tokenize=True, add_generation_prompt=True, return_dict=False))


def refusal(made_by: PromptMaker, question: str = "What is 2 + 2?") -> str:
    with pytest.raises(PromptError) as caught:
        made_by.plain(question)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def byte_length(tokenizer: Any, token: int) -> int:
    """Of a byte-level tokenizer: each character of a token's name stands for one byte."""
    name = tokenizer.convert_ids_to_tokens(token)
    return len(name.encode()) if token in tokenizer.all_special_ids else len(name)


def spans_by_bytes(tokenizer: Any, ids: tuple[int, ...], before: str, question: str) -> list[int]:
    """The definition: a token is the question's if it holds a byte of it."""
    start, stop = len(before.encode()), len((before + question).encode())
    spans, at = [], 0
    for token in ids:
        end = at + byte_length(tokenizer, token)
        spans.append(SYSTEM if end <= start else TAIL if at >= stop else QUESTION)
        at = end
    return spans


def assert_well_formed(prompt: Prompt, plain: Prompt, filler: list[int], position: str, first: int) -> None:
    """Filler is one block in its place, and taking it out gives the prompt without."""
    kept = [(token, kind) for token, kind in zip(prompt.ids, prompt.spans, strict=True) if kind != FILLER]
    assert kept == list(zip(plain.ids, plain.spans, strict=True))
    assert span(prompt, FILLER) == filler
    assert [prompt.ids[position] for position in prompt.positions] == list(plain.ids)
    start = prompt.filler_start
    assert start is not None
    assert set(prompt.spans[start : start + len(filler)]) == {FILLER}
    question, tail = plain.question_start, plain.question_start + plain.spans.count(QUESTION)
    places = {"start": [first], "before_question": [question], "end": [tail], "random": range(question, tail + 1)}
    assert start in places[position]


def assert_filler_changes_nothing(made_by: PromptMaker, question: str, first: int = 0) -> None:
    plain = made_by.plain(question)
    assert list(plain.spans) == sorted(plain.spans, key=(SYSTEM, QUESTION, TAIL).index)
    for position in POSITIONS:
        placed = condition(position)
        prompt = made_by.make(Problem("p", question, ""), placed)
        assert_well_formed(prompt, plain, filler_ids(placed, made_by.tokenizer, 0, "p"), position, first)


# Chat templates ------------------------------------------------------------------------------------------


@tokenizers
def test_without_filler_the_ids_are_the_templates_own(name: str) -> None:
    tokenizer = tokenizer_of(name)
    for system, question in product((DEFAULT_SYSTEM, ""), QUESTIONS):
        with case(system, question):
            assert list(maker(tokenizer, system=system).plain(question).ids) == by_template(tokenizer, system, question)


@tokenizers
def test_filler_changes_no_token_of_a_chat_prompt(name: str) -> None:
    for question in QUESTIONS:
        with case(question):
            assert_filler_changes_nothing(maker(tokenizer_of(name)), question)


@pytest.mark.weights
def test_spans_of_a_real_tokenizer_are_exact() -> None:
    smollm2 = tokenizer_of("smollm2-135m")
    before = f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n<|im_start|>user\n"
    for question in QUESTIONS:
        with case(question):
            prompt = maker(smollm2).plain(question)
            assert list(prompt.spans) == spans_by_bytes(smollm2, prompt.ids, before, question)


@settings(deadline=None)
@given(question=questions, system=st.sampled_from([DEFAULT_SYSTEM, "", "user", "Anna"]))
def test_any_question_is_kept_as_it_is(question: str, system: str) -> None:
    made_by = maker(system=system)
    plain = made_by.plain(question)
    assert list(plain.ids) == by_template(TINY, system, question)
    assert question_of(plain) == question  # a turn's marks and line breaks share no token with it here
    assert_filler_changes_nothing(made_by, question)


def test_a_chat_prompt_is_covered_by_its_spans() -> None:
    prompt = maker().make(Problem("p", "What is 2 + 2?", ""), condition("before_question"))
    texts = {which: TINY.decode(span(prompt, which)) for which in (SYSTEM, FILLER, QUESTION, TAIL)}
    assert texts == {
        SYSTEM: f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n<|im_start|>user\n",
        FILLER: " / / / / /",
        QUESTION: "What is 2 + 2?",
        TAIL: "<|im_end|>\n<|im_start|>assistant\n",
    }
    assert "".join(token_texts(TINY, prompt.ids)) == "".join(texts.values())


EXAMPLES = ({"question": "What is 1 + 1?", "answer": "1 + 1 = 2"}, {"question": "And 2 + 3?", "answer": "5"})


def test_worked_examples_are_earlier_turns_and_belong_to_no_question() -> None:
    prompt = maker(system="Add.", examples=EXAMPLES).make(Problem("p", "What is 2 + 2?", ""), condition("end"))
    turns = "".join(
        f"<|im_start|>user\n{one['question']}<|im_end|>\n<|im_start|>assistant\n{one['answer']}<|im_end|>\n"
        for one in EXAMPLES
    )
    assert TINY.decode(span(prompt, SYSTEM)) == f"<|im_start|>system\nAdd.<|im_end|>\n{turns}<|im_start|>user\n"
    assert TINY.decode(span(prompt, QUESTION)) == "What is 2 + 2?"
    assert TINY.decode(span(prompt, TAIL)) == "<|im_end|>\n<|im_start|>assistant\n"


def test_worked_examples_of_a_raw_prompt_have_its_format() -> None:
    prompt = maker(template="raw", system="Add.", raw="{system}\nQ: {question}\nA:", examples=EXAMPLES[:1]).plain("2+2")
    assert TINY.decode(prompt.ids) == "Add.\nQ: What is 1 + 1?\nA: 1 + 1 = 2\nQ: 2+2\nA:"
    assert question_of(prompt) == "2+2"


def test_without_a_system_role_the_system_text_stands_before_the_first_example() -> None:
    prompt = maker(with_template(NO_SYSTEM_ROLE), system="Add.", examples=EXAMPLES[:1]).plain("What is 2 + 2?")
    assert TINY.decode(prompt.ids).startswith("<|im_start|>user\nAdd.\n\nWhat is 1 + 1?<|im_end|>\n")
    assert question_of(prompt) == "What is 2 + 2?"


NO_SYSTEM_ROLE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_a_template_without_a_system_role_gets_the_system_text_in_the_users_turn() -> None:
    tokenizer = with_template(NO_SYSTEM_ROLE)
    made_by = maker(tokenizer)
    for question in QUESTIONS:
        with case(question):
            plain = made_by.plain(question)
            assert list(plain.ids) == by_template(tokenizer, "", f"{DEFAULT_SYSTEM}\n\n{question}")
            assert question_of(plain) == question
            assert_filler_changes_nothing(made_by, question)


def test_a_template_without_a_system_role_takes_a_question_alone() -> None:
    tokenizer = with_template(NO_SYSTEM_ROLE)
    assert list(maker(tokenizer, system="").plain("user").ids) == by_template(tokenizer, "", "user")


# As Gemma's: the system text is written into the first user turn, and content is trimmed.
TRIMMING = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
    "{% set turns = messages[1:] %}{% else %}{% set first = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}{{ '<|im_start|>' + message['role'] + '\n' + (first if loop.first else '') }}"
    "{{ message['content'] | trim }}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize("system", [DEFAULT_SYSTEM, ""], ids=["system", "no system"])
def test_a_template_that_trims_the_question(system: str) -> None:
    tokenizer = with_template(TRIMMING)
    made_by = maker(tokenizer, system=system)
    for question in QUESTIONS:
        with case(question):
            plain = made_by.plain(question)
            assert list(plain.ids) == by_template(tokenizer, system, question)
            assert question_of(plain) == question.strip()
            assert_filler_changes_nothing(made_by, question)


@pytest.mark.parametrize("template", [TRIMMING, NO_SYSTEM_ROLE, TINY.chat_template], ids=["trim", "no role", "chatml"])
@pytest.mark.parametrize("question", ["", " ", "\n\t ", "\u3000"])
def test_a_question_without_text_is_refused(template: str, question: str) -> None:
    assert "question" in refusal(maker(with_template(template)), question)
    assert "question" in refusal(maker(with_template(template), "raw"), question)


UNLESS_GIVEN = "{% if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
ALWAYS = "{% set date_string = strftime_now('%d %b %Y') %}"


@pytest.mark.parametrize("dated", [UNLESS_GIVEN, ALWAYS], ids=["unless given", "always"])
def test_a_date_in_the_template_does_not_change_overnight(dated: str) -> None:
    template = dated + "{{ 'Today: ' + date_string + '\n' + messages[-1]['content'] }}"
    first, second = (maker(with_template(template), system="").plain("What is 2 + 2?") for _ in range(2))
    assert first == second
    assert TINY.decode(span(first, SYSTEM)) == "Today: 26 Jul 2024\n"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ raise_exception('never\nthis') }}", "the chat template refuses a plain question: never this"),
        ("{{ messages[-1]['content'] * 2 }}", "the chat template shows the question 2 times; write `template: raw`"),
        ("Hello", "the chat template shows the question 0 times; write `template: raw`"),
        ("{{ messages[-1]['content'] }}{{ messages[-1]['content'] | length }}", "the chat template changes with the"),
    ],
)
@pytest.mark.parametrize("system", [DEFAULT_SYSTEM, ""], ids=["system", "no system"])
def test_a_template_that_cannot_be_taken_apart_is_refused(template: str, expected: str, system: str) -> None:
    assert refusal(maker(with_template(template), system=system)).startswith(expected)


# Raw text ------------------------------------------------------------------------------------------------


def test_without_a_chat_template_the_text_is_raw() -> None:
    tokenizer = with_template(None)
    with pytest.raises(PromptError, match="no chat template; write `template: raw`"):
        maker(tokenizer, "chat")
    assert maker(tokenizer, "auto").template == maker(tokenizer, "raw").template == maker(TINY, "raw").template == "raw"
    assert maker(TINY, "auto").template == maker(TINY, "chat").template == "chat"
    prompt = maker(tokenizer).plain("What is 2 + 2?")
    assert list(prompt.ids) == tokenizer.encode(f"{DEFAULT_SYSTEM}\n\nWhat is 2 + 2?\n")
    assert question_of(prompt) == "What is 2 + 2?"
    assert TINY.decode(span(prompt, TAIL)) == "\n"


@pytest.mark.parametrize("system", ["Solve {question}", "{system}", "Use {braces}"])
def test_braces_in_the_system_text_stand_for_themselves(system: str) -> None:
    prompt = maker(template="raw", system=system).plain("What is {system}?")
    assert TINY.decode(prompt.ids) == f"{system}\n\nWhat is {{system}}?\n"
    assert question_of(prompt) == "What is {system}?"


RAWS = ("{system}\n\n{question}\n", "{system}{question}", "{question}", "{question}{system}", "a{question}b")


@pytest.mark.parametrize("raw", RAWS)
def test_filler_changes_no_token_of_a_raw_prompt(raw: str) -> None:
    made_by = maker(template="raw", raw=raw)
    before, _, after = raw.replace("{system}", DEFAULT_SYSTEM).partition("{question}")
    for question in QUESTIONS:
        with case(question):
            assert_filler_changes_nothing(made_by, question)
            prompt = made_by.plain(question)
            assert list(prompt.ids) == TINY.encode(before + question + after)
            assert list(prompt.spans) == spans_by_bytes(TINY, prompt.ids, before, question)


def test_a_token_across_the_boundary_is_the_questions() -> None:
    made_by = maker(template="raw", raw="{system}{question}er is 42.", system="Anna has 3 app")
    prompt = made_by.plain("les and the final answ")
    assert token_texts(TINY, span(prompt, SYSTEM)) == ["Anna", " has", " 3"]
    assert token_texts(TINY, span(prompt, QUESTION))[0] == " apples"
    assert token_texts(TINY, span(prompt, QUESTION))[-1] == " answer"
    assert token_texts(TINY, span(prompt, TAIL)) == [" is", " 42", "."]
    assert_filler_changes_nothing(made_by, "les and the final answ")


mergeable = st.text("ab é🙂\n", max_size=8)


@settings(deadline=None, max_examples=300)
@example(system="aa", question="b", after="")  # the beginning alone has other tokens than in the whole
@example(system="", question="aa", after="b")
@example(system="🙂a", question="b\n", after="\n")
@given(system=mergeable, question=mergeable.filter(str.strip), after=mergeable)
def test_spans_are_exact_where_tokens_run_across_everything(system: str, question: str, after: str) -> None:
    made_by = maker(MERGING, system=system, raw="{system}{question}" + after)
    prompt = made_by.plain(question)
    assert list(prompt.ids) == MERGING.encode(system + question + after)
    assert list(prompt.spans) == spans_by_bytes(MERGING, prompt.ids, system, question)


def crafted(words: str, *merges: tuple[str, str]) -> Any:
    """Byte-level BPE with just these merges, within what the pattern takes for words."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, list(merges)))
    split = pre_tokenizers.Split(Regex(words), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize(
    ("tokenizer", "system", "question", "tokens"),
    [
        # "é" is one token by itself, but gives its second byte to a following "a".
        (crafted(r".+", ("©", "a"), ("Ã", "©")), "é", "a", (["Ã", "©a"], [SYSTEM, QUESTION])),
        # Two spaces are one token by themselves, but not between two line breaks; nothing straddles.
        (
            crafted(r"\s*\n+|\s+|\S+", ("Ċ", "Ġ"), ("Ġ", "Ġ")),
            "\n  ",
            "\na",
            (["ĊĠ", "Ġ", "Ċ", "a"], [SYSTEM, SYSTEM, QUESTION, QUESTION]),
        ),
    ],
    ids=["bytes", "spaces"],
)
def test_tokens_that_what_follows_changes(tokenizer: Any, system: str, question: str, tokens: Any) -> None:
    prompt = maker(tokenizer, system=system, raw="{system}{question}").plain(question)
    assert (tokenizer.convert_ids_to_tokens(prompt.ids), list(prompt.spans)) == tokens


ADDED = ("[BOS] $A", "[BOS] $A [SEP]", "$A [SEP]", "$A")


@pytest.mark.parametrize("single", ADDED)
def test_special_tokens_that_the_tokenizer_adds_are_no_part_of_the_question(single: str) -> None:
    tokenizer = adding(single)
    opening, closing = ("<|endoftext|>" if "[BOS]" in single else ""), ("<|im_start|>" if "[SEP]" in single else "")
    for raw, question in product(RAWS, ("What is 2 + 2?", "les\n", " 🙂", "<|im_end|>")):
        with case(raw, question):
            made_by = maker(tokenizer, raw=raw, system="Anna has 3 app")
            prompt = made_by.plain(question)
            assert list(prompt.ids) == tokenizer.encode(raw.format(system="Anna has 3 app", question=question))
            before, _, _ = raw.replace("{system}", "Anna has 3 app").partition("{question}")
            assert list(prompt.spans) == spans_by_bytes(tokenizer, prompt.ids, opening + before, question)
            assert span(prompt, TAIL)[-1:] == tokenizer.encode(closing, add_special_tokens=False) or not closing
            assert_filler_changes_nothing(made_by, question, first=1 if opening else 0)


@pytest.mark.parametrize("single", ["$A [EOS]", "[BOS] $A [EOS]", "$A [EOS] [SEP]"])
def test_a_tokenizer_that_ends_every_text_is_refused(single: str) -> None:
    """The model would answer after the end of the text."""
    made_by = maker(tokenizer := adding(single))
    assert refusal(made_by).startswith("this tokenizer ends every text with '<|im_end|>', and a prompt goes on")
    tokenizer.chat_template = TRIMMING  # which writes its own special tokens
    assert maker(tokenizer).plain("What is 2 + 2?").ids


def test_the_bos_token_stays_first() -> None:
    tokenizer = adding("[BOS] $A")
    raw = maker(tokenizer).make(Problem("p", "What is 2 + 2?", ""), condition("start"))
    tokenizer.chat_template = TRIMMING  # writes the same token by itself
    chat = maker(tokenizer).make(Problem("p", "What is 2 + 2?", ""), condition("start"))
    for prompt in (raw, chat):
        assert prompt.ids[0] == tokenizer.bos_token_id
        assert prompt.ids.count(tokenizer.bos_token_id) == 1
        assert prompt.spans[:7] == (SYSTEM, *[FILLER] * 5, SYSTEM)
    assert list(chat.ids[:1] + chat.ids[6:]) == by_template(tokenizer, DEFAULT_SYSTEM, "What is 2 + 2?")


# Places of filler, and what a prompt knows ---------------------------------------------------------------


def test_a_random_place_depends_on_seed_name_and_problem_alone() -> None:
    question = "A train leaves at 9 and arrives at 11: how long is the ride?"

    def place(problem: str = "p", name: str = "filler", seed: int = 0, **given: Any) -> int | None:
        made_by = maker(seed=seed)
        return made_by.make(Problem(problem, question, ""), condition("random", name=name, **given)).filler_start

    many = {problem: place(problem) for problem in map(str, range(120))}
    plain = maker().plain(question)
    first, last = plain.question_start, plain.question_start + plain.spans.count(QUESTION)
    assert set(many.values()) == set(range(first, last + 1))  # every boundary, both ends included
    assert {problem: place(problem) for problem in reversed(many)} == many
    assert {problem: place(problem, count=1, text=" he") for problem in many} == many
    assert {problem: place(problem, seed=1) for problem in many} != many
    assert {problem: place(problem, name="other") for problem in many} != many


def test_a_prompt_knows_where_everything_is() -> None:
    prompt = Prompt((7, 8, 9), (SYSTEM, QUESTION, TAIL)).insert([1, 2], 2)
    assert (prompt.ids, prompt.spans) == ((7, 8, 1, 2, 9), (SYSTEM, QUESTION, FILLER, FILLER, TAIL))
    assert prompt.original.tolist() == [True, True, False, False, True]
    assert prompt.positions.tolist() == [0, 1, 4]
    assert (len(prompt), prompt.filler_start, prompt.question_start) == (5, 2, 1)
    assert Prompt((7,), (QUESTION,)).filler_start is None


def test_a_prompt_checks_itself() -> None:
    with pytest.raises(PromptError, match="2 ids with 1 spans"):
        Prompt((1, 2), (QUESTION,))
    with pytest.raises(PromptError, match="no tokens"):
        Prompt((), ())


def test_the_condition_without_filler_gives_the_plain_prompt() -> None:
    made_by = maker()
    assert made_by.make(Problem("p", "user", ""), PRESETS["none"]) == made_by.plain("user")


def made(**given: Any) -> Prompt:
    problem = Problem("p", "What is 2 + 2?", "")
    return maker().make(problem, Condition.model_validate({"name": "filler"} | given))


def test_a_shift_leaves_positions_empty_and_changes_no_token() -> None:
    plain, shifted = maker().plain("What is 2 + 2?"), made(intervention={"kind": "shift", "by": 9})
    assert (shifted.ids, shifted.spans, shifted.gap) == (plain.ids, plain.spans, 9)
    assert (shifted.filler, shifted.filler_start, len(shifted)) == ((0, 0), None, len(plain))
    assert plain.gap == 0
    assert shifted != plain
    assert (plain.position_count, shifted.position_count) == (len(plain), len(plain) + 9)


@pytest.mark.parametrize("change", [None, {"kind": "arm"}, {"kind": "knockout"}])
def test_what_is_done_inside_the_model_changes_no_prompt(change: Any) -> None:
    filler = {"kind": "repeat", "text": " /", "count": 6}
    assert made(**filler, intervention=change) == made(**filler)
    assert made(**filler).position_count == len(made(**filler)) == len(maker().plain("What is 2 + 2?")) + 6
    assert made(intervention={"kind": "arm"}) == maker().plain("What is 2 + 2?")


@pytest.mark.parametrize("position", POSITIONS)
def test_a_prompt_knows_where_its_filler_starts_and_stops(position: str) -> None:
    prompt = maker().make(Problem("p", "What is 2 + 2?", ""), condition(position))
    start, stop = prompt.filler
    assert stop - start == 5
    assert [place for place, span in enumerate(prompt.spans) if span == FILLER] == list(range(start, stop))


@pytest.mark.parametrize("position", [*POSITIONS, "nowhere", "shifted"])
def test_the_same_tokens_are_reached_under_every_condition(position: str) -> None:
    """Those of the question and of what follows it, wherever the filler is."""
    plain = maker().plain("What is 2 + 2?")
    placed = {"nowhere": PRESETS["none"], "shifted": PRESETS["positions"]}.get(position)
    prompt = maker().make(Problem("p", "What is 2 + 2?", ""), placed or condition(position))
    kept = [token for token, reached in zip(prompt.ids, prompt.question_and_tail, strict=True) if reached]
    assert tuple(kept) == plain.ids[plain.question_start :]
    assert prompt.question_and_tail.dtype == bool
    assert not (prompt.question_and_tail & ~prompt.original).any()


class Lying:
    """A tokenizer whose character offsets are all wrong, as some are after spaces or in other scripts."""

    def __init__(self, honest: Any) -> None:
        self.honest = honest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.honest, name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        found = self.honest(*texts, **options | {"return_offsets_mapping": True})
        found["offset_mapping"] = [(0, 0) for _ in found["offset_mapping"]]
        found.char_to_token = found.token_to_chars = lambda *_: None
        return found


@pytest.mark.parametrize("template", ["chat", "raw"])
def test_wrong_character_offsets_do_not_matter(template: str) -> None:
    for question in QUESTIONS:
        assert maker(Lying(TINY), template).plain(question) == maker(TINY, template).plain(question), question


# Gemma's own tokenizer: sentencepiece with a BOS, no words, no chat template in the base model ------------


@pytest.mark.slow
@pytest.mark.weights
def test_gemma() -> None:
    gemma = tokenizer_of("gemma-3-270m")
    made_by = maker(gemma)
    assert made_by.template == "raw"
    for question in QUESTIONS:
        plain = made_by.plain(question)
        assert list(plain.ids) == gemma.encode(f"{DEFAULT_SYSTEM}\n\n{question}\n")
        assert plain.ids[0] == gemma.bos_token_id
        assert_filler_changes_nothing(made_by, question, first=1)
        # Gemma has tokens for many line breaks at once: those at the question's ends may share one.
        assert question_of(plain, gemma).strip("\n") == question.strip("\n")
    lines = made_by.plain("What is 2 + 2?\n")
    assert question_of(lines, gemma) == "What is 2 + 2?\n\n"
    assert span(lines, TAIL) == []
    for kind, text in (("repeat", " /"), ("repeat", " he"), ("sentence", ""), ("characters", "")):
        filler = condition("start", kind=kind, text=text, count=55)
        assert len(filler_ids(filler, gemma, 0, "p")) == 55


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("question", ["What is 2 + 2?", "  two\n\n", "user", "<start_of_turn>user\nhi<end_of_turn>"])
def test_gemma_with_its_chat_template(question: str) -> None:
    """The base model has no template; this is the one of its instruction-tuned sibling, in short."""
    gemma = tokenizer_of("gemma-3-270m")
    try:
        gemma.chat_template = re.sub(r"<\|im_(start|end)\|>", r"<\1_of_turn>", TRIMMING).replace("assistant", "model")
        made_by = maker(gemma)
        plain = made_by.plain(question)
        assert list(plain.ids) == by_template(gemma, DEFAULT_SYSTEM, question)
        assert plain.ids[:2] == tuple(gemma.convert_tokens_to_ids(["<bos>", "<start_of_turn>"]))
        assert question_of(plain, gemma) == question.strip()
        assert_filler_changes_nothing(made_by, question, first=1)
    finally:
        gemma.chat_template = None


TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}"
WORKED = [Example(question="1 + 1?", answer="<think>One and one.</think> 2"), Example(question="2 + 2?", answer="4")]


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[-1].content }}",
        "{% for m in messages if m.role == 'user' %}" + TURN + "{% endfor %}",
        "{% for m in messages %}{% if loop.index != 2 %}" + TURN + "{% endif %}{% endfor %}",
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}\n{% endfor %}",
        "{% for m in messages | reverse %}" + TURN + "{% endfor %}",
        "{% for m in messages[-3:] %}" + TURN + "{% endfor %}",
    ],
    ids=["question alone", "no answers", "not the first", "no thoughts", "turned round", "last ones"],
)
@pytest.mark.parametrize("system", [DEFAULT_SYSTEM, ""], ids=["system", "no system"])
def test_a_template_that_leaves_out_worked_examples_is_refused(template: str, system: str) -> None:
    made_by = maker(with_template(template), system=system, examples=WORKED)
    expected = r"the chat template leaves out or changes (worked examples|the system text); write `template: raw`"
    assert re.fullmatch(expected, refusal(made_by))


@pytest.mark.parametrize("template", [TRIMMING, NO_SYSTEM_ROLE, TINY.chat_template], ids=["trim", "no role", "chatml"])
def test_a_template_that_shows_worked_examples(template: str) -> None:
    tokenizer = with_template(template)
    text = tokenizer.decode(maker(tokenizer, system="user", examples=WORKED).plain("3 + 3?").ids)
    assert all(one.question in text and one.answer in text for one in WORKED)


def test_a_system_text_that_stands_in_the_template_is_missed_all_the_same() -> None:
    tokenizer = with_template("A chat.{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    assert tokenizer.decode(maker(tokenizer, system="A").plain("2 + 2?").ids) == "A chat.A\n\n2 + 2?"


@pytest.mark.parametrize("change", ["[:12]", "| replace('x', 'y')", ".lower()"])
def test_a_template_that_changes_questions_is_refused(change: str) -> None:
    made_by = maker(with_template("{{ messages[-1].content" + change + " }}"), system="")
    assert "the chat template " in refusal(made_by, "What is X plus x, where x is 3?")


def test_a_template_that_drops_the_system_turn_gets_it_with_the_question() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}{% endfor %}"
    prompt = PromptMaker.of(tokenizer, PromptSpec(system="Be kind."), "chat", 0).plain("How many?")
    assert tokenizer.decode(prompt.ids) == "<|im_start|>Be kind.\n\nHow many?"


def test_a_question_that_composes_with_what_is_before_it_takes_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NFC, as Qwen has it: no number of tokens gives the text before the question again."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    maker = PromptMaker.of(tokenizer, PromptSpec(system="", raw="Question: e{question}\n"), "raw", 0)
    decoded = 0
    decode = PromptMaker._decode

    def counted(self: PromptMaker, ids: list[int]) -> str:
        nonlocal decoded
        decoded += 1
        return decode(self, ids)

    monkeypatch.setattr(PromptMaker, "_decode", counted)
    with pytest.raises(
        PromptError, match="the tokenizer splits 'Question: e' otherwise where more follows; so its tokens"
    ):
        maker.plain("\u0301" + "What is 12 + 30? " * 200)
    assert decoded < 200


def test_a_text_that_is_split_otherwise_from_its_beginning_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows moves the one `a` that is left over to the start; every prefix was decoded."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -8.0), ("aa", -2.0)], unk_id=0, byte_fallback=False))
    backend.normalizer = normalizers.Replace(Regex(r"[\s\S]"), "a")
    backend.decoder = decoders.Sequence([decoders.Replace("a", "x" * 40), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    maker, decode, decoded = PromptMaker.of(tokenizer, PromptSpec(system=""), "raw", 0), PromptMaker._decode, []
    monkeypatch.setattr(PromptMaker, "_decode", lambda self, ids: decoded.append(1) or decode(self, ids))
    for length in (2000, 2001):
        with suppress(PromptError):
            maker.plain("x" * length)
    assert 0 < len(decoded) < 400


def test_what_is_said_of_a_question_is_what_offsets_say_or_nothing() -> None:
    """The tail composes with the last letter of the question; one token was taken to be the question's too few."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    maker = PromptMaker.of(tokenizer, PromptSpec(system="", raw="{question}\u0301 ="), "raw", 0)
    with pytest.raises(PromptError, match="otherwise where more follows"):
        maker.plain("What is the sum of these")


def test_a_tokenizer_that_drops_blanks_at_the_end_of_a_text_is_refused() -> None:
    """Line breaks of the frame would be taken for the question's."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Strip()
    maker = PromptMaker.of(tokenizer, PromptSpec(), "raw", 0)
    with pytest.raises(PromptError, match="drops the blanks at the end of"):
        maker.plain("What is 12 + 30?")


def test_filler_at_the_start_follows_all_tokens_that_the_tokenizer_puts_first() -> None:
    tokenizer = tiny_tokenizer()
    first = ["<|endoftext|>", "<|im_start|>"]
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in first]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{' '.join(first)} $A", special_tokens=special
    )
    maker = PromptMaker.of(tokenizer, PromptSpec(), "raw", 0)
    condition = Condition(name="s", kind="repeat", text="/", count=3, position="start")
    prompt = maker.make(Problem("x", "What is 12 + 30?", "", {}), condition)
    assert tokenizer.convert_ids_to_tokens(list(prompt.ids[:2])) == first
    assert prompt.filler_start == 2


def test_a_tokenizer_that_panics_while_it_decodes_is_one_line() -> None:
    tokenizer = tiny_tokenizer()
    pattern = decoders.Replace(Regex(r"(1+1+)+y"), "")
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), pattern])
    with pytest.raises(PromptError, match=r"the tokenizer fails on tokens \d+, .*; use the tokenizer of another model"):
        decode(tokenizer, encode(tokenizer, "1" * 60))


def test_texts_of_tokens_are_those_of_the_tokenizer_as_it_is_now() -> None:
    """In a notebook somebody changes it, and gets another digest."""
    tokenizer = tiny_tokenizer()
    (token,) = tokenizer.encode(" the", add_special_tokens=False)[-1:]
    seen = [(token_texts(tokenizer, (token,)), maker(tokenizer).token_text(token))]
    tokenizer.backend_tokenizer.decoder = decoders.Replace("e", "3")
    seen.append((token_texts(tokenizer, (token,)), maker(tokenizer).token_text(token)))
    assert [[text] for _, text in seen] == [texts for texts, _ in seen]
    assert seen[0] != seen[1]
