"""Figures of the mechanism show the tables' numbers, also in awkward runs, and refuse what they cannot show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.activations import octaves
from fillerscope.figures.affine import CHANCE
from fillerscope.figures.condition_text import name_of, recipe
from fillerscope.figures.layer_map import LIMIT, measures
from fillerscope.figures.looks import COLOURS, condition_look
from fillerscope.figures.registry import check, draw, names_for
from fillerscope.figures.request import Request
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.study import FigureSpec
from support.grid import grid, some_fast
from support.pages import SIX, complaints
from support.synthetic import EDGES, MLESS, NONE, RANDOM, Mechanism, Synthetic, swept

Built = Callable[[Synthetic], Run]
BY_LAYER = ("affine", "activations", "layermap", "lookback")


def line(axes: Axes, colour: str, number: int = 0) -> np.ndarray:
    found = [one for one in axes.get_lines() if one.get_color() == colour and len(one.get_xdata()) > 2]
    return np.asarray(found[number].get_ydata())


def test_affine_shows_the_table(inside: Run) -> None:
    figure = draw(inside, "affine").figure
    for name in ("mless", "random", "knockout"):
        table, colour = affine_table(inside[None], name), condition_look(inside, name).colour
        scaling, explained, direction, size = figure.axes
        np.testing.assert_array_equal(line(scaling, colour), table.values["lambda_fit"][0])
        np.testing.assert_array_equal(line(scaling, colour, 1), table.values["lambda_mass"][0])
        np.testing.assert_array_equal(line(explained, colour), table.values["explained"][0])
        np.testing.assert_array_equal(line(direction, colour), table.values["direction"][0])
        np.testing.assert_array_equal(line(direction, colour, 1), table.consistency)
        np.testing.assert_array_equal(line(size, colour), table.values["relative_bias"][0])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    shown = ("mless", "random", "knockout", "positions")
    assert labels == [*(name_of(inside, name) for name in shown), CHANCE]
    labels = [
        text.get_text() for text in draw(inside, "affine", Request(conditions=("arm",))).figure.legends[0].get_texts()
    ]
    assert labels == [name_of(inside, "arm"), CHANCE]
    bands = [band.get_paths()[0].get_extents() for band in figure.axes[0].collections[:1]]
    assert bands[0].y0 == pytest.approx(affine_table(inside[None], "mless").values["lambda_fit"][1].min())


def test_lookback_shows_conditions_with_filler_alone(inside: Run) -> None:
    drawn = draw(inside, "lookback")
    table = lookback_table(inside[None], "random")
    mass, tokens = drawn.figure.axes
    np.testing.assert_array_equal(line(mass, COLOURS[3]), table.values["answer"][0])
    np.testing.assert_array_equal(line(mass, COLOURS[3], 1), table.values["question"][0])
    np.testing.assert_array_equal(line(tokens, COLOURS[3]), table.values["per_filler"][0])
    np.testing.assert_array_equal(line(tokens, COLOURS[3], 1), table.values["per_original"][0])
    assert list(dict.fromkeys(drawn.table["condition"])) == ["mless", "random", "knockout"]
    with pytest.raises(FigureError, match="`lookback` looks at filler, and none of these conditions has any"):
        draw(inside, "lookback", Request(conditions=("arm",)))


def test_activations_by_layer(inside: Run) -> None:
    figure = draw(inside, "activations").figure
    near, variance, l1, gini = figure.axes[1:]
    table = activation_table(inside[None], "random")
    np.testing.assert_allclose(line(near, COLOURS[3]), 100 * table.difference["near_zero"][0])
    np.testing.assert_array_equal(line(variance, COLOURS[3]), table.ratio["variance"][0])
    np.testing.assert_array_equal(line(l1, COLOURS[3]), table.ratio["l1"][0])
    np.testing.assert_array_equal(line(gini, COLOURS[3]), table.difference["gini"][0])
    assert figure.axes[0].get_title() == "Layer 1"


def test_histograms_are_densities_on_an_axis_of_octaves(inside: Run) -> None:
    panel = draw(inside, "activations", Request(layers=(2,), conditions=("mless",))).figure.axes[0]
    assert panel.get_title() == "Layer 2"
    for patch, name in zip(panel.patches, ("none", "mless"), strict=True):
        data = patch.get_data()
        counts = inside[None].histogram(name)[1]
        np.testing.assert_allclose(data.values * np.diff(data.edges), counts / counts.sum())
    (inset,) = panel.child_axes
    assert inset.get_xlim() == pytest.approx((-0.6, 0.6)), "eps of layer 2 is 0.2"
    dashed = sorted(one.get_xdata()[0] for one in inset.get_lines())
    assert dashed == pytest.approx([-0.2, 0.2])
    zoomed = inset.patches[0].get_data()
    np.testing.assert_allclose(zoomed.values * np.diff(EDGES), data_share(inside, "none", 1))
    panel.figure.draw_without_rendering()
    box = inset.get_window_extent()
    highest = max(patch.get_data().values.max() for patch in panel.patches)
    assert panel.transData.transform((0, highest))[1] < box.y0 - 20, "the inset covers no line"


def data_share(run: Run, condition: str, layer: int) -> np.ndarray:
    counts = run[None].histogram(condition)[layer]
    return np.asarray(counts / counts.sum())


def test_octaves_are_equally_wide_on_both_sides() -> None:
    places = octaves(np.array([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0]))
    assert places.tolist() == [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]
    assert octaves(np.array([-2.0, -1.0, 0.0, 1.0, 2.0])).tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_classes_of_tokens(tmp_path: Path) -> None:
    run = Synthetic(activations=True, missing={"digits": (0, 1, 2), "words": tuple(range(12))}).build(tmp_path / "run")
    drawn = draw(run, "tokenclasses", Request(layers=(1, 3)))
    assert complaints(drawn.figure) == []
    names = [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()]
    assert names == ["all (n = 12)", "digits (n = 9)", "operators (n = 12)", "words (n = 0)", "other (n = 12)"]
    assert [axes.get_title() for axes in drawn.figure.axes] == ["Layer 1", "Layer 1", "Layer 3", "Layer 3"]
    for panel, layer in ((0, 1), (2, 3)):
        points = drawn.figure.axes[panel].containers[0].lines[0].get_xdata()
        tables = [activation_table(run[None], "mless", cls) for cls in run.classes]
        expected = [100 * table.difference["near_zero"][0][layer - 1] for table in tables]
        np.testing.assert_allclose(points, expected)
    assert len(drawn.table["token_class"]) == 2 * 5 * 2


def test_the_layer_map_holds_standardised_changes(inside: Run) -> None:
    rows = {row.name: row for row in measures(inside["tiny-a"], "mless")}
    samples = activation_table(inside[None], "mless").samples["near_zero"]
    expected = samples.mean(axis=0) / samples.std(axis=0, ddof=1)
    np.testing.assert_allclose(rows["Activations near zero"].effect, np.clip(expected, -LIMIT, LIMIT), atol=1e-6)
    pair = [inside.summary("received_original", name).mean(axis=-1) for name in ("mless", "none")]
    logs = np.log(pair[0] / pair[1])
    effect = np.clip(logs.mean(axis=0) / logs.std(axis=0, ddof=1), -LIMIT, LIMIT)
    np.testing.assert_allclose(rows["Attention on original tokens"].effect, effect)
    assert rows["Lambda - 1"].effect[0] == -LIMIT
    np.testing.assert_allclose(rows["Across problems"].effect, 0.6, rtol=1e-6)
    np.testing.assert_allclose(rows["Filler mass, answer"].mean, 0.5 * rows["Filler mass"].mean, rtol=1e-4)
    assert (rows["Activations below median"].effect == 0).all(), "no change at all is no effect"
    arm = {row.name for row in measures(inside["tiny-a"], "arm")}
    assert set(rows) - arm == {"Filler mass", "Filler mass, answer"}


def test_one_problem_has_no_effect_in_standard_deviations(tmp_path: Path) -> None:
    run = Synthetic(problems=1, affine=True, activations=True).build(tmp_path / "run")
    for row in measures(run["tiny-a"], "mless"):
        assert np.isnan(row.effect).all() == row.is_change


def test_dots_stand_where_the_interval_reaches_no_change(inside: Run) -> None:
    drawn = draw(inside, "layermap", Request(conditions=("mless",)))
    dots = np.concatenate([found.get_offsets() for found in drawn.figure.axes[0].collections])
    table = drawn.table
    unsure = (table["kind"] == "change") & (table["low"] <= 0) & (table["high"] >= 0)
    assert 0 < unsure.sum() == len(dots) < (table["kind"] == "change").sum()
    near = list(dict.fromkeys(table["measure"])).index("Activations near zero")
    assert sorted(x for x, y in dots if y == near) == [2, 3]


def arm_run(folder: Path, item: dict[str, object], **options: object) -> Run:
    cells = swept(item)
    mechanisms = {cell.name: Mechanism(near_zero=(-0.01 * place, 0.0)) for place, cell in enumerate(cells[1:])}
    settings = {"conditions": cells, "activations": True, "mechanisms": mechanisms} | options
    return Synthetic(**settings).build(folder / "run")  # type: ignore[arg-type]


GRID = {"name": "arms", "label": "ARM", "intervention": {"kind": "arm", "c": [0.05, 0.13], "p1": [90, 95, 99.5]}}


def test_arm_without_answers_shows_activations(tmp_path: Path) -> None:
    figure = draw(arm_run(tmp_path, GRID), "arm").figure
    assert [axes.get_title() for axes in figure.axes] == ["ARM: near zero, points", "ARM: variance, ratio"]
    near = figure.axes[0]
    assert [text.get_text() for text in near.get_xticklabels()] == ["90", "95", "99.5"]
    assert [text.get_text() for text in near.get_yticklabels()] == ["0.05", "0.13"]
    assert (near.get_xlabel(), near.get_ylabel()) == ("p1", "c")
    texts = {text.get_position(): text.get_text() for text in near.texts}
    assert texts[1, 1].startswith("-4.0***\n[-4.")
    assert texts[0, 0].startswith("+0.0\n[")
    np.testing.assert_allclose(near.images[0].get_array(), [[0, -1, -2], [-3, -4, -5]], atol=1e-4)
    assert complaints(figure) == []


def test_arm_has_a_map_for_each_filler_that_is_swept_with_it(tmp_path: Path) -> None:
    item = {
        "name": "d",
        "kind": "repeat",
        "text": " .",
        "count": [5, 9],
        "intervention": {"kind": "arm", "c": [0.1, 0.3]},
    }
    drawn = draw(arm_run(tmp_path, item, right={"none": 0.5}), "arm")
    titles = [axes.get_title() for axes in drawn.figure.axes]
    assert titles == ["d, 5 tokens: accuracy, points", "d, 9 tokens: accuracy, points"]
    assert all(len(axes.texts) == 2 for axes in drawn.figure.axes)


def test_arm_with_answers_shows_accuracy(tmp_path: Path) -> None:
    right = {"none": 0.5, "arms-c0.13-p195": 1.0, "arms-c0.05-p190": 0.25}
    run = arm_run(tmp_path, GRID, right=right, problems=40)
    drawn = draw(run, "arm")
    (panel,) = drawn.figure.axes
    texts = {text.get_position(): text.get_text() for text in panel.texts}
    assert texts[1, 1].startswith("+50.0***\n[+")
    assert texts[0, 0].startswith("-25.0**\n[-")
    assert texts[2, 0].startswith("+0.0\n[")
    assert "adjusted by Holm over 6 comparisons" in drawn.caption
    assert "arms: ARM in layer 1, c 0.05 or 0.13, p1 90, 95 or 99.5, add." in drawn.caption
    assert complaints(drawn.figure) == []


@pytest.mark.parametrize(
    ("settings", "panels", "axes"),
    [
        ({"c": [0.05, 0.1, 0.2]}, 2, ("p1", "c")),
        ({"p1": [90, 99]}, 2, ("c", "p1")),
        ({"fraction": [0.1, 0.2], "p_max": [0.3, 0.4]}, 2, ("p_max", "fraction")),
        ({"c": [0.1, 0.2], "p1": [90, 99], "layers": [[1], [2], [1, 2]]}, 6, ("p1", "c")),
    ],
)
def test_arm_along_any_settings(
    tmp_path: Path, settings: dict[str, object], panels: int, axes: tuple[str, str]
) -> None:
    run = arm_run(tmp_path, {"name": "x", "intervention": {"kind": "gaussian"} | settings}, problems=6)
    figure = draw(run, "arm").figure
    assert len(figure.axes) == panels
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == axes
    assert complaints(figure) == []
    if "layers" in settings:
        assert figure.axes[5].get_title() == "x, layer 1, 2: variance, ratio"


@pytest.mark.parametrize(
    ("name", "case"),
    grid([*BY_LAYER, "tokenclasses"], ["deep", "six", "one problem", "one layer", "long name"]),
)
def test_awkward_runs(built: Built, name: str, case: str) -> None:
    options: dict[str, object] = {
        "deep": {"layers": 32, "heads": 2, "problems": 3},
        "six": {"conditions": SIX},
        "one problem": {"problems": 1, "conditions": (NONE, MLESS)},
        "one layer": {"layers": 1, "problems": 3},
        "long name": {"labels": {"m": "DeepSeek-R1-Distill-Qwen-1.5B-Instruct"}, "problems": 3},
    }[case]
    settings = {"problems": 6, "affine": True, "activations": True, "answering": True, "right": {"none": 1.0}}
    settings |= {"missing": {"digits": (0,)}} | options
    figure = draw(built(Synthetic(**settings)), name).figure  # type: ignore[arg-type]
    assert complaints(figure) == []
    assert figure.get_figwidth() <= 7.2
    assert figure.get_figheight() <= 9


@pytest.mark.parametrize("name", [*BY_LAYER, "tokenclasses", "arm"])
def test_a_study_that_lacks_the_numbers_is_told_what_to_add(run: Run, name: str) -> None:
    study = run.study.model_copy(update={"figures": (FigureSpec(name=name),)})
    with pytest.raises(FigureError, match=rf"figure '{name}' .*(`probes: \{{|needs a condition)"):
        check(study)
    if name != "layermap":
        with pytest.raises(FigureError, match=r"this run|`arm` goes along settings"):
            draw(run, name)


def test_arm_needs_answers_or_activations(tmp_path: Path) -> None:
    with pytest.raises(FigureError, match="`arm` needs answers or activations: give `generation` or"):
        draw(arm_run(tmp_path, GRID, activations=False, problems=2), "arm")


def test_a_layer_map_of_attention_alone(run: Run) -> None:
    drawn = draw(run, "layermap")
    assert complaints(drawn.figure) == []
    assert len(set(drawn.table["measure"])) == 4


def test_by_default_a_run_draws_what_it_has_numbers_for(run: Run, inside: Run, tmp_path: Path) -> None:
    new = {*BY_LAYER, "tokenclasses", "arm"}
    assert not new & set(names_for(run))
    assert new <= set(names_for(inside))
    affine = Synthetic(affine=True, problems=2).build(tmp_path / "affine")
    assert new & set(names_for(affine)) == {"affine", "layermap"}


def test_cells_of_a_sweep_are_shown_where_they_are_asked_for(inside: Run) -> None:
    names = ("arms-c0.05-p190", "arms-c0.13-p195")
    drawn = draw(inside, "affine", Request(conditions=names))
    assert tuple(dict.fromkeys(drawn.table["condition"])) == names
    assert not [name for name in draw(inside, "affine").table["condition"] if name.startswith("arms")]
    with pytest.raises(FigureError, match="`affine` shows at most 6 fillers, not 7"):
        draw(inside, "affine", Request(conditions=tuple(inside.fillers[:7])))
    with pytest.raises(FigureError, match="there is no layer 9: Tiny-A has layers 1 to 3"):
        draw(inside, "tokenclasses", Request(layers=(9,)))


@pytest.mark.parametrize("name", some_fast(["heads", "layers", "depth", "headmap"], "layers", "headmap"))
def test_figures_of_attention_take_answers_as_queries(inside: Run, name: str) -> None:
    drawn = draw(inside, name, Request(queries="answer", conditions=("mless",)))
    assert complaints(drawn.figure) == []
    assert "mean over queries: the tokens of the model's own answer;" in drawn.caption


def test_depth_with_answers_as_queries_shows_their_mass(inside: Run) -> None:
    mass = draw(inside, "depth", Request(queries="answer", conditions=("mless",))).table["mass"]
    usual = draw(inside, "depth", Request(conditions=("mless",))).table["mass"]
    np.testing.assert_allclose(mass, 0.5 * usual, rtol=1e-4)


WORDS = {
    "arm": "arm: ARM in layer 1, c 0.13, p1 99.5, add.",
    "scatter": "scatter: as many random elements as ARM moves, as far, in layer 1, c 0.13, p1 99.5, add.",
    "gaussian": "gaussian: noise as large as what ARM adds in layer 1, c 0.13, p1 99.5, add.",
    "knockout": "knockout: ' /' repeated, 55 tokens, before the question, hidden from all later tokens.",
    "positions": "positions: no filler, positions of the question moved by 55.",
    "mless": "mless: ' /' repeated, 55 tokens, before the question.",
}


@pytest.mark.parametrize("name", WORDS)
def test_a_caption_says_what_a_condition_is(name: str) -> None:
    assert recipe(name, [PRESETS[name]]) == WORDS[name]


def test_a_caption_says_what_is_unusual_about_it() -> None:
    both = Condition(
        name="x", kind="repeat", text=" /", count=5,
        intervention={"kind": "arm", "fraction": 0.25, "p1": 85, "layers": [2, 3], "mode": "replace"},
    )  # fmt: skip
    assert recipe("x", [both]) == (
        "x: ' /' repeated, 5 tokens, before the question, ARM in layers 2, 3, fraction 0.25, p1 85, replace."
    )
    limits = Condition(name="y", intervention={"kind": "arm", "p_max": 0.5})
    assert "c 0.13, at least and at most 0.02 to 0.5 of the elements, p1" in recipe("y", [limits])
    released = Condition(name="g", intervention={"kind": "arm", "preset": "gemma-3-4b-it", "follows": "code"})
    assert recipe("g", [released]).endswith("fraction 0.25, at least one element, p1 85 of |a|, replace.")
    some = Condition(name="z", kind="repeat", text=" /", count=5, intervention={"kind": "knockout", "layers": [1, 2]})
    assert recipe("z", [some]).endswith("hidden from all later tokens in layers 1, 2.")


USUAL = [(name, others) for name in ("heads", "layers", "headmap", "depth", "composite") for others in ("", "mless")]


@pytest.mark.parametrize(
    "figure", some_fast(USUAL, ("heads", "mless"), ("layers", ""), ("headmap", ""), *USUAL[6:8], ("composite", "mless"))
)
def test_a_run_with_interventions_draws_the_usual_figures(built: Built, figure: tuple[str, str]) -> None:
    name, others = figure[0], (MLESS,) if figure[1] else ()
    conditions = (NONE, PRESETS["arm"], PRESETS["positions"], *others)
    run = built(Synthetic(conditions=conditions, right={"none": 0.5}, problems=4))
    drawn = draw(run, name)
    assert complaints(drawn.figure) == []
    if name in ("heads", "layers"):
        first = name_of(run, "mless" if others else "arm")
        assert f"n = 4 problems. {first}: " in drawn.caption, "the filler comes before what is done inside"
    if name == "depth":
        assert len(drawn.figure.axes) == (3 if others else 1)
        assert drawn.figure.axes[-1].get_ylabel() == "Condition / none"
    if name in ("depth", "headmap"):
        assert "original tokens, condition / none" in drawn.caption


def test_fillers_are_compared_as_they_are(tmp_path: Path) -> None:
    hidden = Condition(name="hidden", kind="repeat", text=" /", count=30, intervention={"kind": "knockout"})
    run = Synthetic(conditions=(NONE, hidden, MLESS, RANDOM), problems=4).build(tmp_path / "run")
    assert set(draw(run, "fillers").table["condition"]) == {"mless", "random"}
