"""A run folder opened: names, places, tokens, and refusals in one line."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import Region, Run, open_run
from fillerscope.errors import FigureError, StoreError, UnreadableError
from fillerscope.store.array_file import Part
from fillerscope.store.schema import PROBLEMS, merged_name
from fillerscope.study.conditions import Condition
from support.answered import build, drawn_at_random
from support.synthetic import MLESS, NONE, RANDOM, Synthetic

END = Condition(name="end", kind="repeat", text=" /", count=8, position="end")
START = Condition(name="start", kind="repeat", text=" /", count=8, position="start")
WANDER = Condition(name="wander", kind="sentence", count=8, position="random")


def test_names(run: Run) -> None:
    assert run.models == ["tiny-a"]
    assert run.conditions == ["none", "mless", "random"]
    assert run.fillers == ["mless", "random"]
    assert run.label() == "Tiny-A"
    assert run.condition("mless").count == 30


def test_a_model_is_taken_by_name(tmp_path: Path) -> None:
    run = Synthetic(labels={"owner/first": "First", "second": "Second"}).build(tmp_path / "run")
    assert run.model() == "owner/first"
    assert run.label("second") == "Second"
    assert run.profile("none", model="second").name.startswith("Second none")


def test_the_filler_region_is_where_the_filler_is(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, MLESS, START)).build(tmp_path / "run")
    assert run[None].region("none") is None
    assert run[None].region("mless") == Region(20, 50, fixed=True)
    assert run[None].region("start") == Region(0, 8, fixed=True)


def test_a_region_that_moves_is_given_by_its_median(tmp_path: Path) -> None:
    recipe = Synthetic(conditions=(NONE, END, WANDER), problems=5)
    run = recipe.build(tmp_path / "run")
    assert run[None].region("wander") == Region(22, 30, fixed=False)  # starts 20 to 24
    assert run[None].region("end") == Region(44, 52, fixed=False)  # starts 40, 42, 44, 46, 48


def test_tokens_are_shown_where_problems_share_them(run: Run) -> None:
    plain, filled = run.tokens("none"), run.tokens("mless")
    assert plain[:20] == tuple(f"s{index}" for index in range(20))
    assert set(plain[20:40]) == {""}, "questions differ"
    assert filled[:20] == plain[:20]
    assert set(filled[20:50]) == {"\u00b7"}
    assert len(plain) == 67
    assert len(filled) == 97
    assert plain[-1] == "t4", "only the longest problem reaches the end"
    assert run.profile("mless", view="whole").tokens == filled
    assert run.profile("mless", view="aligned").tokens == plain


def test_failed_problems_are_kept_and_left_out(tmp_path: Path) -> None:
    recipe = Synthetic(failed=(2, 5))
    run = recipe.build(tmp_path / "run")
    assert len(run[None].records()) == 12
    assert [record["number"] for record in run[None].measured()] == recipe.measured
    assert run.profile("none").problems == 10
    assert run.summary("peak", "mless").shape == (10, 3, 4)
    assert faults(run) == []


def test_summaries_and_peaks_come_back_as_stored(run: Run, recipe: Synthetic) -> None:
    for metric in ("received_filler", "kurtosis", "filler_mass"):
        np.testing.assert_allclose(
            run.summary(metric, "random", "last"), recipe.summary(metric, "random")[:, 2], rtol=1e-6
        )
    peaks = run[None].peak_at("mless", "all")
    assert peaks[:, 1, 2].tolist() == [recipe.peak_at(number, "mless") for number in recipe.measured]
    assert (run[None].peak_at("none") == 5).all()


@pytest.mark.parametrize("missing", ["profile", "summary", "peak_at", "region", "tokens"])
def test_an_unknown_condition_is_named_with_those_there_are(run: Run, missing: str) -> None:
    calls = {
        "profile": lambda: run.profile("mles"),
        "summary": lambda: run.summary("peak", "mles"),
        "peak_at": lambda: run[None].peak_at("mles"),
        "region": lambda: run[None].region("mles"),
        "tokens": lambda: run.tokens("mles"),
    }
    with pytest.raises(FigureError, match=r"^this run has no condition 'mles'; it has none, mless, random$"):
        calls[missing]()


def test_other_names_that_are_not_there(run: Run) -> None:
    with pytest.raises(FigureError, match=r"^this run has no model 'tiny'; it has tiny-a$"):
        run.profile("none", model="tiny")
    with pytest.raises(FigureError, match=r"^queries are all, original, last, not 'first'$"):
        run.profile("none", "first")
    with pytest.raises(FigureError, match=r"^queries are all, original, last, not 'first'$"):
        run.summary("peak", "none", "first")
    with pytest.raises(FigureError, match=r"^queries are all, original, last, not 'first'$"):
        run[None].peak_at("none", "first")
    with pytest.raises(FigureError, match=r"^views are whole, aligned, difference, logratio, not 'side'$"):
        run.profile("none", view="side")
    with pytest.raises(FigureError, match=r"^metrics are received_original, .*, not 'height'$"):
        run.summary("height", "none")
    with pytest.raises(FigureError, match=r"`none` is what the difference is taken against"):
        run.profile("none", view="difference")


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run at .*; `fillerscope run` makes one"):
        open_run(tmp_path / "nowhere")


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    run = Synthetic().build(tmp_path / "run")
    (tmp_path / "run" / merged_name("tiny-a")).unlink()
    with pytest.raises(StoreError, match=r"is not finished for tiny-a; run the study again, it resumes from there"):
        run.profile("none")


@pytest.mark.parametrize("damage", ["remove", "cut", "change"])
def test_a_study_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    Synthetic().build(tmp_path / "run")
    path = tmp_path / "run/study.json"
    study = json.loads(path.read_text())
    if damage == "remove":
        path.unlink()
    else:
        path.write_text(path.read_text()[:100] if damage == "cut" else json.dumps(study | {"conditions": []}))
    with pytest.raises(StoreError, match=r"study\.json is (missing|damaged)|does not hold a study"):
        _ = open_run(tmp_path / "run").conditions


@pytest.mark.parametrize("meta", [[], ["{"], ["5"], [None], None])
def test_problems_that_are_none_are_one_line(tmp_path: Path, meta: list[str | None] | None) -> None:
    run = build(tmp_path / "run", drawn_at_random(1), problems=1)
    run.store.put_table(PROBLEMS, {"id": ["p0"]} if meta is None else {"id": ["p0"] * len(meta), "meta": meta})
    with pytest.raises(StoreError, match=r"problems\.parquet does not hold the problems; remove it and run the study"):
        open_run(tmp_path / "run").problems()


def test_faults_are_problems_that_do_not_add_up(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE, RANDOM)).build(tmp_path / "run")
    assert faults(run) == []
    name = merged_name("tiny-a")
    part = run.store.get(name)
    run.store.put(name, Part(part.arrays, part.records[1:]))
    assert faults(open_run(tmp_path / "run")) == [
        "tiny-a: problems are missing or out of order",
        "tiny-a: 12 problems under none, 11 were measured",
        "tiny-a: 12 problems under random, 11 were measured",
    ]


def test_a_study_edited_after_the_run_is_refused(tmp_path: Path) -> None:
    run = Synthetic().build(tmp_path / "run")
    run.store.manifest["identity"]["study"] = run.study.measured()
    assert Run(run.store).study == run.study
    assert faults(Run(run.store)) == []
    run.store.manifest["identity"]["study"]["seed"] = 7
    told = f"{run.path}/study.json is not the study that was measured; run the study again"
    with pytest.raises(StoreError, match=told):
        _ = Run(run.store).conditions
    assert faults(Run(run.store)) == [told]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), PermissionError(errno.EACCES, "no")])
def test_a_study_that_cannot_be_read_now_is_no_fault_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    run = Synthetic().build(tmp_path / "run")

    def failing(_: Path) -> str:
        raise error

    monkeypatch.setattr("fillerscope.store.manifest.read_steadily", failing)
    with pytest.raises(UnreadableError, match=r"study\.json"):
        faults(Run(run.store))
