"""What each figure shows: the run's numbers, where the filler is, and words that say how to read it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.looks import COLOURS
from fillerscope.figures.registry import draw
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn
from fillerscope.study.conditions import Condition
from support.synthetic import MLESS, NONE, Effect, Synthetic

ATTENTION = ("layers", "heads", "fillers", "headmap", "depth")
SHORT = Condition(name="short", kind="repeat", text=" ?", count=10, label="Ten questions")
WANDER = Condition(name="wander", kind="sentence", count=30, position="random", label="Wanderer")


@pytest.fixture(scope="module")
def default(run: Run) -> dict[str, Drawn]:
    """Every figure as it comes without being asked for anything."""
    return {name: draw(run, name) for name in ATTENTION}


def curve(axes: Axes, label: str) -> Any:
    return next(line for line in axes.get_lines() if line.get_label() == label)


def spans(axes: Axes) -> list[tuple[float, float]]:
    """The x extents of everything that axvspan drew."""
    boxes = [patch.get_window_extent().transformed(axes.transData.inverted()) for patch in axes.patches]
    return [(round(box.x0, 3), round(box.x1, 3)) for box in boxes]


def rows(drawn: Drawn, **where: object) -> dict[str, np.ndarray]:
    keep = np.ones(len(next(iter(drawn.table.values()))), dtype=bool)
    for key, value in where.items():
        keep &= drawn.table[key] == value
    return {key: column[keep] for key, column in drawn.table.items()}


def test_layers_show_one_head_in_three_layers(run: Run) -> None:
    drawn = draw(run, "layers", Request(heads=(2,)))
    axes = drawn.figure.axes
    assert [one.get_title() for one in axes] == [f"Tiny-A Layer {layer} Head 2" for layer in (1, 2, 3)]
    assert axes[0].get_ylabel() == "Average Attention Weight"
    for number, one in enumerate(axes):
        assert one.get_xlim() == (0, 60)
        assert one.get_ylim()[0] == 0
        for condition, colour in (("none", COLOURS[0]), ("mless", COLOURS[1])):
            label = name_of(run, condition)
            profile = run.profile(condition, "all", "aligned")
            line = curve(one, label)
            np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 56))
            np.testing.assert_array_equal(line.get_ydata(), profile.mean[number, 1, 1:56])
            assert to_hex(line.get_color()).upper() == colour


def test_heads_show_aligned_above_and_the_whole_prompt_below(run: Run) -> None:
    drawn = draw(run, "heads", Request(heads=(4, 1, 3)))
    axes = np.array(drawn.figure.axes).reshape(2, 3)
    for column, head in enumerate((4, 1, 3)):
        above, below = axes[:, column]
        assert above.get_title() == below.get_title() == f"Tiny-A Layer 1 Head {head}"
        assert (above.get_xlim(), below.get_xlim()) == ((0, 60), (0, 120))
        plain, filled = curve(above, name_of(run, "none")), curve(above, name_of(run, "mless"))
        np.testing.assert_array_equal(plain.get_ydata(), run.profile("none", "all").mean[0, head - 1, 1:56])
        np.testing.assert_array_equal(filled.get_ydata(), run.profile("mless", "all").mean[0, head - 1, 1:56])
        whole = curve(below, name_of(run, "mless"))
        np.testing.assert_array_equal(whole.get_xdata(), np.arange(1, 86))
        np.testing.assert_array_equal(whole.get_ydata(), run.profile("mless", "all", "whole").mean[0, head - 1, 1:86])
        assert to_hex(plain.get_color()).upper() == COLOURS[0]
        assert to_hex(filled.get_color()).upper() == to_hex(whole.get_color()).upper() == COLOURS[1]
    assert axes[0, 0].get_ylabel() == axes[1, 0].get_ylabel() == "Average Attention Weight"


def test_the_shaded_region_is_where_the_filler_is(run: Run, default: dict[str, Drawn]) -> None:
    drawn = default["heads"]
    drawn.figure.draw_without_rendering()
    axes = np.array(drawn.figure.axes).reshape(2, 3)
    spans_of_filler = run[None].measured()[0]["prompts"]["mless"]["spans"]
    first = spans_of_filler.index(1)
    last = len(spans_of_filler) - 1 - spans_of_filler[::-1].index(1)
    label = name_of(run, "mless")
    for below in axes[1]:
        assert spans(below) == [(first - 0.5, last + 0.5)] == [(19.5, 49.5)]
        edges = sorted(line.get_xdata()[0] for line in below.get_lines() if len(line.get_xdata()) == 2)
        assert edges == [19.5, 49.5]
        assert [text.get_text() for text in below.texts] == [textwrap.fill(label, max(12, len(label) // 2 + 4))]
    for above in axes[0]:
        assert spans(above) == []


def test_a_region_that_moves_is_said_to_be_the_median(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, WANDER)).build(tmp_path / "run")
    drawn = draw(run, "heads")
    drawn.figure.draw_without_rendering()
    assert spans(drawn.figure.axes[3]) == [(24.5, 54.5)]
    assert "Where the place of the filler differs between problems, its median is marked." in drawn.caption


def test_fillers_compare_the_repeated_token_with_the_sentence(run: Run) -> None:
    drawn = draw(run, "fillers", Request(heads=(1, 2, 4)))
    drawn.figure.draw_without_rendering()
    for one, head in zip(drawn.figure.axes, (1, 2, 4), strict=True):
        assert one.get_title() == f"Tiny-A Layer 1 Head {head}"
        assert one.get_xlim() == (0, 120)
        for condition in ("mless", "random"):
            label = name_of(run, condition)
            expected = run.profile(condition, "all", "whole").mean[0, head - 1, 1:86]
            np.testing.assert_array_equal(curve(one, label).get_ydata(), expected)
        assert spans(one) == [(19.5, 49.5)], "one region for both"
        assert [text.get_text() for text in one.texts] == ["filler"]
    assert drawn.figure.axes[0].get_ylabel() == "Average Attention Weight"


def test_fillers_in_different_places_have_a_bar_each(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, MLESS, SHORT)).build(tmp_path / "run")
    drawn = draw(run, "fillers", Request(conditions=("mless", "short")))
    drawn.figure.draw_without_rendering()
    axes = drawn.figure.axes[0]
    assert spans(axes) == [(19.5, 49.5), (19.5, 29.5)]
    colours = [to_hex(patch.get_facecolor()) for patch in axes.patches]
    assert colours == [to_hex(curve(axes, name_of(run, name)).get_color()) for name in ("mless", "short")]
    assert "Bars at the top: where each filler stands, in the colour of its line." in drawn.caption


def test_fillers_take_a_panel_a_model(tmp_path: Path) -> None:
    recipe = Synthetic(labels={"a": "Alpha", "b": "Beta", "c": "Gamma"}, problems=4)
    run = recipe.build(tmp_path / "run")
    drawn = draw(run, "fillers", Request(heads=(1, 99, 3), skip_first=(False, True, True), y_max=(0.3, 0.2, 0.1)))
    titles = [one.get_title() for one in drawn.figure.axes]
    assert titles == ["Alpha Layer 1 Head 1", "Beta Layer 1 Head 1", "Gamma Layer 1 Head 3"]
    assert [one.get_lines()[0].get_xdata()[0] for one in drawn.figure.axes] == [0, 1, 1]
    assert [one.get_ylim()[1] for one in drawn.figure.axes] == [0.3, 0.2, 0.1]
    assert "Beta: of the heads asked for, 99 not in this model; head chosen by the largest" in drawn.caption
    assert "First token left out where the line starts at 1." in drawn.caption
    assert "Alpha, Beta, Gamma; built-in problems, n = 4, 4, 4 problems." in drawn.caption


def test_a_model_beyond_the_heads_asked_for_gets_one_chosen(tmp_path: Path) -> None:
    drops = np.array([[0.9, 0.8, 0.5, 0.7]]) * np.ones((3, 1))
    recipe = Synthetic(labels={"a": "A", "b": "B", "c": "C"}, problems=4, effects={"mless": Effect(drop=drops)})
    drawn = draw(recipe.build(tmp_path / "run"), "fillers", Request(heads=(1, 2)))
    assert [one.get_title() for one in drawn.figure.axes] == [
        "A Layer 1 Head 1",
        "B Layer 1 Head 2",
        "C Layer 1 Head 3",
    ]
    assert "C: head chosen by the largest paired drop" in drawn.caption


def test_depth_shows_the_depth_table(run: Run, default: dict[str, Drawn]) -> None:
    drawn = default["depth"]
    for one, measure in zip(drawn.figure.axes, ("mass", "lambda", "drop"), strict=True):
        for condition in ("mless", "random"):
            line = curve(one, name_of(run, condition))
            np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
            np.testing.assert_array_equal(line.get_ydata(), depth_table(run[None], condition).values[measure][0])
        assert one.get_xlabel() == "Layer"


@pytest.mark.parametrize("layers", [1, 2, 3, 7])
def test_there_is_no_layer_one_and_a_half(tmp_path: Path, layers: int) -> None:
    recipe = Synthetic(layers=layers, problems=2, effects={"mless": Effect(mass=0.1), "random": Effect(mass=0.1)})
    axes = draw(recipe.build(tmp_path / "run"), "depth").figure.axes[0]
    ticks = [tick for tick in axes.get_xticks() if 0.5 <= tick <= layers + 0.5]
    assert ticks == list(range(1, layers + 1))


@pytest.mark.parametrize("name", ATTENTION)
def test_the_legend_names_every_line_in_its_colour(default: dict[str, Drawn], name: str) -> None:
    figure = default[name].figure
    if name == "headmap":
        assert figure.legends == []
        return
    (legend,) = figure.legends
    shown = {text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    lines = [line for one in figure.axes for line in one.get_lines() if not str(line.get_label()).startswith("_")]
    assert {line.get_label() for line in lines} == set(shown)
    for line in lines:
        handle: Any = shown[str(line.get_label())]
        assert to_hex(handle.get_color()) == to_hex(line.get_color())
        assert handle.get_linestyle() == line.get_linestyle()
    assert len({to_hex(handle.get_color()) for handle in shown.values()}) == len(shown)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ATTENTION)
def test_bands_are_intervals_and_sd_on_request(run: Run, default: dict[str, Drawn], name: str) -> None:
    drawn = default[name]
    assert "interval" in drawn.caption
    if name in ("headmap", "depth"):
        return
    part = rows(drawn, condition="mless", layer=1, head=1, **({"view": "whole"} if name == "heads" else {}))
    profile = run.profile("mless", "all", "aligned" if name == "layers" else "whole").head(1, 1)
    low, high = profile.interval()
    np.testing.assert_array_equal(part["low"], low[0, 0, part["position"]])
    np.testing.assert_array_equal(part["high"], high[0, 0, part["position"]])
    spread = draw(run, name, Request(band="sd"))
    part = rows(spread, condition="mless", layer=1, head=1, **({"view": "whole"} if name == "heads" else {}))
    np.testing.assert_array_equal(part["high"], (profile.mean + profile.sd)[0, 0, part["position"]])
    assert "Bands: standard deviation." in spread.caption


@pytest.mark.parametrize("name", ["layers", "heads", "fillers"])
def test_the_first_token_is_left_out_unless_asked_for(run: Run, default: dict[str, Drawn], name: str) -> None:
    skipped, shown = default[name], draw(run, name, Request(skip_first=(False,)))
    assert skipped.table["position"].min() == 1
    assert shown.table["position"].min() == 0
    assert shown.figure.axes[0].get_lines()[0].get_xdata()[0] == 0
    assert "First token left out." in skipped.caption
    assert "First token shown." in shown.caption


@pytest.mark.parametrize("name", ["layers", "heads", "fillers"])
def test_queries_are_all_by_default_as_published(run: Run, default: dict[str, Drawn], name: str) -> None:
    drawn = default[name]
    assert set(drawn.table["queries"]) == {"all"}
    assert "mean over queries: all; diagonal left out." in drawn.caption
    other = draw(run, name, Request(queries="last"))
    assert set(other.table["queries"]) == {"last"}
    assert "mean over queries: last;" in other.caption
    assert not np.array_equal(drawn.table["mean"], other.table["mean"])


@pytest.mark.parametrize("name", ["headmap", "depth"])
def test_comparisons_use_the_same_rows_by_default(run: Run, default: dict[str, Drawn], name: str) -> None:
    drawn = default[name]
    assert "mean over queries: original;" in drawn.caption
    part = rows(drawn, condition="random", layer=2)
    if name == "headmap":
        assert part["drop"].tolist() == head_table(run[None], "random").columns["drop"].value[1].tolist()
        other = rows(draw(run, name, Request(queries="all")), condition="random", layer=2)
        assert other["drop"].tolist() == head_table(run[None], "random", "all").columns["drop"].value[1].tolist()
    else:
        assert part["drop"].tolist() == [depth_table(run[None], "random").values["drop"][0][1]]


@pytest.mark.parametrize("name", ["layers", "heads", "fillers"])
def test_heads_that_do_not_exist_are_chosen_and_the_caption_says_so(run: Run, name: str) -> None:
    drawn = draw(run, name, Request(heads=(2, 99)))
    assert "Of the heads asked for, 99 not in this model; head" in drawn.caption
    assert "chosen by the largest paired drop in layer 1." in drawn.caption
    titles = {one.get_title() for one in drawn.figure.axes}
    assert titles == (
        {f"Tiny-A Layer {layer} Head 1" for layer in (1, 2, 3)}
        if name == "layers"
        else {f"Tiny-A Layer 1 Head {head}" for head in (1, 2, 3)}
    )
    there = draw(run, name, Request(heads=(2, 3, 4)))
    assert "chosen" not in there.caption


@pytest.mark.parametrize("queries", ["all", "original"])
def test_heads_are_chosen_by_the_queries_that_are_drawn(
    run: Run, monkeypatch: pytest.MonkeyPatch, queries: str
) -> None:
    """A figure drawn by default and one that asks for the same queries show the same heads."""
    stored = run[None].summary

    def changed(name: str, condition: str, asked_queries: str = "original") -> Any:
        values = stored(name, condition, asked_queries).copy()
        if (name, condition) == ("received_original", "mless"):
            values[:, 0, 3 if asked_queries == "all" else 2] *= 0.1
        return values

    monkeypatch.setattr(run[None], "summary", changed)
    best = {"all": 4, "original": 3}[queries]
    title = draw(run, "layers", Request(queries=queries)).figure.axes[0].get_title()
    assert title == f"Tiny-A Layer 1 Head {best}"
    if queries == "all":
        assert draw(run, "layers").figure.axes[0].get_title() == title


@pytest.mark.parametrize("name", ["layers", "heads", "fillers"])
def test_a_head_or_layer_that_is_asked_for_by_hand_must_exist(run: Run, name: str) -> None:
    with pytest.raises(FigureError, match=r"^there is no head 99: Tiny-A has heads 1 to 4$"):
        draw(run, name, Request(heads=(99,), strict=True))
    with pytest.raises(FigureError, match=r"^there is no layer 99: Tiny-A has layers 1 to 3$"):
        draw(run, name, Request(layers=(99,)))


def test_more_heads_than_three_are_drawn_when_asked_for_by_hand(run: Run) -> None:
    asked_for = Request(heads=(1, 2, 3, 4), strict=True)
    assert len(draw(run, "fillers", asked_for).figure.axes) == 4
    assert len(draw(run, "heads", asked_for).figure.axes) == 8
    assert len(draw(run, "heads", Request(heads=(1, 2, 3, 4))).figure.axes) == 6


def test_lines_end_where_too_few_problems_are_left(run: Run) -> None:
    assert draw(run, "layers", Request(heads=(1,))).table["position"].max() == 55
    assert draw(run, "layers", Request(heads=(1,), share=1.0)).table["position"].max() == 43
    assert "fewer than 100% of the problems" in draw(run, "layers", Request(share=1.0)).caption
    assert draw(run, "layers", Request(heads=(1,), share=0.1)).table["position"].max() == 60, "the axis ends there"


def test_a_model_of_two_layers_has_two_panels(tmp_path: Path) -> None:
    run = Synthetic(layers=2, problems=4).build(tmp_path / "run")
    assert [one.get_title() for one in draw(run, "layers").figure.axes] == [
        "Tiny-A Layer 1 Head 1",
        "Tiny-A Layer 2 Head 1",
    ]


def test_axis_limits_of_the_study_are_kept(run: Run) -> None:
    axes = draw(run, "heads", Request(heads=(1, 2, 3), y_max=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6))).figure.axes
    assert [one.get_ylim() for one in axes] == [(0, limit) for limit in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]


def test_the_caption_says_what_was_done(tmp_path: Path) -> None:
    text = Condition(name="text", kind="text", text="x" * 60, position="end")
    run = Synthetic(conditions=(NONE, MLESS, text), failed=(1,)).build(tmp_path / "run")
    found = draw(run, "depth").caption
    name = name_of(run, "mless")
    assert found.startswith(
        f"Tiny-A; built-in problems, n = 11 problems. {name}: ' /' repeated, 30 tokens, before the "
    )
    assert f"{name_of(run, 'text')}: '{'x' * 37}...', as it stands, at the end." in found


@pytest.mark.parametrize("name", ["layers", "heads", "headmap", "depth"])
def test_another_condition_or_model_is_drawn_on_request(built: Callable[[Synthetic], Run], name: str) -> None:
    run = built(Synthetic(labels={"a": "Alpha", "b": "Beta"}, problems=4))
    drawn = draw(run, name, Request(conditions=("random",), models=("b",)))
    assert set(drawn.table["condition"]) <= {"none", "random"}
    assert f"{name_of(run, 'random')}: random sentences, 30 tokens" in drawn.caption
    assert "mless" not in drawn.caption
    assert drawn.caption.startswith("Beta; ")
