"""Kills while a GGUF file is converted: the cache holds a whole model or none, and the next process makes the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fillerscope.models.changes import changed_file
from fillerscope.models.digests import file_sums
from fillerscope.models.gguf import RECORD
from support.chaos import is_long
from support.forks import KILLED, Forks

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")]
CONVERSION = "fillerscope.models.gguf"
# Before anything is written; before and after the weights are; before their sums are noted.
MOMENTS = ("read_tokenizer", "require_space", "_compare_tokenizers", "_write_record")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.stop()


@pytest.fixture
def cache(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = forks.folder / "cache"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(folder))
    return folder


def models(cache: Path) -> dict[str, dict[str, bytes]]:
    """The files of every model that the cache holds, by folder; each is what was converted."""
    folders = [path for path in (cache / "models").glob("*") if not path.name.startswith(".")]
    for folder in folders:
        assert (folder / RECORD).exists(), f"{folder} without its record"
        assert changed_file(folder, file_sums(folder, fresh=True)) is None
    return {folder.name: {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders}


@pytest.fixture
def gguf(write_gguf: Callable[..., Path]) -> Path:
    return write_gguf()


def assert_made_after(forks: Forks, gguf: Path, cache: Path, expected: object, **kill: object) -> None:
    shutil.rmtree(cache)
    assert forks.run(["models", "get", gguf], **kill) == KILLED, kill
    assert models(cache) in ({}, expected), kill
    assert forks.run(["models", "get", gguf]) == 0, kill
    assert models(cache) == expected, kill
    assert not list((cache / "models").glob(".*")), f"a draft stays after {kill}"


def test_killed_at_steps_of_a_conversion(forks: Forks, gguf: Path, cache: Path, tmp_path: Path) -> None:
    """The sync of each file, notes of their sums, the folder's name."""
    log = tmp_path / "steps"
    assert forks.run(["models", "get", gguf], steps=str(log)) == 0
    (expected,) = [models(cache)]
    assert len(expected) == 1
    steps = log.read_text().splitlines()
    renamed = next(number for number, step in enumerate(steps, 1) if step.endswith(next(iter(expected))))
    for step in range(1, len(steps) + 1) if is_long() else (renamed - 1, renamed):
        assert_made_after(forks, gguf, cache, expected, die_at=step, half=True)


def test_killed_at_moments_of_a_conversion(forks: Forks, gguf: Path, cache: Path) -> None:
    assert forks.run(["models", "get", gguf]) == 0
    expected = models(cache)
    for name in MOMENTS if is_long() else MOMENTS[2:3]:
        assert_made_after(forks, gguf, cache, expected, die_in=[CONVERSION, name, 1])
