r"""Whether an answer says what a reference says: by parts, units, choice letters and exact numbers.

What remains are two expressions, which `expressions.py` compares. Every rule is in `docs/method.md` (Answers).
Knows nothing of processes and of verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from fillerscope.answers.grading import units
from fillerscope.answers.grading.collections import Equation, Grid, Ordered, Several, Shape, Value, as_list, shape_of
from fillerscope.answers.grading.numbers import Numeral, is_grouped, read_numeral, same_number

# Whether two texts without units are equal as mathematics.
Expressions = Callable[[str, str], bool]

_CHOICE = re.compile(
    r"\\text\{ ?\(([A-J])\)[ .:]*\} ?(?P<first>.*)|\\text\{ ?([A-J])[).:] ?\} ?(?P<second>.*)"
    r"|\(([A-J])\)[ .:]*(?P<third>.*)|([A-J])(?:[).:] ?(?P<fourth>.+))?",
    re.DOTALL,
)
_ANOTHER = re.compile(r"\([A-J]\)|\b[A-J][).:]|^(?:,|(?:or|and)\b|\\text\{ ?(?:or|and)\b)")  # several choices are none
_LETTER = re.compile(r"\(?([A-Ja-j])\)?")
_LEAD = re.compile(
    r"(?:\\text\{[^{}]*\b(?:is|are|be|equals?|answer)[ :]*\}|(?:the )?(?:final |correct )?answer(?: is:?|:)"
    r"|option|choice) ?(.+)",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[a-zA-Z]{4,}(?:[ -][a-zA-Z]+)*|[A-Z][a-z]{2,}|[A-Z]{3,}|(?i:yes|no)")
_BASED = re.compile(r"([0-9A-F]+) ?_ ?\{?(\d{1,2})\}?")
_NAME = re.compile(
    r"[a-zA-Z](?:_\{?\w+\}?)?|\\[a-zA-Z]+|[a-zA-Z]\([^()]*\)|\([a-zA-Z, ]*\)|\\text\{[^{}]*\}|[a-zA-Z ]+"
)
_SQUARE = re.compile(r"[()\[\]]{2}")


class Comparison:
    """Compares answers with references; `expressions` compares what is left of both as mathematics."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions

    def same(self, reference: str, answer: str) -> bool:
        reference, answer = _without_lead(reference), _without_lead(answer)
        letters = _letters(reference, answer)
        if letters is not None:
            return letters
        reference, answer = _without_letter(reference), _without_letter(answer)
        if is_grouped(reference) != is_grouped(answer) and self._same_as_lists(reference, answer):
            return True
        return self._shapes(shape_of(reference), shape_of(answer))

    def _same_as_lists(self, reference: str, answer: str) -> bool:
        shapes = [as_list(text) if is_grouped(text) else shape_of(text) for text in (reference, answer)]
        return isinstance(shapes[0], Several) and isinstance(shapes[1], Several) and self._shapes(*shapes)

    def _shapes(self, reference: Shape, answer: Shape) -> bool:
        if isinstance(reference, Equation) and isinstance(answer, Equation):
            return self._equations(reference, answer)
        if isinstance(answer, Equation):
            return self._shapes(reference, shape_of(_value_side(answer)))
        if isinstance(reference, Equation):
            return bool(_NAME.fullmatch(reference.sides[0])) and self._shapes(shape_of(_value_side(reference)), answer)
        if isinstance(reference, Several) or isinstance(answer, Several):
            return self._any_order(reference, answer)
        if isinstance(reference, Value) and isinstance(answer, Value):
            return self._values(reference.text, answer.text)
        return self._in_order(reference, answer)

    def _equations(self, reference: Equation, answer: Equation) -> bool:
        """Of `x = 2 + 3 = 5` the last side counts."""
        names = [_compact(equation.sides[0]) for equation in (reference, answer)]
        if names[0] == names[1] and _NAME.fullmatch(names[0]):
            return self._shapes(shape_of(reference.sides[-1]), shape_of(answer.sides[-1]))
        return self.expressions(reference.text, answer.text)

    def _any_order(self, reference: Shape, answer: Shape) -> bool:
        if isinstance(reference, Ordered | Grid):
            return self._list_for_tuple(reference, answer)
        if isinstance(answer, Ordered) and len(answer.items) == 2 and answer.brackets != "()":
            return False  # an interval is no list
        if isinstance(answer, Ordered) and not _holds_tuples(reference):
            answer = Several(answer.items)
        first, second = _items(reference), _items(answer)
        if _counts_repeats(reference) and _counts_repeats(answer):
            return self._pairs_up(first, second)
        return self._covers(first, second, False) and self._covers(second, first, True)

    def _pairs_up(self, reference: Sequence[Shape], answer: Sequence[Shape]) -> bool:
        """Whether each of the reference has one of the answer for itself, and none is left."""
        left = list(answer)
        for wanted in reference:
            found = next((place for place, given in enumerate(left) if self._shapes(wanted, given)), None)
            if found is None:
                return False
            del left[found]
        return not left

    def _covers(self, some: Sequence[Shape], others: Sequence[Shape], turned: bool) -> bool:
        """Whether each of some is among the others; `turned` where the others are the reference."""
        return all(any(self._shapes(b, a) if turned else self._shapes(a, b) for b in others) for a in some)

    def _list_for_tuple(self, reference: Ordered | Grid, answer: Shape) -> bool:
        """`1, 2` for `(1, 2)`, and `y = 2, x = 1`; braces say that the order means nothing, so they do not do."""
        if not isinstance(answer, Several) or answer.kind != "list":
            return isinstance(answer, Several) and len(answer.items) == 1 and self._in_order(reference, answer.items[0])
        items = answer.items
        if all(isinstance(item, Equation) for item in items):
            items = tuple(sorted(items, key=lambda item: item.sides[0]))  # type: ignore[union-attr]
        return self._in_order(reference, Ordered(items)) or (len(items) == 1 and self._shapes(reference, items[0]))

    def _in_order(self, reference: Shape, answer: Shape) -> bool:
        if isinstance(reference, Grid) and isinstance(answer, Grid):
            return _widths(reference) == _widths(answer) and self._each(_cells(reference), _cells(answer))
        if isinstance(reference, Ordered) and isinstance(answer, Ordered) and not _agree(reference, answer):
            return False
        return self._each(_cells(reference), _cells(answer))

    def _each(self, some: Sequence[Shape], others: Sequence[Shape]) -> bool:
        return 0 < len(some) == len(others) and all(map(self._shapes, some, others))

    def _values(self, reference: str, answer: str) -> bool:
        reference, answer = _exact(reference, ""), _exact(answer, reference)
        if _compact(reference) == _compact(answer):
            return True
        if any(_WORDS.fullmatch(text) or _are_words(text) for text in (reference, answer)):
            return _compact(reference).lower() == _compact(answer).lower()
        bases = [_BASED.fullmatch(text) for text in (reference, answer)]
        if any(bases):
            return _same_in_base(reference, answer)
        first, wanted = units.split_unit(reference)
        second, given = units.split_unit(answer, wanted)
        if units.PERCENT in (wanted, given):
            return self._percents(first, wanted, second, given)
        return not units.differ(wanted, given) and self._numbers(first, second)

    def _percents(self, first: str, wanted: str, second: str, given: str) -> bool:
        """A reference's sign may be missing. One too many is of no account at 1 and above: `50\\%` for 50."""
        one, other = read_numeral(first), read_numeral(second)
        if wanted == given or (wanted and self._numbers(first, second)):
            return self._numbers(first, second)
        if one is None or other is None:
            return not wanted and self._numbers(first, second)
        if wanted:
            return same_number(_hundredth(one), other)
        return same_number(one, _hundredth(other)) or (abs(other.value) >= 1 and same_number(one, other))

    def _numbers(self, reference: str, answer: str) -> bool:
        first, second = read_numeral(reference), read_numeral(answer)
        if first and second:
            return same_number(first, second)
        return self.expressions(reference, answer)


def _hundredth(number: Numeral) -> Numeral:
    return Numeral(number.value / Fraction(100), None if number.places is None else number.places + 2)


def _letters(reference: str, answer: str) -> bool | None:
    """Whether the letters of a choice agree, where that decides."""
    plain = [_LETTER.fullmatch(text) for text in (reference, answer)]
    if plain[0] and plain[1]:
        return plain[0][1].upper() == plain[1][1].upper()
    (wanted, value), (given, other) = _choice(reference), _choice(answer)
    if not (wanted and given):
        return None
    return wanted == given if not (value and other) or wanted != given else None


def _choice(text: str) -> tuple[str, str]:
    """The letter of a choice and the text after it; either may be empty."""
    match = _CHOICE.fullmatch(text)
    if not match:
        return "", text
    letter = next(group for group in match.groups() if group and len(group) == 1 and group in "ABCDEFGHIJ")
    rest = next((text for text in match.groupdict().values() if text), "").strip()
    return ("", text) if _ANOTHER.search(rest) else (letter, rest)


def _without_letter(text: str) -> str:
    return _choice(text)[1] or text


def _without_lead(text: str) -> str:
    """`\\text{The answer is } 5` is 5."""
    match = _LEAD.fullmatch(text)
    return match[1].strip() if match else text


def _exact(text: str, reference: str) -> str:
    """The first side of `2\\pi \\approx 6.28`, or its decimal where the reference is one."""
    parts = [part.strip() for part in text.split(r"\approx") if part.strip()]
    if len(parts) < 2:
        return parts[0] if parts else text
    wanted = read_numeral(reference)
    return parts[-1] if wanted and wanted.places is not None else parts[0]


def _value_side(equation: Equation) -> str:
    """The last side, or the first of `5 = x`."""
    first, last = equation.sides[0], equation.sides[-1]
    return first if _NAME.fullmatch(last) and not _NAME.fullmatch(first) else last


def _same_in_base(reference: str, answer: str) -> bool:
    """The base may be missing in one of them. No numeral is converted."""
    (first, base), (second, other) = _base_of(reference), _base_of(answer)
    return first == second and (not base or not other or base == other)


def _base_of(text: str) -> tuple[str, str]:
    match = _BASED.fullmatch(text)
    return (match[1], match[2]) if match else (text.replace(",", "").strip(), "")


def _compact(text: str) -> str:
    """Without spaces, but for those between digits, which mean something."""
    return re.sub(r"(?<!\d) | (?!\d)", "", re.sub(r"\\text\{([^{}]*)\}", r"\1", text))


def _are_words(text: str) -> bool:
    return bool(re.fullmatch(r"\\text\{[^{}\d]*[a-zA-Z]{2,}[^{}\d]*\}", text))


def _items(shape: Shape) -> tuple[Shape, ...]:
    return shape.items if isinstance(shape, Several) else (shape,)


def _counts_repeats(shape: Shape) -> bool:
    """`2, 2, 3` are three numbers; of sets and of unions, what is there twice is there."""
    return not isinstance(shape, Several) or shape.kind == "list"


def _holds_tuples(shape: Shape) -> bool:
    return any(isinstance(item, Ordered | Grid) for item in _items(shape))


def _cells(shape: Shape) -> tuple[Shape, ...]:
    """The entries of a tuple, or of a matrix row by row."""
    if isinstance(shape, Grid):
        return tuple(cell for row in shape.rows for cell in row)
    return shape.items if isinstance(shape, Ordered) else ()


def _widths(grid: Grid) -> list[int]:
    return [len(row) for row in grid.rows]


def _agree(reference: Ordered, answer: Ordered) -> bool:
    """Brackets tell intervals apart, and inequalities speak of the same variable."""
    if reference.variable and answer.variable and reference.variable != answer.variable:
        return False
    both = [_SQUARE.fullmatch(shape.brackets) for shape in (reference, answer)]
    return not all(both) or len(reference.items) != 2 or reference.brackets == answer.brackets
