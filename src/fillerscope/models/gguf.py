"""Convert a GGUF file to a folder of float32 safetensors and a tokenizer, once.

transformers takes minutes to unpack a GGUF, every time; the folder loads in seconds. It is written under
another name, compared with the model that was read, flushed and renamed: a folder in the cache is whole.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.errors import ModelError
from fillerscope.files import flush, parse_json, read_limited
from fillerscope.models.cache import (
    cache_errors,
    cache_subfolder,
    require_space,
)
from fillerscope.models.catalogue import cache_folder
from fillerscope.models.digest_notes import note_of
from fillerscope.models.digests import cached_sha256, digest_of_files, file_sums
from fillerscope.models.folders import OURS, replacing_folder
from fillerscope.models.gguf_header import check_header
from fillerscope.models.gguf_reader import (
    cached_lookups,
    explained,
    isolated,
    read_model,
    read_tokenizer,
    require_packages,
)
from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.quiet import quiet_transformers
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.tokenizer import Tokenizer

RECORD = "fillerscope.json"
VERSION = 5  # of what conversions make of a file: those of before are made again
# Digits, runs of spaces, line ends, other scripts, marks of chat: what tokenizers differ in.
_SAMPLES = (
    "What is 1234 + 5.6?  Answer:\n\n\t42", " / / / //// \\\\ he he", "Größe 日本語 🙂 naïve",
    "def f(x):\n    return x**2", "<|im_start|>user\nhi<|im_end|>", "<bos><start_of_turn>user\nhi",
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def converted_folder(stem: str, sha256: str) -> Path:
    """Where the model of a GGUF with this sha256 is, or will be. A part of it would not do: two files can be made so
    that they share it."""
    return cache_folder() / "models" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', stem)[-80:]}-{sha256}"


@dataclass(frozen=True)
class Record:
    """What was noted when a conversion was finished."""

    source: str
    gguf_sha256: str
    digest: str  # of all files that can change a number
    files: dict[str, str] = field(default_factory=dict)  # their sums by name; older conversions noted none
    version: int = 1


def read_record(folder: Path) -> Record | None:
    """The record of a finished conversion; None where there is none."""
    try:
        record = parse_json(read_limited(folder / RECORD))
        files = {str(name): str(sha256) for name, sha256 in record.get("files", {}).items()}
        version = int(record.get("version", 1))
        return Record(str(record["source"]), str(record["gguf_sha256"]), str(record["digest"]), files, version)
    except (OSError, ValueError, LookupError, AttributeError, TypeError, OverflowError):
        return None


def convert(gguf: Path, stem: str, sha256: str, progress: Progress = SILENT) -> Path:
    """Convert a verified file. The caller holds the lock of the folder."""
    target = converted_folder(stem, sha256)
    cache_subfolder("models")
    shutil.rmtree(target, ignore_errors=True)
    with cache_errors(), replacing_folder(target) as draft:
        with isolated(gguf, draft) as alone:
            before = note_of(alone)
            _convert_into(draft, alone, progress)
            if note_of(alone) != before or cached_sha256(alone, progress) != sha256:
                raise ModelError(f"{gguf} changed while it was converted; try again when nothing writes to it")
        _write_record(draft, stem, sha256, progress)
    return target


def _write_record(draft: Path, stem: str, sha256: str, progress: Progress) -> None:
    """Note the sums of a folder's files, close them to other users, and flush them."""
    (draft / RECORD).touch()
    for path in draft.iterdir():
        path.chmod(path.stat().st_mode & OURS)  # before they are read: a later change would make their notes useless
    sums = file_sums(draft, progress)
    record = Record(stem, sha256, digest_of_files(sums), sums, VERSION)
    (draft / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    for path in draft.iterdir():
        flush(path)


def _convert_into(draft: Path, gguf: Path, progress: Progress) -> None:
    require_packages(gguf)
    hide_hub_code()
    shapes = check_header(gguf)
    folder = gguf.parent
    with quiet_transformers(), cached_lookups():
        progress.stage(f"reading the tokenizer of {gguf.name}", 0, None)
        tokenizer = read_tokenizer(folder, gguf)
        progress.stage(f"reading the weights of {gguf.name}", 0, None)
        model = read_model(folder, gguf, shapes, progress)
        require_space(
            cache_folder() / "models", sum(4 * p.numel() for p in model.parameters()), f"converting {gguf.name}"
        )
        progress.stage(f"writing {gguf.name} as safetensors", 0, None)
        model.save_pretrained(draft)
        _save_tokenizer(tokenizer, draft)
        progress.stage(f"comparing the copy with {gguf.name}", 0, None)
        with explained(gguf):
            _compare_tokenizers(tokenizer, draft, gguf.name)
            expected = _logits(model)
        del model  # two of a large model may not fit into memory
        with explained(gguf):
            _compare_logits(expected, draft, gguf.name)


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Save a tokenizer to be read as it is: some versions of transformers make those of Gemma anew, without merges."""
    tokenizer.save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    settings = parse_json(read_limited(config)) | {"tokenizer_class": "TokenizersBackend"}
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _compare_tokenizers(tokenizer: Tokenizer, folder: Path, name: str) -> None:
    from transformers import AutoTokenizer

    copy = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text in _SAMPLES:
        before, after = tokenizer(text)["input_ids"], copy(text)["input_ids"]
        if before != after:
            raise ModelError(f"converting {name} changed its tokenizer: {text!r} was {before} and became {after}")
    if tokenizer.chat_template != copy.chat_template:
        raise ModelError(f"converting {name} lost its chat template")


def _logits(model: PreTrainedModel) -> Tensor:
    import torch

    ids = torch.arange(3, 35)[None] * 7 % model.config.get_text_config().vocab_size
    with torch.inference_mode():
        logits: Tensor = model(input_ids=ids).logits
    return logits


def _compare_logits(expected: Tensor, folder: Path, name: str) -> None:
    """The same numbers in another file: only the order of additions may differ."""
    import torch
    from transformers import AutoModelForCausalLM

    copy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    gap = float((_logits(copy.eval()) - expected).abs().max())
    if not gap <= 1e-3:
        raise ModelError(f"converting {name} changed the model: logits differ by up to {gap:.1e}")
