"""The report from disk, with the network off: all of it is there, with and without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from comparing import draw_all
from driving import assert_drawn, assert_fits, handed, look_at, saved, table_of, unfold, until
from playwright.sync_api import Page, expect

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.flips import flips
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.registry import names_for

pytestmark = [pytest.mark.slow, pytest.mark.weights]
SECTIONS = ("verdict", "findings", "figures", "comparison", "flips", "methods", "tables")


@pytest.fixture
def read(opened: Callable[..., Page], report: Path) -> Page:
    return look_at(opened(offline=True), report.as_uri())


def test_it_says_all_that_the_run_says(read: Page, run: Run) -> None:
    for name in SECTIONS:
        expect(read.locator(f"section#{name}")).to_be_visible()
        expect(read.locator(f'nav a[href="#{name}"]')).to_be_visible()
    told = findings_of(run[None], available_comparison(run))
    assert read.locator("#findings li summary").all_inner_texts() == [brief(finding) for finding in told]
    assert read.locator("#findings li p bdi").all_text_contents() == [finding.text for finding in told]
    rows = compare(run)
    cells = read.locator("#comparison tbody tr").all()
    assert [one.locator("td").first.inner_text() for one in cells] == [name_of(run, row.condition) for row in rows]
    for condition, place in zip(run.fillers, read.locator("#flips details.card").all(), strict=True):
        wanted = flips(run[None], condition, "none")
        expect(place.locator("summary").first).to_contain_text(f"{len(wanted)} changed")
        assert [one.text_content() for one in place.locator(".flip summary > bdi").all()] == [one.id for one in wanted]
    assert "smollm2-135m" in read.locator("#methods pre.study").inner_text()


def test_every_figure_can_be_played_with_and_printed(read: Page, run: Run) -> None:
    draw_all(read)
    names = [one.get_attribute("id").removeprefix("figure-") for one in read.locator("figure").all()]
    assert names == list(names_for(run))
    for name in names:
        figure = read.locator(f"#figure-{name}")
        assert figure.locator(".panels svg.chart").count() > 0
        assert figure.locator("figcaption").inner_text()
        figure.locator("details.print summary").click()
        image = figure.locator("details.print img")
        expect(image).to_be_visible()
        assert image.evaluate("image => image.complete && image.naturalWidth") > 400
    assert_drawn(read)


def test_panels_come_when_they_are_scrolled_to(read: Page) -> None:
    assert read.locator(".coming").count() > 10
    last = read.locator("#figure-layermap .panels > *").last
    # What is drawn above it on the way moves it on, and what is drawn in it replaces it while it is scrolled to.
    until(lambda: last.evaluate("panel => panel.scrollIntoView()") or last.locator("svg.chart").count())
    expect(last.locator("svg.chart")).to_be_visible()


def test_its_figures_can_be_saved(read: Page, run: Run) -> None:
    draw_all(read)  # a panel that is drawn meanwhile would move what is clicked
    figure = read.locator("#figure-depth")
    figure.locator("details.print summary").click()
    content = {kind: saved(figure.locator(f'[data-file="figure-depth.{kind}"]'))[1] for kind in ("pdf", "svg", "csv")}
    assert content["pdf"].startswith(b"%PDF-")
    assert ElementTree.fromstring(content["svg"]).tag.endswith("svg")
    assert {row["condition"] for row in table_of(content["csv"])} == set(run.fillers)


def test_its_tables_can_be_saved(read: Page) -> None:
    buttons = read.locator("#tables [data-file]").all()
    assert len(buttons) > 15
    assert saved(buttons[0]) == handed(buttons[0])
    for button in buttons:
        name, table = handed(button)
        assert name == button.get_attribute("data-file")
        assert len(table_of(table)) > 0


def test_its_methods_can_be_copied(opened: Callable[..., Page], report: Path) -> None:
    page = look_at(opened(offline=True), report.as_uri())
    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_role("button", name="Copied").wait_for()


def test_panels_hold_their_lines_and_pictures(read: Page) -> None:
    draw_all(read)
    card = read.locator('#figure-depth .card[data-title="Paired drop, ratio to none"]')
    card.locator('.legend button[data-condition="random"]').click()
    rows = table_of(saved(card.locator('[data-kind="csv"]'))[1])
    assert {row["condition"] for row in rows} == {"mless"}
    picture = ElementTree.fromstring(saved(card.locator('[data-kind="svg"]'))[1])
    assert len([one for one in picture.iter() if one.get("data-series")]) == 1
    assert saved(card.locator('[data-kind="png"]'))[1].startswith(b"\x89PNG")
    card.locator(".linechart").focus()
    read.keyboard.press("ArrowRight")
    expect(card.locator(".tip.on .tip-head")).to_have_text("Layer 1")


def test_the_comparison_can_be_sorted(read: Page, run: Run) -> None:
    draw_all(read)
    rows = read.locator("#comparison tbody tr")
    head = read.locator("#comparison th", has=read.get_by_role("button", name="accuracy %"))
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    wanted = [name_of(run, row.condition) for row in sorted(compare(run), key=lambda row: row.accuracy)]
    assert [one.locator("td").first.inner_text() for one in rows.all()] == wanted
    head.locator("button").click()
    assert [one.locator("td").first.inner_text() for one in rows.all()] == wanted[::-1]


def test_without_scripts_words_and_pictures_stand(opened: Callable[..., Page], report: Path, run: Run) -> None:
    page = opened(offline=True, java_script_enabled=False)
    page.goto(report.as_uri())
    assert page.locator("#findings li").count() == len(findings_of(run[None], available_comparison(run)))
    assert page.locator("#comparison tr").count() == 1 + len(compare(run))
    for figure in page.locator("figure").all():
        figure.locator("summary").click()
        expect(figure.locator("img")).to_be_visible()
        assert figure.locator("img").bounding_box()["width"] > 300


def test_nothing_in_it_points_elsewhere(report: Path) -> None:
    content = report.read_text(encoding="utf-8")
    assert re.findall(r'(?:src|href|action|data)="(?!data:|#|application/|\w+\.)[^"]*"', content) == []
    assert "connect-src" not in content
    assert "default-src 'none'" in content


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits(opened: Callable[..., Page], report: Path, width: int, dark: bool) -> None:
    page = look_at(opened(width=width, offline=True, color_scheme="dark" if dark else "light"), report.as_uri())
    draw_all(page)
    unfold(page)
    assert_fits(page)
    assert_drawn(page)
