"""The cache's folders: closed to others when we make them, and said so when they are not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.cache import cache_subfolder, make_own_folder, open_cache_warning, written_by_others
from fillerscope.models.digests import cached_sha256


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """A user whose files others in the group can write to."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.fixture
def reachable(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that others get to."""
    cache = open_folder / "cache"
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(cache))
    return cache


def test_folders_that_we_make_are_ours(reachable: Path) -> None:
    folder = cache_subfolder("models", "one")
    assert written_by_others(folder) == []
    assert [path.stat().st_mode & 0o777 for path in (reachable, reachable / "models", folder)] == [0o755] * 3


def test_a_cache_that_a_group_shares_stays_shared(reachable: Path) -> None:
    reachable.mkdir(mode=0o775)
    folder = cache_subfolder("models")
    assert folder.stat().st_mode & 0o777 == 0o775
    assert written_by_others(folder) == [reachable, folder]
    line = f"other users can write to {reachable} and 1 more in the cache, and change what is measured"
    assert open_cache_warning(folder).startswith(f"{line}: `chmod -R go-w {shlex.quote(str(reachable))}`")


def test_files_in_a_folder_count(reachable: Path) -> None:
    folder = cache_subfolder("models")
    (folder / "weights").write_text("")
    assert written_by_others(folder) == [reachable / "models" / "weights"]


def test_a_folder_above_counts_unless_only_owners_can_move_files_there(reachable: Path) -> None:
    folder = cache_subfolder("models")
    reachable.parent.chmod(0o777)
    assert written_by_others(folder) == [reachable.parent]
    assert f"`chmod go-w {shlex.quote(str(reachable.parent))}`" in open_cache_warning(folder)  # not what else is in it
    reachable.parent.chmod(0o1777)
    assert written_by_others(folder) == []


def test_behind_a_closed_folder_nothing_counts(reachable: Path) -> None:
    folder = cache_subfolder("models")
    (folder / "weights").write_text("")
    reachable.chmod(0o700)
    assert written_by_others(folder) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_what_belongs_to_another_user_counts(reachable: Path) -> None:
    folder = cache_subfolder("models")
    os.chown(folder, 12345, -1)
    assert written_by_others(folder) == [reachable / "models"]


@pytest.mark.parametrize("name", ["parts", "parts/one"])
def test_a_link_in_the_cache_is_not_followed(reachable: Path, tmp_path: Path, name: str) -> None:
    """It may come from somebody else, and files behind a link are removed and written like those of the cache."""
    (reachable / name).parent.mkdir(parents=True)
    (reachable / name).symlink_to(tmp_path)
    with pytest.raises(ModelError, match=r"is a link; remove it; set FILLERSCOPE_CACHE to another folder"):
        cache_subfolder("parts", "one")


def test_notes_of_the_cache_do_not_lead_elsewhere(reachable: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    weights, old = tmp_path / "weights", mine / f"{'0' * 32}.json"
    for file in (weights, old):
        file.write_text("x")
        os.utime(file, (0, 0))
    reachable.mkdir()
    (reachable / f"digests-{os.getuid()}").symlink_to(mine)
    assert cached_sha256(weights)
    assert list(mine.iterdir()) == [old]
    with pytest.raises(PermissionError):
        make_own_folder("digests")


def test_of_expired_notes_no_other_file_is_removed(reachable: Path, tmp_path: Path) -> None:
    reachable.mkdir()
    folder, weights = make_own_folder("digests"), tmp_path / "weights"
    weights.write_text("x")
    for name in (f"{'0' * 32}.json", "thesis.tex"):
        (folder / name).write_text("x")
        os.utime(folder / name, (0, 0))
    cached_sha256(weights)
    assert not (folder / f"{'0' * 32}.json").exists()
    assert (folder / "thesis.tex").exists()
