"""Sums that were noted are believed by the same user, for the same file, for some hours."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fillerscope.models import digest_notes, digests
from fillerscope.models.digests import cached_sha256


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    return path


@pytest.fixture
def note(weights: Path) -> Path:
    cached_sha256(weights)
    return digest_notes.note_of(weights)


def is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether asking for the sum of a file reads it."""
    read: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr(digests, "_hash_file", lambda *given: read.append(given[0]) or "sum")
        cached_sha256(path)
    return bool(read)


def test_a_file_that_takes_another_s_place_while_it_is_read_gets_no_note_of_the_other(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders exchange their names: inode, size and times of the files in them stay."""
    folders = [weights.parent / name for name in ("model", "other")]
    for folder, text in zip(folders, (b"one", b"two"), strict=True):
        folder.mkdir()
        (folder / "weights").write_bytes(text)
    path, opened = folders[0] / "weights", digests.open_file

    def exchanged(asked: Path) -> Any:
        aside = weights.parent / "aside"
        for source, target in ((folders[0], aside), (folders[1], folders[0]), (aside, folders[1])):
            source.rename(target)
        return opened(asked)

    with monkeypatch.context() as patch:
        patch.setattr(digests, "open_file", exchanged)
        cached_sha256(path)
    for folder in folders:
        file = folder / "weights"
        assert cached_sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_is_written_to_while_it_is_read_gets_no_note(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = digests._hash_file

    def hashed(*given: Any) -> str:
        found = real(*given)
        weights.write_bytes(b"two")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(digests, "_hash_file", hashed)
        cached_sha256(weights)
    assert cached_sha256(weights) == hashlib.sha256(b"two").hexdigest()


def test_a_note_is_for_its_owner_alone(note: Path, cache: Path) -> None:
    assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert note.parent == cache / f"digests-{os.getuid()}"


def test_a_note_spares_the_reading(weights: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert note.exists()
    assert not is_read(weights, monkeypatch)


@pytest.mark.parametrize("hours", [12.1, -0.1], ids=["expired", "of a time to come"])
def test_a_note_of_another_time_is_not_believed(
    weights: Path, note: Path, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads(note.read_text())
    note.write_text(json.dumps(record | {"read": time.time() - 3600 * hours}))
    assert is_read(weights, monkeypatch)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_note_that_others_can_write_to_is_not_believed(
    weights: Path, note: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    note.chmod(mode)
    assert is_read(weights, monkeypatch)


def test_a_folder_that_others_can_write_to_is_not_believed(
    weights: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note.parent.chmod(0o770)
    assert is_read(weights, monkeypatch)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("of_folder", [False, True], ids=["note", "folder"])
def test_a_note_of_another_user_is_not_believed(
    weights: Path, note: Path, of_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(note.parent if of_folder else note, 12345, -1)
    assert is_read(weights, monkeypatch)


def test_a_file_put_in_the_place_of_another_is_read(weights: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert note.exists()
    other = weights.with_name("other")
    other.write_bytes(b"two")
    times = weights.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(weights)
    assert is_read(weights, monkeypatch)


def test_a_note_that_makes_no_sense_is_not_believed(weights: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "[]", '{"sha256": "x"}', '{"sha256": "x", "read": "yesterday"}', '{"sha256": "x", "read": null}'):
        note.write_text(text)
        assert is_read(weights, monkeypatch)


def test_expired_notes_are_removed(weights: Path, note: Path) -> None:
    old = time.time() - digest_notes.LIFETIME - 60
    os.utime(note, (old, old))
    weights.write_bytes(b"another")
    cached_sha256(weights)
    assert not note.exists()


def test_every_byte_is_read_when_that_is_asked_for(weights: Path, note: Path) -> None:
    note.write_text(json.dumps({"sha256": "x", "read": time.time()}))
    assert cached_sha256(weights) == "x"
    assert cached_sha256(weights, fresh=True) == cached_sha256(weights) != "x"
