"""The explorer on a real run, as a person uses it: look, choose, click, read, save, send the address to somebody."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from driving import (
    MLESS,
    NAMES,
    RANDOM,
    TABS,
    Served,
    after,
    assert_drawn,
    assert_fits,
    choose,
    colours,
    look_at,
    ready,
    saved,
    saved_table,
    serving,
    tip_of,
    viewing,
)
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from fillerscope.analysis.answers import answers
from fillerscope.analysis.flips import flips
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of

pytestmark = [pytest.mark.slow, pytest.mark.weights]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def seen(page: Page, explorer: Served) -> Page:
    return look_at(page, f"{explorer.address}#tab=attention")


def map_of(page: Page) -> Locator:
    return page.locator(".card.map")


def profile_of(page: Page) -> Locator:
    return page.locator(".card.profile")


def state_of(page: Page) -> dict[str, str]:
    return dict(page.evaluate("() => [...new URLSearchParams(location.hash.slice(1))]"))


def lines_on(page: Page) -> list[str]:
    """The labels of the lines that the legend says are on."""
    return profile_of(page).locator('.legend button[aria-pressed="true"]').all_inner_texts()


def series_of(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def test_the_page_opens_with_the_run_in_it(seen: Page, run: Run) -> None:
    expect(seen.locator(".run-name")).to_have_text(run.path.name)
    assert seen.locator("nav.tabs button").all_inner_texts() == list(NAMES)
    expect(map_of(seen).locator("h3")).to_have_text(f"SmolLM2-135M, {MLESS} against none")
    expect(profile_of(seen).locator("h3")).to_have_text("SmolLM2-135M Layer 1 Head 1")
    assert lines_on(seen) == ["none", MLESS, RANDOM]
    assert seen.locator(".multiples button").count() == 9
    expect(seen.locator("div.live")).to_be_empty()  # it is finished
    assert colours(map_of(seen).locator(".map-ground")) > 50


def test_another_metric_changes_map_scale_and_readout(seen: Page) -> None:
    said = set()
    for value in [one.get_attribute("value") for one in seen.locator('select[name="metric"] option').all()]:
        choose(seen, "metric", value)
        label = seen.locator(f'select[name="metric"] option[value="{value}"]').inner_text()
        expect(map_of(seen).locator(".scale-name")).to_have_text(label)
        said.add(map_of(seen).locator(".readout").inner_text())
        assert state_of(seen)["metric"] == value
    assert len(said) == 8  # no two metrics say the same of a head


def test_a_click_on_a_cell_goes_to_its_head(seen: Page) -> None:
    box = map_of(seen).locator(".map-ground").bounding_box()
    seen.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
    where = tip_of(map_of(seen)).locator(".tip-head").inner_text()
    layer, head = map(int, re.fullmatch(r"Layer (\d+), head (\d+)", where).groups())
    assert layer > 5 < head
    after(seen, lambda: seen.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"]))
    expect(profile_of(seen).locator("h3")).to_have_text(f"SmolLM2-135M Layer {layer} Head {head}")
    expect(map_of(seen).locator(".readout")).to_contain_text(f"Layer {layer}, head {head}: ")
    expect(seen.locator(".multiples h3")).to_have_text(f"All heads of layer {layer}")
    expect(seen.locator('.multiples button[aria-pressed="true"]')).to_have_text(f"Head {head}")
    assert (state_of(seen)["layer"], state_of(seen)["head"]) == (str(layer), str(head))


def test_arrow_keys_walk_through_the_heads(seen: Page) -> None:
    ground = map_of(seen).locator(".map-ground")
    ground.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"):
        after(seen, lambda key=key: seen.keyboard.press(key))
    expect(profile_of(seen).locator("h3")).to_have_text("SmolLM2-135M Layer 2 Head 3")
    expect(tip_of(map_of(seen)).locator(".tip-head")).to_have_text("Layer 2, head 3")
    expect(ground).to_be_focused()
    for _ in range(2):  # not beyond the edge
        after(seen, lambda: seen.keyboard.press("ArrowUp"))
    expect(profile_of(seen).locator("h3")).to_have_text("SmolLM2-135M Layer 1 Head 3")


def test_a_small_picture_goes_to_its_head(seen: Page) -> None:
    small = seen.locator('.multiples button[data-head="7"]')
    after(seen, small.click)
    expect(profile_of(seen).locator("h3")).to_have_text("SmolLM2-135M Layer 1 Head 7")
    expect(seen.locator('.multiples button[data-head="7"]')).to_be_focused()


def test_a_condition_that_is_off_is_off_everywhere(seen: Page) -> None:
    assert_drawn(seen)
    shown = profile_of(seen).locator(".linechart")
    with_it, multiples = shown.screenshot(), seen.locator(".multiples .grid").screenshot()
    after(seen, profile_of(seen).locator('.legend button[data-condition="random"]').click)
    assert lines_on(seen) == ["none", MLESS]
    assert_drawn(seen)
    assert profile_of(seen).locator(".linechart").screenshot() != with_it
    assert seen.locator(".multiples .grid").screenshot() != multiples
    assert series_of(saved_table(profile_of(seen))) == ["none", MLESS]
    read_at(seen, 0.5)
    assert tip_of(profile_of(seen)).locator(".tip-name").all_inner_texts() == ["none", MLESS]
    after(seen, seen.locator('[data-tab="affine"]').click)  # and on other tabs
    off = seen.locator('.legend button[data-condition="random"]').first
    expect(off).to_have_attribute("aria-pressed", "false")
    after(seen, off.click)
    assert "off" not in state_of(seen)


def read_at(page: Page, share: float) -> int:
    """Point at a place of the profile; gives its position."""
    box = profile_of(page).locator(".plot-over").bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    head = tip_of(profile_of(page)).locator(".tip-head").inner_text()
    return int(re.fullmatch(r"Token position (\d+)", head).group(1))


def test_the_whole_prompt_has_the_filler_in_it(seen: Page, run: Run) -> None:
    region = run[None].region("mless")
    aligned = {int(row["position"]) for row in saved_table(profile_of(seen))}
    after(seen, profile_of(seen).locator('.choice button[data-value="whole"]').click)
    expect(profile_of(seen).locator('.choice button[data-value="whole"]')).to_have_attribute("aria-pressed", "true")
    rows = saved_table(profile_of(seen))
    texts = [row["token"] for row in rows if row["condition"] == "mless"]
    assert texts == list(run.tokens("mless")[1 : len(texts) + 1])  # the first token is left out
    assert region.stop - region.start == 20
    assert max(int(row["position"]) for row in rows) == max(aligned) + 20
    assert max(int(row["position"]) for row in rows if row["condition"] == "none") == max(aligned)
    after(seen, profile_of(seen).locator('.choice button[data-value="aligned"]').click)
    assert {int(row["position"]) for row in saved_table(profile_of(seen))} == aligned


def test_the_tooltip_reads_a_position(seen: Page, run: Run) -> None:
    position = read_at(seen, 0.3)
    tip = tip_of(profile_of(seen))
    token = run.tokens("none")[position].replace("\n", "\u21b5").replace(" ", "\u2423")
    expect(tip.locator(".tip-token")).to_have_text(token)
    assert tip.locator(".tip-row span").all_inner_texts() == ["n = 6"] * 3
    other = read_at(seen, 0.6)
    assert other > position
    seen.mouse.move(5, 5)
    expect(tip_of(profile_of(seen))).to_have_count(0)


def test_keys_read_the_chart_and_zoom_it(seen: Page) -> None:
    chart = profile_of(seen).locator(".linechart")
    chart.focus()
    for _ in range(3):
        seen.keyboard.press("ArrowRight")
    expect(tip_of(profile_of(seen)).locator(".tip-head")).to_have_text("Token position 3")  # from 1: the first is out
    seen.keyboard.press("ArrowLeft")
    expect(tip_of(profile_of(seen)).locator(".tip-head")).to_have_text("Token position 2")
    everything = len(saved_table(profile_of(seen)))
    chart.focus()
    for _ in range(2):
        seen.keyboard.press("+")
    low, high = map(float, state_of(seen)["x"].split("~"))
    positions = [int(row["position"]) for row in saved_table(profile_of(seen))]
    assert low <= min(positions) < min(positions) + 10 < max(positions) <= high
    assert len(positions) < everything
    chart.focus()
    seen.keyboard.press("0")
    assert "x" not in state_of(seen)
    assert len(saved_table(profile_of(seen))) == everything


def test_dragging_zooms_and_a_double_click_shows_all(seen: Page) -> None:
    box = profile_of(seen).locator(".plot-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    seen.mouse.move(box["x"] + 0.25 * box["width"], middle)
    seen.mouse.down()
    seen.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    seen.mouse.up()
    low, high = map(float, state_of(seen)["x"].split("~"))
    positions = {int(row["position"]) for row in saved_table(profile_of(seen))}
    assert positions == set(range(int(np.ceil(low)), int(high) + 1))
    picture = ElementTree.fromstring(saved(profile_of(seen).locator('[data-kind="svg"]'))[1])
    drawn = [path.get("d").count("L") + path.get("d").count("M") for path in picture.iter(f"{SVG}path") if named(path)]
    assert drawn == [len(positions) + 2] * 3  # lines go on to the next point beyond either edge
    profile_of(seen).locator(".plot-over").dblclick()
    assert "x" not in state_of(seen)


def named(path: ElementTree.Element) -> bool:
    return path.get("data-series") is not None


def test_the_picture_of_a_profile_as_svg(seen: Page) -> None:
    after(seen, profile_of(seen).locator('.legend button[data-condition="none"]').click)
    name, content = saved(profile_of(seen).locator('[data-kind="svg"]'))
    assert name == "SmolLM2-135M-Layer-1-Head-1.svg"
    picture = ElementTree.fromstring(content)
    words = [text.text for text in picture.iter(f"{SVG}text")]
    for expected in ("SmolLM2-135M Layer 1 Head 1", "Token position", "Average Attention Weight, queries: original"):
        assert expected in words
    assert [path.get("data-series") for path in picture.iter(f"{SVG}path") if named(path)] == lines_on(seen)
    bands = [path for path in picture.iter(f"{SVG}path") if path.get("fill-opacity")]
    assert len(bands) == 2
    choose(seen, "band", "none")
    picture = ElementTree.fromstring(saved(profile_of(seen).locator('[data-kind="svg"]'))[1])
    assert [path for path in picture.iter(f"{SVG}path") if path.get("fill-opacity")] == []


def test_the_picture_of_a_map_as_svg(seen: Page, run: Run) -> None:
    name, content = saved(map_of(seen).locator('[data-kind="svg"]'))
    assert name == "SmolLM2-135M-20-mless-against-none.svg"
    picture = ElementTree.fromstring(content)
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {f"SmolLM2-135M, {MLESS} against none", "head", "1", "9"} <= set(words)
    layers, heads = run.summary("entropy", "none").shape[1:]
    colours = [one for one in picture.iter(f"{SVG}rect") if one.get("fill").startswith("rgb(")]
    beside = max(float(one.get("x")) for one in colours)  # where the scale of the colours stands
    assert len([one for one in colours if float(one.get("x")) < beside]) == layers * heads


def test_pictures_as_png(seen: Page) -> None:
    """Three pixels for one of the SVG file."""
    for ground in (map_of(seen), profile_of(seen)):
        picture = ElementTree.fromstring(saved(ground.locator('[data-kind="svg"]'))[1])
        name, content = saved(ground.locator('[data-kind="png"]'))
        image = Image.open(io.BytesIO(content))
        image.load()
        assert name.endswith(".png")
        wanted = [3 * float(picture.get(side)) for side in ("width", "height")]
        assert np.allclose(image.size, wanted, atol=1)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50
        assert image.convert("RGB").getpixel((2, 2)) == (255, 255, 255)  # paper, whatever the theme


def test_reloading_a_copied_address_shows_the_same(seen: Page) -> None:
    choose(seen, "metric", "mass")
    choose(seen, "condition", "random")
    choose(seen, "queries", "last")
    choose(seen, "band", "sd")
    after(seen, profile_of(seen).locator('.choice button[data-value="difference"]').click)
    after(seen, profile_of(seen).locator('.legend button[data-condition="mless"]').click)
    after(seen, lambda: seen.locator('input[name="first token"]').check())
    after(seen, seen.locator('.multiples button[data-head="4"]').click)
    profile_of(seen).locator(".linechart").focus()
    seen.keyboard.press("+")
    again = look_at(seen.context.new_page(), seen.url)
    for one in (seen, again):
        one.mouse.move(5, 5)
    assert again.locator("#main").inner_text() == seen.locator("#main").inner_text()
    assert saved(profile_of(again).locator('[data-kind="csv"]')) == saved(profile_of(seen).locator('[data-kind="csv"]'))
    assert saved(map_of(again).locator('[data-kind="svg"]')) == saved(map_of(seen).locator('[data-kind="svg"]'))
    assert [one.input_value() for one in again.locator("select").all()] == ["mass", "random", "last", "sd", ""]
    seen.reload()
    assert ready(seen).locator("#main").inner_text() == again.locator("#main").inner_text()


def test_an_address_that_is_wrong_shows_what_there_is(page: Page, explorer: Served) -> None:
    for odd in (
        "layer=99&head=0", "layer=x&view=upside-down", "metric=none&condition=none&queries=me",
        "tab=__proto__&x=NaN~1&view=whole",
    ):  # fmt: skip
        look_at(page, f"{explorer.address}#{odd}")
        expect(profile_of(page).locator("h3")).to_have_text(re.compile(r"SmolLM2-135M Layer \d+ Head \d"))
        assert_drawn(page)


def test_the_keyboard_reaches_everything(seen: Page) -> None:
    reached = []
    for _ in range(60):
        seen.keyboard.press("Tab")
        reached.append(
            seen.evaluate(
                """() => { const one = document.activeElement;
                return one.matches(".map-ground") ? "map" : one.matches(".linechart") ? "chart"
                    : one.dataset.tab || one.name || one.dataset.kind || one.dataset.value || one.className; }"""
            )
        )
    wanted = {"attention", "metric", "condition", "queries", "map", "chart", "band", "problem", "first token", "theme"}
    assert wanted <= set(reached)


def test_arrow_keys_walk_through_the_tabs(seen: Page) -> None:
    seen.locator('[data-tab="attention"]').focus()
    for name in (*TABS[2:], *TABS[:2]):
        after(seen, lambda: seen.keyboard.press("ArrowRight"))
        expect(seen.locator(f'[data-tab="{name}"]')).to_be_focused()
        expect(seen.locator(f'[data-tab="{name}"]')).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize(
    ("tab", "menus"),
    [
        ("attention", {"metric": "mass", "condition": "random", "band": "sd"}),
        ("answers", {"by": "operation", "against": "random", "condition": "random", "verdict": "right"}),
        ("activations", {"layer": "3", "cls": "digits"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_menu_keeps_the_focus(page: Page, explorer: Served, tab: str, menus: dict[str, str]) -> None:
    look_at(page, f"{explorer.address}#tab={tab}")
    for name, value in menus.items():
        page.locator(f'select[name="{name}"]').focus()
        choose(page, name, value)
        expect(page.locator(f'select[name="{name}"]')).to_be_focused()
        expect(page.locator(f'select[name="{name}"]')).to_have_value(value)


def test_lines_by_layer_keep_the_focus(page: Page, explorer: Served) -> None:
    look_at(page, f"{explorer.address}#tab=affine")
    button = page.locator('.card[data-title="Variation explained"] .legend button[data-condition="random"]')
    button.focus()
    for pressed in ("false", "true"):
        after(page, lambda: page.keyboard.press("Enter"))
        expect(button).to_have_attribute("aria-pressed", pressed)
        expect(button).to_be_focused()


def test_legend_and_views_keep_the_focus(seen: Page) -> None:
    for button in ('.legend button[data-condition="mless"]', '.choice button[data-value="whole"]'):
        profile_of(seen).locator(button).focus()
        after(seen, lambda: seen.keyboard.press("Enter"))
        expect(profile_of(seen).locator(button)).to_be_focused()


def test_flips_are_those_of_the_run(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=answers")
    counts = 0
    for condition, against in (("mless", "none"), ("random", "none"), ("random", "mless"), ("mless", "random")):
        choose_if_other(page, "condition", condition)
        choose_if_other(page, "against", against)
        wanted = flips(run[None], condition, against)
        counts += len(wanted)
        labels = [name_of(run, name) for name in (against, condition)]
        gained = sum(flip.direction == "gained" for flip in wanted)
        ground = page.locator(".card", has=page.get_by_role("heading", name="Problems that changed"))
        said = f"{labels[0]} to {labels[1]}: {gained} gained, {len(wanted) - gained} lost"
        expect(ground.locator(".count")).to_have_text(said)
        assert ground.locator(".flip summary > bdi").all_inner_texts() == [flip.id for flip in wanted]
        for place, flip in enumerate(wanted):
            one = ground.locator(".flip").nth(place)
            expect(one.locator(".question")).to_have_text(flip.question)
            assert one.locator("pre").all_inner_texts() == [side["text"].strip() for side in (flip.before, flip.after)]
            assert one.locator("article .badge").all_inner_texts() == [flip.before["verdict"], flip.after["verdict"]]
    assert counts  # SmolLM2 has changed its mind somewhere


def test_flips_against_the_condition_itself_are_those_against_none(page: Page, explorer: Served, run: Run) -> None:
    """One comes there by choosing another condition after what it is held against."""
    look_at(page, f"{explorer.address}#tab=answers&condition=random&against=random")
    ground = page.locator(".card", has=page.get_by_role("heading", name="Problems that changed"))
    expect(ground.locator(".count")).to_have_text(re.compile(f"^none to {re.escape(RANDOM)}: "))
    assert ground.locator(".flip").count() == len(flips(run[None], "random", "none"))


def choose_if_other(page: Page, name: str, value: str) -> None:
    if page.locator(f'select[name="{name}"]').first.input_value() != value:
        choose(page, name, value)


def test_answers_are_found(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=answers")
    ground = page.locator(".card", has=page.get_by_role("heading", name="All answers"))
    expect(ground.locator(".count")).to_have_text("1 to 18 of 18 answers")
    found = answers(run[None])
    choose(page, "verdict", "right")
    right = int((found.fields["verdict"] == "right").sum())
    expect(ground.locator(".count")).to_have_text(f"1 to {right} of {right} answers")
    assert ground.locator(".flip summary .badge").all_inner_texts() == ["right"] * right
    choose(page, "verdict", "")
    choose(page, "only", "mless")
    expect(ground.locator(".count")).to_have_text("1 to 6 of 6 answers")
    ground.locator('input[type="search"]').fill("MARBLES")
    after(page, lambda: page.keyboard.press("Enter"))
    expect(ground.locator(".count")).to_have_text("1 to 1 of 1 answers")
    ground.locator("summary").click()
    expect(ground.locator(".question")).to_contain_text("marbles")
    ground.locator('input[type="search"]').fill("no such word")
    after(page, ground.get_by_role("button", name="Search").click)
    expect(ground.locator(".count")).to_have_text("No answer matches.")


def test_findings_offer_their_tables(page: Page, explorer: Served) -> None:
    look_at(page, f"{explorer.address}#tab=findings")
    page.evaluate("document.querySelectorAll('.findings details').forEach((one) => (one.open = true))")
    links = page.locator(".findings li a").all()
    assert len(links) > 5
    tables = {link.inner_text() for link in links}
    for name in tables:
        file, content = saved(page.get_by_role("link", name=name, exact=True).first)
        assert file == name
        assert content.count(b"\n") > 1


def test_methods_can_be_copied_and_tell_of_the_check(opened: Callable[..., Page], explorer: Served, run: Run) -> None:
    page = look_at(opened(permissions=["clipboard-read", "clipboard-write"]), f"{explorer.address}#tab=methods")
    files = len(run.store.manifest["files"])
    expect(page.locator(".checked")).to_have_text(re.compile(f"^All {files} files are as they were written"))
    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_role("button", name="Copied").wait_for()
    words = page.evaluate("() => navigator.clipboard.readText()")
    assert words == explorer.json("api/0/methods")["text"]
    assert words.startswith("## ")
    assert "SmolLM2" in words


def test_a_damaged_file_is_told_on_every_tab(page: Page, run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "damaged"
    shutil.copytree(run.path, copy)
    shard = next(copy.glob("shards/*/00001.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with serving(copy) as served:
        look_at(page, f"{served.address}#tab=attention")
        expect(page.get_by_role("alert")).to_contain_text("damaged: 1 files are damaged: shards/")
        after(page, lambda: page.locator('[data-tab="methods"]').click())
        expect(page.get_by_role("alert")).to_be_visible()


def test_one_problem_is_measured_again_and_agrees(seen: Page, run: Run) -> None:
    record = run[None].measured()[2]
    menu = seen.locator('select[name="problem"]')
    listed = [one.inner_text().partition(": ") for one in menu.locator("option").all()[1:]]
    assert [name for name, _, _ in listed] == [one["id"] for one in run[None].measured()]
    assert all(question.endswith("?") for _, _, question in listed)
    after(seen, lambda: menu.select_option(str(record["number"])))
    note = profile_of(seen).locator(".note")
    expect(note).to_have_text(re.compile("^Measured again here; it agrees with the stored run to "))
    assert lines_on(seen)[3:] == [f"{label}, this problem" for label in lines_on(seen)[:3]]
    rows = [row for row in saved_table(profile_of(seen)) if row["series"] == f"{RANDOM}, this problem"]
    assert [int(row["position"]) for row in rows] == list(range(1, len(record["tokens"])))[: len(rows)]
    assert {row["n"] for row in rows} == {"1"}


def test_without_the_model_it_says_why_not(page: Page, run: Run, tmp_path: Path) -> None:
    with viewing(run.path, FILLERSCOPE_CACHE=str(tmp_path), HF_HUB_OFFLINE="1") as served:
        look_at(page, f"{served.address}#problem=2")
        note = profile_of(page).locator(".note")
        expect(note).to_have_text(
            re.compile(r"^One problem's own profile cannot be shown here: .*fillerscope models get")
        )
        expect(page.locator('select[name="problem"]')).to_be_disabled()
        assert lines_on(page) == ["none", MLESS, RANDOM]


def test_a_damaged_run_does_not_hide_the_others(page: Page, run: Run, tmp_path: Path) -> None:
    damaged, sound = tmp_path / "damaged", tmp_path / "sound"
    shutil.copytree(run.path, damaged)
    shutil.copytree(run.path, sound)
    with serving(damaged, sound) as served:
        (damaged / "study.json").write_text("{")
        look_at(page, f"{served.address}#tab=attention")
        expect(page.locator(".run-name")).to_have_text("sound")
        expect(page.get_by_role("alert")).to_have_text(
            f"{damaged}/study.json is damaged; run the study again to restore it"
        )
        assert lines_on(page) == ["none", MLESS, RANDOM]


def test_two_runs_side_by_side(page: Page, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run.path, other)
    with serving(run.path, other, run.path) as served:
        look_at(page, f"{served.address}#tab=attention")
        names = page.locator(".runs label").all_inner_texts()
        assert names == [str(run.path), "other", str(run.path)]  # two have the same name
        assert page.locator(".pane").count() == 2
        assert page.locator(".pane h2").all_inner_texts() == [str(run.path), "other"]
        after(page, lambda: page.locator('.pane[data-run="1"] select[name="condition"]').select_option("random"))
        for pane in page.locator(".pane").all():
            expect(pane.locator(".map h3")).to_have_text(f"SmolLM2-135M, {RANDOM} against none")
        tables = [saved_table(pane.locator(".card.map")) for pane in page.locator(".pane").all()]
        assert tables[0] == tables[1]
        assert_fits(page)
        after(page, lambda: page.locator('input[name="run-0"]').uncheck())
        assert page.locator(".pane").count() == 1
        expect(page.locator(".pane")).to_have_attribute("data-run", "1")
        for tab in TABS[1:]:
            after(page, page.locator(f'[data-tab="{tab}"]').click)
            expect(page.locator(".pane")).to_have_attribute("data-run", "1")
        after(page, lambda: page.locator('input[name="run-2"]').check())
        assert [pane.get_attribute("data-run") for pane in page.locator(".pane").all()] == ["1", "2"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_tab_fits(opened: Callable[..., Page], explorer: Served, width: int, dark: bool) -> None:
    page = look_at(opened(width=width, color_scheme="dark" if dark else "light"), f"{explorer.address}#tab=attention")
    for tab in TABS:
        if tab != TABS[0]:
            after(page, page.locator(f'[data-tab="{tab}"]').click)
        assert_fits(page)
        assert_drawn(page)
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark


def test_light_and_dark_change_places(seen: Page) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light, drawn = seen.evaluate(ground), map_of(seen).locator(".map-ground").screenshot()
    seen.locator("button.theme").click()
    assert seen.evaluate(ground) != light
    assert map_of(seen).locator(".map-ground").screenshot() != drawn
    seen.reload()
    assert ready(seen).evaluate(ground) != light  # it is remembered
