"""The folder that transformers reads: the hashed files, and the same ones to the end."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.files import OPEN_FILES, real_path
from fillerscope.models import loading
from fillerscope.models import resolve as resolving
from fillerscope.models.digests import file_sums, folder_digest
from fillerscope.models.hashed_view import hashed_view
from fillerscope.models.open_links import link_to
from fillerscope.models.resolve import ModelFolder, resolve
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
            seen = aside if OPEN_FILES.is_dir() else file  # the file that was hashed, where the system can show it
            assert (view.path / file.name).read_bytes() == seen.read_bytes()
            file.unlink()
            aside.rename(file)

    with pytest.raises(ModelError, match="changed while they were read: try again"):
        look()


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the system does not show the files that are open")
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


def exchanging(folder: Path, name: str, act: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    """A model of which a file is exchanged after its folder was checked, and before it is hashed."""

    def sums(*given: object, **options: object) -> dict[str, str]:
        (folder / name).unlink(missing_ok=True)
        act(folder / name)
        return file_sums(*given, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(resolving, "file_sums", sums)
        return resolve(str(folder))


def refusal(found: ModelFolder) -> str:
    with pytest.raises(ModelError) as refused:
        loading.load_folder(found, device="cpu")
    message = str(refused.value)
    assert "\n" not in message
    assert "fillerscope-" not in message
    return message


def write(path: Path, settings: object) -> None:
    path.write_text(json.dumps(settings))


EXCHANGED: dict[str, tuple[str, dict[str, object], str]] = {
    "index": (
        "model.safetensors.index.json",
        {"weight_map": {"model.norm.weight": "/elsewhere/other.safetensors"}},
        "model.safetensors.index.json names weights that are not in its folder",
    ),
    "config": ("config.json", {"transformers_weights": "/elsewhere/x.safetensors"}, "transformers_weights names"),
    "tokenizer": ("tokenizer_config.json", {"gguf_file": "/elsewhere/x.gguf"}, "gguf_file names"),
    "rules": ("tokenizer_config.json", {"extra_ids": 10**9}, "extra_ids is 1000000000, and 10000 is the most"),
    "adapter": ("adapter_config.json", {}, "has an adapter beside its weights"),
}


@pytest.mark.parametrize("what", EXCHANGED)
def test_what_is_exchanged_before_it_is_hashed_is_checked(
    folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings, message = EXCHANGED[what]
    old = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    found = exchanging(folder, name, lambda path: write(path, old | settings), monkeypatch)
    assert message in refusal(found)


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json", "vocab.txt", "added_tokens.json"])
def test_a_link_that_comes_before_the_hashing_is_refused(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of a private file would become part of what is kept and asked."""
    private = tmp_path / "private"
    shutil.copy(folder / "tokenizer.json", private)
    found = exchanging(folder, name, lambda path: path.symlink_to(private), monkeypatch)
    assert refusal(found) == f"{folder / name} is a link that leads out of the model's folder; copy the file there"


def test_a_folder_that_is_a_link_to_one_above_a_private_file_is_no_excuse(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the folder in which the files were looked for."""
    (tmp_path / "private").write_text("a\n")
    (folder / "vocab.txt").symlink_to(tmp_path / "private")
    found, aside = ModelFolder(folder, "m", "m", folder_digest(folder)), tmp_path / "aside"

    def turned(file: BufferedReader, path: Path) -> Path:
        real = real_path(file, path)
        folder.rename(aside)
        folder.symlink_to(tmp_path)
        return real

    def turned_back(source: Path, target: Path) -> None:
        folder.unlink()
        aside.rename(folder)
        link_to(source, target)

    monkeypatch.setattr("fillerscope.models.hashed_view.real_path", turned)
    monkeypatch.setattr("fillerscope.models.hashed_view.link_to", turned_back)
    with pytest.raises(ModelError, match="leads out of the model's folder"), hashed_view(found):
        pass


def test_weights_and_names_in_the_cache_of_the_hub_may_be_links(folder: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "repo/snapshots/abc", tmp_path / "repo/blobs"
    shutil.copytree(folder, snapshot)
    blobs.mkdir()
    for number, file in enumerate(sorted(snapshot.iterdir())):
        place = tmp_path if file.suffix == ".safetensors" else blobs
        shutil.move(file, place / f"{number:040x}")
        file.symlink_to(place / f"{number:040x}")
    with hashed_view(ModelFolder(snapshot, "m", "m", folder_digest(snapshot))) as view:
        assert (view.path / "config.json").read_bytes() == (folder / "config.json").read_bytes()
