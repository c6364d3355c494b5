"""Small pictures for notebooks: well-formed, self-contained, with the numbers they were given."""

from __future__ import annotations

import base64
import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from fillerscope.analysis.colour_scale import SHADES, Scale
from fillerscope.analysis.inline_svg import (
    BLUE,
    FINEST,
    ORANGE,
    Curve,
    Shaded,
    heat_map,
    line,
    round_ticks,
    strongest,
    whole_ticks,
)
from fillerscope.analysis.notebook_html import block, command, facts, note, table
from fillerscope.figures import style

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&\u202egnp\x00\x1b[2J\ud800\ufffe]]>"
SAFE = "<script>alert(1)</script>\"'&\ufffdgnp\ufffd\ufffd[2J\ufffd\ufffd]]>"
LABELS = ("Layer", "Head", "ratio")


def curve(y: list[float], spread: float = 0.1) -> Curve:
    values = np.array(y)
    return Curve(BLUE, np.arange(len(y)), values, values - spread, values + spread)


def drawn(one: Curve, shaded: Shaded | None = None, top: float | None = None) -> str:
    return line(one, "Received", [f"tip {x}" for x in one.x], shaded, top)


def mapped(values: np.ndarray, scale: Scale) -> str:
    tips = [["" for _ in row] for row in values]
    return heat_map(values, scale, LABELS, tips)


def parsed(svg: str) -> ElementTree.Element:
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"<script|<style|\sid=|\son\w+=|url\(", svg)
    return ElementTree.fromstring(svg)


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in parsed(svg).iter(f"{SVG}title")]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in parsed(svg).iter(f"{SVG}text")]


def pixels(svg: str) -> np.ndarray:
    """Red, green, blue and opacity of every cell of the map."""
    image = next(parsed(svg).iter(f"{SVG}image"))
    data = base64.b64decode((image.get("href") or "").removeprefix("data:image/png;base64,"))
    return np.array(Image.open(io.BytesIO(data)).convert("RGBA"))


def test_colours_are_those_of_the_figures() -> None:
    assert (BLUE, ORANGE) == (style.BLUE, style.ORANGE)


def test_a_curve_goes_through_its_points() -> None:
    svg = drawn(curve([0.0, 1.0, 0.5], spread=0.0))
    stroke = next(path for path in parsed(svg).iter(f"{SVG}path") if path.get("stroke") == BLUE)
    points = [tuple(map(float, point.split())) for point in (stroke.get("d") or "")[1:].split("L")]
    height = points[0][1]
    assert [x for x, _ in points] == pytest.approx([560 / 6, 560 / 2, 560 * 5 / 6], abs=0.1)
    assert [(height - y) / (height - points[1][1]) for _, y in points] == pytest.approx([0, 1, 0.5], abs=0.005)
    assert {"Position", "Received", "0", "1", "2", "0.5"} <= set(texts(svg))


def test_a_band_and_a_curve_stop_where_nothing_is_known() -> None:
    broken = curve([1.0, 2.0, math.nan, 3.0])
    svg = drawn(broken)
    band, stroke = (path.get("d") or "" for path in parsed(svg).iter(f"{SVG}path") if BLUE in path.attrib.values())
    assert (band.count("M"), stroke.count("M")) == (2, 2)
    assert "nan" not in svg
    without = Curve(BLUE, broken.x, broken.y, broken.y * math.nan, broken.y * math.nan)
    assert f'fill="{BLUE}"' in svg
    assert f'fill="{BLUE}"' not in drawn(without)


def test_a_region_is_shaded_and_named() -> None:
    svg = drawn(curve([1.0] * 10), Shaded(2, 5, "filler"))
    assert "filler" in texts(svg)
    box = next(box for box in parsed(svg).iter(f"{SVG}rect") if box.get("fill"))
    assert (box.get("x"), box.get("width")) == (str(2 * 56), str(3 * 56))


def test_what_rises_above_the_top_is_cut() -> None:
    svg = drawn(curve([9.0, 1.0, 0.5]), top=1.0)
    inner = next(part for part in parsed(svg).iter(f"{SVG}svg") if part.get("overflow"))
    assert inner.get("overflow") == "hidden"
    assert max(float(text) for text in texts(svg) if re.fullmatch(r"[\d.]+", text) and "." in text) <= 1.05


@pytest.mark.parametrize("y", [[], [0.0], [math.nan, math.nan], [5.0, 5.0], [-1.0, -2.0], [1e-9, 2e-9], [1e12, 0.0]])
def test_any_curve_can_be_drawn(y: list[float]) -> None:
    svg = drawn(curve(y, 0.0))
    assert titles(svg) == [f"tip {x}" for x in range(len(y))]
    assert "nan" not in svg
    assert "inf" not in svg


def test_every_cell_has_its_colour_tip_and_dot() -> None:
    values = np.array([[0.5, 1.0, 2.0], [1.0, math.nan, 0.7]])
    tips = [[f"{row}/{column}" for column in (1, 2, 3)] for row in (1, 2)]
    svg = heat_map(values, Scale.ratios(values), LABELS, tips, dots=values == 1.0)
    assert titles(svg) == ["1/1", "1/2", "1/3", "2/1", "2/2", "2/3"]
    cells = pixels(svg)
    assert cells.shape == (2, 3, 4)
    assert bytes(cells[0, 0]).hex() == "053061ff", "the deepest fall is the darkest blue"
    assert bytes(cells[0, 2]).hex() == "67001fff"
    assert (cells[0, 1] == cells[1, 0]).all()
    assert cells[..., 3].tolist() == [[255, 255, 255], [255, 0, 255]], "what is not known has no colour"
    dots = [(dot.get("cx"), dot.get("cy")) for dot in parsed(svg).iter(f"{SVG}circle")]
    assert dots == [("36", "9"), ("12", "27")]
    assert {"Layer", "Head", "ratio", "0.5", "1", "2", "3"} <= set(texts(svg))


def test_tips_lie_over_their_cells() -> None:
    svg = heat_map(np.ones((2, 3)), Scale.ratios(np.ones(1)), LABELS, [["a", "b", "c"], ["d", "e", "f"]])
    panel = next(part for part in parsed(svg).iter(f"{SVG}svg") if part.get("preserveAspectRatio"))
    assert panel.get("viewBox") == "0 0 3 2"
    places = {box[0].text: (box.get("x"), box.get("y")) for box in panel.iter(f"{SVG}rect")}
    assert places == {
        "a": ("0", "0"),
        "b": ("1", "0"),
        "c": ("2", "0"),
        "d": ("0", "1"),
        "e": ("1", "1"),
        "f": ("2", "1"),
    }


def test_a_scale_of_ratios_is_even_in_logarithms() -> None:
    scale = Scale.ratios(np.array([0.25, 2.0]))
    np.testing.assert_allclose(
        scale.places(np.array([0.25, 0.5, 1.0, 2.0, 4.0, 99.0, 0.0])), [0, 0.25, 0.5, 0.75, 1, 1, 0]
    )
    assert scale.marks() == [(0.0, "4"), (0.5, "1"), (1.0, "0.25")]
    small = Scale.ratios(np.array([1.001]))
    assert abs(small.places(np.array([1.001]))[0] - 0.5) < 0.02, "a change of nearly nothing stays pale"


@pytest.mark.parametrize(
    "values", [[math.nan], [0.0], [math.inf, 0.0], [1.0], [], [1e-300, 1e300], [-1.0, 3.0], [0, 0, -7.0]]
)
@pytest.mark.parametrize("kind", [Scale.ratios, Scale.differences, Scale.amounts])
def test_any_numbers_have_a_scale(kind: type[Scale], values: list[float]) -> None:
    given = np.array(values, dtype=np.float64)
    scale = kind(given)
    assert math.isfinite(scale.low)
    assert scale.low < scale.high
    assert set(scale.shades(given).tolist()) <= set(range(SHADES + 1))
    assert scale.colours().shape == (SHADES, 3)
    assert not values or pixels(mapped(given.reshape(1, -1), scale)).shape == (1, len(values), 4)


def test_differences_are_even_around_nothing() -> None:
    scale = Scale.differences(np.array([-2.0, 1.0]))
    np.testing.assert_allclose(scale.places(np.array([0.0])), 0.5)
    assert scale.marks()[1] == (0.5, "0")


def test_a_map_of_positions_has_a_tip_for_each_column() -> None:
    values = np.array([[0.01, 0.1, math.nan], [1.0, 0.1, 0.02]])
    scale = Scale.amounts(values)
    svg = heat_map(values, scale, ("Layer", "Position", "bar"), [["a", "b", "c"]], 2)
    colours = scale.colours()[np.minimum(scale.shades(values), SHADES - 1)]
    cells, known = pixels(svg), np.isfinite(values)
    assert (cells[known][:, :3] == colours[known]).all()
    assert (cells[..., 3] > 0).tolist() == known.tolist()
    assert titles(svg) == ["a", "b", "c"]
    assert "5" in texts(svg), "three columns of two positions"


def test_the_strongest_of_each_group_is_kept() -> None:
    values = np.zeros((2, 10))
    values[0, 7], values[1, 2], values[1, 9] = 5.0, -3.0, math.nan
    kept, width = strongest(values, 5)
    assert width == 2
    assert kept.shape == (2, 5)
    assert kept[0, 3] == 7
    assert kept[1, 1] == 2
    assert kept[1, 4] == 8, "a number before none"
    np.testing.assert_array_equal(strongest(values, 10)[0], [range(10)] * 2)
    assert strongest(np.full((1, 7), math.nan), 3)[0].max() <= 6
    assert strongest(np.zeros((1, 100_000)))[0].shape[1] <= FINEST


def test_ticks_are_round_and_inside() -> None:
    assert round_ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert round_ticks(-0.07, 0.07) == [-0.05, 0.0, 0.05]
    assert whole_ticks(0.5, 12.5) == [1, 2, 4, 6, 8, 10, 12]
    assert whole_ticks(-0.5, 200.5)[:3] == [0, 50, 100]
    assert whole_ticks(0.5, 1.5) == [1]


def test_hostile_text_is_text() -> None:
    values = np.ones((1, 1))
    scale = Scale.ratios(values)
    pictures = [
        line(curve([1.0]), HOSTILE, [HOSTILE], Shaded(0, 1, HOSTILE)),
        heat_map(values, scale, (HOSTILE, HOSTILE, HOSTILE), [[HOSTILE]]),
        block(HOSTILE, note(HOSTILE), table((HOSTILE, "n"), [(HOSTILE, HOSTILE)])),
        block(HOSTILE, facts({HOSTILE: HOSTILE}), command(HOSTILE, HOSTILE)),
    ]
    for picture in pictures:
        root = parsed(picture)
        assert not any(mark in picture for mark in "\u202e\x00\x1b\ud800\ufffe")
        said = [text for part in root.iter() for text in (part.text, part.tail, part.get("aria-label")) if text]
        assert sum(SAFE in text for text in said) >= 4
        assert picture.encode(), "can be written to a file"


def test_two_pictures_on_one_page_have_nothing_in_common() -> None:
    values = np.ones((1, 1))
    one = mapped(values, Scale.ratios(values)) + drawn(curve([1.0]))
    for part in parsed(f"<div>{one}{one}</div>".replace(' xmlns="http://www.w3.org/2000/svg"', "")).iter():
        assert not {"id", "class", "name"} & part.attrib.keys()
        assert (part.get("href") or "data:").startswith("data:")


def test_text_and_axes_take_the_colour_of_the_page() -> None:
    values = np.ones((1, 1))
    for svg in (drawn(curve([1.0, 2.0])), mapped(values, Scale.ratios(values))):
        assert {text.get("fill") for text in parsed(svg).iter(f"{SVG}text")} == {"currentColor"}
        assert parsed(svg).get("fill") == "none"
