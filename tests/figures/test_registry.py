"""One record per figure: every module's is in the list, once, and says all that the others need to know."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from fillerscope import figures
from fillerscope.analysis.run import Run
from fillerscope.figures.figure import Figure, lacks_attention
from fillerscope.figures.registry import FIGURES, check, draw, names_for
from fillerscope.study.study import FigureSpec
from support.synthetic import Synthetic

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
