"""A filler that a model repeats at its end changes neither the answer nor the verdict, whatever the filler."""

from __future__ import annotations

import pytest

from fillerscope.answers.grading.extract import extract
from fillerscope.answers.grading.repeats import without_repeats

FILLERS = {
    **{f"{unit} with spaces": f" {unit}" * 8 for unit in "/.-*#_=|\\,~+?!<>$;:&^%的"},
    **{f"{unit} joined": unit * 8 for unit in "/.-#_=|~+?!<;&^的"},
    **{unit: f" {unit}" * 8 for unit in ("he", "Wait", "Hmm,", "...", "think", "->", "a", "x", r"\quad")},
    "three": " / / /",
    "three words": " he he he",
    "lines": "\n/ / / /\n/ / / /\n",
    "sentence": " / / / /.",
    "mixed": " // / ////",
    "attached": "/ / / /",
    "full stop": " he he he.",
    "one": " /",
    "two": " / /",
    "a hyphen": " -",
    "two words": " foo bar" * 3,
    "a part of two words": " bar" + " foo bar" * 3,
    "three words of a unit": " let me see" * 4,
    "two of a unit alike": " no he he" * 3,
    "in any case": " He he he He",
    "another end": " he he he he!",
}
# What a filler follows, and the answer.
BEFORE = [
    ("The answer is 42", "42"),
    ("The answer is 42.", "42"),
    ("The answer is Paris", "Paris"),
    ("The answer is $x + 1$", "x + 1"),
    ("**Answer:** x + 1", "x + 1"),
    ("#### 42", "42"),
    ("The total is 42", "42"),
    ("So she has 42 apples left", "42"),
    ("12 + 30 = 42", "42"),
    (r"It is \boxed{42}", "42"),
    ("Therefore,\n\\[\nx = 42\n\\]", "x = 42"),
]


@pytest.mark.parametrize("name", FILLERS)
def test_a_filler_at_the_end_changes_no_answer(name: str) -> None:
    filler = FILLERS[name]
    assert [(text, extract(text + filler)) for text, _ in BEFORE] == BEFORE


@pytest.mark.parametrize("filler", [" / / / /", " he he he he", " - - -", " = = =", "////", " he" * 200, " /" * 200])
def test_a_filler_before_the_end_of_a_text_changes_no_answer(filler: str) -> None:
    for text in ("The answer is x + 1", r"The answer is $x + 1", "The answer is: x + 1"):
        closing = "$" if "$" in text else ""
        assert extract(f"{text}{filler}{closing}\nI am done") == "x + 1"
    assert extract(rf"The answer is $\$36{filler}$.") == r"\$36"
    assert extract(f"**The answer is x + 1{filler}**") == "x + 1"
    assert extract(f"12 + 30 = 42{filler}\nI am done") == "42"
    assert extract(f"#### 42{filler}\nI am done") == "42"


@pytest.mark.parametrize("name", [name for name, filler in FILLERS.items() if not filler.endswith("\\")])
def test_a_filler_at_the_end_of_a_box_changes_no_answer(name: str) -> None:
    assert extract(rf"So it is \boxed{{42{FILLERS[name]}}}.") == "42"
    assert extract(rf"So it is \boxed{{\frac{{1}}{{2}}{FILLERS[name]}}}.") == r"\frac{1}{2}"


@pytest.mark.parametrize("cut", [" / / / /", " he he he", " he he he h", " Hmm, Hmm, Hmm, Hmm", " . . . .", "......"])
def test_a_filler_up_to_the_limit_ends_a_sentence(cut: str) -> None:
    assert extract("The answer is 42" + cut, truncated=True) == "42"
    assert extract("So x = 2 is a root" + cut, truncated=True) is None
    assert extract("12 + 30 = 42" + cut, truncated=True) is None


INSIDE = [
    (r"It is \boxed{(42, 3 / / / /)}.", "(42, 3)"),
    ("The answer is (42, 3 he he he he)", "(42, 3)"),
    (r"It is \boxed{\text{Paris he he he he}}.", r"\text{Paris}"),
    ("The answer is B / / / / / Here is why.", "B"),
    ("The answer is B he he he he he Here is why.", "B"),
    ("The answer is / / / / / 42", "42"),
    ("The answer is he he he he he 42", "42"),
    ("The answer is //////// 42.", "42"),
    ("The answer is yes yes yes yes yes", "yes"),
    ("The answer is Paris Paris Paris.", "Paris"),
    ("Let me see. he he he he", None),
]


def test_a_filler_within_or_before_an_answer_changes_none() -> None:
    assert [(text, extract(text)) for text, _ in INSIDE] == INSIDE


@pytest.mark.parametrize("symbol", "/*+-=,")
def test_a_symbol_before_the_limit_may_go_on(symbol: str) -> None:
    assert extract(f"The answer is 4 {symbol}", truncated=True) is None
    assert extract(f"The answer is 4 {symbol} {symbol}", truncated=True) is None
    assert extract(f"The answer is 4 {symbol}") == "4"


def test_an_open_box_counts_no_more_with_a_filler() -> None:
    for filler in ("", " / / / / /", " he he he he"):
        assert extract(rf"The answer is \boxed{{42{filler}", truncated=True) is None


KEPT = [
    *("1 1 1", "42 1 1 1", "000", "333", "1,000,000", "x^{aaa}", "2 x x x", "H T T T", "5!!!", "0.333...", "f'''"),
    *("1, 2, 3, ...", r"1, 2, \ldots", r"\frac{1}{1 + \frac{1}{1 + \frac{1}{x}}}", "((x + (y + (z))))", "三三三"),
    *("x, x, x, x", "no, no, no, no", "1 & 1 & 1", "/ / /", "he he he", "///", " ", "", "he he", "42/", "²²²", "/"),
    *("H T H T H T", "5 1 foo 1 foo 1 foo", "a answer: b answer: b answer: b", "f(x)", "[0, 1)", "()"),
]


def test_what_may_mean_something_stays() -> None:
    assert [text for text in KEPT if without_repeats(text) != text] == []


def test_what_closes_an_answer_stays() -> None:
    assert without_repeats("50% % % %") == "50%"
    assert without_repeats("|x| | | |") == "|x|"
    assert without_repeats("$x$ $ $ $") == "$x$"
