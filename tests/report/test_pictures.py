"""Figures of a report: what one cannot do costs no other, and every model has its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis.run import Run
from fillerscope.figures import registry
from fillerscope.figures.registry import draw, draw_and_save
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn
from fillerscope.report import panels, pictures
from fillerscope.study.study import FigureSpec
from support.synthetic import MLESS, NONE, Synthetic

Told = list[tuple[int, int]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    figures = (FigureSpec(name="depth", conditions=("mless",)), FigureSpec(name="layers", layers=(2,)))
    recipe = Synthetic(labels={"tiny-a": "A", "tiny-b": "B/<b>"}, problems=2, layers=2, heads=2, figures=figures)
    return recipe.build(tmp_path_factory.mktemp("pictures") / "run")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved is tested elsewhere."""

    def save(drawn: Drawn, folder: Path) -> list[Path]:
        paths = [folder / f"{drawn.name}.{kind}" for kind in ("pdf", "svg", "png", "csv", "txt")]
        for path in paths:
            path.write_text(path.suffix)
        return paths

    monkeypatch.setattr(pictures, "save", save)
    monkeypatch.setattr(pictures, "_preview", lambda _: b"png")


def test_every_model_has_a_figure_of_its_own_as_the_study_asks(run: Run) -> None:
    told: Told = []
    found, missed = pictures.pictures(run, lambda *numbers: told.append(numbers))
    assert missed == {}
    assert [(one.name, one.title) for one in found] == [
        ("depth-1", "The effect by layer: A"), ("depth-2", "The effect by layer: B/<b>"),
        ("layers-1", "One head in three layers: A"), ("layers-2", "One head in three layers: B/<b>"),
    ]  # fmt: skip
    assert told == [(number, 4) for number in range(4)]
    for one in found:
        assert one.files == {"pdf": b".pdf", "svg": b".svg", "csv": b".csv"}
        name, place = one.name.split("-")
        request = registry.asked(run, name).but(models=(run.models[int(place) - 1],))
        drawn = draw(run, name, request)
        assert one.panels == panels.panels(run, drawn)
        assert one.caption == drawn.caption
        assert one.panels
    assert [line["condition"] for line in found[0].panels[0]["series"]] == ["mless"]
    assert all("Layer 2" in panel["title"] for panel in found[2].panels)


def test_one_model_has_plain_names_and_some_figures_show_all(tmp_path: Path) -> None:
    one = Synthetic(problems=2, layers=2, heads=2, conditions=(NONE, MLESS), figures=(FigureSpec(name="depth"),))
    assert [each.name for each in pictures.pictures(one.build(tmp_path / "one"), lambda *_: None)[0]] == ["depth"]
    both = Synthetic(
        labels={"a": "A", "b": "B"}, problems=2, right={"none": 0.5}, figures=(FigureSpec(name="composite"),)
    )
    (found,) = pictures.pictures(both.build(tmp_path / "both"), lambda *_: None)[0]
    assert [group["label"] for group in found.panels[0]["groups"]] == ["A", "B"]


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("no such luck")


def change(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """Put another record in the place of a figure's."""
    monkeypatch.setitem(registry.FIGURES, name, replace(registry.FIGURES[name], **changes))


@pytest.mark.parametrize("where", ["draw", "panels", "save"])
def test_what_one_figure_cannot_do_costs_no_other(run: Run, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "draw":
        change(monkeypatch, "depth", draw=broken)
    elif where == "panels":
        change(monkeypatch, "depth", panels=broken)
    else:
        whole = pictures.save
        monkeypatch.setattr(
            pictures, "save", lambda drawn, folder: broken() if drawn.name == "depth" else whole(drawn, folder)
        )
    found, missed = pictures.pictures(run, lambda *_: None)
    assert [one.name for one in found] == ["layers-1", "layers-2"]
    assert missed == {"depth, A": "no such luck", "depth, B/<b>": "no such luck"}


def test_a_figure_of_an_empty_table_or_without_a_chart_is_still_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(run: Run, request: Request) -> Drawn:
        drawn = draw(run, "layers", request)
        return Drawn("depth", drawn.figure, {key: column[:0] for key, column in drawn.table.items()}, "Nothing.")

    change(monkeypatch, "depth", draw=empty)
    change(monkeypatch, "layers", panels=None)
    found, missed = pictures.pictures(run, lambda *_: None)
    assert missed == {}
    assert [(one.name, one.panels) for one in found] == [(f"{n}-{i}", []) for n in ("depth", "layers") for i in (1, 2)]
    assert all(one.preview == b"png" for one in found)


def test_without_filler_nothing_is_drawn(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE,), problems=2).build(tmp_path / "run")
    assert pictures.pictures(run, lambda *_: pytest.fail("nothing to tell")) == ([], {})


def test_files_are_those_of_the_figures_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    recipe = Synthetic(problems=2, layers=2, heads=2, conditions=(NONE, MLESS), figures=(FigureSpec(name="depth"),))
    run = recipe.build(tmp_path / "run")
    (found,), _ = pictures.pictures(run, lambda *_: None)
    for path in draw_and_save(run, "depth"):
        if path.suffix in (".pdf", ".svg", ".csv"):
            assert found.files[path.suffix[1:]] == path.read_bytes()
    assert found.preview.startswith(b"\x89PNG")
    assert np.frombuffer(found.preview[16:20], ">u4")[0] < 1200, "smaller than the one for print"
