"""The command `plan`: what it prints for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.cli.app import app
from fillerscope.cli.plan_commands import duration
from fillerscope.errors import FillerscopeError
from support.studies import CONDITIONS, save_model, write_study


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "200")
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    return write_study(folder / "study.yaml", save_model(folder / "tiny"), problems={"limit": 4, "difficulty": [1]})


def planned(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    capsys.readouterr()
    app(["plan", *map(str, words), "--json"], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


def test_a_plan_is_a_table_with_what_is_counted(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app(["plan", str(study), "--device", "h100", "--jobs", "2", "--max-tokens", "8"], standalone_mode=False)
    out = capsys.readouterr().out
    assert out.startswith("tiny on h100, by peak rates: ")
    assert "As 2 jobs: " in out
    assert all(word in out for word in ("measuring", "answering", "checks", "KV cache", "weights", "a pass"))
    assert "Every answer is taken to have 8 tokens, the most that the study allows." in out
    assert out.rstrip().endswith(f"Next: fillerscope run {study}")
    assert not list(Path().iterdir())  # nothing is written


def test_a_plan_for_programs(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, study, "--device", "l4", "--limit", "3")
    model = plan["models"][0]
    assert (plan["device"], plan["calibrated"], plan["jobs"]) == ("l4", False, 1)
    assert (model["problems"], model["prompts"]) == (3, 3 * len(CONDITIONS))
    assert plan["seconds"] == pytest.approx(
        sum(model["fixed_seconds"].values()) + model["stages"]["measuring"]["seconds"]
    )
    assert plan["device_memory"] == model["memory"]["device"] > 0


def test_a_plan_of_this_machine_is_timed_here(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, study, "--device", "cpu", "--max-tokens", "4")
    assert plan["calibrated"]
    assert plan["device_memory"] is None
    assert {"loading", "checks", "rechecking"} <= plan["models"][0]["fixed_seconds"].keys()
    assert not planned(capsys, study, "--device", "cpu", "--no-calibrate")["calibrated"]


def test_a_device_that_nobody_knows_is_refused(study: Path) -> None:
    with pytest.raises(FillerscopeError, match="no peak rates are known of 'abacus'"):
        app(["plan", str(study), "--device", "abacus"], standalone_mode=False)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5000, "83 min"), (9000, "2.5 hours")]
)
def test_a_duration_is_told_in_words_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text
