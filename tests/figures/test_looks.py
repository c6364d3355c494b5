"""One look for a condition in all figures, told apart by every reader; published colours on request."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

from fillerscope.analysis.run import Run
from fillerscope.figures import composite, fillers, heads, layers
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.looks import COLOURS, TWIN_NUMBER, condition_look, line_look, look_numbers
from fillerscope.figures.registry import draw
from fillerscope.figures.request import Request
from fillerscope.figures.style import is_clipped
from fillerscope.report.panels import panels
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.study import Study
from support.synthetic import MLESS, NONE, RANDOM, Synthetic

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as somebody without one kind of cones sees it.
SEEN = {
    "all cones": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
Floats = NDArray[np.float64]


def lab(colour: str, eye: str = "all cones") -> Floats:
    """Lightness and hue as they are perceived (CIE L*a*b*)."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = TO_XYZ @ np.clip(np.array(SEEN[eye]) @ linear, 0, 1) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def study_of(*conditions: Condition) -> Study:
    return Study(name="x", models=("m",), conditions=conditions)  # type: ignore[arg-type]


def own(name: str) -> Condition:
    return Condition(name=name, kind="repeat", text=" /", count=5)


def shown_colours(axes: list[Axes]) -> dict[str, set[str]]:
    """The colours of everything that a figure names: lines, points and bars."""
    found: dict[str, set[str]] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            artist = handle[0] if isinstance(handle, tuple) else handle
            take = getattr(artist, "get_color", None) or artist.get_edgecolor
            take = artist.get_facecolor if not hasattr(artist, "get_color") and artist.get_fill() else take
            found.setdefault(str(label), set()).add(to_hex(take()).upper())
    return found


@pytest.mark.parametrize("eye", SEEN)
def test_colours_are_apart_for_every_reader(eye: str) -> None:
    for one, other in combinations(COLOURS, 2):
        assert np.linalg.norm(lab(one, eye) - lab(other, eye)) > 15, (one, other)


def test_the_usual_conditions_are_apart_in_grey() -> None:
    lightness = sorted(lab(colour)[0] for colour in COLOURS[:4])
    assert min(np.diff(lightness)) > 10
    assert lab(COLOURS[0])[0] == lightness[0], "the baseline is the darkest"


def test_usual_conditions_have_the_same_look_in_every_study() -> None:
    one = look_numbers(study_of(NONE, RANDOM, own("a"), MLESS))
    other = look_numbers(study_of(NONE, PRESETS["mful"], own("b"), MLESS, own("c"), RANDOM))
    assert one == {"none": 0, "random": 3, "a": 4, "mless": 1}
    assert other == {"none": 0, "mful": 2, "b": 4, "mless": 1, "c": 5, "random": 3}


def test_no_two_conditions_look_the_same_and_none_like_the_twins(tmp_path: Path) -> None:
    names = [f"x{n}" for n in range(30)]
    run = Synthetic(conditions=(NONE, MLESS, *map(own, names)), problems=2, layers=1, heads=1).build(tmp_path / "run")
    looks = [condition_look(run, name) for name in run.conditions]
    assert (
        len({(look.colour, look.dash) for look in looks}) == len({(look.colour, look.marker) for look in looks}) == 32
    )
    assert COLOURS[TWIN_NUMBER] not in {look.colour for look in looks}
    assert [look.colour for look in looks].count(COLOURS[0]) == 1, "the baseline alone is dark"
    assert len({(line_look(n).colour, line_look(n).marker) for n in range(30)}) == 30


def test_a_condition_has_one_colour_in_all_figures(full: Run, inside: Run) -> None:
    attention = ("layers", "heads", "fillers", "depth", "composite")
    mechanism = ("layers", "fillers", "depth", "affine", "activations", "tokenclasses", "lookback")
    for run, names in ((full, attention), (inside, mechanism)):
        expected = {name_of(run, name): {condition_look(run, name).colour} for name in run.conditions}
        drawn = [shown_colours(draw(run, name).figure.axes) for name in names]
        shown = [(label, found) for colours in drawn for label, found in colours.items() if label in expected]
        assert shown == [(label, expected[label]) for label, _ in shown]
        assert len(dict(shown)) >= 3


@pytest.mark.parametrize(("name", "colours"), [
    ("layers", layers.PUBLISHED), ("heads", heads.PUBLISHED), ("composite", composite.PUBLISHED_BARS),
])  # fmt: skip
def test_published_colours_on_request(full: Run, name: str, colours: tuple[str, ...]) -> None:
    axes = draw(full, name, Request(published=True)).figure.axes
    panel = next(one for one in axes if name != "composite" or one.get_title().startswith("Results"))
    shown = list(shown_colours([panel]).values())
    assert shown == [{colour.upper()} for colour in colours[: len(shown)]]
    assert len(shown) == 2


def test_published_fillers_begin_with_the_condition(full: Run) -> None:
    (panel, *_) = draw(full, "fillers", Request(published=True)).figure.axes
    assert list(shown_colours([panel]).values()) == [{colour.upper()} for colour in fillers.PUBLISHED[:2]]


def test_the_page_has_the_numbers_of_the_looks(full: Run) -> None:
    (first, *_) = panels(full, draw(full, "fillers"))
    styles = {line["condition"]: line["style"] for line in first["series"]}
    assert styles == {"mless": 1, "random": 3}


def bands(axes: Axes) -> list[Floats]:
    paths = [band.get_paths()[0] for band in axes.collections if isinstance(band, PolyCollection)]
    return [np.asarray(path.vertices)[:, 1] for path in paths]


@pytest.mark.parametrize("name", ["layers", "heads", "depth"])
def test_a_band_does_not_decide_an_axis(built: Callable[[Synthetic], Run], name: str) -> None:
    run = built(Synthetic(problems=3, noise=0.3))  # of three problems the interval is wide
    wide, narrow = draw(run, name), draw(run, name, Request(band="sd"))
    assert any(is_clipped(axes) for axes in wide.figure.axes)
    assert "is beyond the frame is cut off." in wide.caption
    for axes, same in zip(wide.figure.axes, narrow.figure.axes, strict=True):
        assert axes.get_ylim() == same.get_ylim(), "whatever the band is"
        lines = [np.asarray(line.get_ydata(), float) for line in axes.lines]
        means = np.concatenate([heights for heights in lines if len(heights) > 2 or heights[0] == heights[1]])
        low, high = axes.get_ylim()
        assert low <= means.min() <= means.max() < high
        assert high - means.max() < 0.35 * (high - low)


def test_a_band_that_fits_needs_no_words(run: Run) -> None:
    drawn = draw(run, "layers", Request(y_max=(9.0, 9.0, 9.0)))
    assert not any(is_clipped(axes) and min(map(np.nanmin, bands(axes))) >= 0 for axes in drawn.figure.axes)
    calm = draw(run, "depth")
    assert any(map(is_clipped, calm.figure.axes)) == ("is cut off" in calm.caption)
