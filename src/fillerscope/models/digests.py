"""The digest of a model in a folder, one sha256, which goes into the id of a run.

Two models have one digest only if every byte of their weights, config and tokenizer is the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path

from fillerscope.errors import ModelError
from fillerscope.files import open_file
from fillerscope.models.digest_notes import note_of, recall, remember
from fillerscope.progress import SILENT, Progress
from fillerscope.study.arguments import is_text

CHUNK = 1 << 22
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
)
_COUNTED = (
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json",
    *TOKENIZER_FILES, "*.model", "*.spm", "*.tiktoken", "*.codes", "merges.txt", "dict.txt", "*vocab*.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.jinja",
    "additional_chat_templates/*.jinja", "emoji.json", "byte_maps.json", "normalizer.json", "word_pronunciation.json",
    "word_shape.json", "prophetnet.tokenizer",
)  # fmt: skip


def folder_digest(folder: Path, progress: Progress = SILENT) -> str:
    """The digest of every file in a folder that can change a number; a README or a picture cannot."""
    return digest_of_files(file_sums(folder, progress))


def remembered_digest(folder: Path) -> str:
    """The digest of a folder without reading it: empty where a file was not read lately, or has changed since."""
    known = {name: remembered_sha256(path) for name, path in counted_files(folder).items()}
    return digest_of_files(known) if all(known.values()) else ""


def file_sums(folder: Path, progress: Progress = SILENT, fresh: bool = False) -> dict[str, str]:
    """The SHA-256 of every file in a folder that can change a number, by its name; see `cached_sha256`."""
    return {name: cached_sha256(path, progress, fresh) for name, path in sorted(counted_files(folder).items())}


def digest_of_files(sums: Mapping[str, str]) -> str:
    """The digest of a folder whose files have these sums."""
    return digest_of_pairs(sorted(sums.items()))


def counted_files(folder: Path) -> dict[str, Path]:
    """The files in a folder that the digest counts, by name; a pipe or a device is none. A name that is not UTF-8,
    which has no digest, is a ModelError."""
    files = {path.relative_to(folder).as_posix(): path for path in _named(folder) if path.is_file()}
    for name in files:
        if not is_text(name):
            raise ModelError(f"the name of {name!r} in {folder} is not UTF-8; rename or remove the file")
    return files


def pipe_or_device(folder: Path) -> Path | None:
    """The first thing in a folder that has the name of a counted file and is none: reading it may never end."""
    return next((path for path in _named(folder) if path.exists() and not path.is_file() and not path.is_dir()), None)


def _named(folder: Path) -> Iterator[Path]:
    return (path for pattern in _COUNTED for path in folder.glob(pattern))


def cached_sha256(path: Path, progress: Progress = SILENT, fresh: bool = False) -> str:
    """The SHA-256 of a file. One that was read lately and has not changed is read again only if `fresh`."""
    with open_file(path) as file:
        note = note_of(path, os.fstat(file.fileno()))
        if not fresh and (known := recall(note)):
            return known
        sha256 = _hash_file(file, path.name, progress)
        if note_of(path, os.fstat(file.fileno())) == note:  # else it was written to meanwhile
            remember(note, sha256)
        return sha256


def remembered_sha256(path: Path) -> str:
    """The SHA-256 of a file that was read lately and has not changed; else empty."""
    return recall(note_of(path))


def digest_of_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """One digest of names and digests."""
    whole = hashlib.sha256()
    for name, sha256 in pairs:
        whole.update(f"{name}\0{sha256}\n".encode())
    return whole.hexdigest()


def _hash_file(file: BufferedReader, name: str, progress: Progress) -> str:
    hasher, done, size = hashlib.sha256(), 0, os.fstat(file.fileno()).st_size
    while chunk := file.read(CHUNK):
        hasher.update(chunk)
        done += len(chunk)
        if size > CHUNK:  # small files would only flicker
            progress.stage(f"reading {name}", done, size)
    return hasher.hexdigest()
