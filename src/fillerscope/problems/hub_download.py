"""Download files from the Hugging Face hub into its own cache, one after another, with one progress for all of them.

huggingface_hub starts a file anew after a kill, finishes it before it heeds an interrupt, draws several bars, and
believes what a hub says about names. So files are listed and downloaded here, and put where its cache keeps them. Knows
nothing of what the files hold.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from io import BufferedWriter
from pathlib import Path

from fillerscope.display import first_line, readable
from fillerscope.files import FULL, file_lock, file_sha256, is_inside, open_file, replacing
from fillerscope.problems.hub_http import PIECE, Connection, connected
from fillerscope.problems.hub_listing import HubFile, Listing, Repo, git_sha1, read_listing
from fillerscope.progress import Progress

PATIENCE = 5  # attempts that brought too little together, before a download is given up


def list_files(repo: Repo) -> Listing:
    """The files of a repository as they are now."""
    with connected() as hub:
        return read_listing(hub, repo)


def download(repo: Repo, listing: Listing, names: Sequence[str], progress: Progress) -> Path:
    """Put some files into the hub's cache, where they are missing, and return the folder that has them by name.

    Part of a file is used again. Data whose bytes have changed in the cache is downloaded again; files of models are
    hashed by who loads them."""
    folder = _cache_folder(repo)
    wanted = [listing.file(name) for name in names]
    blobs = folder / "blobs"
    is_hashed = repo.kind == "dataset"
    _refuse_links(folder)
    files = [file for file in wanted if not _is_sound(blobs, file, is_hashed)]
    blobs.mkdir(parents=True, exist_ok=True)
    _require_space(blobs, sum(file.size - _size(_part(blobs, file)) for file in files))
    done, total = 0, sum(file.size for file in files)
    with connected() as hub:
        for file in files:
            before = done

            def report(size: int, before: int = before) -> None:
                progress.stage(f"downloading {repo.name}", before + size, total)

            def wait(held: str) -> None:
                progress.stage(f"waiting for another download of {repo.name}{held}", 0, None)

            with file_lock(_lock(folder, file), wait):
                if is_hashed:
                    _remove_changed(blobs, file, progress)
                _complete(hub, repo.address(listing.commit, file.path), file, blobs, report)
            done += file.size
    return _placed(folder, listing.commit, wanted)


def remove(repo: Repo, file: Path) -> None:
    """Remove a file of a repository from the cache, with its content. A link there is removed, and not what it leads
    to: a cache may come from somebody else."""
    folder = _cache_folder(repo)
    _refuse_links(folder)
    if file.is_symlink():
        (folder / "blobs" / file.readlink().name).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _refuse_links(folder: Path) -> None:
    """Raise an OSError where a folder of a repository in the cache leads elsewhere, or that of its locks."""
    locks, below = folder.parent / ".locks", (folder / "blobs", folder / "refs", folder / "snapshots")
    for one in (folder, locks, locks / folder.name, *below, *folder.glob("snapshots/*")):
        if one.is_symlink():
            raise OSError(errno.ELOOP, f"{one} is a link; remove it")


def _cache_folder(repo: Repo) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo.name, repo_type=repo.kind))


def _lock(folder: Path, file: HubFile) -> Path:
    """The lock that huggingface_hub holds while it downloads the same file."""
    return folder.parent / ".locks" / folder.name / f"{file.digest}.lock"


def _is_sound(blobs: Path, file: HubFile, is_hashed: bool) -> bool:
    """Whether the cache has a file; where it is hashed, whether the bytes are those that the hub lists."""
    blob = blobs / file.digest
    return blob.exists() and (not is_hashed or _digest_of(blob, file) == file.digest)


def _remove_changed(blobs: Path, file: HubFile, progress: Progress) -> None:
    """Remove a file of the cache whose bytes have changed, so that it is downloaded again."""
    blob = blobs / file.digest
    if blob.exists() and not _is_sound(blobs, file, is_hashed=True):  # another process may have been faster
        progress.say(f"{file.path} in {blobs.parent} is not what was downloaded; it is downloaded again")
        blob.unlink()


def _part(folder: Path, file: HubFile) -> Path:
    return folder / f"{file.digest}.incomplete"


def _size(part: Path) -> int:
    """The bytes of a part. Whatever else is in its place is removed: a link, a pipe, or a file of somebody else."""
    try:
        status = part.lstat()
    except FileNotFoundError:
        return 0
    if _is_own(part, status):
        return status.st_size
    part.unlink()
    return 0


def _is_own(part: Path, status: os.stat_result) -> bool:
    """Whether a part is a file of this user under this name alone: one with another name as well may be anybody's.

    Where a disk is shared the owner of a new file may be another than its user, and is that of its folder."""
    users = (os.getuid(), part.parent.stat().st_uid) if hasattr(os, "getuid") else (status.st_uid,)
    return stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and status.st_uid in users


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{readable(needed)} to download, {readable(free)} free")


def _complete(hub: Connection, url: str, file: HubFile, folder: Path, report: Callable[[int], None]) -> None:
    """Download what is missing of a file, compare its digest, and give it the name by which the cache finds it."""
    target, part = folder / file.digest, _part(folder, file)
    if target.exists():  # another process was faster
        return
    tries, most = PATIENCE, _size(part)
    while _size(part) != file.size or not part.exists():
        error: Exception = ValueError(f"{file.path} does not come as a whole; try again later")
        try:
            _stream(hub, url, file, part, report)
        except TimeoutError:  # of a piece
            error = ValueError(f"{file.path} comes too slowly; try again later")
        except OSError:  # of the disk, or an answer of the hub
            raise
        except Exception as caught:  # of the network: the library under the hub's, and with it the errors, changes
            error = caught
        if _size(part) == file.size:
            break
        tries, most = (PATIENCE, _size(part)) if _size(part) >= most + PIECE else (tries - 1, most)
        if not tries:
            raise error
        time.sleep(1)
    if _digest_of(part, file) != file.digest:
        part.unlink()
        raise ValueError(f"{file.path} arrived damaged and was removed; try again")
    part.replace(target)


def _stream(hub: Connection, url: str, file: HubFile, part: Path, report: Callable[[int], None]) -> None:
    """Append to a part what the hub sends from its end on; a server that sends all of it starts the part anew."""
    done, pieces = hub.file(url, _size(part) if _size(part) < file.size else 0)
    with closing(pieces), _opened(part, done) as out:
        for piece in pieces:
            if done + len(piece) > file.size:
                part.unlink()
                raise OSError(errno.EFBIG, f"more comes of {file.path} than the {file.size:,} bytes it should have")
            report(done := done + out.write(piece))


def _opened(part: Path, done: int) -> BufferedWriter:
    """Open a part to append to the bytes that it has; where it has none it is a new file, whatever was there.

    What was put in its place since its size was taken is removed, and a ValueError."""
    if not done:
        part.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(part, flags if done else flags | os.O_CREAT | os.O_EXCL, 0o666)
    status = os.fstat(descriptor)
    if done and (status.st_size != done or not _is_own(part, status)):
        os.close(descriptor)
        part.unlink()
        raise ValueError(f"{part} changed while it was downloaded; try again")
    return os.fdopen(descriptor, "wb")


def _digest_of(path: Path, file: HubFile) -> str:
    return file_sha256(path) if len(file.digest) == 64 else git_sha1(path)


def _placed(folder: Path, commit: str, files: Sequence[HubFile]) -> Path:
    """The folder of a commit in the hub's cache, with links to the contents of files under their names.

    The commit is named the newest when all of them are there."""
    snapshot = folder / "snapshots" / commit
    for file in files:
        _link(snapshot / file.path, folder / "blobs" / file.digest)
    newest = folder / "refs" / "main"
    newest.parent.mkdir(parents=True, exist_ok=True)
    with replacing(newest) as draft:
        draft.write(commit.encode())
    return snapshot


def _link(link: Path, blob: Path) -> None:
    """Show a content under a name: a relative link, or a copy where the disk has no links, which is made once: files
    of models are hashed by who loads them."""
    is_copied = not link.is_symlink() and link.exists() and link.stat().st_size == blob.stat().st_size
    if link.exists() and (is_copied or link.samefile(blob)):
        return
    if not is_inside(link.parent, blob.parents[1]):
        raise OSError(errno.ELOOP, f"a link leads from {link.parent} out of the cache; remove it")
    link.parent.mkdir(parents=True, exist_ok=True)
    draft = link.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        draft.symlink_to(Path(*[".."] * (len(link.relative_to(blob.parents[1]).parts) - 1), "blobs", blob.name))
        draft.replace(link)
    except OSError:
        draft.unlink(missing_ok=True)
        with replacing(link, sync=False) as file, open_file(blob) as content:
            shutil.copyfileobj(content, file)


def explain(repo: Repo, error: Exception, offline: str) -> str:
    """One line on why a download failed and what to do; `offline` says what works without a network."""
    from huggingface_hub import constants, errors, get_token

    if isinstance(error, errors.GatedRepoError):  # which is also `not found`, so it is asked about first
        if get_token() is None:
            return f"{repo.shown} is gated: run `hf auth login`, and ask for access at {repo.page} if you have none"
        return f"{repo.shown} is gated and your account has no access: ask for it at {repo.page}, then try again"
    if isinstance(error, OSError) and error.errno in FULL:
        remedy = "make room, or set HF_HUB_CACHE to a folder on a larger disk"
        return f"{repo.shown} does not fit on the disk of {constants.HF_HUB_CACHE} ({error.strerror}); {remedy}"
    if _status(error) == 401 and not isinstance(error, errors.RepositoryNotFoundError) and get_token():
        return f"the hub refuses your token for {repo.shown}: run `hf auth login` again, or unset HF_TOKEN"
    return f"cannot download {repo.shown} from the hub ({first_line(error)}); check the network, or {offline}"


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None
