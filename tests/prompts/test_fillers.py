"""Filler has exactly the tokens that were asked for, or an error that says what to ask for instead."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from fillerscope.errors import PromptError
from fillerscope.models.resolve import resolve
from fillerscope.prompts.fillers import RECIPES, filler_ids, generator, sentences
from fillerscope.study.conditions import PRESETS, Condition
from support.tiny import tiny_tokenizer

COUNTS = (1, 2, 7, 55, 200)


@cache
def tokenizer_of(name: str) -> Any:
    if name == "tiny":
        return tiny_tokenizer()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve(name).path)


TINY = tokenizer_of("tiny")
tokenizers = pytest.mark.parametrize(
    "name",
    [
        "tiny",
        pytest.param("smollm2-135m", marks=pytest.mark.weights),
    ],
)


def draw(condition: Condition, tokenizer: Any = TINY, seed: int = 0, problem: str = "p") -> list[int]:
    return filler_ids(condition, tokenizer, seed, problem)


def refusal(condition: Condition, tokenizer: Any = TINY) -> str:
    with pytest.raises(PromptError) as caught:
        draw(condition, tokenizer)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def condition(kind: Any, **given: Any) -> Condition:
    return Condition(name="filler", kind=kind, **given)


def test_every_kind_of_condition_has_a_recipe() -> None:
    assert set(RECIPES) == set(get_args(Condition.model_fields["kind"].annotation))


@tokenizers
@pytest.mark.parametrize(
    ("kind", "text"),
    [("repeat", " /"), ("repeat", " he"), ("repeat", "."), ("sentence", ""), ("characters", ""), ("characters", "ab ")],
)
def test_filler_has_exactly_the_tokens_asked_for(name: str, kind: str, text: str) -> None:
    for count in COUNTS:
        ids = draw(condition(kind, text=text, count=count), tokenizer_of(name))
        assert len(ids) == count
        assert all(isinstance(token, int) for token in ids), ids


@tokenizers
@pytest.mark.parametrize("name_of_condition", ["mless", "mful"])
def test_the_published_fillers_are_one_token_repeated(name: str, name_of_condition: str) -> None:
    preset, tokenizer = PRESETS[name_of_condition], tokenizer_of(name)
    assert draw(preset, tokenizer) == tokenizer.encode(preset.text, add_special_tokens=False) * 55


@tokenizers
def test_no_filler_brings_special_tokens(name: str) -> None:
    tokenizer = tokenizer_of(name)
    special = set(tokenizer.all_special_ids)
    for kind, text in (("repeat", " /"), ("sentence", ""), ("characters", "")):
        assert not special & set(draw(condition(kind, text=text, count=200), tokenizer))


def test_filler_leaves_out_what_the_tokenizer_adds_to_a_text() -> None:
    adding = tiny_tokenizer()
    bos = (adding.bos_token, adding.bos_token_id)
    adding.backend_tokenizer.post_processor = TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    assert adding.encode(" /")[0] == adding.bos_token_id
    for kind, text in (("repeat", " /"), ("text", " he / she"), ("sentence", ""), ("characters", "")):
        filler = condition(kind, text=text, count=None if kind == "text" else 40)
        assert draw(filler, adding) == draw(filler, TINY)


def test_a_token_is_repeated_and_not_its_text() -> None:
    one = TINY.encode("p")
    assert draw(condition("repeat", text="p", count=6)) == one * 6
    assert len(draw(condition("text", text="p" * 6))) == 3  # this tokenizer has a token "pp"


def test_none_is_no_filler() -> None:
    assert draw(PRESETS["none"]) == []


def test_a_unit_of_several_tokens_is_repeated_whole() -> None:
    unit = TINY.encode(" quick", add_special_tokens=False)
    assert len(unit) == 2
    assert draw(condition("repeat", text=" quick", count=6)) == unit * 3


def test_text_is_taken_as_it_stands() -> None:
    text = "Wait, let me\nthink. "
    ids = draw(condition("text", text=text))
    assert ids == TINY.encode(text, add_special_tokens=False)
    assert TINY.decode(ids) == text
    assert draw(condition("text", text=text, count=len(ids))) == ids


def test_sentences_follow_each_other_as_text() -> None:
    text = TINY.decode(draw(condition("sentence", count=300)))
    whole = re.findall(r"(?<=\. )[A-Z][^.]*\.", text)
    assert len(whole) > 2
    assert set(whole) <= set(sentences())
    assert len(set(whole)) == len(whole)


def test_characters_come_from_the_alphabet() -> None:
    assert set(TINY.decode(draw(condition("characters", text="xyz", count=100)))) == set("xyz")
    assert len(set(TINY.decode(draw(condition("characters", count=200))))) > 40


@pytest.mark.weights
@pytest.mark.parametrize(("text", "tokens"), [("/", 9), ("\\", 28), (" /", 55)])
def test_repeated_text_is_not_a_repeated_token(text: str, tokens: int) -> None:
    """Why `repeat` works on token ids: a tokenizer has single tokens for many slashes."""
    smollm2 = tokenizer_of("smollm2-135m")
    assert len(draw(condition("text", text=text * 55), smollm2)) == tokens
    assert len(set(draw(condition("repeat", text=text, count=55), smollm2))) == 1
    if tokens != 55:
        message = refusal(condition("text", text=text * 55, count=55), smollm2)
        assert f"gives {tokens} tokens and 55 were asked for; write count: {tokens}, or `kind: repeat" in message


def test_a_count_that_does_not_fit_a_unit_is_refused_with_one_that_does() -> None:
    message = refusal(condition("repeat", text="apples", count=55))
    assert message == (
        "condition 'filler': 'apples' is 3 tokens for this tokenizer, and 55 is not a multiple of that; "
        'write count: 54, or `kind: repeat, text: " apples", count: 55`, whose unit is one token'
    )
    assert refusal(condition("repeat", text=" quick", count=1)).endswith("write count: 2")


def test_a_text_of_another_length_is_refused_with_its_own_length() -> None:
    message = refusal(condition("text", text=" /" * 50, count=55))
    assert message == (
        "condition 'filler': ' / / / / / / / / / / ...' gives 50 tokens and 55 were asked for; "
        'write count: 50, or `kind: repeat, text: " /", count: 55`, whose unit is one token'
    )


def test_more_sentences_than_there_are_is_refused() -> None:
    total = sum(len(TINY.encode(" " + sentence)) for sentence in sentences())
    assert len(draw(condition("sentence", count=total))) == total
    assert refusal(condition("sentence", count=total + 1)).endswith(
        f"count is {total + 1}, and all sentences give {total} tokens; ask for fewer"
    )


# Whatever a person may type: no control characters, which YAML does not take, and no lone surrogates.
typed = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co", "Zl", "Zp")), min_size=1, max_size=6)
typed = typed | st.text("\\'\"/ he.-a\n", min_size=1, max_size=6)


@settings(deadline=None)
@example(kind="text", text="\\", repeats=3, count=2)
@example(kind="text", text='"', repeats=3, count=2)
@given(kind=st.sampled_from(["repeat", "text"]), text=typed, repeats=st.integers(1, 4), count=st.integers(1, 60))
def test_what_is_advised_works(kind: str, text: str, repeats: int, count: int) -> None:
    asked = condition(kind, text=text * repeats, count=count)
    try:
        assert len(draw(asked)) == count
    except PromptError as error:
        advice = str(error).rpartition("write ")[2]
    else:
        return  # nothing to advise
    fits = int(re.match(r"count: (\d+)", advice)[1])  # type: ignore[index]
    assert len(draw(asked.model_copy(update={"count": fits}))) == fits
    if found := re.search(r"`(.*)`", advice):
        other = condition(**yaml.safe_load("{" + found[1] + "}"))
        assert len(set(draw(other))) == 1
        assert len(draw(other)) == count


@settings(deadline=None)
@given(length=st.integers(1, 5), count=st.integers(1, 99))
def test_the_advised_count_is_the_nearest(length: int, count: int) -> None:
    text = "①②③④⑤"[:length]
    tokens = len(TINY.encode(text))
    assert tokens == 3 * length
    assume(count % tokens)
    message = refusal(condition("repeat", text=text, count=count))
    fits = int(message.rpartition("write count: ")[2])
    assert abs(fits - count) == min(abs(tokens * times - count) for times in range(1, 50))


DRAWN = [condition("sentence", count=55), condition("characters", count=55)]
each_drawn = pytest.mark.parametrize("drawn", DRAWN, ids=lambda each: each.kind)


@each_drawn
def test_one_draw_serves_all_problems_unless_each_is_asked_its_own(drawn: Condition) -> None:
    assert draw(drawn, problem="a") == draw(drawn, problem="b")
    own = drawn.model_copy(update={"draw": "problem"})
    assert draw(own, problem="a") != draw(own, problem="b")
    assert draw(own, problem="a") == draw(own, problem="a")


@each_drawn
@pytest.mark.parametrize("how", ["once", "problem"])
def test_a_draw_depends_on_seed_and_name(drawn: Condition, how: str) -> None:
    drawn = drawn.model_copy(update={"draw": how})
    first = draw(drawn)
    assert draw(drawn, seed=1) != first
    assert draw(drawn.model_copy(update={"name": "other"})) != first
    assert draw(drawn) == first


@each_drawn
def test_a_draw_depends_on_nothing_else(drawn: Condition) -> None:
    own = drawn.model_copy(update={"draw": "problem"})
    alone = {problem: draw(own, problem=problem) for problem in "abc"}
    np.random.seed(7)
    draw(DRAWN[0], seed=9)
    again = {problem: draw(own, problem=problem) for problem in "cba"}
    assert again == alone
    moved = own.model_copy(update={"position": "end", "label": "Another"})
    assert draw(moved, problem="a") == alone["a"]


def test_random_numbers_are_the_same_on_every_machine_and_day() -> None:
    """Were they to change, a resumed run would hold two kinds of filler."""
    assert generator(0, "random", "").integers(1000, size=5).tolist() == [630, 988, 681, 874, 79]
    assert generator(0, "ab", "c").integers(2**62) != generator(0, "a", "bc").integers(2**62)


def test_the_list_of_sentences_is_plain() -> None:
    assert len(sentences()) >= 200
    assert len(set(sentences())) == len(sentences())
    for sentence in sentences():
        assert sentence.isascii()
        assert not re.search(r"\d", sentence)
        assert sentence == sentence.strip() != ""
        assert sentence.endswith(".")


def test_characters_that_melt_into_few_tokens_are_given_up() -> None:
    """A tokenizer may make one token of any run of characters that it does not know."""
    backend = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    condition = Condition(name="drawn", kind="characters", count=4000)
    with pytest.raises(PromptError, match=r"256,000 characters of .* give 16 tokens, and 4,000 are wanted"):
        filler_ids(condition, tokenizer, 0, "1")
