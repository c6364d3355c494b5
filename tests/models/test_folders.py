"""Folders that others cannot exchange, and those where they could."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fillerscope.models import folders
from fillerscope.models.folders import exchangeable, move, private_folder, replacing_folder


@pytest.fixture
def reached() -> Iterator[Path]:
    """A folder that other users get to."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o755, False), (0o777, True), (0o1777, False), (0o757, True), (0o700, False)]
)
def test_what_others_can_rename_is_exchangeable(reached: Path, mode: int, is_open: bool) -> None:
    inner = reached / "a" / "b"
    inner.mkdir(parents=True)
    (reached / "a").chmod(mode)
    assert exchangeable(inner) == (reached / "a" if is_open else None)


def test_behind_a_closed_folder_nothing_is_exchangeable(reached: Path) -> None:
    inner = reached / "a"
    inner.mkdir()
    inner.chmod(0o777)
    reached.chmod(0o700)
    assert exchangeable(inner) is None


def test_a_group_of_one_is_no_other_user(reached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached.chmod(0o775)
    monkeypatch.setattr(folders, "_is_group_of_one", lambda _: True)
    assert exchangeable(reached) is None
    monkeypatch.setattr(folders, "_is_group_of_one", lambda _: False)
    assert exchangeable(reached) == reached


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_the_owner_of_a_folder_can_exchange_what_is_in_it(reached: Path) -> None:
    reached.chmod(0o1777)
    os.chown(reached, 12345, -1)
    assert exchangeable(reached) == reached


def test_a_private_folder_is_where_others_cannot_exchange_it(reached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, opened = reached / "closed", reached / "open"
    closed.mkdir()
    opened.mkdir()
    opened.chmod(0o777)
    monkeypatch.setattr(folders, "gettempdir", lambda: str(closed))
    for near in (closed, opened):
        with private_folder(near, "a-") as made:
            assert made.parent == closed
    monkeypatch.setattr(folders, "gettempdir", lambda: str(opened))
    with pytest.raises(PermissionError, match="other users can write to"), private_folder(opened, "a-"):
        pass


def test_a_file_is_moved_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, target, real = tmp_path / "file", tmp_path / "target", os.replace

    def replace(source: Path, to: Path) -> None:
        if Path(source) == file:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, to)

    file.write_text("a")
    monkeypatch.setattr(os, "replace", replace)
    move(file, target)
    assert target.read_text() == "a"


def test_a_folder_that_is_exchanged_while_it_is_filled_is_neither_followed_nor_used(tmp_path: Path) -> None:
    outside, away = tmp_path / "outside", tmp_path / "away"
    outside.mkdir()
    (outside / "file").write_text("mine")

    def fill(path: Path) -> None:
        (draft,) = tmp_path.glob(".target.*")
        assert re.fullmatch(r"\.target\.[0-9a-f]{16}\.converting", draft.name)
        draft.rename(away)
        draft.symlink_to(outside)
        (path / "file").write_text("ours")

    with (
        pytest.raises(OSError, match="it was replaced while it was written"),
        replacing_folder(tmp_path / "target") as path,
    ):
        fill(path)
    assert (outside / "file").read_text() == "mine"
    assert (away / "file").read_text() == "ours"
    assert not (tmp_path / "target").exists()


def test_a_folder_that_is_exchanged_when_it_is_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another one of ours, in which somebody else has put links."""
    mkdir = Path.mkdir

    def exchanged(path: Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        (path / "file").symlink_to(tmp_path / "victim")

    monkeypatch.setattr(Path, "mkdir", exchanged)
    with pytest.raises(OSError, match="it was replaced when it was made"), replacing_folder(tmp_path / "target"):
        pass


def test_without_paths_of_open_folders_a_place_of_others_is_refused(
    reached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "OPEN_FILES", reached / "none")
    with replacing_folder(reached / "a") as path:
        (path / "file").write_text("a")
    assert (reached / "a" / "file").read_text() == "a"
    reached.chmod(0o777)
    with pytest.raises(PermissionError, match="other users can write to"), replacing_folder(reached / "b"):
        pass
    assert [path.name for path in reached.iterdir()] == ["a"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in (".target.converting", ".target.0123456789abcdef.converting"):
        (tmp_path / name / "deep").mkdir(parents=True)
    with replacing_folder(tmp_path / "target"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
