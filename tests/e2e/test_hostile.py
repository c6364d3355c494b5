"""Whatever a model, a data set or a study wrote shows as text: no markup, nothing hidden, nothing that breaks out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from driving import TABS, Served, after, assert_drawn, assert_fits, handed, look_at, saved, saved_table, serving, unfold
from hostile import (
    CONTROLS,
    HEBREW,
    LONG,
    MARKUP,
    MONEY,
    NASTY,
    QUOTES,
    SCRIPT,
    TURNED,
    Hostile,
    assert_harmless,
    shown,
)
from playwright.sync_api import Page, expect

from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of
from fillerscope.study.conditions import Condition

pytestmark = pytest.mark.slow
CONDITIONS = (
    Condition(name="none", kind="none", label="None"),
    Condition(name="mless", kind="repeat", text=SCRIPT, count=30, label=f"{MARKUP} {TURNED} {CONTROLS}"),
    Condition(name="random", kind="sentence", count=30, label=f"{SCRIPT} {QUOTES} {MONEY}"),
    Condition(name="hebrew", kind="repeat", text=" /", count=30, label=f"{HEBREW} {MONEY}"),
    Condition(name="long", kind="repeat", text=" /", count=30, label=LONG),
)
NAME = "<img src=x onerror=window.pwned=4>'\"{{1234*5678}}"  # of a model, which stands in addresses and attributes
RIGHT = {"none": 0.5, "mless": 0.8, "random": 0.1, "hebrew": 0.5, "long": 0.3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Hostile(
        labels={"tiny-a": f"{MARKUP} {CONTROLS} {TURNED}", NAME: f"{QUOTES} {HEBREW} {LONG}"},
        conditions=CONDITIONS, problems=10, failed=(9,), affine=True, activations=True, right=RIGHT,
    )  # fmt: skip
    return made.build(tmp_path_factory.mktemp("hostile") / "a <b>run<b> 'here'")


@pytest.fixture(scope="module")
def served(run: Run) -> Iterator[Served]:
    with serving(run.path) as found:
        yield found


@pytest.fixture(scope="session")
def hostile_report(shared: Callable[..., Path]) -> Path:
    """Of fewer figures: what a text can do to one it does to the others."""
    from fillerscope.report.html import write_report

    label = f"{MARKUP} {CONTROLS} {TURNED} {QUOTES}"
    made = Hostile(labels={"tiny": label}, conditions=CONDITIONS[:4], problems=8, right=RIGHT, heads=2)

    def make(folder: Path) -> None:
        write_report(made.build(folder / "run"), folder / "report.html")

    return shared("hostile-report", make) / "report.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_tab_shows_it_as_text(opened: Callable[..., Page], served: Served, width: int) -> None:
    page = look_at(opened(width=width), f"{served.address}#tab=attention")
    for tab in TABS:
        if tab != TABS[0]:
            after(page, page.locator(f'[data-tab="{tab}"]').click)
        unfold(page)
        assert_harmless(page)
        assert MARKUP in page.locator("#main").inner_text()
        assert_fits(page)
        assert_drawn(page)


def test_the_name_of_a_run_is_text(page: Page, served: Served) -> None:
    look_at(page, f"{served.address}#tab=attention")
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
    look_at(page, f"{served.address}#off=%25&runs=%25&x=a~b&layer=%00&view=up")
    expect(page.locator(".card.profile h3")).to_be_visible()


@pytest.mark.parametrize("card", [".card.map", ".card.profile"])
def test_files_hold_it_as_text(page: Page, served: Served, card: str) -> None:
    look_at(page, f"{served.address}#tab=attention")
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
    assert {row["series"] for row in rows} == {name_of(run, name) for name in run.conditions}
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
            ElementTree.fromstring(handed(button)[1])
