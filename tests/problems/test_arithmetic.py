"""The built-in problems: right answers, plain English, and the same list for everybody."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.errors import ProblemError
from fillerscope.problems.arithmetic import LEVELS, Pick, _slots, generate
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import problems_digest
from fillerscope.problems.word_problems import ACTIVITIES, PRONOUNS, SCENES, WOMEN, WORDINGS

ALL = (1, 2, 3)
MANY = generate(3000, seed=0, difficulty=ALL)
EASY = generate(1000, seed=0, difficulty=(0,))


def computed(expression: str) -> Fraction:
    """The value of `(12 + 3) / 5` by exact fractions: shares no code with the generator."""
    assert re.fullmatch(r"[\d()+\-*/ ]+", expression)
    exact = re.sub(r"\d+", lambda number: f"Fraction({number[0]})", expression)
    return Fraction(eval(exact, {"Fraction": Fraction}))


def numbers_in(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def wording(problem: Problem) -> str:
    """The question without what does not make it another wording: numbers, names and pronouns."""
    names = "|".join(PRONOUNS)
    text = re.sub(r"\d+", "#", problem.question)
    return re.sub(rf"\b({names}|[Ss]?[Hh]e|[Hh]er|[Hh]is)\b", "N", text)


def test_the_answer_is_what_the_numbers_in_the_text_give() -> None:
    for problem in (*MANY, *EASY):
        expression = str(problem.meta["expression"])
        assert computed(expression) == int(problem.answer), problem
        assert Counter(numbers_in(expression)) == Counter(numbers_in(problem.question)), problem


def test_every_step_is_whole_and_no_answer_is_negative() -> None:
    for problem in MANY:
        expression = str(problem.meta["expression"])
        first = re.search(r"\d+ . \d+", expression)
        assert first is not None
        for value in (computed(expression), computed(first[0])):
            assert value.denominator == 1
            assert value >= 1


def test_texts_read_as_their_operations_say() -> None:
    """One example of each kind, solved by hand from the text alone."""
    by_hand = {
        "builtin-0-123-00000": "29",  # 18 given away, 11 left: 29 at the start
        "builtin-0-123-00001": "18",  # 162 in 9 rows
        "builtin-0-123-00002": "31",  # 30, 18 given, 19 picked up
        "builtin-0-123-00003": "6",  # 3 for 2 dollars each
        "builtin-0-123-00005": "84",  # 100 shared by 4, and 59 from before
        "builtin-0-123-00011": "15",  # 14 with 4 in each, 41 gone
        "builtin-0-123-00012": "4",  # 6 wanted, 2 done
        "builtin-0-123-00014": "80",  # room for 25, 15 empty, 8 of them
    }
    answers = {problem.id: problem.answer for problem in MANY}
    assert {key: answers[key] for key in by_hand} == by_hand


def test_a_list_has_no_question_twice() -> None:
    for difficulty in ((1,), (2,), (3,), ALL):
        problems = generate(5000, seed=7, difficulty=difficulty)
        assert len({problem.question for problem in problems}) == 5000
        assert len({problem.id for problem in problems}) == 5000


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 120), st.integers(0, 10**9), st.lists(st.sampled_from(ALL), min_size=1, max_size=3))
def test_a_longer_list_begins_with_the_shorter_one(count: int, seed: int, difficulty: list[int]) -> None:
    longer = generate(150, seed, tuple(difficulty))
    assert generate(count, seed, tuple(difficulty)) == longer[:count]


def test_the_prefix_holds_where_questions_had_to_be_drawn_again() -> None:
    """Small numbers repeat soonest, so a list of difficulty 1 has redrawn problems in its second half."""
    assert generate(2500, 0, (1,)) == generate(5000, 0, (1,))[:2500]


def test_seeds_give_different_lists() -> None:
    first, second = ({problem.question for problem in generate(200, seed, ALL)} for seed in (0, 1))
    assert len(first & second) < 5


def test_the_list_is_the_same_on_every_machine() -> None:
    """A new digest means other problems in every study that uses these: say so in the changelog."""
    assert problems_digest(MANY[:64]) == "0f8c3bb7bdaab1a85f1a3066ad5450a311ffdc857e95bfb95c721d7321891120"


def test_there_are_hundreds_of_wordings() -> None:
    assert len({wording(problem) for problem in generate(2000, 0, ALL)}) >= 300


def test_difficulties_come_in_turn_with_their_steps_and_sizes() -> None:
    assert [problem.meta["difficulty"] for problem in generate(5, 0, (3, 1))] == [3, 1, 3, 1, 3]
    for problem in MANY:
        assert problem.meta["steps"] == {1: 1, 2: 1, 3: 2}[int(problem.meta["difficulty"])]
        assert len(str(problem.meta["operation"]).split("-")) == problem.meta["steps"]
    largest = {
        level: max(int(number) for p in MANY if p.meta["difficulty"] == level for number in numbers(p))
        for level in (1, 2)
    }
    assert largest[1] <= 81 < largest[2]


def numbers(problem: Problem) -> list[str]:
    return numbers_in(problem.question)


def test_all_operations_are_asked_about_equally_often() -> None:
    for level, kinds in ((1, 4), (2, 4), (3, 11)):
        counts = Counter(problem.meta["operation"] for problem in MANY if problem.meta["difficulty"] == level)
        assert len(counts) == kinds
        assert min(counts.values()) > 0.6 * 1000 / kinds


def test_the_easiest_are_short_and_of_one_digit() -> None:
    assert len({problem.question for problem in EASY}) == len(EASY)
    for problem in EASY:
        assert len(problem.question.split()) <= 25, problem.question
        assert all(2 <= int(number) <= 9 for number in numbers(problem)), problem.question
        assert not re.search(r"[{}]|  | [,.?]", problem.question), problem.question
    assert {problem.meta["operation"] for problem in EASY} == {"add", "subtract", "multiply"}


def test_ids_name_seed_difficulties_and_index() -> None:
    assert generate(8, 0, ALL)[7].id == "builtin-0-123-00007"
    assert generate(1, 12, (2,))[0].id == "builtin-12-2-00000"


def test_the_english_is_plain() -> None:
    for problem in MANY:
        text = problem.question
        assert 20 <= len(text.split()) <= 60, text
        assert 2 <= len(re.findall(r"[.?](?: |$)", text)) <= 3, text
        assert text[0].isupper(), text
        assert text.endswith("?"), text
        assert all(sentence[0].isupper() for sentence in re.split(r"(?<=[.?]) ", text)), text
        assert not re.search(r"[{}]|  | [,.?]|\b(\w+) \1\b", text), text


def test_nouns_never_follow_the_number_one_and_never_need_an_article() -> None:
    """`1 apples` and `a apple` cannot happen: no number is 0 or 1, and no slot stands after an article."""
    for problem in MANY:
        assert all(int(number) >= 2 for number in numbers(problem)), problem.question
    for text in (text for texts in WORDINGS.values() for text in texts):
        assert not re.search(r"\b[Aa]n? \{", text), text


def test_two_people_are_never_the_same_person_and_pronouns_follow_the_first() -> None:
    for key in range(500):
        slots = _slots(Pick(key))
        assert slots["name"] != slots["other"]
        woman = slots["name"] in WOMEN.split()
        assert (slots["she"], slots["She"], slots["her"]) == (("she", "She", "her") if woman else ("he", "He", "his"))


def test_every_text_and_setting_is_used() -> None:
    """Nothing in the tables is dead: each word of them turns up in a long list."""
    everything = " ".join(problem.question for problem in generate(5000, 0, ALL))
    for scene in SCENES:
        assert scene.place in everything
        assert all(item in everything for item in scene.items)
    assert all(f"{activity.did} " in everything for activity in ACTIVITIES)
    assert {len(operations) for operations in WORDINGS} == {level.steps for level in LEVELS.values()}


@pytest.mark.parametrize(("count", "seed", "difficulty"), [(0, 0, (1,)), (1, -1, (1,)), (1, 0, ()), (1, 0, (4,))])
def test_what_cannot_be_made_is_refused(count: int, seed: int, difficulty: tuple[int, ...]) -> None:
    with pytest.raises(ProblemError, match="difficulties 0 to 3; got count"):
        generate(count, seed, difficulty)


# Sums


@pytest.mark.parametrize(("difficulty", "bounds"), [(0, (2, 9, 2, 9)), (1, (11, 99, 2, 9)), (2, (11, 99, 11, 99))])
def test_sums_have_the_digits_of_their_difficulty(difficulty: int, bounds: tuple[int, ...]) -> None:
    problems = generate(60, 0, (difficulty,), "sums")
    assert len({problem.question for problem in problems}) == 60
    for problem in problems:
        first, second = map(int, numbers_in(problem.question))
        assert problem.question == f"What is {first} + {second}?"
        assert int(problem.answer) == first + second == computed(str(problem.meta["expression"]))
        assert bounds[0] <= first <= bounds[1]
        assert bounds[2] <= second <= bounds[3]


def test_a_longer_list_of_sums_begins_with_the_shorter_one() -> None:
    assert generate(40, 3, (0, 1), "sums")[:12] == generate(12, 3, (0, 1), "sums")
    assert generate(12, 3, (0, 1), "sums") != generate(12, 4, (0, 1), "sums")
    assert [problem.meta["difficulty"] for problem in generate(4, 0, (0, 1), "sums")] == [0, 1, 0, 1]
    assert generate(1, 0, (0,), "sums")[0].id == "builtin-sums-0-0-00000"


def test_more_sums_than_there_are_is_an_error() -> None:
    assert len(generate(64, 0, (0,), "sums")) == 64
    with pytest.raises(ProblemError, match=r"not so many .* difficulty 0: 64 were found"):
        generate(65, 0, (0,), "sums")


def test_billions_are_refused_at_once() -> None:
    with pytest.raises(ProblemError, match=r"at most 100,000 built-in problems"):
        generate(10**12, 0, (1,))
