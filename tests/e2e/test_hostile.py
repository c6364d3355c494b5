"""Whatever a model, a data set or a study wrote shows as text: no markup, nothing hidden, nothing that breaks out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from driving import TABS, Served, after, assert_drawn, assert_fits, look_at, saved, saved_table, serving, unfold
from playwright.sync_api import Page, expect

from fillerscope.analysis.runs import Run
from fillerscope.conditions import Condition
from synthetic import Synthetic

MARKUP = '<img src=x onerror="window.pwned=1">'
SCRIPT = "</script><script>window.pwned=2</script>"
QUOTES = "\"'`><svg onload=window.pwned=3>&lt;b&gt;&amp;"
TURNED = "abc\u202edcba\u2066efg\u2069\u200f"
CONTROLS = "bell\x07null\x00red\x1b[31m\x7f\x85\u2028\u2029\ufeff"
LONG = "W" * 300
HEBREW = "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627"
MONEY = "$\\frac{$ 100% _{x}^"
NASTY = (MARKUP, SCRIPT, QUOTES, TURNED, CONTROLS, LONG, HEBREW, MONEY)
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


CONDITIONS = (
    Condition(name="none", kind="none", label="None"),
    Condition(name="mless", kind="repeat", text=SCRIPT, count=30, label=f"{MARKUP} {TURNED} {CONTROLS}"),
    Condition(name="random", kind="sentence", count=30, label=f"{SCRIPT} {QUOTES} {MONEY}"),
    Condition(name="hebrew", kind="repeat", text=" /", count=30, label=f"{HEBREW} {MONEY}"),
    Condition(name="long", kind="repeat", text=" /", count=30, label=LONG),
)
RIGHT = {"none": 0.5, "mless": 0.8, "random": 0.1, "hebrew": 0.5, "long": 0.3}


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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Hostile(
        labels={"tiny-a": f"{MARKUP} {CONTROLS} {TURNED}", "tiny-b": f"{QUOTES} {HEBREW} {LONG}"},
        conditions=CONDITIONS, problems=10, failed=(9,), affine=True, activations=True, right=RIGHT,
    )  # fmt: skip
    return made.build(tmp_path_factory.mktemp("hostile") / "a <b>run<b> 'here'")


@pytest.fixture(scope="module")
def served(run: Run) -> Iterator[Served]:
    with serving(run.path) as found:
        yield found


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of fewer figures: what a text can do to one it does to the others."""
    from fillerscope.report.document import write_report

    label = f"{MARKUP} {CONTROLS} {TURNED} {QUOTES}"
    made = Hostile(labels={"tiny": label}, conditions=CONDITIONS[:4], problems=8, right=RIGHT, heads=2)
    run = made.build(tmp_path_factory.mktemp("hostile") / "run")
    return write_report(run, tmp_path_factory.mktemp("report") / "report.html")


def assert_harmless(page: Page) -> None:
    assert page.evaluate("() => window.pwned === undefined")
    assert page.evaluate(MADE) == []
    assert page.evaluate(HIDDEN) == []


def shown(text: str) -> str:
    """As the page shows it: control characters have pictures of their own."""
    marks = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
    hidden = re.compile("[\x80-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
    return hidden.sub("\ufffd", text).translate(marks)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("tab", TABS)
def test_a_tab_shows_it_as_text(opened: Callable[..., Page], served: Served, tab: str, width: int) -> None:
    page = look_at(opened(width=width), f"{served.address}#tab={tab}")
    unfold(page)
    assert_harmless(page)
    assert MARKUP in page.locator("#main").inner_text()
    assert_fits(page)
    assert_drawn(page)


def test_the_name_of_a_run_is_text(page: Page, served: Served) -> None:
    look_at(page, served.address)
    expect(page.locator(".run-name")).to_have_text("a <b>run<b> 'here'")


def test_tokens_in_the_tooltip_are_text(page: Page, served: Served) -> None:
    look_at(page, f"{served.address}#first=1")
    chart = page.locator(".card.profile .linechart")
    chart.focus()
    for text in NASTY:
        page.keyboard.press("ArrowRight")
        expect(page.locator(".profile .tip.on .tip-token")).to_have_text(shown(text).replace(" ", "\u2423"))
        assert_harmless(page)
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("+")  # near enough for tokens under the axis
    assert_harmless(page)


def test_answers_are_text(page: Page, served: Served) -> None:
    look_at(page, f"{served.address}#tab=answers&condition=random")
    flip = page.locator(".flip", has=page.locator("article")).first
    expect(flip.locator("pre").first).to_have_text("\n".join(shown(text) for text in NASTY), use_inner_text=True)
    after(page, lambda: page.locator('select[name="by"]').select_option(MARKUP))
    assert_harmless(page)
    page.locator('input[type="search"]').fill(SCRIPT)
    after(page, lambda: page.keyboard.press("Enter"))
    expect(page.locator('input[type="search"]')).to_have_value(SCRIPT)
    assert_harmless(page)


def test_an_address_is_text(page: Page, served: Served) -> None:
    look_at(page, f"{served.address}#tab=answers&text=%3Cimg+src%3Dx+onerror%3Dwindow.pwned%3D1%3E&off=%252527%253C")
    assert_harmless(page)
    look_at(page, f"{served.address}#off=%25&runs=%25&x=a~b&layer=%00")
    expect(page.locator(".card.profile h3")).to_be_visible()


@pytest.mark.parametrize("card", [".card.map", ".card.profile"])
def test_files_hold_it_as_text(page: Page, served: Served, card: str) -> None:
    look_at(page, served.address)
    name, content = saved(page.locator(f'{card} [data-kind="svg"]'))
    assert re.fullmatch(r"[\w.\-]{1,120}", name)
    picture = ElementTree.fromstring(content)
    words = "".join(text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    assert MARKUP in words
    assert not re.search("[\x00-\x08\x0e-\x1f\u202e\u2066]", words)
    assert {one.tag.partition("}")[2] for one in picture.iter()} <= {"svg", "rect", "text", "line", "path", "circle"}
    assert saved(page.locator(f'{card} [data-kind="png"]'))[1].startswith(b"\x89PNG")


def test_tables_hold_it_as_it_is(page: Page, served: Served, run: Run) -> None:
    """Numbers are for programs: quotes and commas are quoted, nothing is replaced."""
    look_at(page, f"{served.address}#first=1")
    rows = saved_table(page.locator(".card.profile"))
    assert {row["series"] for row in rows} == {run.condition(name).label for name in run.conditions}
    assert [row["token"] for row in rows if row["condition"] == "none"][: len(NASTY)] == list(NASTY)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_shows_it_as_text(opened: Callable[..., Page], hostile_report: Path, width: int) -> None:
    page = look_at(opened(width=width, offline=True), hostile_report.as_uri())
    page.evaluate("() => { window.dispatchEvent(new Event('beforeprint')); }")
    unfold(page)
    assert_harmless(page)
    words = page.locator("main").inner_text()
    for text in (MARKUP, SCRIPT, QUOTES, HEBREW):
        assert text in words
    assert page.locator("main > section").count() == 7
    assert_fits(page)
    assert_drawn(page)


def test_every_figure_of_it_is_drawn(page: Page, hostile_report: Path) -> None:
    look_at(page, hostile_report.as_uri())
    assert page.get_by_role("heading", name="Not drawn").count() == 0
    for figure in page.locator("figure").all():
        figure.locator("summary").click()
        for button in figure.locator('[data-file$=".svg"]').all():
            ElementTree.fromstring(saved(button)[1])
