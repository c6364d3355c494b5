"""Page and report in a browser, all of them once: a small run of known numbers in which every text is an attack."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from comparing import assert_map, assert_printed, assert_profile, draw_all, estimates, figure_of, number, three
from driving import (
    NAMES,
    TABS,
    Growth,
    Row,
    Served,
    Watch,
    after,
    agrees,
    assert_drawn,
    assert_fits,
    assert_words_fit,
    choose,
    handed,
    handed_table,
    look_at,
    ready,
    saved,
    serving,
    settled,
    table_of,
    tip_of,
    unfold,
)
from hostile import CONTROLS, MARKUP, NASTY, QUOTES, SCRIPT, TURNED, Hostile, assert_harmless, shown
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.export import write_table
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.flips import flips
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.model_run import Region
from fillerscope.analysis.run import Run, open_run
from fillerscope.capture.head_matrix import HeadMatrix
from fillerscope.figures.condition_text import name_of
from fillerscope.report import payload
from fillerscope.report.explorer.matrix_payload import packed_matrix
from fillerscope.report.html import write_report
from fillerscope.report.methods.page import as_text, methods, study_yaml
from fillerscope.store.layouts import prompt_tokens
from fillerscope.study.conditions import Condition
from fillerscope.study.study import FigureSpec
from support.synthetic import MLESS, NONE, Synthetic

SVG = "{http://www.w3.org/2000/svg}"
ODD = Condition(name="odd", kind="sentence", count=12, label=f"{MARKUP} {TURNED} {CONTROLS}")
FIGURES = ("layers", "tokenclasses", "layermap")  # every kind of panel
LABEL = f"Tiny {MARKUP}"
RECIPE = Hostile(
    labels={"tiny-a": LABEL},
    conditions=(NONE, MLESS, ODD), problems=18, layers=3, heads=4, system=12, shortest=6, shard=6, noise=0.3,
    right={"none": 0.1, "mless": 0.9, "odd": 0.3}, affine=True, activations=True,
    figures=tuple(FigureSpec(name=name) for name in FIGURES),
)  # fmt: skip
MODEL = "tiny-a"
MLESS_NAME = '30 \u00d7 " /" (mless)'
VISITS = count()  # an address that has not changed is not gone to


@pytest.fixture(scope="session")
def made(shared: Callable[..., Path]) -> Path:
    """A folder with the run and its report."""

    def make(folder: Path) -> None:
        write_report(RECIPE.build(folder / "a <b>run"), folder / "report.html")

    return shared("smoke", make)


@pytest.fixture(scope="module")
def run(made: Path) -> Run:
    return open_run(made / "a <b>run")


@pytest.fixture(scope="module")
def served(run: Run) -> Iterator[Served]:
    with serving(run.path) as found:
        yield found


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Watch]:
    """One for all tests here: a new one takes as long as three of them."""
    watch = Watch(browser, permissions=["clipboard-read", "clipboard-write"])
    yield watch
    watch.context.close()


@pytest.fixture
def page(window: Watch) -> Iterator[Page]:
    """As if it were new, once a test has gone to an address."""
    yield window.page
    window.page.mouse.move(5, 5)
    window.page.set_viewport_size({"width": 1280, "height": 900})
    window.assert_quiet()


@pytest.fixture(scope="module")
def disconnected(browser: Browser) -> Iterator[Watch]:
    watch = Watch(browser, offline=True)
    yield watch
    watch.context.close()


@pytest.fixture
def read(disconnected: Watch, made: Path) -> Iterator[Page]:
    """The report, from disk and with the network off."""
    yield look_at(disconnected.page, (made / "report.html").as_uri())
    disconnected.page.set_viewport_size({"width": 1280, "height": 900})
    disconnected.assert_quiet()


def go(page: Page, served: Served, state: str = "") -> None:
    """To an address of the explorer, without loading the page once more where it is there already."""
    if not page.url.startswith(served.base):
        look_at(page, f"{served.address}#{state or 'tab=attention'}")
    else:
        after(page, lambda: page.goto(f"{served.base}#{state or 'tab=attention'}&visit={next(VISITS)}"))


def state_of(page: Page) -> dict[str, str]:
    return dict(page.evaluate("() => [...new URLSearchParams(location.hash.slice(1))]"))


def map_of(page: Page) -> Locator:
    return page.locator(".card.map")


def profile_of(page: Page) -> Locator:
    return page.locator(".card.profile")


def card_of(page: Page, title: str) -> Locator:
    return page.locator(f'.card[data-title="{title}"]')


def named(ground: Page | Locator, heading: str) -> Locator:
    return ground.locator(".card", has=ground.get_by_role("heading", name=heading))


def words_of(picture: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in picture.iter(f"{SVG}text")]


def test_every_tab_shows_text_as_text_and_fits(page: Page, served: Served) -> None:
    go(page, served, "tab=")  # an address that says nothing opens on the verdict
    expect(page.locator(".run-name")).to_have_text("a <b>run")
    assert page.locator("nav.tabs button").all_inner_texts() == list(NAMES)
    page.locator('[data-tab="findings"]').focus()
    for tab in TABS:
        expect(page.locator(f'[data-tab="{tab}"]')).to_have_attribute("aria-selected", "true")
        expect(page.locator(f'[data-tab="{tab}"]')).to_be_focused()
        unfold(page)
        assert_harmless(page)
        assert MARKUP in page.locator("#main").inner_text()
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            assert_fits(settled(page))
        assert_drawn(page)
        after(page, lambda: page.keyboard.press("ArrowRight"))


def test_the_map_of_heads(page: Page, served: Served, run: Run) -> None:
    go(page, served, "condition=odd&queries=last")
    said = set()
    offered = {name: payload.METRICS[name] for name in payload.METRICS if "beyond" not in name}  # not known of this run
    for metric, (label, _) in reversed(offered.items()):
        choose(page, "metric", metric)
        assert_map(run, handed_table(map_of(page)), metric, "odd", "last")
        expect(map_of(page).locator(".scale-name")).to_contain_text(label)
        said.add(map_of(page).locator(".readout").inner_text())
    assert len(said) == len(offered)
    value, low, high = estimates(run, "drop", "odd", "last")
    box = map_of(page).locator(".map-ground").bounding_box()
    at, cell = (box["x"] + 143, box["y"] + 33), (1, 2)
    page.mouse.move(*at)
    where, words = tip_of(map_of(page)).inner_text().split("\n")
    assert where == "Layer 2, head 3"
    assert agrees(words.rpartition(": ")[2], value[cell], low[cell], high[cell])
    after(page, lambda: page.mouse.click(*at))
    assert agrees(map_of(page).locator(".readout b").inner_text(), value[cell], low[cell], high[cell])
    expect(map_of(page).locator(".readout")).to_contain_text("n = 18")
    expect(profile_of(page).locator("h3")).to_have_text(f"{LABEL} Layer 2 Head 3")
    expect(page.locator('.multiples button[aria-pressed="true"]')).to_have_text("Head 3")
    map_of(page).locator(".map-ground").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowDown"):
        after(page, lambda key=key: page.keyboard.press(key))
    expect(profile_of(page).locator("h3")).to_have_text(f"{LABEL} Layer 2 Head 2")
    expect(tip_of(map_of(page)).locator(".tip-head")).to_have_text("Layer 2, head 2")
    expect(map_of(page).locator(".map-ground")).to_be_focused()


def test_files_of_the_map(page: Page, served: Served, run: Run) -> None:
    go(page, served, "metric=drop&condition=mless")
    name, content = saved(map_of(page).locator('[data-kind="csv"]'))
    assert name == "Tiny-img-src-x-onerror-window.pwned-1-30-mless-against-none.csv"
    assert_map(run, table_of(content), "drop", "mless", "original")
    picture = ElementTree.fromstring(saved(map_of(page).locator('[data-kind="svg"]'))[1])
    assert {f"{LABEL}, {MLESS_NAME} against none", "layer", "head", "1", "4"} <= set(words_of(picture))
    value, low, high = estimates(run, "drop", "mless", "original")
    cells = list(picture.iter(f"{SVG}rect"))[1 : 1 + value.size]
    extreme = int(np.abs(np.log2(value)).argmax())
    assert cells[extreme].get("fill") == "rgb(5, 48, 97)"  # the largest change has the end of the scale
    assert len({cell.get("fill") for cell in cells}) == len(np.unique(value.round(6)))
    assert len(list(picture.iter(f"{SVG}circle"))) == ((low <= 1) & (high >= 1)).sum()
    image = Image.open(io.BytesIO(saved(map_of(page).locator('[data-kind="png"]'))[1]))
    assert np.allclose(image.size, [3 * float(picture.get(side)) for side in ("width", "height")], atol=1)
    assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    choose(page, "metric", "mass")
    picture = ElementTree.fromstring(handed(map_of(page).locator('[data-kind="svg"]'))[1])
    cells = list(picture.iter(f"{SVG}rect"))[1 : 1 + value.size]
    most = int(estimates(run, "mass", "mless", "original")[0].argmax())
    assert cells[most].get("fill") == "rgb(0, 60, 25)"


def test_the_profile_and_its_views(page: Page, served: Served, run: Run) -> None:
    go(page, served, "layer=2&head=3&queries=all&first=1")
    views = {"difference": ", difference to none", "logratio": ", log ratio to none", "aligned": ""}
    for view, title in ({"whole": ", whole prompt"} | views).items():
        after(page, profile_of(page).locator(f'.choice button[data-value="{view}"]').click)
        expect(profile_of(page).locator("h3")).to_have_text(f"{LABEL} Layer 2 Head 3{title}")
        assert_profile(run, handed_table(profile_of(page)), 2, 3, "all", view)
    choose(page, "band", "sd")
    assert_profile(run, handed_table(profile_of(page)), 2, 3, "all", "aligned", "sd")
    choose(page, "band", "interval")
    profile_of(page).locator(".linechart").focus()
    for place, text in enumerate(NASTY):
        page.keyboard.press("ArrowRight")
        tip = tip_of(profile_of(page))
        expect(tip.locator(".tip-head")).to_have_text(f"Token position {place}")
        expect(tip.locator(".tip-token")).to_have_text(shown(text).replace(" ", "\u2423"))
        for row, name in zip(tip.locator(".tip-row").all(), run.conditions, strict=True):
            profile = run[None].head_profile(name, 2, 3, "all", "aligned")
            values = [array[0, 0, place] for array in (profile.mean, *profile.interval())]
            assert agrees(row.locator("b").inner_text(), *values)
    assert_harmless(page)
    after(page, page.locator('.multiples button[data-head="4"]').click)
    expect(profile_of(page).locator("h3")).to_have_text(f"{LABEL} Layer 2 Head 4")
    after(page, lambda: page.locator('input[name="first token"]').uncheck())
    assert min(int(row["position"]) for row in handed_table(profile_of(page))) == 1


def test_zooming_a_profile(page: Page, served: Served) -> None:
    go(page, served, "first=1")
    everything = handed_table(profile_of(page))
    box = profile_of(page).locator(".plot-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    page.mouse.up()
    low, high = map(float, state_of(page)["x"].split("~"))
    rows = handed_table(profile_of(page))
    places = {int(row["position"]) for row in rows}
    assert places == set(range(int(np.ceil(low)), int(high) + 1))
    picture = ElementTree.fromstring(handed(profile_of(page).locator('[data-kind="svg"]'))[1])
    assert_lines(picture, rows)
    profile_of(page).locator(".plot-over").dblclick()
    assert "x" not in state_of(page)
    assert handed_table(profile_of(page)) == everything
    profile_of(page).locator(".linechart").focus()
    for key in "++-":
        page.keyboard.press(key)
    low, high = map(float, state_of(page)["x"].split("~"))
    assert high - low == pytest.approx((max(int(row["position"]) for row in everything) + 1) / 2, abs=0.2)
    assert_harmless(page)
    page.keyboard.press("0")
    assert "x" not in state_of(page)


def assert_lines(picture: ElementTree.Element, rows: list[dict[str, str]]) -> None:
    """Lines of a picture go through the numbers of its table, and its axis names them."""
    paths = {one.get("data-series"): one.get("d") for one in picture.iter(f"{SVG}path") if one.get("data-series")}
    series = list(dict.fromkeys(row["series"] for row in rows))
    assert list(paths) == [shown(label) for label in series]
    points = [point for path in paths.values() for point in re.findall(r"-?[\d.]+ -?[\d.]+", path)]
    drawn = np.array([[float(part) for part in point.split()] for point in points])
    plot = next(one for one in picture.iter(f"{SVG}svg") if one.get("data-mark") == "plot")
    left, width = float(plot.get("x")), float(plot.get("width"))
    drawn = drawn[(drawn[:, 0] >= left) & (drawn[:, 0] <= left + width)]  # a line goes on beyond the edge
    table = np.array([[float(row["position"]), float(row["mean"])] for row in rows])
    slopes = [np.polyfit(table[:, axis], drawn[:, axis], 1) for axis in (0, 1)]
    for axis, slope in enumerate(slopes):
        np.testing.assert_allclose(np.polyval(slope, table[:, axis]), drawn[:, axis], atol=0.02)
    assert slopes[0][0] > 0 > slopes[1][0]
    ticks = [
        one for one in picture.iter(f"{SVG}text") if one.get("text-anchor") == "end" and one.get("font-size") == "11"
    ]
    assert len(ticks) > 2
    for tick in ticks:
        assert np.polyval(slopes[1], float(tick.text.replace("\u2212", "-"))) == pytest.approx(
            float(tick.get("y")) - 4, abs=0.05
        )


def behind(rows: list[Row], region: Region) -> list[Row]:
    """Rows without filler as they are drawn: from the filler's place on, behind it."""
    length = region.stop - region.start
    moved = [int(row["position"]) + length * (int(row["position"]) >= region.start) for row in rows]
    return [
        {**row, "position": str(place)} if row["condition"] == "none" else row
        for row, place in zip(rows, moved, strict=True)
    ]


def test_a_condition_that_is_off_is_off_everywhere(page: Page, served: Served, run: Run) -> None:
    go(page, served, "view=whole")
    assert_drawn(page)
    small = page.locator(".multiples .grid").screenshot()
    after(page, profile_of(page).locator('.legend button[data-condition="odd"]').click)
    assert_drawn(page)
    assert page.locator(".multiples .grid").screenshot() != small
    name, content = saved(profile_of(page).locator('[data-kind="svg"]'))
    assert name == "Tiny-img-src-x-onerror-window.pwned-1-Layer-1-Head-1-whole-prompt.svg"
    picture = ElementTree.fromstring(content)
    assert_lines(picture, behind(handed_table(profile_of(page)), run[None].region("mless")))
    axis = "Average Attention Weight, queries: original"
    assert {"Token position", axis, "none", MLESS_NAME} <= set(words_of(picture))
    assert shown(ODD.label) not in words_of(picture)
    assert len([one for one in picture.iter(f"{SVG}path") if one.get("fill-opacity")]) == 2
    shaded = [one for one in picture.iter(f"{SVG}rect") if one.get("fill-opacity")]
    assert len(shaded) == 1  # the filler that is on
    image = Image.open(io.BytesIO(saved(profile_of(page).locator('[data-kind="png"]'))[1]))
    assert image.size == (2280, 1140)
    page.mouse.move(5, 5)
    after(page, page.locator('[data-tab="affine"]').click)
    off = page.locator('.legend button[data-condition="odd"]').first
    expect(off).to_have_attribute("aria-pressed", "false")
    off.focus()
    after(page, lambda: page.keyboard.press("Enter"))
    expect(off).to_have_attribute("aria-pressed", "true")
    expect(off).to_be_focused()
    assert "of" not in state_of(page)


def test_answers(page: Page, served: Served, run: Run) -> None:
    go(page, served, "tab=answers")
    rows, wanted = handed_table(card_of(page, "Accuracy")), compare(run)
    for row, one in zip(rows, wanted, strict=True):
        assert row["condition"] == one.condition
        assert three(row, "value", "low", "high") == pytest.approx((100 * one.accuracy, 100 * one.low, 100 * one.high))
    page.locator(".barchart g.bar").nth(1).hover()
    assert agrees(
        page.locator(".barchart .tip.on b").inner_text(), *(number(rows[1][key]) for key in ("value", "low", "high"))
    )
    ground = named(page, "Every condition against none")
    head = ground.locator("th", has=page.get_by_role("button", name="accuracy %"))
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    order = [shown(name_of(run, row.condition)) for row in sorted(wanted, key=lambda row: row.accuracy)]
    assert [one.locator("td").first.inner_text() for one in ground.locator("tbody tr").all()] == order
    head.locator("button").click()
    assert [one.locator("td").first.inner_text() for one in ground.locator("tbody tr").all()] == order[::-1]
    told = {row["condition"]: row for row in handed_table(ground)}
    for row in wanted:
        assert number(told[row.condition]["accuracy %"]) == pytest.approx(row.accuracy)
        if row.against:
            assert number(told[row.condition]["p Holm"]) == pytest.approx(row.against.adjusted)
    page.locator('select[name="by"]').focus()
    choose(page, "by", "level")
    assert len(handed_table(card_of(page, "Accuracy"))) == len(compare(run, by="level"))
    expect(page.locator('select[name="by"]')).to_be_focused()


def test_flips(page: Page, served: Served, run: Run) -> None:
    go(page, served, "tab=answers")
    ground = named(page, "Problems that changed")
    wanted = flips(run[None], "mless", "none")
    assert len(wanted) == 14
    expect(ground.locator(".count")).to_have_text(f"none to {MLESS_NAME}: 14 gained, 0 lost")
    expect(ground.locator(".flip")).to_have_count(12)
    ground.get_by_role("button", name="Show more (2)").click()
    assert ground.locator(".flip summary > bdi").all_inner_texts() == [shown(flip.id) for flip in wanted]
    last = ground.locator(".flip").last
    assert last.locator(".question").inner_text() == "\n".join(map(shown, wanted[-1].question.split("\n")))
    texts = ["\n".join(map(shown, side["text"].strip().split("\n"))) for side in (wanted[-1].before, wanted[-1].after)]
    assert last.locator("pre").all_inner_texts() == texts
    assert last.locator("article .badge").all_inner_texts() == ["wrong", "right"]
    choose(page, "against", "odd")
    expect(ground.locator(".flip summary > bdi")).to_have_text(
        [shown(flip.id) for flip in flips(run[None], "mless", "odd")]
    )
    assert_harmless(page)


def test_flips_are_of_the_chosen_temperature(page: Page, tmp_path: Path) -> None:
    drawn = {"temperature": [0, 0.7], "samples": [1, 2]}
    recipe = Synthetic(problems=4, layers=1, heads=2, right={"none": 0.2, "mless": 0.8}, generation=drawn)
    run = recipe.build(tmp_path / "drawn")
    counts = {one: len(flips(run[MODEL], "mless", "none", float(one))) for one in ("0.7", "0")}
    assert counts["0.7"] > counts["0"] > 0
    with serving(run.path) as served:
        look_at(page, f"{served.address}#tab=answers")
        for temperature, count in counts.items():
            choose(page, "temperature", temperature)
            expect(named(page, "Problems that changed").locator(".flip")).to_have_count(count)


def test_answers_are_found(page: Page, served: Served) -> None:
    go(page, served, "tab=answers")
    ground = named(page, "All answers")
    count = ground.locator(".count")
    expect(count).to_have_text("1 to 50 of 54 answers")
    after(page, ground.get_by_role("button", name="Later").click)
    expect(count).to_have_text("51 to 54 of 54 answers")
    expect(ground.locator(".flip")).to_have_count(4)
    choose(page, "verdict", "right")
    expect(count).to_have_text("1 to 23 of 23 answers")  # 2, 16 and 5
    choose(page, "only", "odd")
    assert ground.locator(".flip summary .badge").all_inner_texts() == ["right"] * 5
    ground.locator('input[type="search"]').fill(f"3 {QUOTES.upper()}"[:8])
    after(page, lambda: page.keyboard.press("Enter"))
    expect(count).to_have_text("No answer matches.")
    choose(page, "verdict", "")
    ground.locator('input[type="search"]').fill(SCRIPT.upper())
    after(page, ground.get_by_role("button", name="Search").click)
    expect(count).to_have_text("1 to 18 of 18 answers")
    ground.locator("summary").first.click()
    expect(ground.locator(".question").first).to_contain_text(MARKUP)
    assert_harmless(page)


def test_curves_by_layer(page: Page, served: Served, run: Run) -> None:
    go(page, served, "tab=affine&queries=all")
    tables = {
        name: affine_table(run[None], name).columns() | depth_table(run[None], name, "all").columns()
        for name in run.fillers
    }
    titles = {
        "Lambda, fitted": "lambda_fit", "Variation explained": "explained", "Relative bias": "relative_bias",
        "One direction, across problems": "consistency", "Paired drop, ratio to none": "drop",
    }  # fmt: skip
    for title, column in titles.items():
        assert_curves(card_of(page, title), {name: table[column] for name, table in tables.items()})
    go(page, served, "tab=activations&layer=2")
    expect(page.locator('select[name="cls"]')).to_have_value("all")
    choose(page, "cls", "digits")
    tables = {name: activation_table(run[None], name, "digits").columns() for name in run.fillers}
    assert_curves(card_of(page, "Variance, ratio to none"), {name: tables[name]["variance_ratio"] for name in tables})
    rows = handed_table(card_of(page, "MLP activations, layer 2"))
    for name in run.conditions:
        counts = [int(row["n"]) for row in rows if row["condition"] == name]
        assert counts == run[None].histogram(name, "digits")[1].tolist()
    picture = ElementTree.fromstring(handed(card_of(page, "MLP activations, layer 2").locator('[data-kind="svg"]'))[1])
    assert_thresholds(picture, run[None].calibration()["eps"][1], run[None].calibration()["edges"])
    card_of(page, "Variance, ratio to none").locator(".linechart").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    after(page, lambda: page.keyboard.press("Enter"))  # goes to the layer
    expect(card_of(page, "MLP activations, layer 3")).to_be_visible()
    expect(page.locator('select[name="layer"]')).to_have_value("3")


def assert_thresholds(picture: ElementTree.Element, eps: float, edges: list[float]) -> None:
    """The two lines at which an activation counts as near zero stand in their bins."""
    steps = next(one.get("d") for one in picture.iter(f"{SVG}path") if one.get("data-series"))
    starts = [float(x) for x in re.findall(r"[ML](-?[\d.]+) ", steps)]  # of every bin
    lines = [one for one in picture.iter(f"{SVG}line") if one.get("data-mark") == "threshold"]
    bins = [np.searchsorted(edges, value, side="right") - 1 for value in (-eps, eps)]
    assert len(lines) == 2
    for line, place in zip(lines, bins, strict=True):
        assert starts[place] - 0.05 <= float(line.get("x1")) <= starts[place + 1] + 0.05


def assert_curves(card: Locator, wanted: dict[str, np.ndarray]) -> None:
    rows = handed_table(card)
    assert list(dict.fromkeys(row["condition"] for row in rows)) == list(wanted)
    for name, column in wanted.items():
        own = [row for row in rows if row["condition"] == name]
        assert [int(row["layer"]) for row in own] == list(range(1, len(column) + 1))
        np.testing.assert_allclose([number(row["mean"]) for row in own], column, rtol=1e-12, err_msg=name)


def test_findings_and_methods(page: Page, served: Served, run: Run, tmp_path: Path) -> None:
    go(page, served, "tab=findings")
    told = findings_of(run[None], available_comparison(run))
    assert page.locator(".findings li summary").all_inner_texts() == [shown(brief(finding)) for finding in told]
    assert page.locator(".findings li p bdi").all_text_contents() == [shown(finding.text) for finding in told]
    details = page.locator(".findings li p").first
    expect(details).to_be_hidden()
    page.locator(".findings li summary").first.click()
    expect(details).to_be_visible()
    assert page.locator(".findings .fact b").count() > 2
    links = [link.get_attribute("href") for link in page.locator(".findings li a").all()]
    assert links == [f"/api/0/table/{finding.table}.csv" for finding in told]
    file = write_table(run, told[-1].table, tmp_path, "csv")
    page.locator(".findings li summary").last.click()
    assert saved(page.locator(".findings li a").last) == (file.name, file.read_bytes())
    after(page, page.locator('[data-tab="methods"]').click)
    files = len(run.store.manifest["files"])
    expect(page.locator(".checked")).to_have_text(re.compile(f"^All {files} files are as they were written"))
    sections = methods(run)
    assert page.locator(".methods h3").all_inner_texts() == [section.title for section in sections]
    assert page.locator(".methods pre.study").all_inner_texts() == [study_yaml(run)]
    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == as_text(sections)


def test_the_address_brings_all_of_it_back(page: Page, served: Served) -> None:
    go(page, served)
    for name, value in {"metric": "mass", "condition": "odd", "queries": "last", "band": "sd"}.items():
        choose(page, name, value)
    after(page, profile_of(page).locator('.choice button[data-value="difference"]').click)
    after(page, profile_of(page).locator('.legend button[data-condition="mless"]').click)
    after(page, lambda: page.locator('input[name="first token"]').check())
    after(page, page.locator('.multiples button[data-head="4"]').click)
    profile_of(page).locator(".linechart").focus()
    page.keyboard.press("+")
    page.mouse.move(5, 5)
    page.evaluate("() => document.activeElement.blur()")
    words, files = page.locator("#main").inner_text(), files_of(page)
    look_at(page, page.url)
    assert page.locator("#main").inner_text() == words
    assert files_of(page) == files
    assert [one.input_value() for one in page.locator("select").all()] == ["mass", "odd", "last", "sd", ""]
    go(page, served, "tab=__proto__&layer=99&head=x&view=up&metric=no&condition=none&x=NaN~1&off=%25")
    expect(profile_of(page).locator("h3")).to_have_text(f"{LABEL} Layer 3 Head 1")
    assert_drawn(page)


def test_light_and_dark_change_places(page: Page, served: Served) -> None:
    go(page, served)
    ground, drawn = background(page), map_of(page).locator(".map-ground").screenshot()
    page.locator("button.theme").click()
    assert background(page) != ground
    assert map_of(page).locator(".map-ground").screenshot() != drawn
    page.reload()
    assert background(ready(page)) != ground  # it is remembered
    page.locator("button.theme").click()
    assert background(page) == ground


def background(page: Page) -> str:
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def files_of(page: Page) -> list[tuple[str, list[Row]]]:
    cards = (map_of(page), profile_of(page))
    return [(handed(card.locator('[data-kind="csv"]'))[0], handed_table(card)) for card in cards]


def test_one_problem_beside_the_mean(page: Page, opened: Callable[..., Page], served: Served, run: Run) -> None:
    go(page, served)
    expect(profile_of(page).locator(".note")).to_contain_text("One problem's own profile cannot be shown here: ")
    expect(page.locator('select[name="problem"]')).to_be_disabled()
    place = payload.Place(1, 1, "original", "aligned")
    own = payload.one_problem(run[MODEL], RECIPE._part(range(3, 4)), place, f"Measured again. {MARKUP}")
    page = opened()  # one that has not asked yet, and whose answers nobody else gets
    page.route("**/api/0/ready?*", lambda route: route.fulfill(json={"reason": ""}))
    page.route("**/api/0/problem?*problem=3", lambda route: route.fulfill(body=own))
    look_at(page, f"{served.address}#tab=attention")
    menu = page.locator('select[name="problem"]')
    listed = payload.overview(run)["models"][0]["problems"]
    texts = [shown(f"{one['id']}: {one['question']}") for one in listed]
    assert menu.locator("option").all_inner_texts()[1:] == texts
    page.locator('input[name="find"]').fill(listed[4]["question"].upper()[:12])
    assert texts[4] in menu.locator("option").all_inner_texts()
    assert menu.locator("option").count() < len(texts)
    page.locator('input[name="find"]').fill(listed[3]["id"])
    after(page, lambda: menu.select_option("3"))
    expect(profile_of(page).locator(".note")).to_have_text(f"Measured again. {MARKUP}")
    rows = [row for row in handed_table(profile_of(page)) if row["series"] == f"{MLESS_NAME}, this problem"]
    wanted = RECIPE.aligned(3, "mless")[1, 0, 0]
    np.testing.assert_allclose([number(row["mean"]) for row in rows], wanted[1 : 1 + len(rows)], rtol=1e-6)
    assert len(rows) > 10
    assert {row["n"] for row in rows} == {"1"}


def matrix_of(run: Run, condition: str) -> HeadMatrix:
    """Weights that nobody measured: of each row, its numbers among those of all."""
    record = run[None].measured()[0]
    n = len(record["prompts"][condition]["ids"])
    weights = np.tril(1.0 + np.arange(n * n).reshape(n, n) % 7)
    rows = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return HeadMatrix(rows, None, 1, 2, tuple(prompt_tokens(record, condition)))


def _send(route: Route, _: Request, body: bytes) -> None:
    route.fulfill(body=body)


@pytest.mark.parametrize("view", ["aligned", "whole"])
def test_names_of_axes_fit_beside_small_charts(opened: Callable[..., Page], served: Served, view: str) -> None:
    """Where the text of every token stands below, little height is left for the lines."""
    assert_words_fit(look_at(opened(), f"{served.address}#tab=attention&view={view}"))


def test_one_text(opened: Callable[..., Page], served: Served, run: Run) -> None:
    page, record = opened(), run[None].measured()[0]
    matrices = {name: matrix_of(run, name) for name in ("none", "mless")}
    page.route("**/api/0/ready?*", lambda route: route.fulfill(json={"reason": ""}))
    for name, matrix in matrices.items():
        sent = partial(_send, body=packed_matrix(record, name, matrix, f"agrees {MARKUP}"))
        page.route(f"**/api/0/matrix?*condition={name}", sent)
    look_at(page, f"{served.address}#tab=text&head=2")
    assert page.locator(".matrixchart").count() == 2
    for card, (name, matrix) in zip(page.locator(".matrices .card").all(), matrices.items(), strict=True):
        n = len(matrix.weights)
        rows = handed_table(card)
        assert len(rows) == n * (n + 1) // 2
        shown_weights = [number(row["weight"]) for row in rows]
        np.testing.assert_allclose(shown_weights, matrix.weights[np.tril_indices(n)], rtol=1e-6)
        assert card.locator('[data-mark="filler"]').count() == (0 if name == "none" else 4)
    expect(page.locator(".one-text .note")).to_contain_text(f"{MLESS_NAME}: agrees {MARKUP}")
    chart = page.locator(".matrixchart").first
    chart.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert agrees(tip_of(chart).locator("b").inner_text(), matrices["none"].weights[2, 1])
    page.keyboard.press("+")
    less = handed_table(page.locator(".matrices .card").first)
    assert 0 < len(less) < len(matrices["none"].weights) ** 2 / 4
    picture = ElementTree.fromstring(handed(page.locator('.matrices [data-kind="svg"]').first)[1])
    assert len(list(picture.iter(f"{SVG}image"))) == 1
    choose(page, "colour", "linear")
    expect(page.locator(".matrixchart .scale-labels").first).to_have_text("00.51")
    assert_harmless(page)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert_fits(settled(page))


def test_what_is_not_there_yet_says_what_it_is(opened: Callable[..., Page], served: Served) -> None:
    page = opened()
    page.route("**/api/0/map?*", lambda _: None)  # an answer that does not come
    page.goto(f"{served.address}#tab=attention")
    expect(page.locator(".map .loading")).to_have_text("Loading the map of heads \u2026")
    expect(profile_of(page).locator("h3")).to_be_visible()


def test_runs_side_by_side_one_of_which_grows(page: Page, run: Run, tmp_path: Path) -> None:
    growth = Growth(run, tmp_path / "growing")
    damaged = tmp_path / "damaged"
    shutil.copytree(run.path, damaged)
    shard = next(damaged.glob("shards/*/00001.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with serving(run.path, growth.folder, damaged) as served:
        look_at(page, f"{served.address}#tab=attention")
        assert page.locator(".runs label").all_inner_texts() == ["a <b>run", "growing", "damaged"]
        assert page.locator(".pane h2").all_inner_texts() == ["a <b>run", "growing"]
        bar, pane = page.locator("div.live"), page.locator('.pane[data-run="1"]')
        expect(bar).to_contain_text("growing is in progress.")
        expect(bar).to_contain_text("measuring tiny-a 0 of 18 problems")
        expect(pane).to_contain_text("No shard has landed yet.")
        growth.land(f"shards/{MODEL}/00000")
        expect(bar).to_contain_text("measuring tiny-a 6 of 18 problems")
        expect(pane.locator(".readout")).to_contain_text("n = 6")
        growth.land("shards", "merged", "answers")
        expect(bar).to_be_empty()
        expect(pane.locator(".readout")).to_contain_text("n = 18")
        after(page, lambda: pane.locator('select[name="metric"]').select_option("entropy"))
        tables = [handed_table(one) for one in page.locator(".pane .card.map").all()]
        assert len(tables) == 2
        assert tables[0] == tables[1]
        assert_fits(page)
        after(page, lambda: page.locator('input[name="run-0"]').uncheck())
        after(page, lambda: page.locator('input[name="run-2"]').check())
        assert [one.get_attribute("data-run") for one in page.locator(".pane").all()] == ["1", "2"]
        expect(page.get_by_role("alert")).to_contain_text("damaged: 1 files are damaged: shards/")


def test_the_report_from_disk(read: Page, run: Run) -> None:
    for name in ("verdict", "findings", "figures", "comparison", "flips", "methods", "tables"):
        expect(read.locator(f"section#{name}")).to_be_visible()
        expect(read.locator(f'nav a[href="#{name}"]')).to_be_visible()
    told = findings_of(run[None], available_comparison(run))
    assert read.locator("#findings li summary").all_inner_texts() == [shown(brief(finding)) for finding in told]
    assert read.locator("#findings li p bdi").all_text_contents() == [shown(finding.text) for finding in told]
    assert read.locator("#verdict .fact").count() > 2
    assert read.locator(".coming").count() > 3  # drawn when they come near
    draw_all(read)
    assert [one.get_attribute("id") for one in read.locator("figure").all()] == [f"figure-{name}" for name in FIGURES]
    assert read.get_by_role("heading", name="Not drawn").count() == 0
    unfold(read)
    assert_drawn(read)
    for name in FIGURES:
        assert_printed(run, name, figure_of(read, name))
        image = read.locator(f"#figure-{name} details.print img")
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 400
    assert_harmless(read)
    for width in (1280, 390):
        read.set_viewport_size({"width": width, "height": 900})
        assert_fits(settled(read))


def test_what_a_report_is_asked_for(read: Page, run: Run, tmp_path: Path) -> None:
    draw_all(read)  # a panel that is drawn meanwhile would move what is clicked
    file = write_table(run, "heads", tmp_path, "csv")
    assert saved(read.locator('#tables [data-file="heads.csv"]')) == (file.name, file.read_bytes())
    read.locator("#figure-layers details.print summary").click()
    assert saved(read.locator('[data-file="figure-layers.pdf"]'))[1].startswith(b"%PDF-")
    assert ElementTree.fromstring(handed(read.locator('[data-file="figure-layers.svg"]'))[1]).tag == f"{SVG}svg"
    for condition, place in zip(run.fillers, read.locator("#flips details.card").all(), strict=True):
        expect(place.locator("summary").first).to_contain_text(f"{len(flips(run[None], condition, 'none'))} changed")
    head = read.locator("#comparison th", has=read.get_by_role("button", name="accuracy %"))
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    order = [shown(name_of(run, row.condition)) for row in sorted(compare(run), key=lambda row: row.accuracy)]
    assert [one.locator("td").first.inner_text() for one in read.locator("#comparison tbody tr").all()] == order
    card = read.locator("#figure-layers .card").first
    before = {row["condition"] for row in handed_table(card)}
    card.locator('.legend button[data-condition="mless"]').click()
    assert {row["condition"] for row in handed_table(card)} == before - {"mless"} != before
    card.locator(".linechart").focus()
    read.keyboard.press("ArrowRight")
    expect(tip_of(card).locator(".tip-head")).to_have_text(re.compile(r"^Token position \d$"))
    bars = handed(read.locator("#figure-tokenclasses .card").first.locator('[data-kind="svg"]'))[1]
    assert len(list(ElementTree.fromstring(bars).iter(f"{SVG}circle"))) > 3
    read.get_by_role("button", name="Copy as Markdown").click()
    read.get_by_role("button", name="Copied").wait_for()
    ground = background(read)
    for same in (False, True):
        read.locator("button.theme").click()
        assert (background(read) == ground) == same
