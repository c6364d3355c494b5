"""Templates: whatever they show is escaped and can be seen, unless it is markup already."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from fillerscope.analysis.markup import templates

HOSTILE = "<b>&\"'\u202e\x00\ud800"
SAFE = "&lt;b&gt;&amp;&#34;&#39;\ufffd\ufffd\ufffd"


def written(source: str, **content: object) -> str:
    return templates("fillerscope.report").from_string(source).render(content)


def test_text_is_escaped_and_hidden_characters_are_replaced() -> None:
    assert written("{{ text }}", text=HOSTILE) == SAFE
    assert written('<a title="{{ text }}">', text=HOSTILE) == f'<a title="{SAFE}">'
    assert written("{{ text | bdi }}", text=HOSTILE) == f"<bdi>{SAFE}</bdi>"
    assert written("{% for one in texts %}{{ one | upper }}{% endfor %}", texts=[HOSTILE]) == SAFE.replace(
        "&lt;b&gt;", "&lt;B&gt;"
    )


def test_markup_is_left_as_it_is() -> None:
    assert written("{{ text }}", text=Markup("<b>")) == "<b>"
    assert written("{{ text | bdi }}", text=Markup("<b>")) == "<bdi>&lt;b&gt;</bdi>", "a text is no markup"


def test_a_name_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        written("{{ nothing }}")


def test_lengths_are_short() -> None:
    assert written("{{ 12.04 | px }} {{ 0.26 | px }} {{ 0.0 | px }}") == "12 0.3 0"
