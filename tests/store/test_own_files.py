"""Which files in a folder of a user's choice are ours: by their checksums alone, also after a kill."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fillerscope.store.own_files import LISTING, OwnFiles

NAME = "profile.csv"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def write(folder: Path, text: str) -> None:
    with OwnFiles.writing(folder) as own:
        own.refuse_others([NAME])
        with own.replacing(NAME) as file:
            file.write(text.encode())


def test_our_files_are_replaced_and_those_of_others_are_not(folder: Path) -> None:
    write(folder, "one")
    write(folder, "two")
    assert (folder / NAME).read_text() == "two"
    (folder / NAME).write_text("mine")
    with pytest.raises(FileExistsError, match=f"{NAME} is there already, and nothing shows that fillerscope wrote it"):
        write(folder, "three")
    (folder / NAME).write_text("one")
    with pytest.raises(FileExistsError):
        write(folder, "three")  # bytes of before the last time are not listed any more
    (folder / NAME).unlink()
    write(folder, "three")
    assert {path.name for path in folder.iterdir()} == {NAME, LISTING}


def test_a_name_that_was_removed_is_not_listed(folder: Path) -> None:
    write(folder, "one")
    with OwnFiles.writing(folder) as own:
        assert own.has(NAME)
        own.remove(NAME)
    assert json.loads((folder / LISTING).read_text())["written by fillerscope"] == {}
    (folder / NAME).write_text("one")
    assert not OwnFiles(folder).has(NAME)


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_kill_while_a_file_is_replaced_leaves_one_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Before the file gets its place, and after it."""

    def killed(made: Path, target: Path) -> Path:
        if target.name == NAME and at == "before":
            raise KeyboardInterrupt
        replace(made, target)
        if target.name == NAME:
            raise KeyboardInterrupt
        return target

    write(folder, "one")
    replace = Path.replace
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(folder, "two")
    assert (folder / NAME).read_text() == ("one" if at == "before" else "two")
    write(folder, "three")


def test_names_without_checksums_give_no_leave(folder: Path) -> None:
    """Listings of earlier versions have none."""
    folder.mkdir()
    (folder / NAME).write_text("whose?")
    (folder / LISTING).write_text(json.dumps({"tables of": "digest", "written by fillerscope": [NAME, 3]}))
    own = OwnFiles(folder)
    assert (own.of, own.unproven(), own.has(NAME)) == ("digest", [NAME], False)
    with pytest.raises(FileExistsError):
        write(folder, "one")


@pytest.mark.parametrize("text", ["", "[]", "3", '{"written by fillerscope": {"profile.csv": 3}}', '{"tables of": []}'])
def test_a_damaged_listing_lists_nothing(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / NAME).write_text("mine")
    (folder / LISTING).write_text(text)
    assert not OwnFiles(folder).has(NAME)
    with pytest.raises(FileExistsError):
        write(folder, "one")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_what_is_no_file_is_not_ours(folder: Path) -> None:
    write(folder, "one")
    (folder / NAME).unlink()
    os.mkfifo(folder / NAME)
    with pytest.raises(FileExistsError):
        write(folder, "two")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no paths of open folders")
def test_a_folder_that_is_exchanged_while_it_is_written_to_is_the_one_that_is_written(
    folder: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / NAME).write_text("mine")
    with OwnFiles.writing(folder) as own:
        folder.rename(tmp_path / "gone")
        folder.symlink_to(private)
        own.refuse_others([NAME])
        with own.replacing(NAME) as file:
            file.write(b"ours")
    assert {path.name: path.read_text() for path in private.iterdir()} == {NAME: "mine"}
    assert (tmp_path / "gone" / NAME).read_text() == "ours"
