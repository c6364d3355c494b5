"""Whether a chart holds the numbers that are printed beside it, and those that the library gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from driving import Row, handed, handed_table, table_of
from playwright.sync_api import Page, expect

from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import affine_table
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of

# The panels of wide tables: by title the column, and what it is multiplied with.
WIDE = {
    "Filler mass, share of attention": ("mass", 1), "Lambda, 1 - filler mass": ("lambda", 1),
    "Paired drop, ratio to none": ("drop", 1), "Lambda, fitted": ("lambda_fit", 1),
    "1 - filler mass": ("lambda_mass", 1), "Variation explained": ("explained", 1),
    "One direction, within a problem": ("direction", 1), "One direction, across problems": ("consistency", 1),
    "Relative bias": ("relative_bias", 1), "Near zero, change in points": ("near_zero_difference", 100),
    "Variance, ratio to none": ("variance_ratio", 1), "L1, ratio to none": ("l1_ratio", 1),
    "Gini, difference to none": ("gini_difference", 1), "Drop that length alone gives": ("odds", 1),
    "Beyond length, drop / that": ("beyond", 1),
    "Paired drop, untrained twins (mean and range)": ("twin", 1),
}  # fmt: skip
Key = tuple[str, ...]
Three = tuple[float, float, float]
Figure = tuple[list[Row], dict[str, list[Row]]]


def draw_all(page: Page) -> None:
    """As before it is printed: panels far below are drawn only then."""
    page.evaluate("() => { window.dispatchEvent(new Event('beforeprint')); }")
    expect(page.locator(".coming")).to_have_count(0)


def figure_of(page: Page, name: str) -> Figure:
    """Of a figure that is drawn, the printed table and that of each panel."""
    ground = page.locator(f"#figure-{name}")
    printed = table_of(handed(ground.locator(f'[data-file="figure-{name}.csv"]'))[1])
    cards = ground.locator(".panels .card").all()
    return printed, {card.get_attribute("data-title"): handed_table(card) for card in cards}


def assert_printed(run: Run, name: str, figure: Figure) -> None:
    """Every panel holds what is printed, and nothing else."""
    table, found = figure
    assert found
    compared = 0
    for title, rows in found.items():
        shown, printed = printed_as(run, name, title, table, rows)
        there = {key: values for key, values in printed.items() if math.isfinite(values[0])}
        assert {key for key, values in shown.items() if math.isfinite(values[0])} == set(there), title
        for key, values in there.items():
            np.testing.assert_allclose(shown[key], values, rtol=1e-12, err_msg=f"{title} {key}")
        compared += len(there)
    assert compared >= 2  # a panel that an earlier figure shows is not shown again


def number(cell: str | None) -> float:
    return float(cell) if cell not in (None, "") else math.nan


def three(row: Row, value: str, low: str, high: str, scale: float = 1) -> Three:
    return tuple(scale * number(row.get(key)) for key in (value, low, high))


def held(rows: list[Row], *keys: str, value: str = "value") -> dict[Key, Three]:
    """What a panel holds."""
    return {tuple(row[key] for key in keys): three(row, value, "low", "high") for row in rows}


def printed_as(
    run: Run, name: str, title: str, table: list[Row], rows: list[Row]
) -> tuple[dict[Key, Three], dict[Key, Three]]:
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
    names = {name_of(run, condition): condition for condition in run.fillers}
    if name == "headmap":
        column = "beyond" if title.endswith(", beyond length") else "drop"
        condition = names[title.removesuffix(", beyond length").rpartition(", ")[2]]
        own = [row for row in table if row["condition"] == condition]
        wanted = {(row["layer"], row["head"]): three(row, column, f"{column}_low", f"{column}_high") for row in own}
        return held(rows, "layer", "head"), wanted
    condition, _, kind = title.partition(": ")
    own = [row for row in table if (row["condition"], row["kind"]) == (names[condition], kind.split()[0])]
    wanted = {(row["measure"], row["layer"]): three(row, "mean", "low", "high") for row in own}
    return held(rows, "measure", "layer"), wanted


def estimates(run: Run, metric: str, condition: str, queries: str) -> tuple[Any, Any, Any]:
    if metric in ("lambda", "explained", "direction"):
        return affine_table(run[None], condition).heads[{"lambda": "lambda_fit"}.get(metric, metric)]
    found = head_table(run[None], condition, queries).columns[metric]
    return found.value, found.low, found.high


def assert_map(run: Run, rows: list[Row], metric: str, condition: str, queries: str) -> None:
    """A saved map of heads is the library's table."""
    wanted = estimates(run, metric, condition, queries)
    places = [(i + 1, j + 1) for i, j in np.ndindex(wanted[0].shape)]
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == places
    for part, array in zip(("value", "low", "high"), wanted, strict=True):
        shown = [number(row[part]) for row in rows]
        np.testing.assert_allclose(shown, array.ravel(), rtol=1e-6, atol=1e-9, err_msg=f"{metric} {part}")


def assert_profile(
    run: Run, rows: list[Row], layer: int, head: int, queries: str, view: str, band: str = "interval"
) -> None:
    """A saved profile with its first token is the library's."""
    names = run.conditions if view in ("aligned", "whole") else run.fillers
    assert list(dict.fromkeys(row["condition"] for row in rows)) == names
    for name in names:
        own = [row for row in rows if row["condition"] == name]
        profile = run[None].head_profile(name, layer, head, queries, view)
        places = [int(row["position"]) for row in own]
        assert places == [x for x in range(profile.reach()) if math.isfinite(profile.mean[0, 0, x])]
        sd = profile.sd
        bounds = profile.interval() if band == "interval" else (profile.mean - sd, profile.mean + sd)
        for part, array in zip(("mean", "low", "high", "n"), (profile.mean, *bounds, profile.count), strict=True):
            shown = [number(row[part]) for row in own]
            about = f"{view} {band} {name} {part}"
            np.testing.assert_allclose(shown, array[0, 0, places], rtol=1e-6, atol=1e-8, err_msg=about)
