"""Runs whose every text is an attack or a nuisance, and how such texts must look on a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

from support.synthetic import Synthetic

MARKUP = '<img src=x onerror="window.pwned=1">'
SCRIPT = "</script><script>window.pwned=2</script>"
QUOTES = "\"'`><svg onload=window.pwned=3>&lt;b&gt;&amp;"
TURNED = "abc\u202edcba\u2066efg\u2069\u200f"
CONTROLS = "bell\x07null\x00red\x1b[31m\x7f\x85\u2028\u2029\ufeff"
LONG = "W" * 300
HEBREW = "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627"
MONEY = "$\\frac{$ 100% _{x}^"
BRACES = "{{1234*5678}}${1234*5678}{%raw%}<%=1234*5678%>#{1234*5678}%(x)s{0}\\u003cb\\u003e<!--]]>"
NASTY = (MARKUP, SCRIPT, QUOTES, TURNED, CONTROLS, LONG, HEBREW, MONEY, BRACES)
# Characters that show nothing, outside of scripts and styles, or in what is read aloud.
HIDDEN = """() => {
    const hidden = /[\\p{Cc}\\p{Cf}\\p{Cs}\\u2028\\u2029]/u, found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const { data, parentElement } = walker.currentNode;
        if (!parentElement.closest("script, style") && hidden.test(data.replace(/[\\n\\t]/g, ""))) found.push(data);
    }
    for (const one of document.querySelectorAll("[aria-label], [alt], [title]"))
        for (const name of ["aria-label", "alt", "title"])
            if (hidden.test(one.getAttribute(name) ?? "")) found.push(`${name}: ${one.getAttribute(name)}`);
    return found.map(text => JSON.stringify(text.slice(0, 200)));
}"""
# Elements that only the texts above could have made.
MADE = """() => [...document.querySelectorAll("*")].filter(one =>
    (one.matches("img") && !one.closest("figure .print")) || one.matches("iframe, object, embed, base")
    || [...one.attributes].some(each => /^on/i.test(each.name))
    || (one.matches("script") && /^\\s*window\\.pwned/.test(one.textContent))
).map(one => one.outerHTML.slice(0, 200))"""


@dataclass(frozen=True)
class Hostile(Synthetic):
    """The numbers are those of `Synthetic`; every text in it is one of the above."""

    def _id(self, number: int) -> str:
        return f"{number} {NASTY[number % len(NASTY)]}"

    def tokens(self, number: int) -> list[str]:
        return [*NASTY, *super().tokens(number)[len(NASTY) :]]

    def _record(self, number: int) -> dict[str, Any]:
        entry = super()._record(number) | {"id": self._id(number)}
        return entry | ({"error": SCRIPT} if entry["status"] == "failed" else {})

    def _problem_table(self) -> dict[str, list[Any]]:
        table = super()._problem_table()
        numbers = range(self.problems)
        return table | {
            "id": [self._id(number) for number in numbers],
            "question": [f"{MARKUP}\n{NASTY[number % len(NASTY)]}" for number in numbers],
            "answer": [NASTY[(number + 1) % len(NASTY)] for number in numbers],
            "meta": [json.dumps({MARKUP: NASTY[number % 3], "level": 1}) for number in numbers],
        }

    def _answers(self, model: str, number: int) -> Iterator[dict[str, Any]]:
        for row in super()._answers(model, number):
            text = "\n".join(NASTY)
            yield row | {"id": self._id(number), "text": text, "extracted": NASTY[number % len(NASTY)], "note": SCRIPT}


def assert_harmless(page: Page) -> None:
    assert page.evaluate("() => window.pwned === undefined")
    assert page.evaluate(MADE) == []
    assert "7006652" not in page.locator("body").inner_text()  # of a template in a text
    assert page.evaluate(HIDDEN) == []


def shown(text: str) -> str:
    """As the page shows it: control characters have pictures of their own."""
    marks = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
    hidden = re.compile("[\x80-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
    return hidden.sub("\ufffd", text).translate(marks)
