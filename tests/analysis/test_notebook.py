"""What notebooks show of runs, profiles and head tables, and that it never raises."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import fillerscope
from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.heads import SHOWN, Column, HeadTable, head_table
from fillerscope.analysis.inline_svg import BLUE, ORANGE
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.run import Run
from fillerscope.api import open_run
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import PROBLEMS, answers_name, merged_name
from fillerscope.study.conditions import Condition
from support.answered import build, drawn_at_random
from support.studies import replace_study
from support.synthetic import MLESS, NONE, RANDOM, Effect, Synthetic

HOSTILE = "<script>alert('x')</script>\"\u202e\x07"
SAFE = "<script>alert('x')</script>\"\ufffd\ufffd"
Shared = Callable[[str, Callable[[Path], object]], Path]
SVG = "{http://www.w3.org/2000/svg}"


def parsed(html: str) -> ElementTree.Element:
    """Well-formed, and nothing in it is run or fetched."""
    assert "http" not in html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"<script|<style|<link|<iframe|\sid=|\son\w+=|url\(|@import", html)
    return ElementTree.fromstring(html)


def words(html: str) -> str:
    return "\n".join(parsed(html).itertext())


def rows(html: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parsed(html).iter("tr")]


def tips(html: str) -> list[str]:
    return [title.text or "" for title in parsed(html).iter(f"{SVG}title")]


def shown(thing: object) -> str:
    """As IPython asks for it; through its own formatter where it is installed. A run is opened as users open it."""
    if isinstance(thing, Run) and not isinstance(thing, fillerscope.Run):
        thing = open_run(thing.path)
    try:
        from IPython.core.formatters import HTMLFormatter  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return str(thing._repr_html_())  # type: ignore[attr-defined]
    return str(HTMLFormatter()(thing))


def interval(row: dict[str, float], name: str) -> str:
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


def test_a_head_table_shows_every_head_and_the_strongest(tmp_path: Path) -> None:
    drops = np.array([[0.8, 1.001, 0.9, 1.2], [0.7, 0.95, 1.0, 0.6], [1.3, 0.85, 0.99, 0.5]])
    found = head_table(Synthetic(effects={"mless": Effect(drop=drops)}).build(tmp_path / "run")[None], "mless")
    html = shown(found)
    assert words(html).startswith("Tiny-A: mless against none, queries original, n = 12")
    places = [(layer, head) for layer in (1, 2, 3) for head in (1, 2, 3, 4)]
    assert tips(html) == [f"layer {la}, head {he}: {interval(found.row(la, he), 'drop')}" for la, he in places]
    dots = len(list(parsed(html).iter(f"{SVG}circle")))
    assert dots == ((found.columns["drop"].low <= 1) & (found.columns["drop"].high >= 1)).sum() == 3
    assert rows(html)[1:] == [
        [
            f"layer {layer}, head {head}",
            *(interval(found.row(layer, head), name) for name in SHOWN if found.knows(name)),
        ]
        for layer, head in found.ranked("drop")[:5]
    ]


def table_of(layers: int, heads: int) -> HeadTable:
    value = np.full((layers, heads), 0.9)
    column = Column(value, value - 0.05, value + 0.05, value[None])
    columns = dict.fromkeys(("drop", "mass", "peak", "entropy"), column)
    return HeadTable("m", "M", "mless", "original", 5, columns)


def test_head_maps_stay_small_and_take_any_number() -> None:
    assert len(shown(table_of(32, 32)).encode()) < 200_000
    odd = np.array([[np.nan, np.inf, 0.0]])
    column = Column(odd, odd * np.nan, odd * np.nan, odd[None])
    html = shown(
        replace(table_of(1, 3), columns=dict.fromkeys(("drop", "mass", "peak", "entropy", "received"), column))
    )
    assert tips(html) == ["layer 1, head 1: -", "layer 1, head 2: inf", "layer 1, head 3: 0.000"]


def test_one_head_is_a_curve_with_its_numbers(run: Run) -> None:
    one = run.profile("mless", view="whole").head(1, 2)
    html = shown(one)
    low, high = one.interval()
    mean, stop = one.mean[0, 0], one.reach()
    assert tips(html)[0] == f'position 0, "s0": {mean[0]:.3g} [{low[0, 0, 0]:.3g}, {high[0, 0, 0]:.3g}]'
    assert tips(html)[25].startswith('position 25, "\u00b7": ')
    assert tips(html)[60].startswith("position 60: "), "problems differ there"
    assert len(tips(html)) == stop < one.positions
    assert f"{one.positions - stop} positions that fewer than half of the problems have are left out" in words(html)
    assert "filler" in words(html)
    assert ORANGE in html
    assert BLUE not in html
    assert BLUE in shown(run.profile("none").head(1, 1))


def test_a_first_token_that_dwarfs_the_others_is_cut_and_told() -> None:
    mean = np.array([[[0.9, 0.1, 0.05, 0.1]]])
    html = shown(Profile("M all", Moments(np.array([[[4] * 4]]), mean, mean / 1e6, 0 * mean), 4))
    assert "Position 0 receives 0.9, beyond the frame." in words(html)
    assert "beyond the frame" not in shown(
        Profile("M all", Moments(np.array([[[4]]]), *(part[..., 1:] for part in (mean, mean, 0 * mean))), 4)
    )


def test_several_layers_are_a_map_of_means_over_heads(run: Run) -> None:
    profile = run.profile("mless", view="whole")
    by_layer = profile.mean.mean(axis=1)
    strongest = int(by_layer[:, 5].argmax())
    tip = f'position 5, "s5": strongest in layer {strongest + 1}, {by_layer[strongest, 5]:.3g}'
    assert tips(shown(profile))[5] == tip
    assert "Mean over problems and heads." in words(shown(profile))
    assert "Change in attention" in words(shown(run.profile("mless", view="difference")))
    assert "Log ratio of attention" in words(shown(run.profile("mless", view="logratio")))


def test_one_layer_is_a_map_of_its_heads() -> None:
    mean = np.array([[[0.1, 0.2, 0.3], [0.3, 0.1, 0.4]]])
    html = shown(Profile("M all", Moments(np.full((1, 1, 3), 2), mean, mean, mean), 2, ("a", "", "\n")))
    assert tips(html) == [
        'position 0, "a": strongest in head 2, 0.3', "position 1: strongest in head 1, 0.2",
        'position 2, "\u21b5": strongest in head 2, 0.4',
    ]  # fmt: skip


def test_profiles_stay_small() -> None:
    mean = np.random.default_rng(0).lognormal(-7, 1, (32, 32, 2048))
    tokens = tuple(f" <token & {index}>" + "&" * 30 for index in range(2048))
    large = Profile("Large all", Moments(np.full((1, 1, 2048), 9), mean, mean**2, mean**3), 9, tokens)
    for profile in (
        large,
        large.head(3, 4),
        replace(large, moments=Moments(*(m[:1] for m in large.moments.state().values()))),
    ):
        html = shown(profile)
        parsed(html)
        assert len(html.encode()) < 200_000
        assert "of 4 positions" in words(html)


@pytest.mark.parametrize("shape", [(1, 1, 0), (2, 2, 0), (1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("count", [0, 1])
def test_profiles_of_little_or_nothing(shape: tuple[int, int, int], count: int) -> None:
    profile = Profile("M all", Moments(np.full((1, 1, shape[2]), count), *(np.zeros(shape) for _ in range(3))), count)
    parsed(shown(profile))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = Synthetic(right={"none": 0.8, "mless": 0.3, "random": 0.5}, problems=40, shard=16, failed=(3,))
    return recipe.build(tmp_path_factory.mktemp("notebook") / "a run")


def test_a_run_says_what_it_is(answered: Run) -> None:
    said = words(shown(answered))
    assert "Run synthetic" in said
    assert "finished" in said
    assert "not finished" not in said
    assert "Tiny-A (tiny-a)" in said
    assert "builtin, n = 39, 1 failed" in said
    assert "none, mless (Meaningless tokens), random (Random sentence)" in said
    assert "attention, answers of at most 512 tokens" in said
    assert f"fillerscope view '{answered.path}'" in said


def test_a_run_compares_its_answers(answered: Run) -> None:
    found = compare(answered)
    table = rows(shown(answered))
    assert [row[0] for row in table] == ["condition", "none", "mless", "random"]
    assert table[1][1:] == ["40", f"80.0 [{100 * found[0].low:.1f}, {100 * found[0].high:.1f}]", "", ""]
    change = found[1].against
    assert change is not None
    assert table[2][3:] == [
        f"-50.0 [{100 * change.difference_low:+.1f}, {100 * change.difference_high:+.1f}]", f"{change.adjusted:.3g}",
    ]  # fmt: skip


def test_a_run_shows_the_heads_of_its_main_condition(answered: Run) -> None:
    assert tips(shown(answered)) == tips(shown(head_table(answered[None], "mless")))


def test_both_ways_to_open_a_run_show_it(answered: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    html = shown(answered)
    assert fillerscope.open_run(answered.path)._repr_html_() == html
    monkeypatch.setattr("fillerscope.measure.run_study.run_study", lambda *_: RunStore.open(answered.path))
    assert fillerscope.run(answered.study)._repr_html_() == html


@pytest.mark.parametrize(("layers", "problems"), [(3, 12), pytest.param(30, 48, marks=pytest.mark.slow)])
def test_little_is_read_and_compared_to_show_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int, problems: int
) -> None:
    """So that the page is there at once, on any machine."""
    right = {"none": 0.27, "mless": 0.12, "random": 0.04}
    recipe = Synthetic(layers=layers, heads=9, problems=problems, shard=16, right=right, affine=True, activations=True)
    stored = recipe.build(tmp_path / "run").store.get(merged_name("tiny-a")).arrays
    compared: list[Run] = []
    monkeypatch.setattr("fillerscope.analysis.notebook.compare", lambda run: compared.append(run) or compare(run))
    html, read = _keys_read(tmp_path / "run")
    assert len(html.encode()) < 200_000
    assert len(compared) == 1
    assert read
    assert not any("activations" in key or "histogram" in key or "bias" in key for key in read)
    assert sorted(read) == sorted(set(read)), "no array is read twice"
    assert sum(stored[key].nbytes for key in read) < 0.2 * sum(array.nbytes for array in stored.values())


def _keys_read(path: Path) -> tuple[str, list[str]]:
    """What a run is shown as, and which arrays are read for it."""
    run = open_run(path)
    asked: list[str] = []
    get, cut = run.store.get, run.store.cut

    def noted(name: str, keys: list[str] | None = None) -> object:
        asked.extend(["everything"] if keys is None else keys)
        return get(name, keys)

    def noted_cut(name: str, keys: list[str], index: tuple[slice, ...]) -> object:
        asked.extend(keys)
        return cut(name, keys, index)

    run.store.get, run.store.cut = noted, noted_cut  # type: ignore[method-assign, assignment]
    return shown(run), asked


def test_answers_alone_and_attention_alone(tmp_path: Path) -> None:
    alone = shown(build(tmp_path / "answers", drawn_at_random(3), models=("a", "b")))
    assert not tips(alone)
    assert [row[0] for row in rows(alone)][1:5] == [
        "A, greedy: none",
        "A, greedy: mless",
        "A, greedy: mful",
        "B, greedy: none",
    ]
    attention = shown(Synthetic().build(tmp_path / "attention"))
    assert not rows(attention)
    assert tips(attention)
    bare = words(shown(Synthetic(conditions=(NONE,)).build(tmp_path / "bare")))
    assert "finished" in bare
    assert "mless" not in bare


def test_many_conditions_are_left_to_the_command(tmp_path: Path) -> None:
    many = tuple(replace_name(RANDOM, f"c{index}") for index in range(30))
    html = shown(Synthetic(conditions=(NONE, *many), right={"none": 0.5}, problems=4).build(tmp_path / "run"))
    assert "Accuracy: 31 rows; fillerscope compare" in words(html)
    assert "and 19 more" in words(html)


def replace_name(condition: Condition, name: str) -> Condition:
    return condition.model_copy(update={"name": name, "label": ""})


def test_hostile_names_are_text(tmp_path: Path) -> None:
    noisy = MLESS.model_copy(update={"label": HOSTILE})
    recipe = Synthetic(labels={HOSTILE: HOSTILE}, conditions=(NONE, noisy), right={"none": 0.5}, source=HOSTILE)
    run = recipe.build(tmp_path / "<b>&'run")
    said = words(shown(run))
    assert said.count(SAFE) >= 4
    assert "<b>&" in said
    for thing in (run.profile("none"), run.profile("none").head(1, 1), head_table(run[None], "mless")):
        assert SAFE in words(shown(thing))
    tokens = Profile(
        "M", Moments(np.ones((1, 1, 2), np.int64), *(np.ones((1, 1, 2)) for _ in range(3))), 1, ("<i>\u202e", '"')
    )
    assert tips(shown(tokens))[0].startswith('position 0, "<i>\ufffd"')


@pytest.mark.parametrize("lost", ["merged", "answers", "problems", "study", "not a study", "changed", "everything"])
def test_a_run_in_any_state_is_shown(shared: Shared, tmp_path: Path, lost: str) -> None:
    shutil.copytree(shared("notebook", Synthetic(right={"none": 0.5}).build), tmp_path / "run")
    run = open_run(tmp_path / "run")
    files = {
        "merged": merged_name("tiny-a"),
        "answers": answers_name("tiny-a", 1),
        "problems": PROBLEMS,
        "study": "study.json",
    }
    told = {
        "merged": "not finished (Tiny-A: attention)", "answers": "not finished (Tiny-A: answers)",
        "problems": "problems.parquet is missing", "study": "study.json is missing",
        "not a study": "study.json does not hold a study", "changed": "the file is damaged",
        "everything": "study.json is missing",
    }  # fmt: skip
    if lost in files:
        (run.path / files[lost]).unlink()
    elif lost == "not a study":
        replace_study(run.path, json.dumps({"name": "<b>"}))
        run = open_run(run.path)
    elif lost == "changed":
        data = bytearray((run.path / merged_name("tiny-a")).read_bytes())
        data[-1] ^= 1
        (run.path / merged_name("tiny-a")).write_bytes(data)
    else:
        for path in sorted(run.path.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    said = words(shown(run))
    assert told[lost] in said
    assert "fillerscope view" in said


def test_an_error_that_is_not_ours_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Synthetic().build(tmp_path / "run")
    monkeypatch.setattr(ModelRun, "summary", lambda *_: 1 / 0)
    assert "ZeroDivisionError: division by zero" in words(shown(run))


def test_two_outputs_in_one_notebook_do_not_clash(answered: Run) -> None:
    both = f"<div>{shown(answered)}{shown(answered)}</div>"
    for part in parsed(both).iter():
        assert not {"id", "class", "name"} & part.attrib.keys()


def test_what_a_page_is_made_of_is_loaded_when_it_is_asked_for(run: Run) -> None:
    code = """
import sys, fillerscope
opened = fillerscope.open_run(sys.argv[1])
before = {"fillerscope.analysis.notebook", "fillerscope.analysis.heads", "PIL"} & sys.modules.keys()
page = opened._repr_html_()
print(*before, "matplotlib" in sys.modules, "torch" in sys.modules, "Tiny-A" in page)
"""
    command = [sys.executable, "-c", code, str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["False", "False", "True"]
