"""Which run is meant: a run at the path wins, a beginning must be the only one, and nothing is guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fillerscope.errors import StoreError
from fillerscope.store.find_run import find_run
from fillerscope.store.schema import MANIFEST, STUDY


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs, `other-2` the newest, and a folder that is none."""
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(("other-22", "demo-0123456789", "other-11")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text("{}")
        os.utime(folder / MANIFEST, (1000 - age, 1000 - age))
    (tmp_path / "runs" / "others").mkdir()
    return tmp_path / "runs"


@pytest.mark.parametrize("text", ["demo", "d", "demo-01", "demo-0123456789", "runs/demo", "runs/demo-0123456789"])
def test_the_beginning_of_a_name_is_enough(text: str) -> None:
    assert find_run(text) == Path("runs/demo-0123456789")


def test_several_are_listed_the_newest_first_and_none_is_chosen() -> None:
    with pytest.raises(
        StoreError, match=r"^2 runs in runs begin with 'other': other-22, other-11; give more of the name$"
    ):
        find_run("other")


def test_many_are_not_all_listed(runs: Path) -> None:
    for number in range(20):
        (runs / f"many-{number}").mkdir()
        (runs / f"many-{number}" / MANIFEST).write_text("{}")
    with pytest.raises(StoreError, match=r"20 runs .* and 12 more;"):
        find_run("many")


def test_a_whole_name_wins_over_longer_ones(runs: Path) -> None:
    (runs / "other").mkdir()
    (runs / "other" / MANIFEST).write_text("{}")
    assert find_run("other") == Path("runs/other")


@pytest.mark.parametrize("name", [MANIFEST, STUDY])
def test_a_run_at_the_path_wins_even_if_damaged(tmp_path: Path, name: str) -> None:
    for text in ("demo", "latest"):
        (tmp_path / text).mkdir()
        (tmp_path / text / name).write_text("")
        assert find_run(text) == Path(text)


def test_what_is_no_run_does_not_hide_the_run_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()  # a model, say
    (tmp_path / "demo" / "config.json").write_text("{}")
    (tmp_path / "demo-01").write_text("a file")
    (tmp_path / "latest").mkdir()
    (tmp_path / "other").mkdir()
    assert find_run("demo") == find_run("demo-01") == Path("runs/demo-0123456789")
    assert find_run("latest") == Path("runs/other-22")
    with pytest.raises(StoreError, match="2 runs in runs begin with 'other'"):
        find_run("other")


@pytest.mark.parametrize("text", ["runs/others", "runs", ".", "..", "/"])
def test_what_is_no_run_is_returned_where_no_run_is_named_so(text: str) -> None:
    assert find_run(text) == Path(text)


def test_a_path_elsewhere_is_shortened_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert find_run("../runs/demo") == Path("../runs/demo-0123456789")
    assert find_run(tmp_path / "runs" / "demo") == tmp_path / "runs" / "demo-0123456789"


def test_latest_is_the_one_last_written_to() -> None:
    assert find_run("latest") == Path("runs/other-22")


@pytest.mark.parametrize("text", ["nothing", "emo", "runs/nothing", "nowhere/demo", "\u00fc\u4e2d"])
def test_what_is_not_there_is_said(text: str) -> None:
    with pytest.raises(
        StoreError, match=rf"no run at {text}, and none in \w+ begins with .*; `fillerscope runs` lists"
    ):
        find_run(text)


def test_latest_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(StoreError, match=r"there is no latest run: .*empty/runs holds none"):
        find_run("latest")
