"""The commands of jobs that share a study: run --shard, status, merge."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.cli.app import app
from fillerscope.errors import FillerscopeError, StoreError
from support.studies import CONDITIONS, save_model, write_study


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "argv", ["fillerscope", "run"])
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of one problem."""
    folder = tmp_path_factory.mktemp("study")
    return write_study(
        folder / "study.yaml", save_model(folder / "tiny"), problems={"limit": 2, "difficulty": [1]},
        conditions=CONDITIONS[:2], batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
    )  # fmt: skip


def call(*words: object) -> None:
    app([str(word) for word in words], standalone_mode=False)


def called(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What a command prints as JSON."""
    capsys.readouterr()
    call(*words, "--json")
    return json.loads(capsys.readouterr().out)


def test_from_the_first_part_to_the_run(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part by its option, the second by the command that a merge advises, the third has nothing to do."""
    run = tmp_path / "run"
    call("run", study, "--out", run, "--shard", "1/3")
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        f"Part 1/3 is finished: {run}/parts/1-of-3", f"When all 3 are: fillerscope merge {run}",
    ]  # fmt: skip
    with pytest.raises(StoreError, match="1 of 3 parts are missing") as caught:
        call("merge", run)
    call(*shlex.split(str(caught.value).partition("make it with: fillerscope ")[2]))
    assert "Part 2/3 is finished" in capsys.readouterr().out

    array = {"ID": 2, "MIN": 0, "MAX": 2, "COUNT": 3}
    for name, value in array.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    call("run", study, "--out", run)
    said = capsys.readouterr()
    assert "part 3/3 is measured, as SLURM_ARRAY_TASK_ID says; --shard all measures everything" in said.err
    assert "part 3/3 has nothing to do: 2 problems are 2 shards" in said.err
    assert sys.argv[-2:] == ["--shard", "3/3"]  # what is said about going on names the part

    rows = called(capsys, "status", run)[str(run)]
    assert [(row["part"], row["state"], row["problems_total"]) for row in rows] == [
        ("1/3", "finished", 1), ("2/3", "finished", 1), ("3/3", "finished", 0),
    ]  # fmt: skip
    call("status", run)
    assert f"All parts are finished: fillerscope merge {run}" in capsys.readouterr().out
    merged = called(capsys, "merge", run)
    assert (merged["run"], merged["problems"], merged["parts"]) == (str(run), 2, None)
    assert [row["part"] for row in called(capsys, "status", run)[str(run)]] == ["", "1/3", "2/3", "3/3"]
    call("verify", run)


def test_parts_are_not_taken_for_runs(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    call("run", study, "--out", run, "--shard", "1/2")
    for command in ("findings", "export", "verify", "report"):
        with pytest.raises(StoreError, match="1-of-2 is part 1/2 of a run, not a run; `fillerscope merge` makes"):
            call(command, run / "parts/1-of-2")
        with pytest.raises(StoreError, match=f"{run} holds parts of a run; `fillerscope merge {run}` makes the run"):
            call(command, run)
    (entry,) = called(capsys, "runs", "--out", tmp_path)["runs"]
    assert (entry["state"], entry["note"]) == ("in parts", f"`fillerscope status {run}` tells how far its parts are")
    call("status", run)
    assert "Not started here: 2/2." in capsys.readouterr().out


def test_parts_of_another_number_are_refused_before_anything_is_measured(study: Path, tmp_path: Path) -> None:
    (tmp_path / "run/parts/1-of-16").mkdir(parents=True)
    with pytest.raises(StoreError, match="holds parts of 16, and 1/2 is one of 2; give --shard as one of 16"):
        call("run", study, "--out", tmp_path / "run", "--shard", "1/2")
    assert [path.name for path in (tmp_path / "run/parts").iterdir()] == ["1-of-16"]


@pytest.mark.parametrize("shard", ["3", "0/4", "5/4"])
def test_a_part_that_there_is_not_is_refused(study: Path, tmp_path: Path, shard: str) -> None:
    with pytest.raises(FillerscopeError, match="a part is"):
        call("run", study, "--out", tmp_path / "run", "--shard", shard)


def test_a_whole_run_beside_parts_is_measured_by_itself(study: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("run", study, "--out", run, "--shard", "1/2")
    call("run", study, "--out", run, "--shard", "all", "--json")
    call("verify", run)
