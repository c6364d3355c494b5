r"""The answer in a `\boxed{...}` or `\fbox{...}`: the last complete and non-empty box of a text; of nested boxes the
innermost; of boxes with nothing but a comma, "and" or "or" between them, all.

Models end their answers with one, and data sets their solutions. Knows no mathematics.
"""

from __future__ import annotations

import re

_BOXES = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*(?P<open>\{)?|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s${}\\]{1,100}")
_BETWEEN_BOXES = re.compile(
    r"\}?[\s$]{0,9}(?:[,;]|,? ?(?:and|or)\b)[\s$]{0,9}(?:[a-zA-Z] ?= ?)?\\(?:boxed|fbox)\s{0,9}\{?"
)


def boxed(text: str, truncated: bool = False) -> str | None:
    """The content of the last box, or None. Braces are matched in one pass, so that an unclosed box does not count.

    `truncated`: the text ended at a limit, so that a box without braces at its end may lack something."""
    waiting: list[int] = []
    boxes: list[tuple[int, int]] = []  # where the content begins and ends, in the order of beginnings
    for token in _BOXES.finditer(text):
        kind = token[0]
        if kind == "}" and waiting:
            start = waiting.pop()
            if start > (boxes[-1][0] if boxes else -1) and text[start : token.start()].strip():
                boxes.append((start, token.start()))
        elif kind == "{":
            waiting.append(-1)
        elif token["open"]:
            waiting.append(token.end())
        elif kind.startswith(("\\boxed", "\\fbox")) and (bare := _bare(text, token.end(), truncated)):
            boxes.append((token.end(), token.end() + len(bare)))
    return _joined(text, boxes) if boxes else None


def _joined(text: str, boxes: list[tuple[int, int]]) -> str:
    """The last box, together with the boxes of the same list."""
    first = len(boxes) - 1
    while first > 0 and _BETWEEN_BOXES.fullmatch(text, boxes[first - 1][1], boxes[first][0]):
        first -= 1
    return ", ".join(text[start:end].strip() for start, end in boxes[first:])


def _bare(text: str, start: int, truncated: bool) -> str | None:
    """The answer in `\\boxed 5`, which has no braces to say where it ends."""
    match = _BARE.match(text, start)
    return None if match is None or (truncated and match.end() == len(text)) else match[0].rstrip(".,;:")
