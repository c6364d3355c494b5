"""Pieces of HTML that notebooks show, from templates: without a script, a style sheet or anything to fetch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from fillerscope.analysis.markup import templates


def rendered(template: str, **content: object) -> Markup:
    """A template of this package with its content."""
    return Markup(templates("fillerscope.analysis").get_template(template).render(content))


def block(title: str, *parts: Markup) -> Markup:
    """Everything that one output consists of, below its title."""
    return rendered("block.html.j2", title=title, parts=parts)


def note(text: str) -> Markup:
    """A remark in small letters."""
    return rendered("note.html.j2", text=text)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table whose first column stands to the left and all others to the right."""
    return rendered("table.html.j2", columns=columns, rows=rows)


def picture(name: str, file: Path) -> Markup:
    """A PNG file, in the page itself."""
    data = b64encode(file.read_bytes()).decode("ascii")
    return rendered("picture.html.j2", name=name, data=data)


def facts(named: Mapping[str, str]) -> Markup:
    """Names with their texts, a line each."""
    return rendered("facts.html.j2", facts=named)


def command(words: str, text: str) -> Markup:
    """A command to type, after some words."""
    return rendered("command.html.j2", words=words, text=text)
