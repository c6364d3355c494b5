"""Figures along a sweep, `length` and `position`: the run's accuracies, masses and drops at each value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.run import Run
from fillerscope.analysis.stats import sample_interval
from fillerscope.errors import FigureError
from fillerscope.figures.bars import PUBLISHED
from fillerscope.figures.registry import draw
from fillerscope.figures.request import Request
from fillerscope.study.published import accuracy_at
from support.accuracy_panels import ends, labels_of, only_answers, points, rows_of
from support.synthetic import Effect, Synthetic, swept

MATH = "hub:HuggingFaceH4/MATH-500"


def test_length_shows_accuracy_and_mass_by_length(full: Run) -> None:
    drawn = draw(full, "length")
    accuracy_panel, mass_panel = drawn.figure.axes
    (line,) = [line for line in accuracy_panel.get_lines() if len(line.get_xdata()) == 3]
    np.testing.assert_allclose(line.get_xdata(), [0, 5, 20])
    np.testing.assert_allclose(line.get_ydata(), [50, 100 * 5 / 12, 100])
    table = rows_of(full, "tiny-a")
    intervals = [(100 * table[name].low, 100 * table[name].high) for name in ("none", "long-5", "long-20")]
    np.testing.assert_allclose([end for item in _measured(accuracy_panel) for end in ends(item)], intervals)
    drawn_masses = [line for line in mass_panel.get_lines() if len(line.get_xdata())]
    for line, layers in zip(drawn_masses, (slice(0, 1), slice(None)), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [5, 20])
        samples = [full.summary("filler_mass", name)[:, layers].mean(axis=(1, 2)) for name in ("long-5", "long-20")]
        np.testing.assert_allclose(line.get_ydata(), [sample_interval(sample)[0] for sample in samples])
    assert mass_panel.get_xlabel() == accuracy_panel.get_xlabel() == "Filler length (tokens)"
    assert "mless" not in drawn.caption
    assert "long: ' /' repeated, 5 or 20 tokens, before the question." in drawn.caption
    assert drawn.table["length"].tolist() == [0, 5, 20, 5, 20, 5, 20]


def _measured(axes: Axes) -> list[ErrorbarContainer]:
    """The points of a panel in the order of their places."""
    found = [item for item in axes.containers if isinstance(item, ErrorbarContainer) and item.has_yerr]
    return sorted(found, key=lambda item: item.lines[0].get_xdata()[0])  # type: ignore[union-attr]


def test_points_of_length_are_filled_where_the_difference_is_sure(tmp_path: Path) -> None:
    cells = swept({"name": "x", "kind": "repeat", "text": " /", "count": [1, 2, 3]})
    right = {"none": 0.2, "x-1": 0.5, "x-2": 0.9, "x-3": 0.25}  # six gained: p is 0.03, adjusted 0.06
    axes = draw(only_answers(tmp_path / "run", conditions=cells, right=right), "length").figure.axes[0]
    looks = {}
    for container in _measured(axes)[1:]:
        line = container.lines[0]
        assert line is not None
        looks |= dict.fromkeys(map(float, line.get_xdata()), to_hex(line.get_markerfacecolor()) != "#ffffff")
    assert looks == {1.0: False, 2.0: True, 3.0: False}


def test_length_has_a_line_for_whatever_else_is_swept(tmp_path: Path) -> None:
    cells = swept({"name": "x", "kind": "repeat", "text": [" /", " ?"], "count": [2, 6], "label": "Signs"})
    drawn = draw(only_answers(tmp_path / "run", conditions=cells, right={"none": 0.5}), "length")
    shown = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert shown == ["' /'", "' ?'", "none"]
    places = swept({"name": "x", "kind": "repeat", "text": " /", "count": [2, 6], "position": ["start", "end"]})
    drawn = draw(only_answers(tmp_path / "places", conditions=places, right={"none": 0.5}), "length")
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == ["at the start", "at the end", "none"]
    two = swept(
        {"name": "x", "kind": "repeat", "text": " /", "count": [2, 6]},
        {"name": "y", "kind": "sentence", "count": [3, 9]},
    )
    drawn = draw(only_answers(tmp_path / "two", conditions=two, right={"none": 0.5}), "length")
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == ["x", "y", "none"]
    filler = {"name": "x", "kind": "repeat", "text": " /", "count": [2, 6]}
    for number, (change, lines) in enumerate({"c": ["c 0.1", "c 0.3"], "layers": ["layers 1", "layers 1 2"]}.items()):
        values = [0.1, 0.3] if change == "c" else [[1], [1, 2]]
        inside = swept(filler | {"intervention": {"kind": "arm", change: values}})
        drawn = draw(only_answers(tmp_path / str(number), conditions=inside, right={"none": 0.5}), "length")
        assert [text.get_text() for text in drawn.figure.legends[0].get_texts()] == [*lines, "none"]
        assert drawn.table["length"].tolist() == [0, 2, 6, 2, 6]


def test_position_shows_accuracy_and_drop_by_place(full: Run) -> None:
    drawn = draw(full, "position")
    left, right = drawn.figure.axes
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["none", "start", "end"]
    table = rows_of(full, "tiny-a")
    found = points(left)
    for name, conditions in (("none, with its interval", ["none"]), ("Words", ["at-start", "at-end"])):
        rows = [table[condition] for condition in conditions]
        line = found[name].lines[0]
        assert line is not None
        np.testing.assert_allclose(line.get_ydata(), [100 * row.accuracy for row in rows])
        np.testing.assert_allclose(ends(found[name]), [(100 * row.low, 100 * row.high) for row in rows])
    end = table["at-end"].against
    assert end is not None
    assert [text for _, text in labels_of(left)] == ["50.0", "+0.0\np = 1", f"\u221250.0\np = {end.adjusted:.2g}"]
    assert PUBLISHED not in found
    line = points(right)["Words"].lines[0]
    assert line is not None
    drops = [depth_table(full[None], name).values["drop"] for name in ("at-start", "at-end")]
    np.testing.assert_allclose(line.get_ydata(), [mean[0] for mean, _, _ in drops])
    np.testing.assert_allclose(ends(points(right)["Words"]), [(low[0], high[0]) for _, low, high in drops])
    assert right.get_title() == "Paired drop, layer 1"
    assert "at: ' he' repeated, 9 tokens, at the start or at the end." in drawn.caption
    assert drawn.table["position"].tolist() == ["", "start", "end", "start", "end"]


def test_published_places_are_shown_for_the_published_model(tmp_path: Path) -> None:
    everywhere = ["start", "before_question", "end", "random"]
    cells = swept({"name": "x", "kind": "repeat", "text": " /", "count": 55, "position": everywhere})
    labels = {"qwen2.5-math-7b": "Q"}
    run = only_answers(
        tmp_path / "run", conditions=cells, labels=labels, source=MATH, right={"none": 0.7, "x-end": 0.0}
    )
    drawn = draw(run, "position")
    line = points(drawn.figure.axes[0])[PUBLISHED].lines[0]
    assert line is not None
    np.testing.assert_allclose(line.get_ydata(), [72.4, 69.6, 75.0, 0.0, 51.2])
    assert accuracy_at("qwen2.5-math-7b", MATH, cells[1]) == drawn.table["published"][1]
    assert "arXiv 2510.01032" in drawn.caption
    other = only_answers(tmp_path / "other", conditions=cells, source=MATH, right={"none": 0.7})
    assert PUBLISHED not in points(draw(other, "position").figure.axes[0])


@pytest.mark.parametrize("name", ["length", "position"])
def test_attention_alone_is_one_panel(built: Callable[[Synthetic], Run], name: str) -> None:
    cells = swept({"name": "x", "kind": "repeat", "text": " /", "count": [4, 8], "position": ["start", "end"]})
    recipe = Synthetic(conditions=cells, problems=4, effects={cell.name: Effect(mass=0.1) for cell in cells})
    run = built(recipe)
    drawn = draw(run, name)
    assert len(drawn.figure.axes) == 1
    assert "Accuracy" not in drawn.caption
    with pytest.raises(FigureError, match=r"^there is no layer 9: Tiny-A has layers 1 to 3$"):
        draw(run, name, Request(layers=(9,)))
