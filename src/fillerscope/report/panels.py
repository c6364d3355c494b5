"""The interactive form of every figure: panels made from nothing but the table that is printed beside it as CSV.

A panel says what is drawn (`lines`, `bars` or `map`) and holds the numbers; how it looks is the page's business. A new
figure is a function here and a line in CHARTS; one without is shown in print alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fillerscope.analysis.mechanism import Columns
from fillerscope.analysis.run import Region, Run
from fillerscope.analysis.twins import UNTRAINED
from fillerscope.errors import FillerscopeError
from fillerscope.figures.by_layer import stacked
from fillerscope.figures.condition_text import PLACES, name_of
from fillerscope.figures.references import TWINS
from fillerscope.figures.request import swept
from fillerscope.figures.style import Y_LABEL, Drawn
from fillerscope.report.wire import clean
from fillerscope.study.conditions import BASELINE

Row = dict[str, Any]
Panel = dict[str, Any]
TWIN_STYLE, TWIN_DASH = 6, 7  # grey and dotted on the page
Measures = Mapping[str, tuple[str, float | None, bool, float]]  # title, no change, from zero, scale


def panels(run: Run, drawn: Drawn) -> list[Panel]:
    """Empty where a figure has no interactive form."""
    make = CHARTS.get(drawn.name)
    return clean(make(run, rows_of(drawn.table))) if make else []


def rows_of(table: Mapping[str, Any]) -> list[Row]:
    """A table row by row, without the cells that are empty."""
    columns = {key: column.tolist() for key, column in table.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def _profiles(run: Run, rows: list[Row], usual: str = "whole") -> list[Panel]:
    """Curves along a prompt: a panel for each view, layer and head of a model, in the order of the table. `usual` is
    the view of a table that has no column for it."""
    found = []
    for (label, view, layer, head), own in _groups(rows, "model", "view", "layer", "head"):
        view = view or usual
        model = next((name for name in run.models if run.label(name) == label), None)
        series = [_series(run, name, part, "position") for (name,), part in _groups(own, "condition")]
        names = [line["condition"] for line in series if line["condition"] != UNTRAINED]
        title = f"{label} Layer {layer} Head {head}{', whole prompt' if view == 'whole' else ''}"
        found.append(
            _lines(title, "Token position", Y_LABEL, series, zero=True)
            | {"view": view, "regions": regions(run, names, model) if view == "whole" else []}
            | {"tokens": _tokens(run, names, view, model)}
        )
    return found


def _composite(run: Run, rows: list[Row]) -> list[Panel]:
    accuracy = [row for row in rows if row["view"] == "accuracy"]
    groups = [(label, own) for (label,), own in _groups(accuracy, "model")]
    bars = _bars("Accuracy", "Accuracy, %", [(label, [_accuracy(run, row) for row in own]) for label, own in groups])
    return [bars, *_profiles(run, [row for row in rows if row["view"] != "accuracy"])]


def _by_layer(measures: Measures) -> Callable[[Run, list[Row]], list[Panel]]:
    """Wide tables: a panel for each measure (title, value of no change, from zero, scale), a line a condition."""

    def make(run: Run, rows: list[Row]) -> list[Panel]:
        found = []
        for measure, (title, none, zero, scale) in measures.items():
            series = [
                _series(run, name, own, "layer", measure, scale)
                for (name,), own in _groups([row for row in rows if measure in row], "condition")
            ]
            found.append(_lines(title, "Layer", title, series, zero=zero, none=none))
        return [panel for panel in found if _has_numbers(panel)]

    return make


def layer_panels(run: Run, name: str, tables: Sequence[tuple[str, Columns]]) -> list[Panel]:
    """The panels by layer of a figure (`depth`, `affine` or `activations`), from the tables of some conditions."""
    measures: Measures = {"depth": DEPTH, "affine": AFFINE, "activations": ACTIVITY}[name]
    return clean(_by_layer(measures)(run, rows_of(stacked(tables)))) if tables else []


def _activations(run: Run, rows: list[Row]) -> list[Panel]:
    layers = _by_layer(ACTIVITY)(run, [row for row in rows if row["view"] == "layers"])
    bins = [row for row in rows if row["view"] == "histogram"]
    counts = {name: [row["count"] for row in own] for (name,), own in _groups(bins, "condition")}
    first = next(iter(counts))
    own = [row for row in bins if row["condition"] == first]
    edges = [own[0]["low"], *(row["high"] for row in own)]
    return [histogram(run, int(bins[0]["layer"]), edges, counts), *layers]


def histogram(run: Run, layer: int, edges: Sequence[float], counts: Mapping[str, Sequence[int]]) -> Panel:
    """Shares per bin on an axis of octaves; bins are numbered, and the page names their edges."""
    total = {name: max(sum(values), 1) for name, values in counts.items()}
    series = [
        {
            **_named(run, name), "x": list(range(len(values))), "y": [value / total[name] for value in values],
            "n": list(values),
        }
        for name, values in counts.items()
    ]  # fmt: skip
    panel = _lines(f"MLP activations, layer {layer}", "Activation", "Share of activations in a bin", series, zero=True)
    return panel | {"steps": True, "edges": list(edges)}


def _token_classes(run: Run, rows: list[Row]) -> list[Panel]:
    found = []
    for (layer,), own in _groups(rows, "layer"):
        for measure, (title, none, _, scale) in CLASSES.items():
            groups = [
                (f"{cls} (n = {part[0]['n']})", [_bar(run, row, measure, scale) for row in part])
                for (cls,), part in _groups(own, "token_class")
            ]
            found.append(_bars(f"{title}, layer {layer}", title, groups, none=none, mark="point"))
    return found


def _headmap(run: Run, rows: list[Row]) -> list[Panel]:
    """The drop and what is beyond length, each on one scale, as in print."""
    kinds = {"drop": "Paired drop", "beyond": "Beyond length"}
    return [panel for name, title in kinds.items() for panel in _head_panels(run, rows, name, title)]


def _head_panels(run: Run, rows: list[Row], column: str, title: str) -> list[Panel]:
    sizes = [abs(math.log2(row[column])) for row in rows if 0 < row.get(column, 0) < math.inf]
    more = "" if column == "drop" else f", {title.lower()}"
    return [
        _map(f"{label}, {name_of(run, name)}{more}", own, "layer", "head", column, "ratio", title)
        | {"reach": max(sizes, default=0.0)}
        for (label, name), own in _groups(rows, "model", "condition")
        if any(math.isfinite(row.get(column, math.nan)) for row in own)
    ]


def _layermap(run: Run, rows: list[Row]) -> list[Panel]:
    """Changes and shares have scales of their own."""
    titles = {"change": "change in standard deviations", "share": "share"}
    return [
        _map(f"{name_of(run, name)}: {titles[kind]}", own, "measure", "layer", "effect", kind, titles[kind], "mean")
        for (name, kind), own in _groups(rows, "condition", "kind")
    ]


def _length(run: Run, rows: list[Row]) -> list[Panel]:
    lines = swept(run.study, "count", [row["condition"] for row in rows])
    accuracy = [row for row in rows if row["measure"] == "accuracy"]
    masses = [row for row in rows if row["measure"] == "filler mass"]
    found = []
    for title, axis, key, own, scale in (
        ("Accuracy", "Accuracy, %", "accuracy", accuracy, 100.0),
        ("Filler mass", "Share of attention", "mass", masses, 1.0),
    ):
        series = []
        for place, (name, cells) in enumerate(lines.items()):
            names = {cell.name for cell in cells}
            for (layer,), part in _groups([row for row in own if row["condition"] in names], "layer"):
                which = f", {'mean of all layers' if layer == 'all' else f'layer {layer}'}" if layer else ""
                line = _curve(part, "length", key, "low", "high", scale) | {"label": f"{name}{which}"}
                series.append(line | {"style": place + 1, "dash": place + (3 if layer == "all" else 0)})
        baseline = [row for row in own if row["condition"] == BASELINE]
        none = scale * baseline[0][key] if baseline else None
        if series:
            found.append(_lines(title, "Filler length (tokens)", axis, series, none=none))
    return found


def _position(run: Run, rows: list[Row]) -> list[Panel]:
    found = []
    accuracy = [row for row in rows if row["measure"] == "accuracy"]
    if accuracy:
        groups = [
            (PLACES.get(place, "none"), [_accuracy(run, row) for row in own])
            for (place,), own in _groups(accuracy, "position")
        ]
        found.append(_bars("Accuracy", "Accuracy, %", groups, mark="point"))
    drops = [row for row in rows if row["measure"] == "drop"]
    if drops:
        groups = [
            (PLACES[place], [_bar(run, row | {"drop_low": row.get("low"), "drop_high": row.get("high")}, "drop", 1.0)
                             for row in own])
            for (place,), own in _groups(drops, "position")
        ]  # fmt: skip
        title = f"Paired drop, layer {drops[0]['layer']}"
        found.append(_bars(title, "With / without filler", groups, none=1.0, mark="point"))
    return found


def _arm(run: Run, rows: list[Row]) -> list[Panel]:
    """A point for each cell of the sweep, under the name that says its settings."""
    found = []
    for (measure,), own in _groups(rows, "measure"):
        title, none, scale = ARM[measure]
        key = "difference" if measure == "accuracy" else "value"
        named = [
            row | ({} if measure == "accuracy" else {"value_low": row["low"], "value_high": row["high"]}) for row in own
        ]
        groups = [(name_of(run, row["condition"]), [_bar(run, row, key, scale)]) for row in named]
        found.append(_bars(f"ARM: {title}", title, groups, none=none, mark="point"))
    return found


def regions(run: Run, conditions: Sequence[str], model: str | None = None) -> list[Row]:
    """Where fillers stand in whole prompts."""
    found: list[tuple[str, Region | None]] = [(name, run.region(name, model)) for name in conditions]
    return [
        {**_named(run, name), "start": region.start, "stop": region.stop, "fixed": region.fixed}
        for name, region in found
        if region is not None
    ]


def _tokens(run: Run, names: Sequence[str], view: str, model: str | None) -> list[str]:
    """The text under each position where all conditions of a panel have the same."""
    try:
        rows = [run.tokens(name if view == "whole" else BASELINE, model) for name in names]
    except FillerscopeError:
        return []
    longest = max(rows, key=len)
    shared = [all(row[i] == text for row in rows if i < len(row)) for i, text in enumerate(longest)]
    return [text if same else "" for text, same in zip(longest, shared, strict=True)]


def _named(run: Run, condition: str) -> Row:
    """The same condition looks the same in every panel; `none` is the first."""
    if condition == UNTRAINED:
        return {"condition": condition, "label": TWINS, "style": TWIN_STYLE, "dash": TWIN_DASH}
    place = run.conditions.index(condition)
    return {"condition": condition, "label": name_of(run, condition), "style": place, "dash": place}


def _series(run: Run, condition: str, rows: list[Row], x: str, y: str = "mean", scale: float = 1.0) -> Row:
    low, high = ("low", "high") if y == "mean" else (f"{y}_low", f"{y}_high")
    return _named(run, condition) | _curve(rows, x, y, low, high, scale)


def _curve(rows: list[Row], x: str, y: str, low: str, high: str, scale: float) -> Row:
    return {
        "x": [row[x] for row in rows],
        "y": [_times(row.get(y), scale) for row in rows],
        "low": [_times(row.get(low), scale) for row in rows],
        "high": [_times(row.get(high), scale) for row in rows],
        "n": [row.get("n") for row in rows],
    }


def _lines(title: str, x: str, y: str, series: list[Row], zero: bool = False, none: float | None = None) -> Panel:
    return {"kind": "lines", "title": title, "x": x, "y": y, "series": series, "zero": zero, "none": none}


def _bars(
    title: str, y: str, groups: list[tuple[str, list[Row]]], none: float | None = None, mark: str = "bar"
) -> Panel:
    found = [{"label": label, "bars": bars} for label, bars in groups]
    return {"kind": "bars", "title": title, "y": y, "groups": found, "none": none, "mark": mark}


def _accuracy(run: Run, row: Row) -> Row:
    parts = [f"{row['gained']} better, {row['lost']} worse, p Holm {row['adjusted']:.3g}"] if row.get("pairs") else []
    published = _times(row.get("published"), 100.0)
    parts += [f"published: {published:g}%"] if published is not None else []
    bar = _bar(run, row | {"accuracy_low": row.get("low"), "accuracy_high": row.get("high")}, "accuracy", 100.0)
    return bar | {"note": "; ".join(parts), "text": row.get("mark", ""), "published": published}


def _bar(run: Run, row: Row, measure: str, scale: float) -> Row:
    low, high = (_times(row.get(f"{measure}{end}"), scale) for end in ("_low", "_high"))
    return _named(run, row["condition"]) | {
        "value": _times(row.get(measure), scale), "low": low, "high": high, "n": row.get("n"),
    }  # fmt: skip


def _map(
    title: str, rows: list[Row], down: str, across: str, colour: str, scale: str, name: str, value: str = ""
) -> Panel:
    """Cells [down][across]: what the colour shows, and the value with its interval where that is another."""
    value = value or colour
    low, high = ("low", "high") if value == "mean" else (f"{value}_low", f"{value}_high")
    lines, columns = ([group[0] for group, _ in _groups(rows, key)] for key in (down, across))
    cells = {(row[down], row[across]): row for row in rows}

    def grid(key: str) -> list[list[Any]]:
        return [[cells[line, column].get(key) for column in columns] for line in lines]

    return {
        "kind": "map", "title": title, "down": down, "across": across, "rows": lines, "columns": columns,
        "scale": scale, "name": name, "colour": grid(colour), "value": grid(value), "low": grid(low),
        "high": grid(high),
    }  # fmt: skip


def _groups(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Rows that are alike in some keys, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    yield from found.items()


def _times(value: Any, scale: float) -> float | None:
    return None if value is None or not math.isfinite(value) else scale * value


def _has_numbers(panel: Panel) -> bool:
    return any(value is not None for line in panel["series"] for value in line["y"])


DEPTH: Measures = {
    "mass": ("Filler mass, share of attention", None, True, 1.0),
    "lambda": ("Lambda, 1 - filler mass", 1.0, False, 1.0),
    "drop": ("Paired drop, ratio to none", 1.0, False, 1.0),
    "odds": ("Drop that length alone gives", 1.0, False, 1.0),
    "beyond": ("Beyond length, drop / that", 1.0, False, 1.0),
    "twin": ("Paired drop, untrained twins (mean and range)", 1.0, False, 1.0),
}
AFFINE: Measures = {
    "lambda_fit": ("Lambda, fitted", 1.0, False, 1.0),
    "lambda_mass": ("1 - filler mass", 1.0, False, 1.0),
    "explained": ("Variation explained", 1.0, False, 1.0),
    "direction": ("One direction, within a problem", None, True, 1.0),
    "consistency": ("One direction, across problems", None, True, 1.0),
    "relative_bias": ("Relative bias", None, True, 1.0),
}
ACTIVITY: Measures = {
    "near_zero_difference": ("Near zero, change in points", 0.0, False, 100.0),
    "variance_ratio": ("Variance, ratio to none", 1.0, False, 1.0),
    "l1_ratio": ("L1, ratio to none", 1.0, False, 1.0),
    "gini_difference": ("Gini, difference to none", 0.0, False, 1.0),
}
LOOKBACK: Measures = {
    "answer": ("Mass on the filler: answer", None, True, 1.0),
    "question": ("Mass on the filler: question", None, True, 1.0),
    "per_filler": ("From the answer, per filler token", None, True, 1.0),
    "per_original": ("From the answer, per original token", None, True, 1.0),
}
CLASSES = {key: ACTIVITY[key] for key in ("near_zero_difference", "variance_ratio")}
ARM = {
    "accuracy": ("accuracy, change in points", 0.0, 100.0),
    "near_zero": ("near zero, change in points", 0.0, 100.0),
    "variance": ("variance, ratio to none", 1.0, 1.0),
}
CHARTS: dict[str, Callable[[Run, list[Row]], list[Panel]]] = {
    "layers": partial(_profiles, usual="aligned"),
    "heads": _profiles,
    "fillers": _profiles,
    "headmap": _headmap,
    "depth": _by_layer(DEPTH),
    "composite": _composite,
    "length": _length,
    "position": _position,
    "affine": _by_layer(AFFINE),
    "activations": _activations,
    "tokenclasses": _token_classes,
    "layermap": _layermap,
    "lookback": _by_layer(LOOKBACK),
    "arm": _arm,
}
