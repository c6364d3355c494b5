"""Kinds of tokens by their text: what belongs where, and which patterns are refused."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from fillerscope.errors import StudyError
from fillerscope.models.resolve import resolve
from fillerscope.prompts.child_process import limit_memory
from fillerscope.study import token_classes
from fillerscope.study.token_classes import CLASSES, LONGEST, MOST, class_names, classify, refuse_bad
from support.tiny import tiny_tokenizer
from support.watchdog import in_a_fork

MEMBERS = {
    "digits": ["0", "7", "42", "1234567890", "3.5", "3,141"],
    "operators": [
        "+", "-", "*", "/", "=", "<", ">", "^", "%", "|", "±", "\u00d7", "÷", "·", "≤", "≥", "≠", "≈", "√", "∑",
        "∏", "∫",
        "==", "<=", "+-", "\\times", "\\cdot", "\\div", "\\frac", "\\sqrt", "\\pm", "\\le", "\\leq", "\\ge", "\\geq",
        "\\ne", "\\neq", "\\sum", "\\prod", "\\int", "frac", "times", "plus", "minus", "equals",
    ],
    "conjunctions": [
        "and", "or", "but", "nor", "so", "yet", "if", "then", "because", "since", "although", "though", "while",
        "when", "where", "whether", "unless", "until", "that", "hence", "thus", "therefore", "however",
    ],
    "other": [
        "", "apple", "android", "band", "x", "3x", "x3", "1 2", "3.", ".5", "1,2,3", "²", "٣", ".", ",", "(", "+1",
        "fraction", "\\boxed", "\\fraction", "ands", "an d", "<|im_end|>", "plus one", "TIMES", "\ufffd",
    ],
}  # fmt: skip


def named(texts: Sequence[str], classes: Mapping[str, str] = CLASSES) -> list[str]:
    names = class_names(classes)[1:]
    return [names[place] for place in classify(texts, classes)]


@pytest.mark.parametrize("name", MEMBERS)
def test_what_belongs_to_a_class(name: str) -> None:
    texts = MEMBERS[name]
    assert dict(zip(texts, named(texts), strict=True)) == dict.fromkeys(texts, name)


@pytest.mark.parametrize(("before", "after"), list(product(["", " ", "\n", "  "], repeat=2)))
def test_space_around_a_token_does_not_matter(before: str, after: str) -> None:
    texts = [f"{before}{text}{after}" for text in ("42", "+", "\\frac", "and", "apple")]
    assert named(texts) == ["digits", "operators", "operators", "conjunctions", "other"]


def test_conjunctions_in_any_case() -> None:
    assert named(["And", "AND", " Because", "hOwEvEr", "Therefore "]) == ["conjunctions"] * 5


def test_the_first_class_that_fits_has_the_token() -> None:
    assert named(["and", "7"], {"words": "[a-z]+", "joins": "and", "any": ".*"}) == ["words", "any"]
    assert named(["and", "7"], {"joins": "and", "words": "[a-z]+", "any": ".*"}) == ["joins", "any"]


def test_a_pattern_is_matched_as_a_whole_also_where_it_has_alternatives() -> None:
    assert named(["a", "b", "ab", "xa"], {"letters": "a|b"}) == ["letters", "letters", "other", "other"]


def test_places_are_one_for_every_token_and_the_last_is_other() -> None:
    places = classify(["7", "x", "7", "+", "and"], CLASSES)
    assert places.dtype == np.int64
    assert places.tolist() == [0, 3, 0, 1, 2]
    assert classify([], CLASSES).shape == (0,)
    assert classify(["7", "x"], {}).tolist() == [0, 0]
    assert class_names(CLASSES) == ("all", "digits", "operators", "conjunctions", "other")
    assert class_names({}) == ("all", "other")


BAD: dict[str, tuple[dict[str, str], str]] = {
    "all": ({"all": "a"}, "'all' cannot name a class of tokens"),
    "other": ({"fine": "a", "other": "a"}, "'other' cannot name a class of tokens"),
    "no name": ({"": "a"}, "'' cannot name"),
    "a space": ({"a b": "a"}, "'a b' cannot name"),
    "a slash": ({"a/b": "a"}, "'a/b' cannot name"),
    "a line break": ({"ab\n": "a"}, "cannot name"),
    "too long a name": ({"a" * 41: "a"}, "cannot name"),
    "no pattern": ({"a": "("}, r"class 'a': '\(' is not a pattern: missing \)"),
    "a range the wrong way round": ({"a": "[z-a]"}, "is not a pattern: bad character range z-a"),
    "too many": ({f"c{n}": "a" for n in range(MOST + 1)}, "17 classes of tokens, and 16 is the most"),
}


@pytest.mark.parametrize(("classes", "expected"), BAD.values(), ids=BAD)
def test_bad_classes_are_refused(classes: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        refuse_bad(classes)


def test_good_ones_are_not() -> None:
    refuse_bad(CLASSES)
    refuse_bad({})
    refuse_bad({f"c-{n}.x_": "a" for n in range(MOST)})
    refuse_bad({"a" * 40: ""})


def test_the_usual_patterns_take_no_time_on_any_token() -> None:
    """Whatever repeats: a pattern that goes back and forth would take longer than anybody waits."""
    texts = [piece * 50_000 + end for piece in ("9", "9.", "+", "-=", "and", "\\frac", " ") for end in ("", "x")]
    assert set(named(texts)) == {"digits", "operators", "other"}


@pytest.fixture(scope="module")
def smollm2_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve("smollm2-135m").path)


def tokens_by_class(tokenizer: Any, text: str) -> dict[str, list[str]]:
    texts = [tokenizer.decode([token]) for token in tokenizer.encode(text, add_special_tokens=False)]
    found: dict[str, list[str]] = {}
    for token, name in zip(texts, named(texts), strict=True):
        found.setdefault(name, []).append(token)
    return found


@pytest.mark.weights
def test_tokens_of_a_real_tokenizer(smollm2_tokenizer: Any) -> None:
    found = tokens_by_class(
        smollm2_tokenizer, "If x = 12 + 3 and y < 4, then 7 \u00d7 5 is not prime. However, so what?"
    )
    assert found["digits"] == ["1", "2", "3", "4", "7", "5"]
    assert found["operators"] == [" =", " +", " <", " \u00d7"]
    assert found["conjunctions"] == ["If", " and", " then", " However", " so"]
    assert " prime" in found["other"]
    latex = tokens_by_class(smollm2_tokenizer, "\\frac{3}{4} \\times 2 \\leq 9")
    assert {token.strip().lstrip("\\") for token in latex["operators"]} >= {"frac", "times"}
    assert latex["digits"] == ["3", "4", "2", "9"]


@pytest.mark.weights
def test_every_token_of_a_real_tokenizer_has_a_class(smollm2_tokenizer: Any) -> None:
    texts = [smollm2_tokenizer.decode([token]) for token in range(len(smollm2_tokenizer))]
    places = np.bincount(classify(texts, CLASSES), minlength=4)
    assert places[0] == 10  # it writes numbers digit by digit
    assert 60 < places[1] < 400
    assert 40 < places[2] < 120
    assert places.sum() == len(smollm2_tokenizer)


def test_tokens_of_the_tiny_tokenizer() -> None:
    found = tokens_by_class(tiny_tokenizer(), "Anna has 3 apples and 4 + 5")
    assert [token.strip() for token in found["digits"]] == ["3", "4", "5"]
    assert found["operators"] == [" +"]
    assert found["conjunctions"] == [" and"]


@pytest.mark.parametrize("pattern", ["(a|aa)+b", "(a|a)*[bd]", "(a|b|ab|aa)*c*[bd]"])
def test_a_pattern_that_tries_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setattr("fillerscope.study.token_classes.SECONDS", 0.1)
    refuse_bad({"slow": pattern})

    def give_up() -> None:
        with pytest.raises(StudyError, match=r"class 'slow': .* takes over 0.1 s for the token 'aaa"):
            classify(["aaa" * 30 + "c"], {"slow": pattern})

    in_a_fork(give_up)


def test_patterns_that_are_a_little_slow_for_every_token_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_classes, "SLOW", -1.0)  # all matches count
    monkeypatch.setattr(token_classes, "SECONDS_IN_ALL", 0.05)
    ticks = itertools.count()
    monkeypatch.setattr(token_classes.time, "thread_time", lambda: 0.01 * next(ticks))
    assert classify(["a", "b"], {"c": "x"}).tolist() == [1, 1]
    with pytest.raises(StudyError, match=r"class 'c': 'x' takes 0.01 s for the token '.', and as long for others"):
        classify(list("cdefghij"), {"c": "x"})
    assert not token_classes._spent


THOUSANDS = "(?:(?:(?:a?){1000}){1000}){1000}"
FILLING = {
    "nested": THOUSANDS,
    "at least": "(?:(?:(?:a?){1000,}){1000,}?){1000,1001}",
    "in a group": "(?P<n>(?:(b|(a?){1000})){1000}){1000}",
    "ahead": "(?=(?:(?:a?){1000}){100000})",
    "after sets": r"[][({\]}{9}](?:(?:[]a]?){1000}){1000}",
    "after an open set that is none": r"\[(?:(?:a?){1000}){1000}",
    "after a comment": "(?#[)(?:(?:a?){1000}){1000}(?#])",
    "wide sets": "(?:[" + "ab" * 400 + "]?){100000}",
    "one after another": "(?:a?b{9000}){9}" * 40,
}


@pytest.mark.parametrize("what", FILLING)
def test_a_pattern_that_fills_memory_when_it_is_compiled_is_refused(what: str) -> None:
    """In a fork with little memory: without the limit some of them take all there is."""

    def compile_it() -> None:
        limit_memory(2 << 30)
        with pytest.raises(ValueError, match=r"class 'large': .* is not a pattern: with its counts written out it has"):
            refuse_bad({"large": FILLING[what]})

    in_a_fork(compile_it)


def test_counts_in_a_wide_layout_are_refused() -> None:
    """The two engines read them differently: for one `{100 0}` is a count."""
    for pattern in ("(?x)(?:(?:a?){100 0}){1000}", "(?x: a{1#}\n000} )", "(?ix)a{3}"):
        with pytest.raises(ValueError, match=r"with \(\?x\) it may have no counts in braces"):
            refuse_bad({"wide": pattern})
    refuse_bad({"wide": "(?x) a+ | b*  # letters"})


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}", "[a-z]{1,60000}", "(?:[0-9]{1,3},){0,9}[0-9]{3}", r"\{\d+\}", "a{e<=1}", "x{,1000}",
        "([({]a{3}|b{2}){10}", "(?i:[aeiou]{2,}){1,9}", r"\N{DIGIT ONE}{20}", "a{20000}",
    ],
)  # fmt: skip
def test_usual_counts_are_taken(pattern: str) -> None:
    refuse_bad({"usual": pattern})


def test_a_pattern_as_long_as_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="its pattern has 1001 characters, and 1000 is the most"):
        refuse_bad({"long": "a" * (LONGEST + 1)})
