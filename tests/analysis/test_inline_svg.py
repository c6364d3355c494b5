"""Small pictures for notebooks: well-formed, self-contained, with the numbers they were given."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from fillerscope.analysis.inline_svg import (
    BLUE,
    FINEST,
    ORANGE,
    SHADES,
    Curve,
    Scale,
    Shaded,
    cells,
    lines,
    raster,
    round_ticks,
    strongest,
)
from fillerscope.display import block, bounded, note, printable, shown, table, token
from fillerscope.figures import style

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&\u202egnp\x00\x1b[2J\ud800\ufffe]]>"


def curve(y: list[float], spread: float = 0.1, label: str = "none") -> Curve:
    values = np.array(y)
    return Curve(label, BLUE, np.arange(len(y)), values, values - spread, values + spread)


def parsed(svg: str) -> ElementTree.Element:
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"<script|<style|\sid=|\son\w+=|url\(", svg)
    return ElementTree.fromstring(svg)


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in parsed(svg).iter(f"{SVG}title")]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in parsed(svg).iter(f"{SVG}text")]


def pixels(svg: str) -> np.ndarray:
    """The shades of the first picture inside."""
    data = base64.b64decode(re.search(r"base64,([^\"]+)", svg)[1])  # type: ignore[index]
    columns, rows = struct.unpack(">II", data[16:24])
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    return np.frombuffer(zlib.decompress(body), np.uint8).reshape(rows, columns + 1)[:, 1:]


def test_colours_are_those_of_the_figures() -> None:
    assert (BLUE, ORANGE) == (style.BLUE, style.ORANGE) == (style.BLUE, style.SERIES[0])


def test_a_curve_goes_through_its_points() -> None:
    svg = lines([curve([0.0, 1.0, 0.5], spread=0.0)], "Position", "Received")
    stroke = next(path for path in parsed(svg).iter(f"{SVG}path") if path.get("stroke") == BLUE)
    points = [tuple(map(float, point.split())) for point in (stroke.get("d") or "")[1:].split("L")]
    height = points[0][1]
    assert [x for x, _ in points] == pytest.approx([560 / 6, 560 / 2, 560 * 5 / 6], abs=0.1)
    assert [(height - y) / (height - points[1][1]) for _, y in points] == pytest.approx([0, 1, 0.5], abs=0.005)
    assert {"Position", "Received", "0", "1", "2", "0.5"} <= set(texts(svg))


def test_a_band_and_a_curve_stop_where_nothing_is_known() -> None:
    broken = curve([1.0, 2.0, math.nan, 3.0])
    svg = lines([broken], "x", "y")
    band, stroke = (path.get("d") or "" for path in parsed(svg).iter(f"{SVG}path") if BLUE in path.attrib.values())
    assert (band.count("M"), stroke.count("M")) == (2, 2)
    assert "nan" not in svg
    without = Curve("a", BLUE, broken.x, broken.y, broken.y * math.nan, broken.y * math.nan)
    assert "fill-opacity" not in lines([without], "x", "y")


def test_several_curves_have_a_legend_and_one_has_none() -> None:
    first, second = curve([1, 2], label="none"), curve([2, 1], label="mless")
    assert {"none", "mless"} <= set(texts(lines([first, second], "x", "y")))
    assert "none" not in texts(lines([first], "x", "y"))


def test_a_region_is_shaded_and_named() -> None:
    svg = lines([curve([1.0] * 10)], "x", "y", Shaded(2, 5, "filler"))
    assert "filler" in texts(svg)
    assert f"M{2 * 56} 0H{5 * 56}V" in svg


def test_what_rises_above_the_top_is_cut() -> None:
    svg = lines([curve([9.0, 1.0, 0.5])], "x", "y", top=1.0)
    inner = next(part for part in parsed(svg).iter(f"{SVG}svg") if part.get("overflow"))
    assert inner.get("overflow") == "hidden"
    assert max(float(text) for text in texts(svg) if re.fullmatch(r"[\d.]+", text) and "." in text) <= 1.05


@pytest.mark.parametrize("y", [[], [0.0], [math.nan, math.nan], [5.0, 5.0], [-1.0, -2.0], [1e-9, 2e-9], [1e12, 0.0]])
def test_any_curve_can_be_drawn(y: list[float]) -> None:
    svg = lines([curve(y, 0.0)], "x", "y", tips=[str(value) for value in y])
    assert "nan" not in re.sub(r"<title>.*?</title>", "", svg)
    assert "inf" not in svg


def test_tips_are_one_a_point_or_grouped() -> None:
    assert titles(lines([curve([1.0] * 3)], "x", "y", tips=["a", "b", "c"])) == ["a", "b", "c"]
    many = titles(lines([curve([1.0] * 560)], "x", "y", tips=[str(n) for n in range(560)]))
    assert len(many) <= 256
    assert "\n".join(many).split("\n") == [str(n) for n in range(560)]


def test_every_cell_has_its_colour_tip_and_dot() -> None:
    values = np.array([[0.5, 1.0, 2.0], [1.0, math.nan, 0.7]])
    scale = Scale.ratios(values)
    svg = cells(values, scale, lambda r, c: f"{r}/{c}", "Layer", "Head", "ratio", values == 1.0)
    assert titles(svg) == ["1/1", "1/2", "1/3", "2/1", "2/2", "2/3"]
    fills = [path.get("fill") for path in parsed(svg).iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    assert fills[0] == scale.colours()[0] == "#053061", "the deepest fall is the darkest blue"
    assert fills[2] == "#67001f"
    assert fills[1] == fills[3]
    assert fills[4] == "none", "what is not known has no colour"
    dots = [(dot.get("cx"), dot.get("cy")) for dot in parsed(svg).iter(f"{SVG}circle")]
    assert dots == [("36", "9"), ("12", "27")]
    assert {"Layer", "Head", "ratio", "0.5", "1", "2", "3"} <= set(texts(svg))


def test_a_scale_of_ratios_is_even_in_logarithms() -> None:
    scale = Scale.ratios(np.array([0.25, 2.0]))
    np.testing.assert_allclose(
        scale.places(np.array([0.25, 0.5, 1.0, 2.0, 4.0, 99.0, 0.0])), [0, 0.25, 0.5, 0.75, 1, 1, 0]
    )
    assert 1.0 in scale.ticks
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
    assert len(scale.colours()) == SHADES
    parsed(cells(given.reshape(1, -1), scale, lambda *_: "", "y", "x", "bar")) if values else None


def test_differences_are_even_around_nothing() -> None:
    scale = Scale.differences(np.array([-2.0, 1.0]))
    np.testing.assert_allclose(scale.places(np.array([0.0])), 0.5)
    assert 0.0 in scale.ticks


def test_a_raster_holds_every_cell() -> None:
    values = np.array([[0.01, 0.1, math.nan], [1.0, 0.1, 0.02]])
    scale = Scale.amounts(values)
    svg = raster(values, scale, 2, ["a", "b", "c"], "Layer", "Position", "bar")
    assert pixels(svg).tolist() == scale.shades(values).tolist()
    assert pixels(svg)[0, 2] == SHADES, "transparent"
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


def test_hostile_text_is_text() -> None:
    values = np.ones((1, 1))
    scale = Scale.ratios(values)
    pictures = [
        lines([curve([1.0], label=HOSTILE), curve([1.0])], HOSTILE, HOSTILE, Shaded(0, 1, HOSTILE), [HOSTILE]),
        cells(values, scale, lambda *_: HOSTILE, HOSTILE, HOSTILE, HOSTILE),
        raster(values, scale, 1, [HOSTILE], HOSTILE, HOSTILE, HOSTILE),
        block(HOSTILE, note(HOSTILE), table((HOSTILE, "n"), [(HOSTILE, HOSTILE)])),
    ]
    for picture in pictures:
        root = parsed(picture)
        assert not any(mark in picture for mark in "\u202e\x00\x1b\ud800\ufffe")
        said = [text for part in root.iter() for text in (part.text, part.get("aria-label")) if text]
        assert sum("<script>alert(1)</script>\"'&\ufffdgnp\ufffd\ufffd[2J\ufffd\ufffd]]>" in text for text in said) >= 3
        assert picture.encode(), "can be written to a file"


def test_two_pictures_on_one_page_have_nothing_in_common() -> None:
    values = np.ones((1, 1))
    one = cells(values, Scale.ratios(values), lambda *_: "a", "y", "x", "bar")
    for part in parsed(f"<div>{one}{one}</div>".replace(' xmlns="http://www.w3.org/2000/svg"', "")).iter():
        assert not {"id", "class", "name"} & part.attrib.keys()
        assert (part.get("href") or "data:").startswith("data:")


def test_text_and_axes_take_the_colour_of_the_page() -> None:
    svg = lines([curve([1.0, 2.0])], "x", "y")
    assert {text.get("fill") for text in parsed(svg).iter(f"{SVG}text")} == {"currentColor"}
    assert parsed(svg).get("fill") == "none"


def test_numbers_in_words() -> None:
    assert bounded(0.5, 0.4, 0.6) == "0.500 [0.400, 0.600]"
    assert bounded(0.5, math.nan, math.nan) == "0.500"
    assert bounded(math.nan, math.nan, math.nan) == "-"
    assert bounded(-0.0001, -0.0001, 0.0) == "0.000 [0.000, 0.000]"
    assert token(" the\n") == '" the\u21b5"'
    assert len(token("x" * 1000)) == 26
    assert shown('a"<') == "a&quot;&lt;"
    assert printable("a\tb\nc\rd") == "a\tb\nc\ufffdd"
