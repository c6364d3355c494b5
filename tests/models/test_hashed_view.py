"""The folder that transformers reads: the hashed files, and the same ones to the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.hashed_view import FILES, hashed_view
from fillerscope.models.resolve import resolve
from support.studies import save_model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "a", seed=0)
    save_model(folder / "b", seed=1)
    return folder


@pytest.fixture
def link(models: Path, tmp_path: Path) -> Path:
    link = tmp_path / "model"
    link.symlink_to(models / "a")
    return link


def turn(link: Path, to: Path) -> None:
    link.unlink()
    link.symlink_to(to)


def test_a_link_that_leads_elsewhere_after_the_hashing_is_noticed(models: Path, link: Path) -> None:
    found = resolve(str(link))
    turn(link, models / "b")
    with pytest.raises(ModelError, match="changed while they were read: try again"), hashed_view(found):
        pass


def test_a_link_that_leads_elsewhere_meanwhile_changes_nothing(models: Path, link: Path) -> None:
    found = resolve(str(link))
    expected = (models / "a/model.safetensors").read_bytes()
    with hashed_view(found) as view:
        turn(link, models / "b")
        assert (view.path / "model.safetensors").read_bytes() == expected


def test_a_file_that_is_replaced_and_put_back_is_noticed(models: Path, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "own", seed=0)
    found, file, aside = resolve(str(folder)), folder / "model.safetensors", tmp_path / "aside"

    def look() -> None:
        with hashed_view(found) as view:
            file.rename(aside)
            os.link(models / "b/model.safetensors", file)
            seen = aside if FILES.is_dir() else file  # the file that was hashed, where the system can show it
            assert (view.path / file.name).read_bytes() == seen.read_bytes()
            file.unlink()
            aside.rename(file)

    with pytest.raises(ModelError, match="changed while they were read: try again"):
        look()


@pytest.mark.skipif(not FILES.is_dir(), reason="the system does not show the files that are open")
def test_folders_that_change_places_meanwhile_change_nothing(tmp_path: Path) -> None:
    """Their files keep inode and times, so nothing tells when they are back."""
    a, b = save_model(tmp_path / "a", seed=0), save_model(tmp_path / "b", seed=1)
    found, expected = resolve(str(a)), (a / "model.safetensors").read_bytes()
    with hashed_view(found) as view:
        for one, other in ((a, tmp_path / "c"), (b, a)):
            one.rename(other)
        assert (view.path / "model.safetensors").read_bytes() == expected
        for one, other in ((a, b), (tmp_path / "c", a)):
            one.rename(other)
