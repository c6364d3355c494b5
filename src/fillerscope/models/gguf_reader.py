"""A GGUF file unpacked in memory by transformers: a plain float32 model and a tokenizer that fits it.

Where transformers reads less from the file than it says, this is the place to make up for it.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.models.checks import refuse_gaps
from fillerscope.progress import Progress
from fillerscope.prompts.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def require_packages(gguf: Path) -> None:
    missing = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if missing:
        raise ModelError(f"converting {gguf.name} needs the package {missing[0]}; run `pip install {missing[0]}`")


@contextmanager
def alone(gguf: Path, draft: Path) -> Iterator[Path]:
    """The file in a folder of its own: transformers also reads configs that happen to lie next to a GGUF."""
    folder = draft / "alone"
    folder.mkdir()
    try:
        (folder / gguf.name).symlink_to(gguf.resolve())
    except OSError:  # no symbolic links here
        shutil.copyfile(gguf, folder / gguf.name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def one_reading() -> Iterator[None]:
    """transformers parses the long header and builds the table of names anew for everything it looks up.

    While one file is converted the answers stay the same, and remembering them halves the time.
    """
    import gguf

    slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, function in slow.items():
        setattr(gguf, name, functools.cache(function))
    try:
        yield
    finally:
        for name, function in slow.items():
            setattr(gguf, name, function)


def read_tokenizer(folder: Path, gguf: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    with _explained(gguf):
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name, local_files_only=True)
        if _wants_bos(folder / gguf.name):
            _add_bos(tokenizer)
    return tokenizer


def _wants_bos(gguf: Path) -> bool:
    from gguf import GGUFReader

    field = GGUFReader(str(gguf)).get_field("tokenizer.ggml.add_bos_token")
    return bool(field and field.contents())


def _add_bos(tokenizer: Any) -> None:
    """transformers does not read this wish from the file, and Gemma makes no sense without its BOS."""
    from tokenizers.processors import TemplateProcessing

    bos, number = tokenizer.bos_token, tokenizer.bos_token_id
    if number is None or tokenizer("a")["input_ids"][:1] == [number]:
        return
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, number)]
    )


def read_model(folder: Path, gguf: Path, progress: Progress) -> PreTrainedModel:
    import torch
    import transformers

    # Some architectures would otherwise stay packed in GGUF blocks, which cannot be saved.
    plain = {}
    if hasattr(transformers, "GgufConfig"):
        plain["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with _explained(gguf), _watched_unpacking(gguf, progress):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=gguf.name,
            dtype=torch.float32,
            output_loading_info=True,
            local_files_only=True,
            **plain,
        )
    refuse_gaps(report, gguf.name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    return model.eval()


@contextmanager
def _explained(gguf: Path) -> Iterator[None]:
    """Whatever transformers or gguf stumble over, the file cannot be used."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"{gguf} cannot be read as a language model: {first_line(error)}; it may be incomplete, one "
            "piece of a split file, or of an architecture that transformers cannot convert"
        ) from error


@contextmanager
def _watched_unpacking(gguf: Path, progress: Progress) -> Iterator[None]:
    """Our progress in the place of the bar that transformers draws while it unpacks."""
    from transformers import modeling_gguf_pytorch_utils as unpacking

    def watched(tensors: Iterable[Any], **_: Any) -> Iterator[Any]:
        tensors, done = list(tensors), 0
        total = sum(int(tensor.n_bytes) for tensor in tensors)
        for tensor in tensors:
            yield tensor
            done += int(tensor.n_bytes)
            progress.stage(f"unpacking {gguf.name}", done, total)

    bar = getattr(unpacking, "tqdm", None)
    unpacking.tqdm = watched
    try:
        yield
    finally:
        unpacking.tqdm = bar
