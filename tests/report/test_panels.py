"""Interactive figures show the table that is printed beside them: every number of it, and no other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.figure import Figure
from fillerscope.figures.looks import look_numbers
from fillerscope.figures.registry import FIGURES, draw
from fillerscope.figures.request import Request
from fillerscope.figures.table import rows_of
from fillerscope.report.packed_arrays import clean
from fillerscope.report.panels import Panel, layer_panels, panels
from fillerscope.study.conditions import Condition
from support.grid import some_fast
from support.panel_numbers import expected, told
from support.synthetic import MLESS, NONE, RANDOM, Synthetic, swept

HOSTILE = "<img src=x onerror=alert(1)>&\"'\u202e"
TWIN = Condition(name="twin", kind="repeat", text=" .", count=4, label="Meaningless tokens")  # as that of mless
BARE = Condition(name="bare", kind="repeat", text=" ,", count=4, position="random")  # no label, no fixed place
ODD = Condition(name="odd", kind="sentence", count=6, label=f"odd {HOSTILE}")
ANSWERS = {"none": 0.5, "mless": 0.75, "random": 0.25}
INSIDE: dict[str, Any] = {"affine": True, "activations": True, "answering": True, "right": ANSWERS}
SMALL: dict[str, Any] = {"layers": 2, "heads": 3, "shortest": 6, "system": 8}
LENGTHS = swept({"name": "long", "kind": "repeat", "text": [" /", " ."], "count": [3, 5, 20], "label": "Slashes"})[1:]
PLACED = swept(
    {"name": "at", "kind": "repeat", "text": [" he", " /"], "count": 9, "position": ["start", "end"], "label": HOSTILE}
)[1:]
ARMS = swept({"name": "arms", "intervention": {"kind": "arm", "c": [0.05, 0.13], "p1": [90, 95]}})[1:]


CONDITIONS = (NONE, MLESS, RANDOM, TWIN, BARE, ODD)
RECIPES = {
    "all": Synthetic(conditions=(*CONDITIONS, *LENGTHS, *PLACED, *ARMS), problems=5, **SMALL, **INSIDE),
    "one problem": Synthetic(conditions=(*CONDITIONS[:3], *LENGTHS, *PLACED, *ARMS), problems=1, **SMALL, **INSIDE),
    "models": Synthetic(
        labels={"tiny-a": HOSTILE, "tiny-b": "B"}, conditions=(NONE, MLESS, RANDOM, TWIN), problems=4, **SMALL,
        **INSIDE | {"right": ANSWERS | {"tiny-b none": 0.25}},
    ),
    "failed answers": Synthetic(
        conditions=(NONE, MLESS, RANDOM, *LENGTHS, *PLACED), problems=3, unjudged=(0, 1, 2), right=ANSWERS, **SMALL
    ),
    "inside": Synthetic(
        conditions=(NONE, MLESS, RANDOM, *ARMS), problems=3, affine=True, activations=True, **SMALL,
        missing={"digits": (0, 1, 2), "words": (0,)},
    ),
}  # fmt: skip


class Runs(dict[str, Run]):
    """Each is built when a test asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, kind: str) -> Run:
        self[kind] = RECIPES[kind].build(self.folder / kind)
        return self[kind]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("charts"))


CASES = [
    *(("all", name) for name in FIGURES),
    *(("one problem", name) for name in FIGURES),
    *(("models", name) for name in FIGURES if name not in ("length", "position", "arm")),
    *(("failed answers", name) for name in ("composite", "length", "position")),
    *(("inside", name) for name in ("affine", "activations", "tokenclasses", "layermap", "arm")),
]
QUICK = [
    *(("all", name) for name in FIGURES), ("one problem", "composite"), ("one problem", "affine"),
    ("models", "fillers"), ("models", "composite"), ("failed answers", "length"), ("inside", "tokenclasses"),
    ("inside", "arm"),
]  # fmt: skip


@pytest.mark.parametrize("case", some_fast(CASES, *QUICK), ids="-".join)
def test_the_panels_hold_the_table_and_nothing_else(runs: Runs, case: tuple[str, str]) -> None:
    kind, name = case
    run = runs[kind]
    drawn = draw(run, name, Request(models=("tiny-b",)) if kind == "models" and name not in TOGETHER else None)
    made = panels(run, drawn)
    json.dumps(made, allow_nan=False)
    assert made, "no interactive form"
    found, wanted = dict(told(made)), dict(expected(run, drawn))
    assert len(found) == len(list(told(made))), "a point stands twice"
    assert found == wanted
    assert all(one["label"] == name_of(run, one["condition"]) for one in conditions_of(made))
    styles = {one["condition"]: one["style"] for one in conditions_of(made)}
    assert styles == {condition: look_numbers(run.study)[condition] for condition in styles}, "the same look everywhere"


TOGETHER = ("composite", "fillers")


def conditions_of(made: list[Panel]) -> Iterator[dict[str, Any]]:
    for panel in made:
        parts = [*panel.get("series", ()), *(bar for group in panel.get("groups", ()) for bar in group["bars"])]
        yield from (part for part in parts if "condition" in part)


# What a panel says beside its numbers


def test_every_figure_has_an_interactive_form_and_a_new_one_needs_none(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(figure.panels for figure in FIGURES.values())
    drawn = draw(runs["all"], "depth")
    assert panels(runs["all"], replace(drawn, name="new")) == []
    monkeypatch.setitem(FIGURES, "new", Figure("new", "New", FIGURES["depth"].draw))
    assert panels(runs["all"], replace(drawn, name="new")) == []


def test_two_models_with_one_label_have_panels_of_their_own(tmp_path: Path) -> None:
    run = Synthetic(labels={"tiny-a": "Same", "tiny-b": "Same"}, problems=2, **SMALL).build(tmp_path / "run")
    drawn = draw(run, "fillers")
    made = panels(run, drawn)
    assert [line.source.model for line in drawn.lines] == ["tiny-a"] * 2 + ["tiny-b"] * 2
    assert [len(panel["series"]) for panel in made] == [2, 2]


def test_a_head_asked_for_twice_has_one_panel(runs: Runs) -> None:
    once, twice = (panels(runs["all"], draw(runs["all"], "heads", Request(heads=heads))) for heads in ((2,), (2, 2)))
    assert twice == once


def test_only_whole_prompts_have_regions_and_aligned_curves_the_tokens_without_filler(runs: Runs) -> None:
    run = runs["all"]
    for panel in panels(run, draw(run, "layers")):
        assert (panel["view"], panel["regions"]) == ("aligned", [])
        assert "whole prompt" not in panel["title"]
        assert panel["tokens"] == list(run.tokens("none"))
    aligned, whole, *_ = panels(run, draw(run, "heads"))
    assert (aligned["view"], aligned["regions"]) == ("aligned", [])
    assert whole["view"] == "whole"
    assert whole["tokens"] == list(run.tokens("mless"))
    (region,) = whole["regions"]
    assert (region["condition"], region["start"], region["stop"], region["fixed"]) == ("mless", 8, 38, True)


def test_tokens_are_told_where_all_lines_of_a_panel_have_the_same(runs: Runs) -> None:
    run = runs["all"]
    panel = panels(run, draw(run, "fillers", Request(conditions=("mless", "odd"))))[0]
    long, short = run.tokens("mless"), run.tokens("odd")
    assert panel["tokens"][:14] == [*(f"s{i}" for i in range(8)), *["\u00b7"] * 6]
    for place, text in enumerate(panel["tokens"]):
        there = {row[place] for row in (long, short) if place < len(row)}
        assert text == (there.pop() if len(there) == 1 else "")


def test_regions_and_tokens_are_those_of_the_panel_s_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Synthetic(labels={"tiny-a": "A", "tiny-b": "B"}, problems=2, **SMALL).build(tmp_path / "run")
    asked: list[str] = []
    region, tokens = ModelRun.region, ModelRun.tokens
    monkeypatch.setattr(ModelRun, "region", lambda self, name: asked.append(self.name) or region(self, name))
    monkeypatch.setattr(ModelRun, "tokens", lambda self, name: asked.append(self.name) or tokens(self, name))
    drawn = draw(run, "fillers")
    asked.clear()
    panels(run, drawn)
    assert asked == ["tiny-a"] * 4 + ["tiny-b"] * 4


def test_a_condition_has_one_name_with_its_key(runs: Runs) -> None:
    run = runs["all"]
    count = run.condition("mless").count
    assert [name_of(run, name) for name in ("none", "mless", "twin", "bare", "odd", "random")] == [
        "none", f'{count} \u00d7 " /" (mless)', "Meaningless tokens (twin)", '4 \u00d7 " ," (bare)',
        f"odd {HOSTILE} (odd)", f"{run.condition('random').count}-token sentence (random)",
    ]  # fmt: skip
    series = panels(run, draw(run, "depth", Request(conditions=("mless", "twin"))))[0]["series"]
    assert [line["label"] for line in series] == [name_of(run, "mless"), name_of(run, "twin")]


def test_the_line_without_filler_and_none_in_lengths(runs: Runs) -> None:
    run = runs["all"]
    drawn = draw(run, "length")
    accuracy, mass = panels(run, drawn)
    row = drawn.table["condition"].tolist().index("none")
    assert accuracy["none"] == 100 * drawn.table["accuracy"][row] == pytest.approx(40)
    assert mass["none"] is None
    assert [panel["none"] for panel in panels(run, draw(run, "depth"))] == [None, 1.0, 1.0]
    assert [panel["none"] for panel in panels(run, draw(run, "activations"))] == [None, 0.0, 1.0, 1.0, 0.0]


def test_bars_say_how_many_got_better_and_what_was_published(tmp_path: Path) -> None:
    """Tables have shares; the axis is in per cent."""
    recipe = Synthetic(
        labels={"Qwen/Qwen2.5-Math-1.5B": "Q"}, conditions=(NONE, MLESS.model_copy(update={"count": 55})), problems=60,
        source="hub:HuggingFaceH4/MATH-500", right={"none": 0.5, "mless": 0.9}, attention=False,
    )  # fmt: skip
    run = recipe.build(tmp_path / "run")
    (panel,) = panels(run, draw(run, "composite"))
    none, mless = panel["groups"][0]["bars"]
    assert (none["value"], none["published"], none["note"], none["text"]) == (
        50,
        pytest.approx(63.9),
        "published: 63.9%",
        "",
    )
    assert (mless["value"], mless["published"], mless["text"]) == (90, pytest.approx(65.9), "***")
    assert mless["note"] == "24 better, 0 worse, p Holm 1.19e-07; published: 65.9%"


def test_a_histogram_has_an_edge_more_than_bins(runs: Runs) -> None:
    run = runs["all"]
    panel = panels(run, draw(run, "activations"))[0]
    assert panel["edges"] == run[None].calibration()["edges"]
    assert panel["steps"]
    for line in panel["series"]:
        assert len(line["x"]) == len(panel["edges"]) - 1
        assert sum(line["y"]) == pytest.approx(1)


def test_panels_of_any_conditions_for_the_explorer(runs: Runs) -> None:
    run = runs["all"]
    tables = [(name, affine_table(run[None], name).columns()) for name in ("mless", "twin")]
    found = dict(told(layer_panels(run, "affine", tables)))
    assert len(found) == 2 * 2 * 5  # without 1 - filler mass, which `depth` beside it shows
    table = affine_table(run[None], "twin").values["explained"]
    assert found["Variation explained", "twin", 2][:3] == tuple(bound[1] for bound in table)
    words = [("mless", activation_table(runs["inside"][None], "mless", "digits").columns())]  # no problem has a digit
    assert layer_panels(runs["inside"], "activations", words) == []
    assert layer_panels(run, "depth", []) == []


def test_clean_gives_what_json_takes() -> None:
    dirty = {
        1: np.float32("nan"),
        "a": [math.inf, -math.inf, np.int64(3), (np.bool_(True), "x")],
        "b": np.array([[1.5, np.nan]]),
    }
    assert clean(dirty) == {"1": None, "a": [None, None, 3, [True, "x"]], "b": [[1.5, None]]}
    json.dumps(clean(dirty), allow_nan=False)


def test_rows_leave_out_what_a_cell_does_not_have() -> None:
    table = {"a": np.array([1, 2]), "b": np.array([None, "x"], dtype=object), "c": np.array([np.nan, 0.5])}
    first, second = rows_of(table)
    assert first.keys() == {"a", "c"}
    assert math.isnan(first["c"])
    assert second == {"a": 2, "b": "x", "c": 0.5}
