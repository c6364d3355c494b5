"""The catalogue's entries, its cache, and the promise that none of this needs torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.catalogue import CATALOGUE, DEFAULT, Entry, cache_folder


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=str)
def test_entries_are_pinned_and_complete(entry: Entry) -> None:
    assert CATALOGUE[entry.name] is entry
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", package) for package in entry.packages)
    assert len(set(entry.packages)) == len(entry.packages) == len(set(entry.wheels)) == len(entry.wheels)
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha256) for sha256 in entry.wheels)
    assert 0 < entry.download_bytes < entry.gguf_bytes < entry.converted_bytes
    assert entry.licence_url.startswith("https://")


def test_one_model_of_each_family_and_only_gemma_asks() -> None:
    assert {entry.family for entry in CATALOGUE.values()} == {"Llama", "Qwen2", "Gemma 3"}
    assert [entry.name for entry in CATALOGUE.values() if entry.ask] == ["gemma-3-270m"]
    assert not CATALOGUE[DEFAULT].ask


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "there"))
    assert cache_folder() == tmp_path / "there"
    monkeypatch.setenv("FILLERSCOPE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "cache" / "fillerscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "fillerscope"


def test_a_cache_of_a_user_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", "~nosuchuser/x")
    with pytest.raises(ModelError, match=r"^FILLERSCOPE_CACHE is '~nosuchuser/x', and no home folder is known for it;"):
        cache_folder()


def test_a_folder_is_resolved_without_torch(folder: Path) -> None:
    code = (
        "import sys; from fillerscope.models import catalogue, fetch, gguf, resolve;"
        "print(resolve.resolve(sys.argv[1]).label, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "tiny-llama False False", done.stderr
