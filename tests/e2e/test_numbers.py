"""One set of numbers: what a chart holds is what is printed beside it, and what the library gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving import Row, Served, after, agrees, look_at, saved, saved_table, table_of, tip_of
from playwright.sync_api import Page

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.runs import Run
from fillerscope.figures.gallery import names_for

pytestmark = pytest.mark.weights
FIGURES = (
    "layers", "heads", "fillers", "headmap", "depth", "composite", "affine", "activations", "tokenclasses", "layermap",
)  # fmt: skip
# The panels of wide tables: by title the column, and what it is multiplied with.
WIDE = {
    "Filler mass, share of attention": ("mass", 1), "Lambda, 1 - filler mass": ("lambda", 1),
    "Paired drop, ratio to none": ("drop", 1), "Lambda, fitted": ("lambda_fit", 1),
    "1 - filler mass": ("lambda_mass", 1), "Variation explained": ("explained", 1),
    "One direction, within a problem": ("direction", 1), "One direction, across problems": ("consistency", 1),
    "Relative bias": ("relative_bias", 1), "Near zero, change in points": ("near_zero_difference", 100),
    "Variance, ratio to none": ("variance_ratio", 1), "L1, ratio to none": ("l1_ratio", 1),
    "Gini, difference to none": ("gini_difference", 1),
}  # fmt: skip
Key = tuple[str, ...]
Three = tuple[float, float, float]


@pytest.fixture(scope="module")
def panels(browser: Any, report: Path) -> dict[str, tuple[list[Row], dict[str, list[Row]]]]:
    """By figure, the printed table and that of each panel, as they are saved from the report."""
    context = browser.new_context(accept_downloads=True)
    found = {}
    for name in FIGURES:  # a page for each: a browser asks before it saves too much from one
        page = look_at(context.new_page(), report.as_uri())
        page.evaluate("() => { window.dispatchEvent(new Event('beforeprint')); }")
        figure = page.locator(f"#figure-{name}")
        figure.locator("details.print summary").click()
        printed = table_of(saved(figure.locator(f'[data-file="figure-{name}.csv"]'))[1])
        cards = figure.locator(".panels .card").all()
        found[name] = printed, {one.get_attribute("data-title"): saved_table(one) for one in cards}
        page.close()
    context.close()
    return found


def number(cell: str | None) -> float:
    return float(cell) if cell not in (None, "") else math.nan


def three(row: Row, value: str, low: str, high: str, scale: float = 1) -> Three:
    return tuple(scale * number(row.get(key)) for key in (value, low, high))


def held(rows: list[Row], *keys: str, value: str = "value") -> dict[Key, Three]:
    """What a panel holds."""
    return {tuple(row[key] for key in keys): three(row, value, "low", "high") for row in rows}


def printed_as(name: str, title: str, table: list[Row], rows: list[Row]) -> tuple[dict[Key, Three], dict[Key, Three]]:
    """The numbers of one panel, and the same from the figure's table."""
    if name in ("layers", "heads", "fillers") or (name == "composite" and title != "Accuracy"):
        label, _, rest = title.partition(" Layer ")
        layer, _, rest = rest.partition(" Head ")
        head, _, whole = rest.partition(",")
        own = [
            row for row in table
            if (row["model"], row["layer"], row["head"]) == (label, layer, head)
            and row.get("view") in (None, "whole" if whole else "aligned")
        ]  # fmt: skip
        wanted = {(row["condition"], row["position"]): three(row, "mean", "low", "high") for row in own}
        return held(rows, "condition", "position", value="mean"), wanted
    if name == "composite":
        own = [row for row in table if row["view"] == "accuracy"]
        wanted = {(row["model"], row["condition"]): three(row, "accuracy", "low", "high", 100) for row in own}
        return held(rows, "group", "condition"), wanted
    if title.startswith("MLP activations"):
        own = [row for row in table if row["view"] == "histogram"]
        wanted = {(row["condition"], float(row["low"]), float(row["high"])): (number(row["count"]),) for row in own}
        return {(row["condition"], float(row["from"]), float(row["to"])): (number(row["n"]),) for row in rows}, wanted
    if name in ("depth", "affine", "activations"):
        column, scale = WIDE[title]
        own = [row for row in table if row.get("view", "layers") == "layers"]
        wanted = {
            (row["condition"], row["layer"]): three(row, column, f"{column}_low", f"{column}_high", scale)
            for row in own
        }
        return held(rows, "condition", "layer", value="mean"), wanted
    if name == "tokenclasses":
        measure, _, layer = title.rpartition(", layer ")
        column, scale = WIDE[measure]
        wanted = {
            (f"{row['token_class']} (n = {row['n']})", row["condition"]):
                three(row, column, f"{column}_low", f"{column}_high", scale)
            for row in table if row["layer"] == layer
        }  # fmt: skip
        return held(rows, "group", "condition"), wanted
    names = {"Meaningless tokens": "mless", "Random sentence": "random"}
    if name == "headmap":
        condition = names[title.rpartition(", ")[2]]
        own = [row for row in table if row["condition"] == condition]
        wanted = {(row["layer"], row["head"]): three(row, "drop", "drop_low", "drop_high") for row in own}
        return held(rows, "layer", "head"), wanted
    condition, _, kind = title.partition(": ")
    own = [row for row in table if (row["condition"], row["kind"]) == (names[condition], kind.split()[0])]
    wanted = {(row["measure"], row["layer"]): three(row, "mean", "low", "high") for row in own}
    return held(rows, "measure", "layer"), wanted


@pytest.mark.parametrize("name", FIGURES)
def test_a_panel_holds_what_is_printed(panels: Any, name: str) -> None:
    table, found = panels[name]
    assert found
    compared = 0
    for title, rows in found.items():
        shown, printed = printed_as(name, title, table, rows)
        there = {key: values for key, values in printed.items() if math.isfinite(values[0])}
        assert {key for key, values in shown.items() if math.isfinite(values[0])} == set(there), title
        for key, values in there.items():
            np.testing.assert_allclose(shown[key], values, rtol=1e-12, err_msg=f"{title} {key}")
        compared += len(there)
    assert compared >= 3


def test_every_figure_was_compared(run: Run) -> None:
    assert sorted(names_for(run)) == sorted(FIGURES)


def test_all_of_a_printed_table_is_in_a_panel(panels: Any) -> None:
    """No row of a profile is left out on the way to the page."""
    for name in ("layers", "heads", "fillers"):
        table, found = panels[name]
        assert sum(map(len, found.values())) == len(table)


def test_printed_tables_are_those_of_the_run(panels: Any, run: Run) -> None:
    for condition in run.fillers:
        own = {name: [row for row in table if row["condition"] == condition] for name, (table, _) in panels.items()}
        heads = head_table(run, condition)
        for row in own["headmap"]:
            wanted = heads.row(int(row["layer"]), int(row["head"]))
            for key in ("drop", "drop_low", "drop_high", "mass", "peak", "entropy"):
                assert number(row[key]) == pytest.approx(wanted[key], rel=1e-12)
        activity = [row for row in own["activations"] if row["view"] == "layers"]
        for rows, columns in (
            (own["depth"], depth_table(run, condition).columns()),
            (own["affine"], affine_table(run, condition).columns()),
            (activity, activation_table(run, condition).columns()),
        ):  # fmt: skip
            for key in [key for key, column in columns.items() if np.issubdtype(column.dtype, np.floating)]:
                np.testing.assert_allclose([number(row[key]) for row in rows], columns[key], rtol=1e-12, err_msg=key)
    for row in (row for row in panels["heads"][0] if row["layer"] == "1"):
        profile = run.head_profile(row["condition"], 1, int(row["head"]), row["queries"], row["view"])
        assert number(row["mean"]) == pytest.approx(profile.mean[0, 0, int(row["position"])], rel=1e-12)


def test_accuracies_are_those_of_the_run(panels: Any, run: Run) -> None:
    _, found = panels["composite"]
    shown = {row["condition"]: number(row["value"]) for row in found["Accuracy"]}
    wanted = {row.condition: 100 * row.accuracy for row in compare(run)}
    assert {"none", "mless"} <= set(shown)
    assert shown == pytest.approx({name: wanted[name] for name in shown})


def estimates(run: Run, metric: str, condition: str, queries: str) -> tuple[Any, Any, Any]:
    if metric in ("lambda", "explained", "direction"):
        return affine_table(run, condition).heads[{"lambda": "lambda_fit"}.get(metric, metric)]
    found = head_table(run, condition, queries).columns[metric]
    return found.value, found.low, found.high


@pytest.mark.parametrize("metric", ["drop", "mass", "lambda", "peak", "entropy", "explained", "direction"])
def test_the_explorer_s_map_is_the_library_s_table(page: Page, explorer: Served, run: Run, metric: str) -> None:
    look_at(page, f"{explorer.address}#metric={metric}&condition=random&queries=last")
    rows = saved_table(page.locator(".card.map"))
    wanted = estimates(run, metric, "random", "last")
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [
        (i + 1, j + 1) for i, j in np.ndindex(wanted[0].shape)
    ]
    for part, array in zip(("value", "low", "high"), wanted, strict=True):
        np.testing.assert_allclose([number(row[part]) for row in rows], array.ravel(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("view", ["aligned", "whole", "difference", "logratio"])
@pytest.mark.parametrize("band", ["interval", "sd"])
def test_the_explorer_s_profile_is_the_library_s(page: Page, explorer: Served, run: Run, view: str, band: str) -> None:
    look_at(page, f"{explorer.address}#layer=4&head=6&queries=all&view={view}&band={band}&first=1")
    rows = saved_table(page.locator(".card.profile"))
    names = run.conditions if view in ("aligned", "whole") else run.fillers
    assert list(dict.fromkeys(row["condition"] for row in rows)) == names
    for name in names:
        own = [row for row in rows if row["condition"] == name]
        profile = run.head_profile(name, 4, 6, "all", view)
        places = [int(row["position"]) for row in own]
        assert places == [x for x in range(profile.reach()) if math.isfinite(profile.mean[0, 0, x])]
        sd = profile.sd
        bounds = profile.interval() if band == "interval" else (profile.mean - sd, profile.mean + sd)
        for part, array in zip(("mean", "low", "high", "n"), (profile.mean, *bounds, profile.count), strict=True):
            shown = [number(row[part]) for row in own]
            np.testing.assert_allclose(shown, array[0, 0, places], rtol=1e-6, atol=1e-8, err_msg=f"{name} {part}")


def points(box: dict[str, float]) -> Iterator[tuple[float, float]]:
    for share in (0.15, 0.4, 0.85):
        yield box["x"] + share * box["width"], box["y"] + share * 0.9 * box["height"]


@pytest.mark.parametrize("metric", ["drop", "entropy"])
def test_the_map_s_tooltip_and_readout_say_the_table_s_numbers(
    page: Page, explorer: Served, run: Run, metric: str
) -> None:
    look_at(page, f"{explorer.address}#metric={metric}")
    value, low, high = estimates(run, metric, "mless", "original")
    for x, y in points(page.locator(".card.map canvas").bounding_box()):
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
    for x, y in points(page.locator(".card.profile .u-over").bounding_box()):
        page.mouse.move(x, y)
        tip = tip_of(page.locator(".card.profile"))
        position = int(tip.locator(".tip-head").inner_text().rpartition(" ")[2])
        for row, name in zip(tip.locator(".tip-row").all(), run.conditions, strict=True):
            profile = run.head_profile(name, 2, 3, "last", "aligned")
            low, high = profile.interval()
            place = (0, 0, position)
            assert row.get_attribute("data-condition") == name
            assert agrees(row.locator("b").inner_text(), profile.mean[place], low[place], high[place])


def test_curves_by_layer_are_the_library_s(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=affine&off=mless")
    for title, column in (("Lambda, fitted", "lambda_fit"), ("Relative bias", "relative_bias")):
        rows = saved_table(page.locator(f'.card[data-title="{title}"]'))
        wanted = affine_table(run, "random").columns()[column]
        assert {row["condition"] for row in rows} == {"random"}  # the other line is off
        np.testing.assert_allclose([number(row["mean"]) for row in rows], wanted, rtol=1e-12)
    look_at(page, f"{explorer.address}#tab=activations&cls=digits&layer=2")
    rows = saved_table(page.locator('.card[data-title="Variance, ratio to none"]'))
    wanted = activation_table(run, "mless", "digits").columns()["variance_ratio"]
    np.testing.assert_allclose([number(row["mean"]) for row in rows if row["condition"] == "mless"], wanted)
    rows = saved_table(page.locator('.card[data-title="MLP activations, layer 2"]'))
    for name in run.conditions:
        counts = [int(row["n"]) for row in rows if row["condition"] == name]
        assert counts == run.histogram(name, "digits")[1].tolist()


def test_the_bars_of_the_explorer_say_accuracies(page: Page, explorer: Served, run: Run) -> None:
    look_at(page, f"{explorer.address}#tab=answers")
    rows = saved_table(page.locator('.card[data-title="Accuracy"]'))
    found = compare(run)
    for row, wanted in zip(rows, found, strict=True):
        assert three(row, "value", "low", "high") == pytest.approx(
            (100 * wanted.accuracy, 100 * wanted.low, 100 * wanted.high)
        )
