"""Classes of tokens by their text: digits, operators, conjunctions, and those that a study adds.

A class is a name and a pattern that a token's text, without spaces around it, matches as a whole; the first class
that fits has the token, and what fits none is `other`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from fillerscope.errors import StudyError

if TYPE_CHECKING:
    import numpy as np
    import regex
    from numpy.typing import NDArray

ALL, OTHER = "all", "other"
CLASSES = {
    "digits": r"[0-9]+([.,][0-9]+)?",
    "operators": (
        "[-+*/=<>^%|\u00b1\u00d7\u00f7\u00b7\u2264\u2265\u2260\u2248\u221a\u2211\u220f\u222b]+"
        r"|\\?(times|cdot|div|frac|sqrt|pm|leq?|geq?|neq?|sum|prod|int)|plus|minus|equals"
    ),
    "conjunctions": (
        r"(?i:and|or|but|nor|so|yet|if|then|because|since|although|though|while|when|where|whether|unless|until|that"
        r"|hence|thus|therefore|however)"
    ),
}
MOST = 16  # classes: each is a column of every layer
LONGEST = 1000  # characters of a pattern
SECONDS = 2.0  # for one token and one pattern: a pattern from elsewhere may try for ever
SLOW, SECONDS_IN_ALL = 0.01, 10.0  # a match of this length is counted, and so many seconds of them are the most
MOST_COPIES = 50_000  # parts of a pattern with its counts written out, some hundred bytes each
_PARTS = re.compile(
    r"(?P<skipped>\(\?#[^)]*\))|(?P<open>\()|(?P<close>\))|\{(?P<least>\d*)(?:,\d*)?\}"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.",
    re.DOTALL,
)
_spent: dict[str, float] = {}  # seconds of slow matches, by pattern
_WIDE_LAYOUT = re.compile(r"\(\?[a-zA-Z]*x")


def class_names(classes: Mapping[str, str]) -> tuple[str, ...]:
    """Names of classes as tables use them: all tokens first, tokens of no class last."""
    return (ALL, *classes, OTHER)


def classify(texts: Sequence[str], classes: Mapping[str, str]) -> NDArray[np.int64]:
    """The index of each token's class [token]; the number of classes stands for `other`."""
    import numpy as np  # here, because a study needs the names alone

    known = {text: _class_of(text.strip(), classes) for text in set(texts)}
    return np.array([known[text] for text in texts], dtype=np.int64)


def _class_of(text: str, classes: Mapping[str, str]) -> int:
    for number, (name, pattern) in enumerate(classes.items()):
        start = time.thread_time()
        try:
            found = _compiled(pattern).fullmatch(text, timeout=SECONDS)
        except TimeoutError:
            raise _too_slow(name, pattern, f"over {SECONDS:g} s for the token {text[:40]!r}") from None
        if (taken := time.thread_time() - start) > SLOW:
            _spent[pattern] = _spent.get(pattern, 0.0) + taken
            if sum(_spent.values()) > SECONDS_IN_ALL:
                raise _too_slow(name, pattern, f"{taken:.1g} s for the token {text[:40]!r}, and as long for others")
        if found:
            return number
    return len(classes)


def _too_slow(name: str, pattern: str, told: str) -> StudyError:
    _spent.clear()
    return StudyError(f"class {name!r}: {pattern[:80]!r} takes {told}; write it without repetitions inside repetitions")


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    """A pattern of the library `regex`, which reads what `re` reads, and can be told when to give up."""
    import regex

    return regex.compile(pattern, regex.VERSION0)


def refuse_bad(classes: Mapping[str, str]) -> None:
    """Raise ValueError for names or patterns that cannot be used."""
    if len(classes) > MOST:
        raise ValueError(f"{len(classes)} classes of tokens, and {MOST} is the most")
    for name, pattern in classes.items():
        if name in (ALL, OTHER) or not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", name):
            raise ValueError(f"{name!r} cannot name a class of tokens; use letters and digits, not `all` or `other`")
        if len(pattern) > LONGEST:
            raise ValueError(f"class {name!r}: its pattern has {len(pattern)} characters, and {LONGEST} is the most")
        try:
            re.compile(pattern)
            _refuse_large(pattern)
            _ = pattern in CLASSES.values() or _compiled(pattern)  # ours are known to be sound
        except (ValueError, RecursionError, OverflowError, re.error) as error:
            raise ValueError(f"class {name!r}: {pattern!r} is not a pattern: {error}") from None


def _refuse_large(pattern: str) -> None:
    """Raise ValueError for a pattern that fills memory when it is compiled: `regex` writes `a{3}` out as `aaa`."""
    if _WIDE_LAYOUT.search(pattern) and "{" in pattern:  # `regex` reads `{1 0}` as a count there, and `re` does not
        raise ValueError("with (?x) it may have no counts in braces; write it without (?x)")
    if (copies := _copies(pattern)) > MOST_COPIES:
        raise ValueError(
            f"with its counts written out it has {copies:,} parts, and {MOST_COPIES:,} is the most; "
            "write smaller numbers in its braces"
        )


def _copies(pattern: str) -> int:
    """How many parts a pattern has when each `{n}` stands for n copies of what is before it. It is a sound one."""
    groups: list[list[int]] = [[]]  # those that are open, with the sizes of their parts
    for part in _PARTS.finditer(pattern):
        if part["open"]:
            groups.append([])
        elif part["close"]:
            size = sum(groups.pop())
            groups[-1].append(1 + size)
        elif part["least"] is not None:
            groups[-1][-1] *= 1 + int(part["least"] or 0)
        elif not part["skipped"]:
            groups[-1].append(len(part[0]))
    return sum(groups[0])
