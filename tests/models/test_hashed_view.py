"""The folder that transformers reads: the hashed files, and the same ones to the end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models import loading
from fillerscope.models.hashed_view import hashed_view
from fillerscope.models.open_links import FILES
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


@pytest.mark.parametrize("copied", [True, False])
def test_weights_that_are_written_over_behind_a_sound_copy_of_their_folder_are_noticed(
    folder: Path, tmp_path: Path, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped weights are read when they are used: until they are copied, and longer where memory has no room."""
    sound, aside = tmp_path / "sound", tmp_path / "aside"
    shutil.copytree(folder, sound)

    def exchanged(*_: object) -> bool:
        folder.rename(aside)
        sound.rename(folder)
        with (aside / "model.safetensors").open("rb+") as file:
            file.seek(-64, os.SEEK_END)
            file.write(bytes(64))
        return copied

    with monkeypatch.context() as patch:
        patch.setattr(loading, "_read_into_memory", exchanged)
        with pytest.raises(ModelError, match="changed while they were read"):
            loading.load_model(str(folder), device="cpu")


def test_a_mapped_folder_that_is_exchanged_later_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_read_into_memory", lambda _: False)
        mapped = loading.load_model(str(folder), device="cpu").mapped
    assert mapped is not None
    mapped.refuse_exchanged()
    shutil.copytree(folder, tmp_path / "sound")
    folder.rename(tmp_path / "aside")
    (tmp_path / "sound").rename(folder)
    with pytest.raises(ModelError, match="changed while they were read"):
        mapped.refuse_exchanged()
