"""Reading files from elsewhere: limits on size and depth, and what is no file."""

from __future__ import annotations

import os
import re
import secrets
import time
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fillerscope import files
from fillerscope.files import (
    digest_of,
    digest_of_list,
    file_lock,
    file_sha256,
    open_file,
    parse_json,
    read_limited,
    real_path,
    replacing,
    write_whole,
)
from support.swapping import swap_drafts
from support.watchdog import watched


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * (1 << 20))
    assert read_limited(path, 1 << 20) == b"x" * (1 << 20)
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_limited(path, 1 << 20)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    for read in (read_limited, file_sha256):
        with watched(), pytest.raises(OSError, match="a pipe or a device, not a file"):
            read(path)


@pytest.mark.parametrize("shows_open_files", [True, False])
def test_the_place_of_an_open_file_is_that_of_what_was_opened(
    tmp_path: Path, shows_open_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the system does not show it: another file at the path is an error then."""
    if not shows_open_files:
        monkeypatch.setattr(files, "OPEN_FILES", tmp_path / "none")
    target, link = tmp_path.resolve() / "target", tmp_path / "link"
    target.write_text("a")
    link.symlink_to(target)
    with open_file(link) as file:
        assert real_path(file, link) == target
        link.unlink()
        link.write_text("b")
        if files.OPEN_FILES.is_dir():
            assert real_path(file, link) == target
            target.unlink()
            assert real_path(file, link) == target
        else:
            with pytest.raises(OSError, match="it was replaced while it was opened"):
                real_path(file, link)
            link.unlink()
            link.symlink_to(target)
            target.rename(tmp_path / "away")
            target.symlink_to(tmp_path / "away")
            assert real_path(file, link) == tmp_path.resolve() / "away"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, b"[" * 100_000, "", "nul", b"\xff"])
def test_json_that_cannot_be_read_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of any text)
        parse_json(text)


def test_names_of_drafts_cannot_be_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replacing(path) as one, replacing(path) as other:
        assert len({one.name, other.name}) == 2
        assert all(re.fullmatch(r"\.a\.json\.[0-9a-f]{16}\.tmp", Path(draft.name).name) for draft in (one, other))


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_in_the_place_of_a_draft_is_not_written_through(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were its name known after all."""
    victim, draft = tmp_path / "victim", tmp_path / f".a.json.{'0' * 16}.tmp"
    victim.write_text("mine")
    draft.symlink_to(victim) if kind == "link" else victim.rename(draft)
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0" * 16)
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "a.json", [b"x"])
    assert draft.read_text() == "mine"


@pytest.mark.parametrize("how", ["at once", "later", "removed"])
def test_a_link_in_the_place_of_a_draft_is_neither_followed_nor_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.json"
    path.write_text("as before")

    def pieces() -> Iterator[bytes]:
        yield b"x"
        if how != "at once":
            (draft,) = tmp_path.glob(".a.json.*")
            draft.unlink()
            if how == "later":
                draft.symlink_to(victim)
        yield b"y"

    with monkeypatch.context() as patched:
        victim.write_text("mine")
        if how == "at once":
            swap_drafts(patched, victim)
        with pytest.raises(OSError, match="it was removed or replaced while it was written"):
            write_whole(path, pieces())
    assert (victim.read_text(), path.read_text()) == ("mine", "as before")
    assert {one.name for one in tmp_path.iterdir()} == {"victim", "a.json"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is there already, and no file"):
        write_whole(tmp_path / "pipe", [b"x"])
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    "item",
    [
        "[]", "[-9]", "{}", '{"":0}', "-9", '"ab"', '"\u0100"', "[[[]]]", '{"a":{"a":0}}', '"\U0001f600a"',
        f'"\U0001f600{"a" * 99}"', f'"\\ud83d\\ude00{"a" * 99}"',
    ],
)  # fmt: skip
def test_values_of_json_are_not_made_where_they_take_too_much_memory(item: str) -> None:
    """Whatever is accepted takes about as much as was reckoned."""
    text = "[" + f"{item}," * 20_000 + "0]"
    written = text.encode()
    tracemalloc.start()
    parse_json(written)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for one in (text, written):
        with pytest.raises(ValueError, match=r"more than [0-9]+ MiB of memory"):
            parse_json(one, taken // 2)


def test_pieces_that_are_not_hashed_yet_do_not_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and writing may be faster than hashing."""
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    class Slow:
        def update(self, piece: memoryview) -> None:
            time.sleep(0.01)
            assert len(piece) == 8

        def hexdigest(self) -> str:
            return ""

    def pieces() -> Iterator[memoryview]:
        nonlocal most
        for _ in range(20):
            array = np.zeros(8, dtype=np.uint8)
            alive.append(weakref.ref(array))
            most = max(most, sum(one() is not None for one in alive))
            yield array.data

    monkeypatch.setattr("fillerscope.files.MOST_WAITING", 16)
    monkeypatch.setattr("fillerscope.files.hashlib.sha256", Slow)
    assert write_whole(tmp_path / "a", pieces()) == (160, "")
    assert most <= 4


def test_a_piece_that_cannot_be_hashed_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(BufferError):
        write_whole(tmp_path / "a", [np.zeros((4, 4), dtype=np.uint8)[:, ::2].data])
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("values", [[], ["a"], [["x", "\U0001f600"], {"b": 1, "a": 2.5}, None]])
def test_the_digest_of_a_list_does_not_depend_on_how_it_is_made(values: list[object]) -> None:
    assert digest_of_list(iter(values)) == digest_of(values)


def test_who_waits_for_a_lock_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    path, told = tmp_path / "locks" / "a.lock", []
    with ExitStack() as holding:
        holding.enter_context(file_lock(path, told.append))
        assert path.stat().st_mode & 0o777 == 0o600

        def wait(held: str) -> None:
            told.append(held)
            if held:
                holding.close()

        with file_lock(path, wait):
            assert told == ["", f", which holds {path}"]
