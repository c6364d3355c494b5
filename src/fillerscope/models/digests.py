"""The digest of a model, one sha256, which goes into the id of a run.

Two models have one digest only if every byte of their weights, config and tokenizer is the same.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.files import open_file
from fillerscope.models.digest_notes import note_of, recall, remember
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
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json",
    *TOKENIZER_FILES, "*.model", "*.spm", "*.tiktoken", "*.codes", "merges.txt", "dict.txt", "*vocab*.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "*.jinja",
    "additional_chat_templates/*.jinja", "emoji.json", "byte_maps.json", "normalizer.json", "word_pronunciation.json",
    "word_shape.json", "prophetnet.tokenizer",
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


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
    return _digest_of(sorted(sums.items()))


def counted_files(folder: Path) -> dict[str, Path]:
    """The files in a folder that the digest counts, by name; a pipe or a device is none."""
    return {path.relative_to(folder).as_posix(): path for path in _named(folder) if path.is_file()}


def pipe_or_device(folder: Path) -> Path | None:
    """The first thing in a folder that has the name of a counted file and is none: reading it may never end."""
    return next((path for path in _named(folder) if path.exists() and not path.is_file() and not path.is_dir()), None)


def _named(folder: Path) -> Iterator[Path]:
    return (path for pattern in _COUNTED for path in folder.glob(pattern))


def cached_sha256(path: Path, progress: Progress = SILENT, fresh: bool = False) -> str:
    """The SHA-256 of a file. One that was read lately and has not changed is read again only if `fresh`."""
    note = note_of(path)  # before the reading: what changes meanwhile is another file
    if not fresh and (known := recall(note)):
        return known
    sha256 = _hash_file(path.resolve(), path.stat().st_size, progress)
    remember(note, sha256)
    return sha256


def remembered_sha256(path: Path) -> str:
    """The SHA-256 of a file that was read lately and has not changed; else empty."""
    return recall(note_of(path))


def model_digest(model: PreTrainedModel, tokenizer: Tokenizer) -> str:
    """The digest of a model in memory, from its class, config, modules, weights, buffers and tokenizer.

    No digest tells two hooks apart: a model with hooks, or with a `forward` of its own, gets a new one each time."""
    from fillerscope.models.structure import is_changed_by_code  # needs torch

    def hashed() -> Iterable[tuple[str, str]]:
        yield "config", hashlib.sha256(_config_bytes(model)).hexdigest()
        yield "modules", hashlib.sha256(json.dumps(_modules(model)).encode()).hexdigest()
        if is_changed_by_code(model):
            yield "hooks", secrets.token_hex(32)
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


def _modules(model: PreTrainedModel) -> list[object]:
    """The class of every module, with its plain settings: a scale or an epsilon is no tensor, and changes numbers."""
    return [
        (name, type(module).__qualname__, sorted((key, _setting(value)) for key, value in vars(module).items()))
        for name, module in model.named_modules()
    ]


def _setting(value: object) -> str:
    """A plain value or the name of a function; empty for what changes in use or is hashed elsewhere."""
    if isinstance(value, bool):  # `training`, and flags of hooks
        return ""
    if isinstance(value, int | float | str):
        return repr(value)
    return getattr(value, "__qualname__", "") if callable(value) else ""


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
    with open_file(path) as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            done += len(chunk)
            if size > CHUNK:  # small files would only flicker
                progress.stage(f"reading {path.name}", done, size)
    return hasher.hexdigest()
