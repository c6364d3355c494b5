"""Figures of answers: bars and points are the run's accuracies, marks say what the tests say and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.bars import PUBLISHED, stars, wrapped
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.looks import COLOURS, HATCHES
from fillerscope.figures.registry import check, draw, names_for
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, text_width
from fillerscope.study.conditions import Condition
from fillerscope.study.published import accuracy
from fillerscope.study.study import FigureSpec
from support.accuracy_panels import bars, ends, labels_of, only_answers, panel, points, rows_of
from support.synthetic import MLESS, NONE, RANDOM, Synthetic, swept

SLASHES = MLESS.model_copy(update={"count": 55})
MFUL = Condition(name="mful", kind="repeat", text=" he", count=55, label="Meaningful tokens")
MODELS = {"Qwen/Qwen2.5-Math-1.5B": "Qwen2.5-Math-1.5B", "own/tiny-b": "Tiny-B"}
MATH = "hub:HuggingFaceH4/MATH-500"
# Of 60 problems: 30, 32 and 54 without, with slashes and with words; for the second model 30, 36 and 38.
RIGHT = {"none": 30 / 60, "mless": 32 / 60, "mful": 54 / 60, "own/tiny-b mless": 36 / 60, "own/tiny-b mful": 38 / 60}
RECIPE = Synthetic(
    labels=MODELS, conditions=(NONE, SLASHES, MFUL, RANDOM), right=RIGHT, source=MATH, problems=60, layers=2, heads=3,
    system=10, shortest=5, shard=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def math(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RECIPE.build(tmp_path_factory.mktemp("answers") / "run")


@pytest.fixture(scope="module")
def composite(math: Run) -> Drawn:
    return draw(math, "composite")


def test_bars_are_the_accuracies_of_the_run(math: Run, composite: Drawn) -> None:
    axes = panel(composite, "Results on MATH-500")
    found = bars(axes)
    assert list(found) == [name_of(math, name) for name in ("none", "mless", "mful")]
    heights = {name: [bar.get_height() for bar in container] for name, container in found.items()}
    assert list(heights.values()) == [
        pytest.approx([50, 50]), pytest.approx([100 * 32 / 60, 60]), pytest.approx([90, 100 * 38 / 60])
    ]  # fmt: skip
    tables = [rows_of(math, model) for model in MODELS]
    for name, condition in zip(heights, ("none", "mless", "mful"), strict=True):
        assert heights[name] == pytest.approx([100 * table[condition].accuracy for table in tables])
    assert axes.get_ylabel() == "Accuracy (%)"
    assert axes.get_ylim()[0] == 0
    assert [tick.get_text().strip() for tick in axes.get_xticklabels()] == list(MODELS.values())


def test_error_bars_are_the_intervals(math: Run, composite: Drawn) -> None:
    axes = panel(composite, "Results on MATH-500")
    drawn = [item for item in axes.containers if isinstance(item, ErrorbarContainer) and item.has_yerr]
    for container, condition in zip(drawn, ("none", "mless", "mful"), strict=True):
        rows = [rows_of(math, model)[condition] for model in MODELS]
        np.testing.assert_allclose(ends(container), [(100 * row.low, 100 * row.high) for row in rows])


def test_marks_stand_exactly_where_the_adjusted_p_says(math: Run, composite: Drawn) -> None:
    tables = [rows_of(math, model) for model in MODELS]
    rows = [table[name] for table in tables for name in ("none", "mless", "mful")]
    expected = [f"{stars(r.against.adjusted)}\n{100 * r.accuracy:.1f}".lstrip() if r.against else "50.0" for r in rows]
    assert [text for _, text in labels_of(panel(composite, "Results on MATH-500"))] == expected
    # Two, 24, six and eight problems gained, none lost; random changes nothing: Holm over six comparisons.
    assert expected == ["50.0", "53.3", "***\n90.0", "50.0", "60.0", "*\n63.3"]
    assert composite.table["mark"][:6].tolist() == ["", "", "***", "", "", "*"]
    assert "Holm over 6 comparisons; no mark: p of 0.05 or more." in composite.caption


def test_p_near_the_levels() -> None:
    nan = float("nan")
    marks = [stars(p) for p in (0.0009, 0.001, 0.0099, 0.01, 0.049, 0.05, 1.0, nan)]
    assert marks == ["***", "**", "**", "*", "*", "", "", ""]


def test_hollow_marks_for_published_models_on_math_500_alone(math: Run, composite: Drawn, tmp_path: Path) -> None:
    axes = panel(composite, "Results on MATH-500")
    (line, *_) = points(axes)[PUBLISHED].lines
    assert line is not None
    np.testing.assert_allclose(line.get_ydata(), [63.9, 65.9])
    assert to_hex(line.get_markerfacecolor()) == "#ffffff"
    for bar, x in zip(_first_bars(axes), line.get_xdata(), strict=True):
        assert bar.get_x() <= x <= bar.get_x() + bar.get_width()
    assert "arXiv 2510.01032" in composite.caption
    assert [value for value in composite.table["published"] if value is not None] == [0.639, 0.659]
    other = draw(only_answers(tmp_path / "other", labels=MODELS, conditions=(NONE, SLASHES)), "composite")
    assert PUBLISHED not in points(other.figure.axes[0])
    assert "Hollow" not in other.caption
    unknown = only_answers(tmp_path / "unknown", labels={"own/tiny": "T"}, conditions=(NONE, SLASHES), source=MATH)
    assert PUBLISHED not in points(draw(unknown, "composite").figure.axes[0])
    assert accuracy("own/tiny-b", math.study.problems.source, SLASHES) is None


def _first_bars(axes: Axes) -> list[Any]:
    found = bars(axes)
    return [container[0] for container in list(found.values())[:2]]


def test_colours_differ_also_in_grey(composite: Drawn) -> None:
    found = bars(panel(composite, "Results on MATH-500"))
    looks = [(to_hex(item[0].get_facecolor()), item[0].get_hatch() or "") for item in found.values()]
    assert looks == [(COLOURS[0].lower(), ""), (COLOURS[1].lower(), ""), (COLOURS[2].lower(), HATCHES[1])]
    grey = sorted(float(np.dot(to_rgb(fill), (0.299, 0.587, 0.114))) for fill, _ in looks)
    assert min(np.diff(grey)) > 0.1


def test_the_head_is_shown_aligned_and_over_the_whole_prompt(math: Run, composite: Drawn) -> None:
    _, above, below = sorted(composite.figure.axes, key=lambda axes: axes.get_title() != "Results on MATH-500")
    assert above.get_title() == below.get_title() == "Average attention on Head 1"
    assert (above.get_xlim(), below.get_xlim()) == ((0, 60), (0, 120))
    colours = dict(zip(("none", "mless", "mful"), COLOURS, strict=False))
    wanted = {
        above: [(name_of(math, name), name, "aligned", colour) for name, colour in colours.items()],
        below: [(name_of(math, name), name, "whole", colours[name]) for name in ("mless", "mful")],
    }
    for axes, lines in wanted.items():
        drawn = {line.get_label(): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
        assert list(drawn) == [label for label, *_ in lines]
        for label, condition, view, colour in lines:
            profile = math.profile(condition, "all", view, "Qwen/Qwen2.5-Math-1.5B")
            places = drawn[label].get_xdata()
            np.testing.assert_array_equal(drawn[label].get_ydata(), profile.mean[0, 0, np.asarray(places)])
            assert to_hex(drawn[label].get_color()).upper() == colour
    assert len(above.collections) == 2 * 3, "a band and the area under each line"
    assert [text.get_text() for text in below.texts] == ["filler"]
    edges = sorted(line.get_xdata()[0] for line in below.get_lines() if len(line.get_xdata()) == 2)
    assert edges == [9.5, 64.5]
    assert "mean over queries: all; diagonal left out." in composite.caption


def test_head_14_of_the_first_model_that_has_it(tmp_path: Path) -> None:
    recipe = Synthetic(conditions=(NONE, MLESS), right={"none": 0.5}, problems=4, layers=1, heads=14)
    run = recipe.build(tmp_path / "run")
    drawn = draw(run, "composite")
    assert panel(drawn, "Average attention on Head 14")
    assert "Attention: Tiny-A, layer 1, head 14, n = 4 problems." in drawn.caption
    assert "chosen" not in drawn.caption
    other = draw(run, "composite", Request(heads=(3,)))
    assert panel(other, "Average attention on Head 3")


def test_a_model_without_the_head_is_passed_over(math: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    small = math["Qwen/Qwen2.5-Math-1.5B"]
    stored = small.summary
    monkeypatch.setattr(small, "summary", lambda *asked: stored(*asked)[..., :2])
    drawn = draw(math, "composite", Request(heads=(3,)))
    assert "Attention: Tiny-B, layer 1, head 3, n = 60 problems." in drawn.caption
    assert set(drawn.table["model"][drawn.table["view"] == "whole"]) == {"Tiny-B"}
    auto = draw(math, "composite")
    assert "The published head 14 is not in this model; head chosen by the largest" in auto.caption
    with pytest.raises(FigureError, match=r"^there is no head 9: Qwen2.5-Math-1.5B has heads 1 to 2$"):
        draw(math, "composite", Request(heads=(9,), strict=True))


def test_conditions_of_a_composite(math: Run, full: Run) -> None:
    asked = draw(math, "composite", Request(conditions=("random",)))
    assert list(bars(asked.figure.axes[-1])) == [name_of(math, "none"), name_of(math, "random")]
    drawn = draw(full, "composite")
    assert set(drawn.table["condition"]) == {"none", "mless"}
    assert {"none", "random"} == set(draw(full, "composite", Request(conditions=("random",))).table["condition"])


def test_without_the_published_fillers_the_first_few_are_shown(tmp_path: Path) -> None:
    cells = swept({"name": "x", "kind": "repeat", "text": " /", "count": [1, 2, 3, 4, 5]})
    run = only_answers(tmp_path / "run", conditions=cells, right={"none": 0.5})
    drawn = draw(run, "composite")
    assert list(bars(drawn.figure.axes[0])) == [name_of(run, name) for name in ("none", "x-1", "x-2", "x-3")]


def test_another_model_on_request(math: Run) -> None:
    drawn = draw(math, "composite", Request(models=("own/tiny-b",)))
    axes = panel(drawn, "Results on MATH-500")
    assert [bar.get_height() for bar in bars(axes)[name_of(math, "mless")]] == pytest.approx([60])
    assert PUBLISHED not in points(axes)
    assert drawn.caption.startswith("Tiny-B; MATH-500, n = 60 problems.")
    assert "Holm over 3 comparisons" in drawn.caption


def test_answers_alone_are_bars_alone(tmp_path: Path) -> None:
    drawn = draw(only_answers(tmp_path / "run"), "composite")
    (axes,) = drawn.figure.axes
    assert axes.get_title() == "Results on built-in problems"
    assert drawn.figure.get_figwidth() < 5
    assert "ttention" not in drawn.caption
    assert set(drawn.table["view"]) == {"accuracy"}


def test_the_first_way_of_drawing_answers_is_shown_and_named(tmp_path: Path) -> None:
    generation = {"temperature": [0.5, 0.0], "samples": [2, 4], "max_tokens": 99}
    run = only_answers(tmp_path / "run", generation=generation)
    drawn = draw(run, "composite")
    rows = [row for row in compare(run) if (row.temperature, row.samples) == (0.5, 2)]
    heights = [bar.get_height() for container in bars(drawn.figure.axes[0]).values() for bar in container]
    assert heights == pytest.approx([100 * row.accuracy for row in rows])
    assert heights == pytest.approx([37.5, 57.5])
    assert set(drawn.table["samples"]) == {2}
    assert "at most 99 tokens, temperature 0.5, 2 samples, the first of 3 ways in which answers were" in drawn.caption
    assert "permutation test on the problems' means against none" in drawn.caption
    assert "Holm over 3 comparisons" in drawn.caption


def test_failed_answers_are_not_counted(tmp_path: Path) -> None:
    run = only_answers(tmp_path / "run", unjudged=(0, 1))
    drawn = draw(run, "composite")
    assert "n = 18 to 20 problems." in drawn.caption
    (bar,) = bars(drawn.figure.axes[0])[name_of(run, "mless")]
    assert bar.get_height() == pytest.approx(100 * 10 / 18)
    nothing = draw(only_answers(tmp_path / "none", unjudged=tuple(range(20))), "composite")
    assert [text for _, text in labels_of(nothing.figure.axes[0])] == ["40.0", "no\nanswer"]


def test_what_a_run_does_not_have_is_said_with_what_to_do(run: Run, full: Run, tmp_path: Path) -> None:
    with pytest.raises(FigureError, match=r"^this run has no answers; give `generation` in its study and run it again"):
        draw(run, "composite")
    with pytest.raises(FigureError, match=r"^`length` .* needs a condition whose `count` is a list, such as \[10, 25"):
        draw(run, "length")
    with pytest.raises(FigureError, match=r"^`position` .* whose `position` is a list, such as \[start, end\]$"):
        draw(run, "position")
    with pytest.raises(FigureError, match=r"^`length` needs two lengths or more of one filler$"):
        draw(full, "length", Request(conditions=("long-5",)))
    with pytest.raises(FigureError, match=r"^`position` needs two places or more of one filler$"):
        draw(full, "position", Request(conditions=("mless",)))
    for name in ("heads", "depth"):
        with pytest.raises(FigureError, match=r"^this run did not measure attention"):
            draw(only_answers(tmp_path / name), name)


def test_a_run_shows_by_default_what_it_has(run: Run, full: Run, math: Run, tmp_path: Path) -> None:
    usual = ["layers", "heads", "fillers", "headmap", "depth"]
    assert names_for(full) == [*usual, "composite", "length", "position"]
    assert names_for(run) == usual
    assert names_for(math) == [*usual, "composite"]
    assert names_for(only_answers(tmp_path / "answers")) == ["composite"]
    assert names_for(only_answers(tmp_path / "none", conditions=(NONE,))) == []


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("composite", {}, "shows accuracy and needs answers: give `generation` in the study"),
        ("length", {}, "goes along the length of a filler and needs a condition whose `count`"),
        ("position", {}, "compares places for a filler and needs a condition whose `position`"),
        ("heads", {"attention": False, "right": {"none": 0.5}}, "shows attention: leave `probes.attention` on"),
        ("headmap", {"attention": False, "right": {"none": 0.5}}, "shows attention: leave `probes.attention` on"),
    ],
)
def test_a_study_that_gives_a_figure_no_numbers_is_refused(name: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(FigureError, match=f"^figure '{name}' {reason}"):
        check(Synthetic(figures=(FigureSpec(name=name),), **changes).study)
    check(Synthetic(figures=(FigureSpec(name="composite"),), right={"none": 0.5}, attention=False).study)


def test_names_are_broken_behind_signs() -> None:
    lines = wrapped("DeepSeek-R1-Distill-Qwen-7B", 0.8, 7).split("\n")
    assert "".join(lines) == "DeepSeek-R1-Distill-Qwen-7B"
    assert len(lines) > 1
    assert all(line.endswith("-") for line in lines[:-1])
    assert max(text_width(line, 7) for line in lines) <= 0.8
    assert "".join(wrapped("W" * 40, 0.5, 7).split("\n")) == "W" * 40


@pytest.mark.parametrize("name", ["composite", "length", "position"])
def test_no_more_fillers_than_colours(tmp_path: Path, name: str) -> None:
    text = [f" {letter}" for letter in "abcdefg"]
    cells = swept({"name": "x", "kind": "repeat", "text": text, "count": [2, 6], "position": ["start", "end"]})
    run = only_answers(tmp_path / "run", conditions=cells, right={"none": 0.5})
    if name == "composite":
        assert len(bars(draw(run, name).figure.axes[0])) == 4
    with pytest.raises(FigureError, match=rf"^`{name}` shows at most \d fillers, not \d+; name some with --condition$"):
        draw(run, name, Request(conditions=tuple(run.fillers)))
