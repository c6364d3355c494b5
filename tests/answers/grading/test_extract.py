"""Which part of a text is its answer; texts that hold none, and texts that are not meant well."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.answers.grading.extract import extract

BOXES = [
    (r"First \boxed{4}, then \boxed{5}.", "5"),
    (r"It is \boxed{5} and no more of \boxed{6", "5"),
    (r"$\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
    (r"\boxed{ \{1, 2\} }", r"\{1, 2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
    (r"\fbox{3}", "3"),
    (r"\boxed {3}", "3"),
    (r"Thus $\boxed 42$.", "42"),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\boxed{} The answer is 5.", "5"),
    (r"\boxedx{4} \boxed{5}", "5"),
    (r"The answer is 9. No: \boxed{8}. The answer is 9.", "8"),
]


def others(cases: Sequence[tuple[str, str | None]], **options: bool) -> dict[str, str | None]:
    """What was found in those texts that hold another answer."""
    found = {text: extract(text, **options) for text, _ in cases}
    assert len(found) == len(cases)
    return {text: found[text] for text, answer in cases if found[text] != answer}


def test_the_last_whole_box() -> None:
    assert others(BOXES) == {}


ANNOUNCED = [
    ("The answer is 12 apples.", "12"),
    ("The answer is 12 because 3 * 5 = 15.", "12"),
    ("The answer to the question is 3/4.", "3/4"),
    ("Answer: 3 + 4 = 7", "3 + 4 = 7"),
    ("**Answer:** 42", "42"),
    ("The answer is **42**.", "42"),
    ("Answer:\n\n42\n", "42"),
    ("She eats 3.\n#### 42", "42"),
    ("Final Answer: The final answer is $x+1$. I hope it is correct.", "x+1"),
    ("The final answer is\n\\[ x = 5 \\]", "x = 5"),
    (r"The answer is \( \frac{1}{2} \).", r"\frac{1}{2}"),
    ("The answer is x + 1.", "x + 1"),
    ("The answer is -3.", "-3"),
    ("The answer is 1,234.50 dollars", "1,234.50"),
    ("The answer is $12.", "12"),
    (r"The answer is \$12.50.", "12.50"),
    ("The answer is 50%.", "50%"),
    ("The answer is Monday.", "Monday"),
    ("The answer is 2, 3, and 5.", "2, 3, and 5"),
    ("The answer is: 2 and 3.", "2 and 3"),
    ("The answer is 1.5 million.", "1.5 million"),
    ("So the answer for n = 10 is 55.", "55"),
    ("The answer (with k=2) is 9.", "9"),
    ("The answer when x = 3 is 7.", "7"),
    ("The answer for part (a) = 12", "12"),
    ("The answer for x = 5 is correct.", "5"),
    ("The answer is 3:45 pm.", "3:45 pm"),
    ("The answer is 3:45 p.m. on Monday", "3:45 p.m"),
    ("The answer is 10:30:15 in the morning", "10:30:15"),
    ("The answer is a ratio of 2:3, simplified", "2:3"),
    ("The answer is 5. So we have checked all 3 cases.", "5"),
    ("The answer is 4. Wait, the answer is 5.", "5"),
    (r"The final answer, \(x = 12\).", "12"),
    ("#### 42 apples", "42"),
    (r"#### \$1,234", "1,234"),
    ("#### -3.", "-3"),
    ("#### $x + 1$", "x + 1"),
    ("The answer is .5", ".5"),
    (r"The answer is $\begin{pmatrix} 1 \\ 2 \end{pmatrix}$.", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ("The answer is: .5.", ".5"),
    ("The answer is **.5**", ".5"),
    ("Answer: .125", ".125"),
    ("The answer is -.5 m", "-.5 m"),
    ("The total is .50", ".50"),
    ("The total is $.50.", ".50"),
    ("#### .5 cups", ".5"),
    ("答案是.5。", ".5"),
    ("The answer is ...5", "5"),
    ("The answer is ..5", "5"),
    ("The answer is Rs. 5.", "5"),
    ("The answer is 5€.", "5€"),
]


def test_what_an_answer_phrase_announces() -> None:
    assert others(ANNOUNCED) == {}


LETTERS = [
    ("The correct answer is option B.", "(B)"),
    ("The answer is Option (B).", "(B)"),
    ("The answer is option **B**.", "(B)"),
    ("The answer is choice B because 4 > 3", "(B)"),
    ("The correct option is B.", "B"),
    ("Correct choice: (B)", "(B)"),
    ("The answer is (B) Paris.", "(B) Paris"),
    ("The answer is **(B)** New York.", "(B) New York"),
    ("The answer is: Option B) 42", "(B) 42"),
    ("The answer is option B, 42 apples", "(B) 42"),
    ("The answer is **Option B**: Paris", "(B) Paris"),
    ("The answer is (B) $x + 1$ for all $x$.", "(B) x + 1"),
    ("The answer is (A) x = 5, so the rest follows", "(A) 5"),
    ("The answer is (B), not (A)", "(B)"),
    ("The answer is (B) the one who came first to the party on Monday", "(B)"),
    ("The answer is A train.", None),  # an article
    ("The answer is option Bob", None),
    ("The answer is (A) or (B) whichever", None),  # two choices
    ("The answer is option A or option B", None),
    ("The answer is (A) 5 or (B) 6 apples", "5"),  # as without letters
    ("The correct option is found by adding 3 and 4.", None),
]


def test_a_choice_keeps_its_letter() -> None:
    assert others(LETTERS) == {}


THOUGHT = [
    ("<think>I guess \\boxed{41}?</think>\nThe answer is 42.", "42"),
    ("I guess \\boxed{41}?</think>\nSo she has 42.", "42"),  # the template opened it
    ("<think>The answer is 41.</think>\n12 + 30 = 42", "42"),
    ("<think>a</think> <think>The answer is 41.</think> It is \\boxed{42}.", "42"),
    ("<think>It is \\boxed{42}.</think>\n", "42"),
    ("<think>It is \\boxed{42}.</think>\n / / / /", "42"),  # no answer there
    ("<think>Let me see.</think> I do not know.", None),
]


BARE = [
    (" 8", "8"),
    ("8.", "8"),
    ("-8", "-8"),
    ("**8**\n", "8"),
    ("$x + 1$", "x + 1"),
    (r"\[ \frac{1}{2} \]", r"\frac{1}{2}"),
    ("\\(8\\)", "8"),
    ("8 apples", "8"),
    ("$1,000.", "1,000"),
    (".5", ".5"),
    ("(B)", "(B)"),
    ("B", "B"),
    ("**Paris**.", "Paris"),
    ("8 / / / /", "8"),
    (r"\frac{1}{2}", r"\frac{1}{2}"),
    (r"#### \frac{1}{2}", r"\frac{1}{2}"),
    (r"11,\! 111,\! 100", r"11,\! 111,\! 100"),
    ("<think>Is it \\boxed{7}?</think>\n\n8", "8"),
    ("She has 8", None),
    ("I do not know.", None),
    ("我不知道。", None),
    ("Я не знаю 12", None),
    ("Париж.", "Париж"),
    ("8\n9", None),
    ("/ / / /", None),
    ("he he he he", None),
    ("", None),
    ("...", None),
    ("<think>7</think>", None),
]


def test_what_is_nothing_but_an_answer_is_one() -> None:
    assert others(BARE) == {}
    assert extract("8", truncated=True) is None


def test_what_follows_the_thinking_counts_first() -> None:
    assert others(THOUGHT) == {}


CONCLUDED = [
    ("She gave 5 away. So, Maria has 12 apples left.", "12"),
    ("Therefore, after giving 5 apples to Tom, Maria has 12 apples left.", "12"),
    ("The total cost is $20. So Maria has $5 left.", "5"),
    ("So the price is $12 + $15 = $27.", "27"),
    (r"Therefore, the value is $\frac{3}{4}$ for all $x$.", r"\frac{3}{4}"),
    ("The total number of apples is 12, in 3 boxes.", "12"),
    ("12 + 30 = 42", "42"),
    ("So the train arrives at 3:45 PM.", "3:45 PM"),
    ("5 apples + 7 apples = 12 apples.", "12"),
    ("6 + 6 = 12\nThe farmer walks to the market in the morning.", "12"),
    ("6 + 6 = 12\n\n/////\nThe farmer", "12"),
    ("So it costs Rs. 5 in all.", "5"),
    ("12 + 30 = 42€", "42"),
    ("1/4 + 1/4 = .5", ".5"),
    ("So the probability is .25.", ".25"),
    ("\\[ x = 42. \\]", "42"),
    ("\\( x = 42 \\)", "42"),
    ("\\[\n12 + 30 = 42\n\\]\n", "42"),
    ("$$\n12 + 30 = 42\n$$", "42"),
    ("Therefore,\n\\[\nx = \\frac{1}{2}\n\\]", "x = \\frac{1}{2}"),
    (r"Therefore, the area is $$\frac{1}{2}\times 3 = {\frac{3}{2}}.$$", r"\frac{1}{2}\times 3 = {\frac{3}{2}}"),
    ("So the result is\n\n$$\nx = 42\n$$.", "x = 42"),
    ("So she has 5.\n\\[ 12 + 30 = 42 \\]", "5"),  # the conclusion is a sentence of its own
]


def test_what_a_text_concludes() -> None:
    assert others(CONCLUDED) == {}


@pytest.mark.parametrize("heading", ["Step 3: Add 4 and 5", "3. Add 4 and 5", "Case 2: $x > 3$", "Answer"])
def test_a_heading_is_no_answer(heading: str) -> None:
    assert extract(f"#### {heading}\nWe add them. So she has 9.") == "9"
    assert extract(f"#### {heading}\nWe add them.") is None
    assert extract("##### 7\nWe add them.") is None


@pytest.mark.parametrize("end", ["", "```"])
def test_what_a_program_says_is_no_answer(end: str) -> None:
    program = f"```python\nanswer = total - 5\nresult = 3\n{end}"
    assert extract(f"The answer is 12.\n{program}") == "12"
    assert extract(f"The answer is 12.\n{program}", truncated=True) == "12"
    assert extract(f"Let me compute it.\n{program}") is None
    assert extract("The answer is\n```\n42\n```") == "42"  # no program


NO_ANSWER = [
    "",
    "The answer is:\n\\[\n",
    "There are 12 apples.",
    "I add 3 and 4.",
    "The answer is found by adding 3 and 4.",
    "Let me think about the answer",
    "12 + 30 = 42 was the first step. Then I stopped.",
    "12 + 30 = 42\nNow there are 5 farmers.",
    "x = 4\nThe roots are $a$ and $b$.",
    r"\boxed{} and \boxed{",
    "She is so tired that 5 naps would not do",
]


def test_a_number_that_merely_occurs_is_no_answer() -> None:
    assert others([(text, None) for text in NO_ANSWER]) == {}


CUT = [
    ("12 + 30 = 4", None),
    ("The answer is 4", None),
    ("The answer is 4.", None),  # of 4.5
    ("So she has 4", None),
    (r"\boxed 4", None),
    (r"\boxed{4", None),
    (r"\boxed{42}", "42"),
    (r"\boxed 42 or", "42"),
    ("The answer is 42. Let me check th", "42"),
    ("So x = 2 is a root. The sum is 42. Let me ch", None),  # on the way to an answer
    ("The answer is:\n\\[\n\\boxed{4", None),
]


def test_a_text_that_was_cut_off_counts_as_far_as_it_is_whole() -> None:
    assert others(CUT, truncated=True) == {}


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("{}{{{}}}{}".format, inner, inner, inner)


balanced = st.recursive(st.text(st.characters(exclude_characters="\\{}"), max_size=8), nested, max_leaves=8)


@settings(max_examples=50)
@given(before=st.text(max_size=30), content=balanced, after=st.text(st.characters(exclude_characters="\\{}")))
def test_what_is_in_a_box_comes_back_exactly(before: str, content: str, after: str) -> None:
    text = before.rstrip("\\") + r"\boxed{" + content + "}" + after
    if content.strip():
        assert extract(text) == content.strip()


pieces = st.sampled_from(
    [
        "\\boxed",
        "\\boxed{",
        "{",
        "}",
        "answer",
        " is ",
        ": ",
        "= ",
        "so ",
        ". ",
        "$",
        "\\(",
        "\\)",
        "1",
        ",",
        "/",
        "\n",
        "-",
        "%",
    ]
)


@settings(max_examples=400)
@given(text=st.text() | st.lists(pieces, max_size=40).map("".join), truncated=st.booleans())
def test_any_text_gives_an_answer_or_none(text: str, truncated: bool) -> None:
    found = extract(text, truncated)
    assert found is None or found.strip()


REPEATED = (
    "/ ",
    "he ",
    "\\boxed{",
    "\\boxed{5}, ",
    "答案",
    "}",
    "answer is \\(",
    "so ",
    "total: x. ",
    "1,",
    "= ",
    "$a $b ",
)
FURTHER = (
    *("\\boxed ", "\\boxed{5}", "{", "answer ", "answer is ", "total ", "1", "So 1. ", "So x. ", " ", "\n", ".", '."'),
    *("$", "\\(", "answer: total: $a ", "a ", "he he he / / / ", ". / ", "哈", "/.", "foo bar "),
)


@pytest.mark.parametrize("piece", [*REPEATED, *(pytest.param(piece, marks=pytest.mark.slow) for piece in FURTHER)])
def test_a_long_text_takes_time_in_proportion(piece: str) -> None:
    """Of the processor: how busy the machine is does not count."""

    def seconds(length: int) -> float:
        text = "answer is " + piece * (length // len(piece))
        start = time.process_time()
        extract(text)
        return time.process_time() - start

    small = min(seconds(50_000) for _ in range(2))
    assert seconds(500_000) < 40 * small + 1.0  # 100 times, were it quadratic
