"""Ready studies, and what the keyboard changes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fillerscope.errors import StudyError
from fillerscope.figures.registry import FIGURES, check
from fillerscope.study.overrides import Changes, data_path, names, ready_study

READY = [
    "arm",
    "composite",
    "depth",
    "fillers",
    "headmap",
    "heads",
    "heads-llama",
    "layers",
    "length",
    "mechanism",
    "passes",
    "position",
]


def test_there_is_a_ready_study_for_each_figure() -> None:
    assert names() == READY
    assert {figure.name for name in names() for figure in ready_study(name).figures} == set(FIGURES)


@pytest.mark.parametrize("name", READY)
def test_ready_studies_ask_for_what_they_hold(name: str) -> None:
    study = ready_study(name)
    assert study.figures
    check(study)


@pytest.mark.parametrize(
    ("name", "layers", "heads", "y_max"),
    [
        ("layers", (1, 2, 3), (22,), (0.08, 0.20, 0.175)),
        ("heads", (1,), (12, 13, 14), (0.14,) * 6),
        ("heads-llama", (1,), (20, 25, 26), (0.08, 0.12, 0.14, 0.07, 0.04, 0.05)),
        ("fillers", (1,), (1, 27, 8), (0.14, 0.10, 0.6)),
    ],
)
def test_the_published_heads_and_axes(
    name: str, layers: tuple[int, ...], heads: tuple[int, ...], y_max: tuple[float, ...]
) -> None:
    figure = ready_study(name).figures[0]
    assert (figure.layers, figure.heads, figure.y_max, figure.queries) == (layers, heads, y_max, "all")


def test_the_first_token_is_left_out_for_llama_and_gemma() -> None:
    assert ready_study("heads").figures[0].skip_first == (False,)
    assert ready_study("heads-llama").figures[0].skip_first == (True,)
    assert ready_study("fillers").figures[0].skip_first == (False, True, True)


def test_an_unknown_study_is_named_with_those_there_are() -> None:
    with pytest.raises(StudyError, match=f"^there is no ready study 'head'; there are {', '.join(READY)}$"):
        ready_study("head")


def test_no_changes_leave_a_study_as_it_is() -> None:
    for name in ("demo", "heads"):
        assert Changes().apply(ready_study(name)) == ready_study(name)


def test_another_model_takes_its_own_axes() -> None:
    study = Changes(models=("smollm2-135m", "gemma-3-270m")).apply(ready_study("heads"))
    assert [model.name for model in study.models] == ["smollm2-135m", "gemma-3-270m"]
    figure = study.figures[0]
    assert (figure.y_max, figure.skip_first) == ((), ())
    assert figure.heads == (12, 13, 14), "asked for all the same; the caption says when they do not exist"


def test_layers_and_heads_from_the_keyboard() -> None:
    figure = Changes(layers=(4,), heads=(2, 7)).apply(ready_study("heads")).figures[0]
    assert (figure.layers, figure.heads) == ((4,), (2, 7))
    assert figure.y_max == (0.14,) * 6


def test_other_data_take_their_own_columns() -> None:
    base = ready_study("heads")
    problems = base.problems.model_copy(update={"fields": {"question": "q"}, "split": "train"})
    study = Changes(problems="builtin", limit=3).apply(base.model_copy(update={"problems": problems}))
    assert (study.problems.source, study.problems.limit) == ("builtin", 3)
    assert (study.problems.fields, study.problems.split) == ({}, "test")
    kept = Changes(limit=3).apply(base.model_copy(update={"problems": problems}))
    assert (kept.problems.fields, kept.problems.split) == ({"question": "q"}, "train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(models=("a", "a")), "models: model 'a' is given 2 times; names must differ"),
        (Changes(device="gpu"), "device: .*, not 'gpu'"),
        (Changes(device="cuda:x"), "device: .*, not 'cuda:x'"),
        (Changes(limit=0), "problems.limit: .*, not 0"),
        (Changes(heads=(0,)), "figures.0.heads.0: .*, not 0"),
        (Changes(models=("",)), "models.0.name: .*, not ''"),
    ],
)
def test_what_does_not_fit_is_refused(changes: Changes, message: str) -> None:
    with pytest.raises(StudyError, match=f"^{message}$"):
        changes.apply(ready_study("heads"))


def test_paths_are_relative_to_where_the_person_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_path("rows.jsonl") == str(tmp_path / "rows.jsonl")
    assert data_path("~/rows.jsonl") == str(Path.home() / "rows.jsonl")
    assert data_path("hub:owner/name") == "hub:owner/name"
    assert data_path("builtin") == "builtin"
    assert data_path(None) is None
