"""The manifest of a run folder, checked against its own digest."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import cast

from fillerscope.display import command
from fillerscope.errors import StoreError
from fillerscope.files import Json, digest_of, is_temporary, json_bytes, parse_json, write_whole
from fillerscope.store.addresses import address_of
from fillerscope.store.job_part import is_part
from fillerscope.store.lock import locked, writing_to
from fillerscope.store.noted import damaged_fact
from fillerscope.store.reading import read_steadily, unreadable
from fillerscope.store.remote import RemoteFolder
from fillerscope.store.schema import MANIFEST, PARTS_FOLDER, READABLE, SEALED, STUDY, Manifest

MOST_PROBLEMS = 1 << 53  # of any study
RESTORE = "restore it from a copy, or choose another folder with --out and run the study again"


def read_manifest(path: Path) -> Manifest:
    """The manifest of a run folder, or an error that says whether it is missing, damaged or cannot be read now."""
    try:
        manifest = parse_json(read_steadily(path / MANIFEST))
    except (FileNotFoundError, NotADirectoryError):
        if (path / PARTS_FOLDER).is_dir():
            raise StoreError(f"{path} holds parts of a run; `{command('merge', path)}` makes the run of them") from None
        raise StoreError(f"no run at {address_of(path)}: it has no {MANIFEST}; `fillerscope run` makes one") from None
    except OSError as error:
        raise unreadable(path / MANIFEST, error) from None
    except ValueError as error:
        raise StoreError(f"{path / MANIFEST} is damaged ({error}); {RESTORE}") from None
    if not isinstance(manifest, dict) or not {"format", "identity", "files"} <= manifest.keys():
        raise StoreError(f"{path} is not a fillerscope run: its {MANIFEST} is of another program; check the path")
    if manifest["format"] not in READABLE:
        raise StoreError(f"{path} was written by another version of fillerscope; run the study again")
    if not _is_valid(manifest):
        raise StoreError(f"{path / MANIFEST} is damaged; {RESTORE}")
    for model, facts in manifest.get("models", {}).items():
        if fact := damaged_fact(facts):
            raise StoreError(f"{path / MANIFEST} is damaged (its `{fact}` of {model}); {RESTORE}")
    manifest.pop("digest", None)  # of the file as it was; `sealed` gives the next one
    return cast(Manifest, manifest)


def read_study(path: Path, manifest: Manifest) -> Json:
    """The study of a run folder, or an error that says whether it is missing, damaged or cannot be read now."""
    try:
        text = read_steadily(path / STUDY)
        _refuse_other_study(path, manifest, text)
        data: Json = parse_json(text)
    except FileNotFoundError:
        raise StoreError(f"{path / STUDY} is missing; run the study again") from None
    except ValueError as error:
        raise StoreError(f"{path / STUDY} is damaged ({error}); run the study again") from None
    except OSError as error:
        raise unreadable(path / STUDY, error) from None
    return data


def _refuse_other_study(path: Path, manifest: Manifest, text: str) -> None:
    """Compare the study of a run with its checksum, then with that of now: a process may have just written another."""
    if not _lists_study(manifest, text):
        with suppress(StoreError):
            if _lists_study(read_manifest(path), text):
                return
        raise StoreError(f"{path / STUDY} is damaged; run the study again to restore it")


def _lists_study(manifest: Manifest, text: str) -> bool:
    """Whether a manifest has the checksum of a study; early formats had none of it."""
    if STUDY not in manifest["files"]:
        return manifest["format"] < SEALED
    sums = [files[STUDY]["sha256"] for files in (manifest["files"], manifest.get("replacing", {})) if STUDY in files]
    return hashlib.sha256(text.encode()).hexdigest() in sums


def write_manifest(path: Path, manifest: Manifest, remote: RemoteFolder | None) -> None:
    """Write the manifest of a run folder, and of the object store that it is a copy of."""
    data = json_bytes(sealed(manifest))
    write_whole(path / MANIFEST, [data])
    if remote is not None:
        remote.publish_manifest(data)


def sealed(manifest: Manifest) -> Manifest:
    """A manifest with the digest of all that it says."""
    return manifest | {"digest": _digest_of(cast(Json, manifest))}


def _digest_of(manifest: Json) -> str:
    return digest_of({key: value for key, value in manifest.items() if key != "digest"})


def _is_valid(manifest: Json) -> bool:
    """Whether a manifest has its digest, and the structure that `put` and `note` give it: files can be edited."""
    sealed = manifest["format"] >= SEALED or "digest" in manifest
    if sealed and manifest.get("digest") != _digest_of(manifest):
        return False
    files, models, replacing = manifest["files"], manifest.get("models", {}), manifest.get("replacing", {})
    if not all(isinstance(one, dict) for one in (files, models, replacing, manifest["identity"])):
        return False
    problems, part = manifest.get("problems", 0), manifest.get("part", "1/1")
    if type(problems) is not int or not 0 <= problems <= MOST_PROBLEMS or not is_part(part):
        return False
    inside = all(name.isprintable() and not Path(name).is_absolute() and ".." not in Path(name).parts for name in files)
    entries = (
        all(
            isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)
            for entry in (*files.values(), *replacing.values())
        )
        and replacing.keys() <= files.keys()
    )
    return inside and entries


def make_folder(path: Path, manifest: Manifest, remote: RemoteFolder | None) -> None:
    """Make a run folder with its first manifest, under the lock: two processes may do so at once."""
    with writing_to(path):
        names = {item.name for item in path.iterdir()} if path.is_dir() else set()
        left = ("lock", PARTS_FOLDER)  # by a kill, and by jobs that measure parts of this run
        others = {name for name in names if name not in left and not is_temporary(name, MANIFEST)}
        if path.is_file() or (others and MANIFEST not in names):
            raise StoreError(f"{path} exists and is not a fillerscope run; choose another folder with --out")
        path.mkdir(parents=True, exist_ok=True)
    with locked(path), writing_to(path):
        if not (path / MANIFEST).exists():
            write_manifest(path, manifest, remote)
