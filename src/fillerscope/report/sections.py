"""A section of the methods: a title, prose, and facts beside it; and all of them as Markdown to be pasted.

Text is text here: markup in a name is left as it is, because escaping is the business of whoever shows it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Facts = list[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: list[str]
    facts: Facts = field(default_factory=list)
    code: str = ""  # to be shown as it stands


def as_text(sections: Sequence[Section]) -> str:
    """Markdown, a heading for each section."""
    return "\n".join(_section(section) for section in sections)


def _section(section: Section) -> str:
    facts = "\n".join(f"- {_line(name)}: {_line(value)}" for name, value in section.facts)
    blocks = [f"## {section.title}", *map(_line, section.paragraphs), facts, _fenced(section.code)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _fenced(code: str) -> str:
    """Between more backticks than the code has in a row."""
    if not code:
        return ""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code) or [""]))
    return f"{fence}yaml\n{code.rstrip()}\n{fence}"


def _line(text: str) -> str:
    """A name with a line break in it must not begin a line of its own."""
    return re.sub("[\r\n]+", " ", text)


def grouped(reasons: Iterable[str]) -> str:
    """Reasons that differ in their numbers alone stand together, told by the first of them; the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault(re.sub(r"\d+", "0", reason), []).append(reason or "no reason was noted")
    return "; ".join(_times(alike) for alike in sorted(kinds.values(), key=len, reverse=True))


def _times(reasons: list[str]) -> str:
    alike = ", with other numbers" if len(set(reasons)) > 1 else ""
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} ({len(reasons)} times{alike})"


def listed(words: Sequence[str], last: str = "and") -> str:
    *most, end = words or [""]
    return f"{', '.join(most)} {last} {end}" if most else end


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def default(function: Callable[..., Any], name: str) -> Any:
    """A number that the code uses where nobody says otherwise, from the code itself."""
    return inspect.signature(function).parameters[name].default
