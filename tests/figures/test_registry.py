"""The list of figures: one record each, drawn as a study asks, and refused where a study has no numbers for it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fillerscope import figures
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.figure import Figure, lacks_attention
from fillerscope.figures.registry import FIGURES, asked, check, draw, names_for
from fillerscope.figures.request import Request
from fillerscope.study.study import FigureSpec
from support.synthetic import MLESS, NONE, Synthetic

MODULES = [importlib.import_module(f"{figures.__name__}.{one.name}") for one in pkgutil.iter_modules(figures.__path__)]
RECORDS = [module.FIGURE for module in MODULES if hasattr(module, "FIGURE")]


def test_the_list_holds_the_record_of_every_module() -> None:
    assert all(isinstance(record, Figure) for record in RECORDS)
    assert sorted(record.name for record in RECORDS) == sorted(FIGURES)
    assert all(FIGURES[record.name] is record for record in RECORDS)


def test_titles_tell_figures_apart() -> None:
    titles = [figure.title for figure in FIGURES.values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)


def test_a_record_is_all_that_a_new_figure_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "new", Figure("new", "New", FIGURES["depth"].draw))
    check(Synthetic(figures=(FigureSpec(name="new"),)).study)
    assert names_for(run)[-1] == "new"
    assert draw(run, "new").table["condition"].tolist() == ["mless"] * 3 + ["random"] * 3


def test_a_figure_needs_attention_where_its_record_says_nothing_else() -> None:
    without = Synthetic(attention=False, right={"none": 0.5}).study
    assert "probes.attention" in lacks_attention(without)
    assert [name for name, figure in FIGURES.items() if not figure.lacks(without)] == ["composite"]


def test_a_study_says_how_its_figures_are_drawn(tmp_path: Path) -> None:
    spec = FigureSpec(name="heads", layers=(2,), heads=(3, 4), queries="last", skip_first=(False,), y_max=(0.5,))
    run = Synthetic(figures=(spec, spec), problems=4).build(tmp_path / "run")
    assert names_for(run) == ["heads"]
    assert asked(run, "heads") == Request(layers=(2,), heads=(3, 4), queries="last", skip_first=(False,), y_max=(0.5,))
    drawn = draw(run, "heads")
    assert [one.get_title() for one in drawn.figure.axes[:2]] == ["Tiny-A Layer 2 Head 3", "Tiny-A Layer 2 Head 4"]
    assert set(drawn.table["queries"]) == {"last"}
    assert asked(run, "depth") == Request()


def test_figures_that_do_not_exist_are_refused_before_the_run() -> None:
    with pytest.raises(FigureError, match=r"^there is no figure 'head'; there are layers, heads, fillers"):
        check(Synthetic(figures=(FigureSpec(name="head"),)).study)
    with pytest.raises(FigureError, match=r"^figure 'heads' asks for condition 'mful', which the study does not have"):
        check(Synthetic(figures=(FigureSpec(name="heads", conditions=("mful",)),)).study)
    check(Synthetic(figures=(FigureSpec(name="heads", conditions=("none", "random")),)).study)


def test_what_a_run_cannot_show_is_refused(run: Run, run_for: Callable[[str], Run], tmp_path: Path) -> None:
    with pytest.raises(
        FigureError, match=r"^there is no figure 'pie'; there are layers, heads, fillers, headmap, depth"
    ):
        draw(run, "pie")
    for name in FIGURES:
        with pytest.raises(FigureError, match=r"^this run has no condition 'mful'; it has none, mless, random$"):
            draw(run, name, Request(conditions=("mful",)))
        with pytest.raises(FigureError, match=r"^this run has no model 'b'; it has tiny-a$"):
            draw(run, name, Request(models=("b",)))
    for name in ("layers", "heads", "fillers", "headmap", "depth", "composite", "length", "position"):
        with pytest.raises(FigureError, match=r"^queries are all, original, last, not 'some'$"):
            draw(run_for(name), name, Request(queries="some"))
    one = Synthetic(conditions=(NONE, MLESS), problems=4).build(tmp_path / "one")
    with pytest.raises(
        FigureError, match=r"^`fillers` compares a repeated token with a sentence, and this run has mless"
    ):
        draw(one, "fillers")
    none = Synthetic(conditions=(NONE,), problems=4).build(tmp_path / "none")
    assert names_for(none) == []
    for name in FIGURES:
        with pytest.raises(FigureError, match=r"no condition with filler|this run has no filler"):
            draw(none, name)
