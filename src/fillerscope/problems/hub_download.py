"""Download files from the Hugging Face hub into its own cache, one after another, with one progress for all of them.

huggingface_hub starts a file anew after a kill, finishes it before it heeds an interrupt, and draws several bars. So
the contents are downloaded here and put where its cache keeps them; it does everything else. Knows nothing of what
the files hold.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fillerscope.display import first_line, readable
from fillerscope.files import FULL, file_lock, file_sha256
from fillerscope.progress import Progress

if TYPE_CHECKING:
    from huggingface_hub import RepoFile

CHUNK = 1 << 18
PATIENCE = 5  # attempts that brought nothing, before a download is given up


@dataclass(frozen=True)
class Repo:
    """A repository on the hub."""

    name: str  # owner/name
    kind: Literal["model", "dataset"] = "model"

    @property
    def page(self) -> str:
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"

    @property
    def shown(self) -> str:
        """The name as a study has it."""
        return f"hub:{self.name}" if self.kind == "dataset" else self.name


def list_files(repo: Repo) -> list[str]:
    """Names of all files of a repository."""
    from huggingface_hub import HfApi

    reach()
    return HfApi().list_repo_files(repo.name, repo_type=repo.kind)


def reach() -> None:
    """Make one plain request, which fails soon without a network; the hub's own calls try for half a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    get_session().head(constants.ENDPOINT, timeout=10)


def download(repo: Repo, names: Sequence[str], progress: Progress) -> None:
    """Put the contents of some files into the hub's cache, where they are missing. Part of a file is used again."""
    from huggingface_hub import HfApi, RepoFile

    entries = HfApi().get_paths_info(repo.name, list(names), repo_type=repo.kind)
    folder = _cache_folder(repo) / "blobs"
    files = [entry for entry in entries if isinstance(entry, RepoFile) and not (folder / _digest(entry)).exists()]
    folder.mkdir(parents=True, exist_ok=True)
    _require_space(folder, sum(file.size - _size(_part(folder, file)) for file in files))
    done, total = 0, sum(file.size for file in files)
    for file in files:
        before = done

        def report(size: int, before: int = before) -> None:
            progress.stage(f"downloading {repo.name}", before + size, total)

        with file_lock(
            _lock(repo, file), lambda: progress.stage(f"waiting for another download of {repo.name}", 0, None)
        ):
            _complete(repo, file, folder, report)
        done += file.size


def _cache_folder(repo: Repo) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo.name, repo_type=repo.kind))


def _lock(repo: Repo, file: RepoFile) -> Path:
    """The lock that huggingface_hub holds while it downloads the same file."""
    folder = _cache_folder(repo)
    return folder.parent / ".locks" / folder.name / f"{_digest(file)}.lock"


def _digest(file: RepoFile) -> str:
    """The SHA-256 of a large file, git's SHA-1 of a small one: the hub's cache names contents by them."""
    return file.lfs.sha256 if file.lfs else file.blob_id


def _part(folder: Path, file: RepoFile) -> Path:
    return folder / f"{_digest(file)}.incomplete"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{readable(needed)} to download, {readable(free)} free")


def _complete(repo: Repo, file: RepoFile, folder: Path, report: Callable[[int], None]) -> None:
    """Download what is missing of a file, compare its digest, and give it the name by which the cache finds it."""
    target, part = folder / _digest(file), _part(folder, file)
    if target.exists():  # another process was faster
        return
    tries = PATIENCE
    while (before := _size(part)) != file.size or not part.exists():
        error: Exception = ValueError(f"{file.path} does not come as a whole; try again later")
        try:
            _stream(repo, file, part, report)
        except OSError:  # of the disk, or an answer of the hub
            raise
        except Exception as caught:  # of the network: the library under the hub's, and with it the errors, changes
            error = caught
        if _size(part) == file.size:
            break
        tries = PATIENCE if _size(part) > before else tries - 1
        if not tries:
            raise error
        time.sleep(1)
    if _digest_of(part, file) != _digest(file):
        part.unlink()
        raise ValueError(f"{file.path} arrived damaged and was removed; try again")
    part.replace(target)


def _stream(repo: Repo, file: RepoFile, part: Path, report: Callable[[int], None]) -> None:
    """Append to a part what the hub sends from its end on; a server that sends all of it starts the part anew."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
        http_stream_backoff,
    )

    done = _size(part) if _size(part) < file.size else 0
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={done}-"}
    url = hf_hub_url(repo.name, file.path, repo_type=repo.kind)
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with http_stream_backoff("GET", url, headers=headers, timeout=timeout, retry_on_exceptions=()) as response:
        hf_raise_for_status(response)
        done = done if response.status_code == 206 else 0
        with part.open("ab" if done else "wb") as out:
            for chunk in response.iter_bytes(CHUNK):
                if done + len(chunk) > file.size:
                    part.unlink()
                    raise OSError(errno.EFBIG, f"more comes of {file.path} than the {file.size:,} bytes it should have")
                report(done := done + out.write(chunk))


def _digest_of(path: Path, file: RepoFile) -> str:
    return file_sha256(path) if file.lfs else git_sha1(path)


def git_sha1(path: Path) -> str:
    """The SHA-1 by which git, and the hub's cache, names the contents of a small file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def no_bar() -> type:
    """A class of bars that draw nothing, for the calls of huggingface_hub that draw one."""
    from huggingface_hub.utils import tqdm as bar  # type: ignore[attr-defined]

    class NoBar(bar):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **{**named, "disable": True})  # type: ignore[no-untyped-call]

    return NoBar


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
