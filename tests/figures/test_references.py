"""Untrained twins and length alone behind the curves: drawn where they were measured, said in captions and numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.run import Run
from fillerscope.analysis.twins import UNTRAINED, head_profiles
from fillerscope.figures.references import LENGTH, TWINS
from fillerscope.figures.registry import draw
from fillerscope.figures.request import Request
from fillerscope.report.panels import panels
from support.synthetic import Effect, Synthetic

EFFECTS = tuple(Effect(drop=np.full((3, 4), drop), filler=0.9) for drop in (0.5, 0.7))
ALL = ("heads", "layers", "fillers", "depth", "affine", "activations")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = Synthetic(diluted=0.6, twins=EFFECTS, affine=True, activations=True)
    return recipe.build(tmp_path_factory.mktemp("held") / "run")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Synthetic(affine=True, activations=True).build(tmp_path_factory.mktemp("alone") / "run")


def labels(run: Run, name: str) -> set[str]:
    axes = draw(run, name).figure.axes
    return {str(text) for one in axes for text in one.get_legend_handles_labels()[1]}


@pytest.mark.parametrize("name", ALL)
def test_twins_are_drawn_where_they_were_measured(held: Run, alone: Run, name: str) -> None:
    assert TWINS in labels(held, name)
    assert TWINS not in labels(alone, name)
    assert "2 untrained twins" in draw(held, name).caption
    assert "untrained" not in draw(alone, name).caption


def test_the_band_of_a_head_is_the_range_of_all_heads_of_the_twins(held: Run) -> None:
    drawn = draw(held, "heads", Request(queries="original"))
    table = drawn.table
    rows = (table["condition"] == UNTRAINED) & (table["view"] == "aligned")
    values = head_profiles(held[None], "mless", 1, "original", "aligned")
    assert values.shape[0] == 2 * 4
    first = rows & (table["head"] == table["head"][0])
    for key, expected in (("mean", values.mean(0)), ("low", values.min(0)), ("high", values.max(0))):
        np.testing.assert_allclose(table[key][first], expected[table["position"][first]])


@pytest.mark.parametrize("name", ALL)
def test_the_page_has_the_same_panels_with_twins_in_them(held: Run, name: str) -> None:
    found = panels(held, draw(held, name))
    assert len(found) == len({panel["title"] for panel in found})
    curves = [panel for panel in found if panel["x"] == "Token position"]
    for panel in curves:
        assert [line["label"] for line in panel["series"] if line["condition"] == UNTRAINED] == [TWINS]
        assert UNTRAINED not in [region["condition"] for region in panel["regions"]]
    assert bool(curves) == (name in ("heads", "layers", "fillers"))


def test_depth_has_what_length_alone_would_give(held: Run, alone: Run) -> None:
    assert LENGTH in labels(held, "depth")
    assert LENGTH not in labels(alone, "depth")
    panel = draw(held, "depth").figure.axes[2]
    line = next(line for line in panel.get_lines() if line.get_label() == LENGTH)
    np.testing.assert_allclose(line.get_ydata(), 0.6, rtol=1e-5)


def test_the_head_map_has_a_row_beyond_length_and_marks_heads_like_untrained_ones(tmp_path: Path) -> None:
    drop = np.array([[0.5, 0.6, 0.9, 0.3]]) * np.ones((3, 1))
    recipe = Synthetic(effects={"mless": Effect(drop=drop)}, diluted=0.6, twins=EFFECTS)
    drawn = draw(recipe.build(tmp_path / "run"), "headmap", Request(conditions=("mless",)))
    first, second = (axes for axes in drawn.figure.axes if axes.images)
    assert second.get_title().endswith("beyond length")
    np.testing.assert_allclose(second.images[0].get_array(), np.log2(drop / 0.6), atol=1e-5)
    marked = {int(x) for x, _ in first.collections[0].get_offsets()}
    assert marked == {1, 2}, "those between 0.5 and 0.7"
    assert "within the range of all heads of the untrained twins" in drawn.caption
