"""How a run in an object store is named, and where its copy lies.

path = local_folder("s3://bucket/runs/demo")   # the copy; a path of this machine is returned as it is
remote_of(path)                                # the object store behind it
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import StoreError
from fillerscope.files import others_can_write, write_whole
from fillerscope.models.catalogue import cache_folder
from fillerscope.store.inside import find_link
from fillerscope.store.remote import EXTRAS, RemoteFolder

ADDRESS = re.compile(rf"({'|'.join(EXTRAS)}):/+(.+?)/*")  # one slash where it went through a Path
LOCAL = re.compile(r"file:/+")
LONGEST = 200  # bytes of a name in an address
OWN_FOLDER = ", or set FILLERSCOPE_CACHE to a folder of your own"


def local_folder(text: str | Path) -> Path:
    """The folder of this machine that is meant: a path as it is, the address of an object store as a copy.

    The copy's manifests are those of now; other files are fetched when they are read."""
    found = ADDRESS.fullmatch(str(text))
    if found is None:
        return Path(LOCAL.sub("/", str(text), count=1)) if LOCAL.match(str(text)) else Path(text)
    names = found[2].split("/")
    if len(names) < 2 or not all(map(_is_plain, names)):
        raise StoreError(f"{found[0]!r} is no address of a run: it is written as {found[1]}://bucket/folder/run")
    address = f"{found[1]}://{found[2]}"
    key = hashlib.sha256(address.encode()).hexdigest()[:16]
    copy = _copies() / key / names[-1]
    _refuse_planted(copy)
    _copies().mkdir(parents=True, exist_ok=True, mode=0o700)
    copy.mkdir(parents=True, exist_ok=True)
    write_whole(_address_file(key), [address.encode()], sync=False)
    RemoteFolder(address, copy).pull_all()
    return copy


def _refuse_planted(copy: Path) -> None:
    """Refuse links in the way to a copy or anywhere in it, and a folder of copies that others can write to."""
    _refuse_links_to(copy)
    if _copies().exists() and others_can_write(_copies()):
        raise StoreError(f"other users can write to {_copies()}, and change what is stored: remove it{OWN_FOLDER}")
    try:
        link = find_link(copy)
    except OSError as error:
        raise StoreError(f"cannot look through {copy}: {first_line(error)}; remove it{OWN_FOLDER}") from None
    if link is not None:
        raise StoreError(f"{link} is a link, which may lead anywhere: remove {copy}{OWN_FOLDER}")


def _refuse_links_to(path: Path) -> None:
    """Refuse links in the way from the folder of copies to a path in it."""
    way = [path, *path.parents]
    for folder in way[way.index(_copies()) :: -1]:
        if folder.is_symlink():
            raise StoreError(f"{folder} is a link, which may lead anywhere: remove it{OWN_FOLDER}")


def _is_plain(name: str) -> bool:
    """Whether a name stands for itself: libraries take parts of others for a version or a pattern."""
    return (
        name not in ("", ".", "..")
        and name.isprintable()
        and not any(mark in name for mark in "?#*[]")
        and len(name.encode()) <= LONGEST
    )


def is_address(text: str | Path) -> bool:
    """Whether a text means a run in an object store."""
    return ADDRESS.fullmatch(str(text)) is not None


def remote_of(path: Path) -> RemoteFolder | None:
    """The object store behind a copy or a folder in one; None for other folders."""
    try:
        key, _, *below = path.relative_to(_copies()).parts
        address = _address_file(key).read_text(encoding="utf-8")
    except (ValueError, OSError):
        return None
    _refuse_links_to(path)
    return RemoteFolder("/".join([address, *below]), path)


def address_of(path: Path) -> str:
    """How a run is called to a user: by its address in an object store, else by its path."""
    remote = remote_of(path)
    return str(path) if remote is None else remote.address


def _copies() -> Path:
    return cache_folder() / "copies"


def _address_file(key: str) -> Path:
    return _copies() / f"{key}.txt"
