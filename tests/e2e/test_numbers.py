"""One set of numbers: what a chart holds is what is printed beside it, and what the library gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from comparing import (
    Figure,
    assert_map,
    assert_printed,
    assert_profile,
    draw_all,
    estimates,
    figure_of,
    number,
    three,
)
from driving import Served, after, agrees, choose, handed_table, look_at, saved_table, tip_of
from playwright.sync_api import Browser, Page

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.run import Run
from fillerscope.figures.registry import names_for

pytestmark = [pytest.mark.slow, pytest.mark.weights]
FIGURES = (
    "layers", "heads", "fillers", "headmap", "depth", "composite", "affine", "activations", "tokenclasses", "layermap",
)  # fmt: skip


@pytest.fixture(scope="module")
def panels(browser: Browser, report: Path) -> dict[str, Figure]:
    """By figure, the printed table and that of each panel, as the report hands them out."""
    context = browser.new_context()
    page = look_at(context.new_page(), report.as_uri())
    draw_all(page)
    found = {name: figure_of(page, name) for name in FIGURES}
    context.close()
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_a_panel_holds_what_is_printed(panels: dict[str, Figure], run: Run, name: str) -> None:
    assert_printed(run, name, panels[name])


def test_every_figure_was_compared(run: Run) -> None:
    assert sorted(names_for(run)) == sorted(FIGURES)


def test_all_of_a_printed_table_is_in_a_panel(panels: dict[str, Figure]) -> None:
    """No row of a profile is left out on the way to the page: it is in this figure, or in one that showed it before."""
    everywhere = {(title, len(rows)) for _, found in panels.values() for title, rows in found.items()}
    for name in ("layers", "heads", "fillers"):
        places = Counter((row["model"], row["layer"], row["head"], row.get("view")) for row in panels[name][0])
        for (model, layer, head, view), rows in places.items():
            title = f"{model} Layer {layer} Head {head}"
            assert {(title, rows), (f"{title}, whole prompt", rows)} & everywhere, (name, title, view)


def test_printed_tables_are_those_of_the_run(panels: dict[str, Figure], run: Run) -> None:
    for condition in run.fillers:
        own = {name: [row for row in table if row["condition"] == condition] for name, (table, _) in panels.items()}
        heads = head_table(run[None], condition)
        for row in own["headmap"]:
            wanted = heads.row(int(row["layer"]), int(row["head"]))
            for key in ("drop", "drop_low", "drop_high", "mass", "peak", "entropy"):
                assert number(row[key]) == pytest.approx(wanted[key], rel=1e-12)
        activity = [row for row in own["activations"] if row["view"] == "layers"]
        for rows, columns in (
            (own["depth"], depth_table(run[None], condition).columns()),
            (own["affine"], affine_table(run[None], condition).columns()),
            (activity, activation_table(run[None], condition).columns()),
        ):  # fmt: skip
            for key in [key for key, column in columns.items() if np.issubdtype(column.dtype, np.floating)]:
                np.testing.assert_allclose([number(row[key]) for row in rows], columns[key], rtol=1e-12, err_msg=key)
    for row in (row for row in panels["heads"][0] if row["layer"] == "1"):
        profile = run[None].head_profile(row["condition"], 1, int(row["head"]), row["queries"], row["view"])
        assert number(row["mean"]) == pytest.approx(profile.mean[0, 0, int(row["position"])], rel=1e-12)


def test_accuracies_are_those_of_the_run(panels: dict[str, Figure], run: Run) -> None:
    _, found = panels["composite"]
    shown = {row["condition"]: number(row["value"]) for row in found["Accuracy"]}
    wanted = {row.condition: 100 * row.accuracy for row in compare(run)}
    assert {"none", "mless"} <= set(shown)
    assert shown == pytest.approx({name: wanted[name] for name in shown})


def test_the_explorer_s_map_is_the_library_s_table(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#condition=random&queries=last")
    for metric in ("mass", "lambda", "peak", "entropy", "explained", "direction", "drop"):
        choose(page, "metric", metric)
        assert_map(run, handed_table(page.locator(".card.map")), metric, "random", "last")


@pytest.mark.parametrize("view", ["aligned", "whole", "difference", "logratio"])
def test_the_explorer_s_profile_is_the_library_s(page: Page, explorer: Served, run: Run, view: str) -> None:
    look_at(page, f"{explorer.address}#layer=4&head=6&queries=all&view={view}&first=1")
    for band in ("sd", "interval"):
        choose(page, "band", band)
        assert_profile(run, handed_table(page.locator(".card.profile")), 4, 6, "all", view, band)


def points(box: dict[str, float]) -> Iterator[tuple[float, float]]:
    for share in (0.15, 0.4, 0.85):
        yield box["x"] + share * box["width"], box["y"] + share * 0.9 * box["height"]


@pytest.mark.parametrize("metric", ["drop", "entropy"])
def test_the_map_s_tooltip_and_readout_say_the_table_s_numbers(
    page: Page, explorer: Served, run: Run, metric: str
) -> None:
    look_at(page, f"{explorer.address}#metric={metric}")
    value, low, high = estimates(run, metric, "mless", "original")
    for x, y in points(page.locator(".card.map .map-ground").bounding_box()):
        page.mouse.move(x, y)
        head, words = tip_of(page.locator(".card.map")).inner_text().split("\n")
        layer, at = (int(part.split()[1]) for part in head.split(", "))
        cell = layer - 1, at - 1
        assert agrees(words.rpartition(": ")[2], value[cell], low[cell], high[cell])
        after(page, lambda x=x, y=y: page.mouse.click(x, y))
        said = page.locator(".card.map .readout b").inner_text()
        assert agrees(said, value[cell], low[cell], high[cell])


def test_the_profile_s_tooltip_says_the_table_s_numbers(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#layer=2&head=3&queries=last")
    for x, y in points(page.locator(".card.profile .plot-over").bounding_box()):
        page.mouse.move(x, y)
        tip = tip_of(page.locator(".card.profile"))
        position = int(tip.locator(".tip-head").inner_text().rpartition(" ")[2])
        for row, name in zip(tip.locator(".tip-row").all(), run.conditions, strict=True):
            profile = run[None].head_profile(name, 2, 3, "last", "aligned")
            low, high = profile.interval()
            place = (0, 0, position)
            assert row.get_attribute("data-condition") == name
            assert agrees(row.locator("b").inner_text(), profile.mean[place], low[place], high[place])


def test_curves_by_layer_are_the_library_s(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=affine&off=mless")
    for title, column in (("Lambda, fitted", "lambda_fit"), ("Relative bias", "relative_bias")):
        rows = saved_table(page.locator(f'.card[data-title="{title}"]'))
        wanted = affine_table(run[None], "random").columns()[column]
        assert {row["condition"] for row in rows} == {"random"}  # the other line is off
        np.testing.assert_allclose([number(row["mean"]) for row in rows], wanted, rtol=1e-12)
    look_at(page, f"{explorer.address}#tab=activations&cls=digits&layer=2")
    rows = saved_table(page.locator('.card[data-title="Variance, ratio to none"]'))
    wanted = activation_table(run[None], "mless", "digits").columns()["variance_ratio"]
    np.testing.assert_allclose([number(row["mean"]) for row in rows if row["condition"] == "mless"], wanted)
    rows = saved_table(page.locator('.card[data-title="MLP activations, layer 2"]'))
    for name in run.conditions:
        counts = [int(row["n"]) for row in rows if row["condition"] == name]
        assert counts == run[None].histogram(name, "digits")[1].tolist()


def test_the_bars_of_the_explorer_say_accuracies(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=answers")
    rows = saved_table(page.locator('.card[data-title="Accuracy"]'))
    found = compare(run)
    for row, wanted in zip(rows, found, strict=True):
        assert three(row, "value", "low", "high") == pytest.approx(
            (100 * wanted.accuracy, 100 * wanted.low, 100 * wanted.high)
        )
