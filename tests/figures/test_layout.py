"""No text on top of another, none cut off: also with long names, many heads, many conditions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from matplotlib.axes import Axes

from fillerscope.analysis.run import Run
from fillerscope.figures.registry import FIGURES, draw
from fillerscope.figures.request import Request
from fillerscope.figures.style import grid, legend, styled
from fillerscope.study.conditions import Condition
from support.grid import some_fast
from support.pages import SIX, complaints
from support.synthetic import MLESS, NONE, RANDOM, Effect, Synthetic, swept

Built = Callable[[Synthetic], Run]


def hidden_points(axes: Axes) -> list[str]:
    """Points of a line that lie under a text in the panel."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]
    points = np.concatenate([axes.transData.transform(line.get_xydata()) for line in lines])
    return [f"{name!r} covers {point}" for name, box in boxes for point in points if box.contains(*point)]


@pytest.mark.parametrize("name", FIGURES)
def test_texts_keep_apart(run_for: Callable[[str], Run], name: str) -> None:
    assert complaints(draw(run_for(name), name).figure) == []


def test_the_check_sees_what_a_reader_would() -> None:
    with styled():
        figure, axes = grid(1, 3, 2.2)
        for one in axes.flat:
            one.set_title("A title that is far too long for a panel of this width")
            one.set_ylabel("A label that is far too long for a panel of this height, and then some")
    found = complaints(figure)
    assert any("is cut off" in line for line in found)
    assert any("title" in line and " on " in line for line in found)


LONG = {"long": "Llama-3.1-8B-Instruct", "longer": "DeepSeek-R1-Distill-Qwen-1.5B-Instruct", "longest": "W" * 60}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("heads", "long"),
        ("fillers", "longer"),
        ("layers", "longest"),
        pytest.param("layers", "long", marks=pytest.mark.slow),
        pytest.param("heads", "longer", marks=pytest.mark.slow),
    ],
)
def test_a_long_name_of_a_model_fits(built: Built, name: str, label: str) -> None:
    label = LONG[label]
    run = built(Synthetic(labels={"m": label}, heads=32, problems=2, layers=3))
    figure = draw(run, name, Request(heads=(20, 25, 26))).figure
    assert complaints(figure) == []
    head = 25 if name != "layers" else 20
    assert figure.axes[1].get_title().replace("\n", " ") == f"{label} Layer {2 if name == 'layers' else 1} Head {head}"
    sizes = {one.title.get_fontsize() for one in figure.axes}
    assert len(sizes) == 1, "titles of one figure are of one size"
    if label.startswith("Llama"):
        assert "\n" not in figure.axes[1].get_title()
        assert sizes.pop() >= 6.5


@pytest.mark.parametrize("name", ["headmap", "depth"])
def test_a_long_name_stands_above_all_panels(built: Built, name: str) -> None:
    run = built(Synthetic(labels={"m": "DeepSeek-R1-Distill-Qwen-1.5B-Instruct"}, problems=4))
    assert complaints(draw(run, name).figure) == []


def test_three_models_of_unequal_names(built: Built) -> None:
    labels = {"a": "Qwen2.5-Math-7B", "b": "Llama-3.1-8B-Instruct", "c": "gemma-3-4b-it"}
    figure = draw(built(Synthetic(labels=labels, problems=4)), "fillers").figure
    assert complaints(figure) == []


@pytest.mark.parametrize(("layers", "heads"), [(32, 32), (1, 1), pytest.param(80, 64, marks=pytest.mark.slow)])
def test_headmaps_of_all_sizes(built: Built, layers: int, heads: int) -> None:
    drop = np.random.default_rng(0).lognormal(0, 0.3, (layers, heads))
    recipe = Synthetic(
        layers=layers, heads=heads, problems=2, system=3, shortest=2, effects={"mless": Effect(drop=drop, mass=0.01)}
    )
    figure = draw(built(recipe), "headmap").figure
    assert complaints(figure) == []
    assert figure.get_figwidth() <= 7.2
    assert figure.get_figheight() <= 9


@pytest.mark.parametrize("name", ["fillers", "headmap", "depth"])
def test_six_conditions(built: Built, name: str) -> None:
    run = built(Synthetic(conditions=SIX, problems=6))
    figure = draw(run, name, Request(conditions=tuple(run.fillers))).figure
    assert complaints(figure) == []
    if name == "fillers":
        assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 6
    if name == "headmap":
        assert len(figure.axes) == 7


@pytest.mark.parametrize("count", some_fast([2, 4, 5], 5))
def test_head_maps_in_an_unfinished_row(built: Built, count: int) -> None:
    figure = draw(built(Synthetic(conditions=SIX[: count + 1], problems=6)), "headmap").figure
    assert complaints(figure) == []
    assert len(figure.axes) == count + 1  # and the colour bar


@pytest.mark.parametrize("name", ["headmap", "depth"])
def test_one_filler_alone(built: Built, name: str) -> None:
    run = built(Synthetic(conditions=(NONE, SIX[4]), problems=6))
    assert complaints(draw(run, name).figure) == []


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("heads", (1, 2, 3, 4, 5)),
        ("fillers", (2,)),
        ("layers", (3,)),
        pytest.param("heads", (1,), marks=pytest.mark.slow),
    ],
)
def test_one_panel_and_five(built: Built, name: str, heads: tuple[int, ...]) -> None:
    run = built(Synthetic(heads=8, problems=4, labels={"m": "Llama-3.1-8B-Instruct"}))
    figure = draw(run, name, Request(heads=heads, layers=(1,), strict=True)).figure
    assert len(figure.axes) == len(heads) * (2 if name == "heads" else 1)
    assert complaints(figure) == []


@pytest.fixture(scope="module")
def places(built: Built) -> Run:
    """Filler wide or narrow, on the left or the right, and beyond the end of the axis."""
    long = Condition(name="long", kind="repeat", text=" /", count=200, label="Two hundred tokens, in a very long row")
    start = Condition(name="start", kind="repeat", text=" /", count=5, position="start", label="First of all")
    return built(Synthetic(conditions=(NONE, SIX[4], SIX[5], long, start), layers=1))


@pytest.mark.parametrize("condition", some_fast(["short", "noise", "long", "start"], "long", "start"))
def test_the_name_of_the_region_covers_no_line(places: Run, condition: str) -> None:
    figure = draw(places, "heads", Request(conditions=(condition,))).figure
    assert complaints(figure) == []
    for axes in figure.axes[3:]:
        assert hidden_points(axes) == []
        (text,) = axes.texts
        box, panel = text.get_window_extent(), axes.get_window_extent()
        assert panel.x0 <= box.x0
        assert box.x1 <= panel.x1 + 5


def test_a_region_beyond_the_axis_is_not_named_there(built: Built) -> None:
    far = Condition(name="far", kind="repeat", text=" /", count=5, position="end", label="Far away")
    run = built(Synthetic(conditions=(NONE, far), system=130, problems=4))
    figure = draw(run, "heads").figure
    assert complaints(figure) == []
    assert [list(axes.texts) for axes in figure.axes] == [[]] * 6


def test_a_legend_takes_as_many_rows_as_it_needs() -> None:
    with styled():
        figure, axes = grid(1, 3, 2.2)
        for number in range(9):
            axes[0, 0].plot([0, 1], [0, number], label=f"A fairly long name of a condition {number}")
        legend(figure, axes.flat)
    assert complaints(figure) == []
    assert figure.get_figheight() > 2.2


NAMES = (
    "Qwen2.5-Math-7B",
    "Llama-3.1-8B-Instruct",
    "DeepSeek-R1-Distill-Qwen-1.5B-Instruct",
    "gemma-3-27b-it",
    "Qwen2.5-Math-1.5B",
    "W" * 30,
)
RIGHT = {"none": 0.6, "mless": 1.0, "random": 0.1, "mful": 0.7, "short": 0.0}


def answered(models: int, conditions: tuple[Condition, ...], **changes: object) -> Synthetic:
    labels = {f"Qwen/Qwen2.5-Math-7B{'x' * n}": NAMES[n] for n in range(models)}
    settings = {"labels": labels, "conditions": conditions, "right": RIGHT, "problems": 24, "layers": 1, "heads": 2}
    settings |= {"source": "hub:HuggingFaceH4/MATH-500", "shard": 1000}  # one file of answers a model
    return Synthetic(**(settings | changes))  # type: ignore[arg-type]


SIZES = [(1, 1), (1, 3), (1, 5), (2, 2), (3, 2), (3, 4), (6, 2), (6, 3), (6, 5)]
COMPOSITES = [(models, fillers, attention) for models, fillers in SIZES for attention in (True, False)]


@pytest.mark.parametrize(
    "size", some_fast(COMPOSITES, (1, 1, False), (1, 3, True), (2, 2, True), (3, 4, False), (6, 5, True))
)
def test_composites_of_all_sizes(built: Built, size: tuple[int, int, bool]) -> None:
    models, fillers, attention = size
    run = built(answered(models, SIX[: fillers + 1], attention=attention))
    figure = draw(run, "composite", Request(conditions=tuple(run.fillers))).figure
    assert complaints(figure) == []
    assert figure.get_figwidth() <= 7.2
    assert figure.get_figheight() <= 9
    bars = next(axes for axes in figure.axes if axes.get_title().startswith("Results"))
    assert max(text.get_window_extent().y1 for text in bars.texts) <= bars.get_window_extent().y1, "above the axis"


def test_a_composite_of_many_models_turns_its_numbers(built: Built) -> None:
    labels = {f"m{n}": f"Model-{n}" for n in range(12)}
    run = built(answered(1, SIX[:5], labels=labels, attention=False))
    figure = draw(run, "composite", Request(conditions=tuple(run.fillers))).figure
    assert complaints(figure) == []
    assert {text.get_rotation() for text in figure.axes[0].texts} == {90.0}


def test_a_composite_of_data_with_a_long_name(built: Built) -> None:
    source = "/data/a-file-with-problems-whose-name-goes-on-and-on-for-much-longer-than-a-title-may.jsonl"
    run = built(answered(1, SIX[:3], source=source))
    figure = draw(run, "composite").figure
    assert complaints(figure) == []


SWEEPS = list(product(("length", "position"), (1, 2, 3, 6), (True, False)))


@pytest.mark.parametrize(
    "sweep",
    some_fast(SWEEPS, ("length", 1, True), ("length", 6, False), ("position", 2, False), ("position", 3, True)),
)
def test_sweeps_of_several_fillers(built: Built, sweep: tuple[str, int, bool]) -> None:
    name, lines, attention = sweep
    item: dict[str, object] = {"name": "x", "kind": "repeat", "text": [" /", " ?", " he", " so", " -", " +"][:lines]}
    lengths = {"count": [10, 25, 40, 55, 70]}
    places = {"count": 55, "position": ["start", "before_question", "end", "random"]}
    cells = swept(item | (lengths if name == "length" else places))
    right = {"none": 0.6} | {cell.name: (7 * index % 24) / 24 for index, cell in enumerate(cells[1:])}
    figure = draw(built(answered(1, cells, right=right, attention=attention)), name).figure
    assert complaints(figure) == []
    assert figure.get_figwidth() <= 7.2
    if name == "position":
        texts = figure.axes[0].texts
        assert max(text.get_window_extent().y1 for text in texts) <= figure.axes[0].get_window_extent().y1


@pytest.mark.parametrize("share", some_fast([0.1, 0.5, 0.6, 0.63, 0.65, 0.7, 0.9], 0.1, 0.65))
def test_no_number_covers_a_hollow_mark(built: Built, share: float) -> None:
    """Published: 72.3 and 74.6 per cent."""
    slashes = MLESS.model_copy(update={"count": 55})
    right = {"none": share, "mless": share, "random": share}
    run = built(answered(6, (NONE, slashes, RANDOM), right=right, problems=200, attention=False))
    figure = draw(run, "composite", Request(conditions=("mless", "random"))).figure
    assert complaints(figure) == []
    axes = figure.axes[0]
    marks = next(line for line in axes.get_lines() if line.get_marker() == "D")
    points = axes.transData.transform(marks.get_xydata())
    assert len(points) == 2
    reach = 2.0 * figure.dpi / 72
    for text in axes.texts:
        assert share > 0.1 or text.xy[1] < 20, "a mark far above does not take the number away from its bar"
        box = text.get_window_extent().expanded(0.9, 1.0).padded(reach)
        assert not any(box.contains(*point) for point in points), text.get_text()
