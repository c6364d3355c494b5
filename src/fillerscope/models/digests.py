"""The digest of a model, one sha256, which goes into the id of a run.

Two models have one digest only if every byte of their weights, config and tokenizer is the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.files import replacing
from fillerscope.models.catalogue import cache_folder
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.tokenizer import Tokenizer

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
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", *TOKENIZER_FILES,
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.jinja",
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def folder_digest(folder: Path, progress: Progress = SILENT) -> str:
    """The digest of every file in a folder that can change a number; a README or a picture cannot."""
    files = _counted(folder)
    return _digest_of((name, cached_sha256(files[name], progress)) for name in sorted(files))


def remembered_digest(folder: Path) -> str:
    """The digest of a folder without reading it: empty where a file was never read, or has changed since."""
    files = _counted(folder)
    known = [(name, remembered_sha256(files[name])) for name in sorted(files)]
    return _digest_of(known) if all(sha256 for _, sha256 in known) else ""


def _counted(folder: Path) -> dict[str, Path]:
    return {path.name: path for pattern in _COUNTED for path in folder.glob(pattern)}


def cached_sha256(path: Path, progress: Progress = SILENT) -> str:
    """The SHA-256 of a file, cached by the real file's path, size and times."""
    note = _note(path)  # before the reading: what changes meanwhile is another file
    if known := _recalled(note):
        return known
    sha256 = _hash_file(path.resolve(), path.stat().st_size, progress)
    with contextlib.suppress(OSError):  # a cache that cannot be written to costs time, nothing else
        _remember(note, sha256)
    return sha256


def remembered_sha256(path: Path) -> str:
    """The sha256 of a file that was read before and has not changed; else empty."""
    return _recalled(_note(path))


def _note(path: Path) -> Path:
    real = path.resolve()
    stat = real.stat()
    # Copying tools may set the time of change back; nobody sets the time of status change (ctime).
    key = json.dumps([str(real), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return cache_folder() / "digests" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _recalled(note: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads(note.read_text(encoding="utf-8"))["sha256"])
    return ""


def model_digest(model: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """The digest of a model in memory, from its class, config, weights, buffers and tokenizer."""

    def hashed() -> Iterable[tuple[str, str]]:
        yield "config", hashlib.sha256(_config_bytes(model)).hexdigest()
        yield "tokenizer", hashlib.sha256(_tokenizer_bytes(tokenizer)).hexdigest()
        # A state dict leaves out buffers that are not saved, such as the frequencies of rotary positions.
        tensors = dict(model.named_buffers()) | model.state_dict()
        for name, tensor in sorted(tensors.items()):
            yield f"{name} {tensor.dtype} {tuple(tensor.shape)}", _tensor_sha256(tensor.detach())

    return _digest_of(hashed())


def _config_bytes(model: PreTrainedModel) -> bytes:
    """What a model is beside its tensors: its class, its config, and the tokens that end its answers."""
    generation = getattr(model, "generation_config", None)
    settings = json.loads(model.config.to_json_string()), generation and json.loads(generation.to_json_string())
    for record in filter(None, settings):
        for key in ("_name_or_path", "transformers_version"):  # where it came from; the run has versions of its own
            record.pop(key, None)
    return json.dumps([type(model).__name__, *settings], sort_keys=True).encode()


def _tensor_sha256(tensor: Tensor) -> str:
    """The sha256 of a tensor's bytes, which leave their device a piece at a time."""
    import torch

    hasher, values = hashlib.sha256(), tensor.reshape(-1)
    for start in range(0, values.numel(), CHUNK):
        hasher.update(values[start : start + CHUNK].cpu().contiguous().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def _tokenizer_bytes(tokenizer: Tokenizer) -> bytes:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = json.loads(backend.to_str()) if backend else tokenizer.get_vocab()
    # Left behind by the last call, and set again by every other one.
    kept = {key: value for key, value in vocabulary.items() if not backend or key not in ("padding", "truncation")}
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.all_special_tokens]
    return f"{json.dumps(kept, sort_keys=True)}\n{special}\n{tokenizer.chat_template}".encode()


def _digest_of(pairs: Iterable[tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for name, sha256 in pairs:
        whole.update(f"{name}\0{sha256}\n".encode())
    return whole.hexdigest()


def _hash_file(path: Path, size: int, progress: Progress) -> str:
    hasher, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            done += len(chunk)
            if size > CHUNK:  # small files would only flicker
                progress.stage(f"reading {path.name}", done, size)
    return hasher.hexdigest()


def _remember(note: Path, sha256: str) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    with replacing(note, sync=False) as draft:
        draft.write_text(json.dumps({"sha256": sha256}), encoding="utf-8")
