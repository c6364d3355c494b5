"""The built-in problems with exact whole answers: arithmetic in words, of one or two steps, and plain sums.

Needs no download and no network. Problem k is a function of (kind, seed, difficulty, k) alone, so a longer list
begins with the shorter one. The texts are in `word_problems.py`. Knows nothing of studies, prompts or grading. A new
kind is a function and a line in KINDS.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from fillerscope.errors import ProblemError
from fillerscope.problems.problem import Meta, Problem
from fillerscope.problems.word_problems import ACTIVITIES, PLAIN, PRONOUNS, SCENES, WORDINGS, Operations


class Level(NamedTuple):
    """Bounds of the numbers: an `amount` is added or taken; `many` is multiplied or divided by `few`."""

    steps: int
    amount: tuple[int, int]
    many: tuple[int, int]
    few: tuple[int, int]
    wordings: dict[Operations, tuple[str, ...]] = WORDINGS


LEVELS = {
    0: Level(steps=1, amount=(2, 9), many=(2, 9), few=(2, 9), wordings=PLAIN),
    1: Level(steps=1, amount=(2, 20), many=(2, 9), few=(2, 9)),
    2: Level(steps=1, amount=(30, 500), many=(11, 40), few=(3, 12)),
    3: Level(steps=2, amount=(5, 60), many=(8, 30), few=(3, 9)),
}


# Bounds of the two terms of a sum, by difficulty.
TERMS = {
    0: ((2, 9), (2, 9)),
    1: ((11, 99), (2, 9)),
    2: ((11, 99), (11, 99)),
    3: ((101, 999), (101, 999)),
}
MOST_PROBLEMS = 100_000  # they are made one after another before anything is measured
MOST_ATTEMPTS = 10_000  # at a question that was not asked yet


class Sign(NamedTuple):
    symbol: str
    apply: Callable[[int, int], int]


SIGNS = {
    "add": Sign("+", operator.add),
    "subtract": Sign("-", operator.sub),
    "multiply": Sign("*", operator.mul),
    "divide": Sign("/", operator.floordiv),
}
SUMS = ("add", "subtract")

Item = TypeVar("Item")


class Pick:
    """Draws by `random()` alone: the one method whose sequence Python promises never to change."""

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key)))

    def between(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))

    def of(self, items: Sequence[Item]) -> Item:
        return items[self.between(0, len(items) - 1)]


def generate(count: int, seed: int, difficulty: tuple[int, ...], kind: str = "words") -> list[Problem]:
    """`count` different problems that go through the difficulties in turn: 1, 2, 3, 1, 2, 3, ..."""
    if count < 1 or seed < 0 or not difficulty or not set(difficulty) <= set(LEVELS):
        asked = f"count {count}, seed {seed}, difficulty {difficulty}"
        raise ProblemError(f"built-in problems take a count from 1, a seed from 0, difficulties 0 to 3; got {asked}")
    if count > MOST_PROBLEMS:
        raise ProblemError(
            f"there are at most {MOST_PROBLEMS:,} built-in problems, and limit is {count:,}; ask for fewer"
        )
    series = f"{seed}-{''.join(map(str, difficulty))}"
    prefix = "builtin" if kind == "words" else f"builtin-{kind}"
    problems: dict[str, Problem] = {}  # by question
    for index in range(count):
        level = difficulty[index % len(difficulty)]
        names = [f"{prefix}-{series}-{index:05d}", *(str(part) for part in (series, index))]
        problem = _new_problem(KINDS[kind], names, level, problems)
        problems[problem.question] = problem
    return list(problems.values())


def _new_problem(make: Make, names: Sequence[str], difficulty: int, taken: dict[str, Problem]) -> Problem:
    """A question already asked is drawn again: earlier problems decide it, later ones never do."""
    name, *key = names
    for attempt in range(MOST_ATTEMPTS):
        problem = make(Pick(*key, attempt), name, difficulty)
        if problem.question not in taken:
            return problem
    raise ProblemError(
        f"there are not so many different built-in problems of difficulty {difficulty}: {len(taken)} were found; lower "
        "`problems.limit`, or take a higher difficulty"
    )


def _sum(pick: Pick, name: str, difficulty: int) -> Problem:
    first, second = (pick.between(*bounds) for bounds in TERMS[difficulty])
    meta: Meta = {"difficulty": difficulty, "steps": 1, "operation": "add", "expression": f"{first} + {second}"}
    return Problem(name, f"What is {first} + {second}?", str(first + second), meta)


def _problem(pick: Pick, name: str, difficulty: int) -> Problem:
    level = LEVELS[difficulty]
    operations = pick.of([known for known in level.wordings if len(known) == level.steps])
    numbers, answer = _solved(pick, level, operations)
    meta: Meta = {
        "difficulty": difficulty,
        "steps": level.steps,
        "operation": "-".join(operations),
        "expression": _expression(numbers, operations),
    }
    text = pick.of(level.wordings[operations])
    slots = _slots(pick) | dict(zip("abc", map(str, numbers), strict=False))
    return Problem(name, text.format(**slots), str(answer), meta)


def _solved(pick: Pick, level: Level, operations: Operations) -> tuple[list[int], int]:
    """Numbers that give whole and positive results at every step, and the last of these results."""
    while True:
        numbers = _numbers(pick, level, operations)
        answer = _answer(numbers, operations)
        if answer is not None:
            return numbers, answer


def _numbers(pick: Pick, level: Level, operations: Operations) -> list[int]:
    first = pick.between(*(level.amount if operations[0] in SUMS else level.many))
    others = [pick.between(*(level.amount if name in SUMS else level.few)) for name in operations]
    if operations[0] == "divide":
        first *= others[0]  # `many` is then the quotient, and there is no remainder
    return [first, *others]


def _answer(numbers: Sequence[int], operations: Operations) -> int | None:
    value = numbers[0]
    for name, number in zip(operations, numbers[1:], strict=True):
        if name == "divide" and value % number:
            return None
        value = SIGNS[name].apply(value, number)
        if value < 1:
            return None
    return value


def _expression(numbers: Sequence[int], operations: Operations) -> str:
    text = str(numbers[0])
    for step, (name, number) in enumerate(zip(operations, numbers[1:], strict=True)):
        if step and operations[step - 1] in SUMS and name not in SUMS:
            text = f"({text})"
        text = f"{text} {SIGNS[name].symbol} {number}"
    return text


def _slots(pick: Pick) -> dict[str, str]:
    """Everything a text may mention; a text uses what it needs."""
    name = pick.of(list(PRONOUNS))
    other = pick.of([known for known in PRONOUNS if known != name])
    she, her = PRONOUNS[name]
    scene, activity = pick.of(SCENES), pick.of(ACTIVITIES)
    people = {"name": name, "other": other, "she": she, "She": she.title(), "her": her}
    place = {"Place": scene.place[0].upper() + scene.place[1:], "items": pick.of(scene.items)}
    nouns = {key: value for key, value in scene._asdict().items() if key != "items"}
    return people | nouns | place | activity._asdict()


Make = Callable[[Pick, str, int], Problem]
KINDS: dict[str, Make] = {"words": _problem, "sums": _sum}
