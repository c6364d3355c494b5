"""The numbers of a figure twice: as the page's panels hold them, and as they follow from its table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.style import Drawn
from fillerscope.report.panels import Panel

# Measures by layer: column, title of its panel, scale.
BY_LAYER: dict[str, dict[str, tuple[str, float]]] = {
    "depth": {
        "mass": ("Filler mass, share of attention", 1),
        "lambda": ("Lambda, 1 - filler mass", 1),
        "drop": ("Paired drop, ratio to none", 1),
    },
    "affine": {
        "lambda_fit": ("Lambda, fitted", 1),
        "lambda_mass": ("1 - filler mass", 1),
        "explained": ("Variation explained", 1),
        "direction": ("One direction, within a problem", 1),
        "consistency": ("One direction, across problems", 1),
        "relative_bias": ("Relative bias", 1),
    },
    "activations": {
        "near_zero_difference": ("Near zero, change in points", 100),
        "variance_ratio": ("Variance, ratio to none", 1),
        "l1_ratio": ("L1, ratio to none", 1),
        "gini_difference": ("Gini, difference to none", 1),
    },
    "lookback": {
        "answer": ("Mass on the filler: answer", 1),
        "question": ("Mass on the filler: question", 1),
        "per_filler": ("From the answer, per filler token", 1),
        "per_original": ("From the answer, per original token", 1),
    },
}


def told(made: list[Panel]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Every number of some panels, by what it is said to be. What is a share of a whole comes with its count."""
    for panel in made:
        title = panel["title"]
        if panel["kind"] == "lines":
            for line in panel["series"]:
                name = line.get("condition", line["label"])
                columns = [line[key] if key in line else [None] * len(line["x"]) for key in ("y", "low", "high", "n")]
                for x, *values in zip(line["x"], *columns, strict=True):
                    yield (title, name, x), tuple(values)
        elif panel["kind"] == "bars":
            for group in panel["groups"]:
                for bar in group["bars"]:
                    yield (
                        (title, group["label"], bar["condition"]),
                        tuple(bar[key] for key in ("value", "low", "high", "n")),
                    )
        else:
            for i, row in enumerate(panel["rows"]):
                for j, column in enumerate(panel["columns"]):
                    yield (title, row, column), tuple(panel[key][i][j] for key in ("colour", "value", "low", "high"))


def expected(run: Run, drawn: Drawn) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The same from the table."""
    keys = list(drawn.table)
    rows = [
        dict(zip(keys, cells, strict=True)) for cells in zip(*(drawn.table[key].tolist() for key in keys), strict=True)
    ]
    maker = {
        "headmap": of_headmap, "layermap": of_layermap, "tokenclasses": of_classes, "length": of_length,
        "position": of_position, "arm": of_arm,
    }.get(drawn.name)  # fmt: skip
    if maker:
        yield from maker(run, rows)
    elif drawn.name in BY_LAYER:
        yield from of_layers(BY_LAYER[drawn.name], [row for row in rows if row.get("view") in (None, "layers")])
        yield from of_histogram([row for row in rows if row.get("view") == "histogram"])
    else:
        for row in rows:
            if row.get("view") == "accuracy":
                yield ("Accuracy", row["model"], row["condition"]), percent(row, "accuracy", "low", "high")
            else:
                view = row.get("view") or ("aligned" if drawn.name == "layers" else "whole")
                title = f"{row['model']} Layer {row['layer']} Head {row['head']}"
                title += ", whole prompt" if view == "whole" else ""
                yield (title, row["condition"], row["position"]), numbers(row, "mean", "low", "high", "n")


def number(value: Any, scale: float = 1) -> Any:
    return None if value is None or not math.isfinite(value) else scale * value


def numbers(row: dict[str, Any], *keys: str) -> tuple[Any, ...]:
    return tuple(number(row.get(key)) for key in keys)


def percent(row: dict[str, Any], *keys: str) -> tuple[Any, ...]:
    return (*(number(row[key], 100) for key in keys), row["n"])


def of_layers(measures: dict[str, tuple[str, float]], rows: list[dict[str, Any]]) -> Iterator[Any]:
    for measure, (title, scale) in measures.items():
        if any(number(row[measure]) is not None for row in rows):
            for row in rows:
                cells = (number(row.get(key), scale) for key in (measure, f"{measure}_low", f"{measure}_high"))
                yield (title, row["condition"], row["layer"]), (*cells, row.get("n"))


def of_histogram(rows: list[dict[str, Any]]) -> Iterator[Any]:
    for condition in dict.fromkeys(row["condition"] for row in rows):
        own = [row for row in rows if row["condition"] == condition]
        total = sum(row["count"] for row in own)
        for place, row in enumerate(own):
            title = f"MLP activations, layer {row['layer']}"
            yield (title, condition, place), (row["count"] / total, None, None, row["count"])


def of_headmap(run: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    for row in rows:
        title = f"{row['model']}, {name_of(run, row['condition'])}"
        yield (title, row["layer"], row["head"]), numbers(row, "drop", "drop", "drop_low", "drop_high")


def of_layermap(run: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    words = {"change": "change in standard deviations", "share": "share"}
    for row in rows:
        title = f"{name_of(run, row['condition'])}: {words[row['kind']]}"
        yield (title, row["measure"], row["layer"]), numbers(row, "effect", "mean", "low", "high")


def of_classes(_: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    for measure, title, scale in (
        ("near_zero_difference", "Near zero, change in points", 100),
        ("variance_ratio", "Variance, ratio to none", 1),
    ):
        for row in rows:
            cells = (number(row[f"{measure}{end}"], scale) for end in ("", "_low", "_high"))
            group = f"{row['token_class']} (n = {row['n']})"
            yield (f"{title}, layer {row['layer']}", group, row["condition"]), (*cells, row["n"])


def of_length(run: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    """Lines have the text of their filler for a name."""
    for row in rows:
        if row["condition"] != "none":
            line = repr(run.condition(row["condition"]).text)
            if row["measure"] == "accuracy":
                yield ("Accuracy", line, row["length"]), percent(row, "accuracy", "low", "high")
            else:
                line += ", mean of all layers" if row["layer"] == "all" else f", layer {row['layer']}"
                yield ("Filler mass", line, row["length"]), (*numbers(row, "mass", "low", "high"), None)


def of_position(_: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    places = {"": "none", "start": "at the start", "end": "at the end"}
    for row in rows:
        if row["measure"] == "accuracy":
            yield ("Accuracy", places[row["position"]], row["condition"]), percent(row, "accuracy", "low", "high")
        else:
            title = f"Paired drop, layer {row['layer']}"
            yield (title, places[row["position"]], row["condition"]), (*numbers(row, "drop", "low", "high"), None)


def of_arm(run: Run, rows: list[dict[str, Any]]) -> Iterator[Any]:
    words = {
        "accuracy": "accuracy, change in points", "near_zero": "near zero, change in points",
        "variance": "variance, ratio to none",
    }  # fmt: skip
    for row in rows:
        key = (f"ARM: {words[row['measure']]}", name_of(run, row["condition"]), row["condition"])
        scale = 1 if row["measure"] == "variance" else 100
        names = (
            ("difference", "difference_low", "difference_high")
            if row["measure"] == "accuracy"
            else ("value", "low", "high")
        )
        yield key, (*(number(row[name], scale) for name in names), row["n"])
