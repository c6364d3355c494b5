"""Read a GGUF file with transformers: a plain float32 model and its tokenizer."""

from __future__ import annotations

import functools
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import open_file
from fillerscope.models.checks import refuse_other_weights
from fillerscope.models.config_checks import refuse_other_counts
from fillerscope.models.gguf_settings import (
    corrected,
    keep_whole,
    read_settings,
    refuse_unread,
    whole_tokens,
)
from fillerscope.models.open_links import link_to, open_path
from fillerscope.progress import Progress
from fillerscope.prompts.tokenizer import Tokenizer, is_panic

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedModel

_one_at_a_time = threading.Lock()


def require_packages(gguf: Path) -> None:
    missing = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if missing:
        raise ModelError(f"converting {gguf.name} needs the package {missing[0]}; run `pip install {missing[0]}`")


@contextmanager
def isolated(gguf: Path, draft: Path) -> Iterator[Path]:
    """The file in a folder that holds it alone: transformers also reads configs that happen to lie next to a GGUF. It
    is the same file until the block ends, whatever is at its path meanwhile, where the system has such links."""
    alone = draft / "alone" / gguf.name
    with open_file(gguf) as file:
        link_to(open_path(file, gguf), alone)
        try:
            yield alone
        except ModelError as error:
            raise ModelError(str(error).replace(str(alone), str(gguf))) from error
        finally:
            shutil.rmtree(alone.parent)


@contextmanager
def cached_lookups() -> Iterator[None]:
    """Inside the block lookups in the file's header are cached: transformers parses it anew for each of them.

    While one file is converted the answers stay the same, and caching them halves the time. Threads that convert
    others wait: the lookups are those of the whole process."""
    import gguf

    with _one_at_a_time:
        slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        try:
            for name, function in (slow | {"GGUFReader": _plain_reader()}).items():
                setattr(gguf, name, functools.cache(function))
            yield
        finally:
            for name, function in slow.items():
                setattr(gguf, name, function)


def _plain_reader() -> type[GGUFReader]:
    """A reader that takes the mapped file for a plain array: a vocabulary needs millions of slices, and those of a
    `memmap` cost several times as much."""
    from gguf import GGUFReader

    class PlainReader(GGUFReader):  # type: ignore[misc]  # the package has no types
        @property
        def data(self) -> NDArray[np.uint8]:
            return self._plain

        @data.setter
        def data(self, mapped: NDArray[np.uint8]) -> None:
            self._plain = mapped.view(np.ndarray)

    return PlainReader


def read_tokenizer(folder: Path, gguf: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    with explained(gguf):
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name, local_files_only=True)
        corrected(tokenizer, read_settings(folder / gguf.name), gguf.name)
        keep_whole(tokenizer, whole_tokens(folder / gguf.name), gguf.name)
    return tokenizer


def read_model(folder: Path, gguf: Path, shapes: list[list[int]], progress: Progress) -> PreTrainedModel:
    """The model of a file whose tensors have these shapes."""
    import torch
    import transformers

    _refuse_other_config(folder, gguf, shapes)
    # Some architectures would otherwise stay packed in GGUF blocks, which cannot be saved.
    plain = {}
    if hasattr(transformers, "GgufConfig"):
        plain["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with explained(gguf), _watched_unpacking(gguf, progress):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=gguf.name,
            dtype=torch.float32,
            output_loading_info=True,
            local_files_only=True,
            **plain,
        )
    refuse_other_weights(report, gguf.name)
    _refuse_scaled_frequencies(folder / gguf.name, gguf.name)
    _refuse_left_out(folder / gguf.name, model, gguf.name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    return model.eval()


def _refuse_other_config(folder: Path, gguf: Path, shapes: list[list[int]]) -> None:
    """Refuse a file of whose settings, as transformers reads them, another model would be built, or a larger one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from fillerscope.models.build_size import refuse_large_build

    with explained(gguf):
        config = AutoConfig.from_pretrained(folder, gguf_file=gguf.name, local_files_only=True)
        refuse_other_counts(config.to_dict(), shapes, gguf.name)
        refuse_unread(read_settings(folder / gguf.name), config, gguf.name)
    unpacked = 4 * sum(map(prod, shapes))
    refuse_large_build(AutoModelForCausalLM.from_config, config, unpacked, gguf.name)


def _refuse_scaled_frequencies(path: Path, name: str) -> None:
    """Refuse factors of rotary frequencies, as files of Llama 3.1 have them: transformers leaves them out."""
    from gguf import GGUFReader

    for tensor in GGUFReader(str(path)).tensors:
        if tensor.name.startswith("rope_f") and not np.all(np.asarray(tensor.data) == 1):
            raise ModelError(
                f"{name} scales its rotary frequencies ({tensor.name}), which transformers does not read from GGUF "
                "files; without that it would be another model: give its safetensors, as a folder or a hub id"
            )


def _refuse_left_out(path: Path, model: PreTrainedModel, name: str) -> None:
    """Refuse a file with more numbers than the model that was made of it: transformers leaves out, without a report,
    tensors that it has no place for, such as biases. Blocks that predict further tokens are no part of a forward."""
    from gguf import GGUFReader

    blocks = model.config.get_text_config().num_hidden_layers
    found = [
        tensor
        for tensor in GGUFReader(str(path)).tensors
        if not tensor.name.startswith("rope_f") and _block_of(tensor.name) < blocks
    ]
    taken = {tensor.data_ptr(): tensor.numel() for tensor in model.state_dict().values()}
    stored = sum(int(tensor.n_elements) for tensor in found)
    if stored != sum(taken.values()):
        raise ModelError(
            f"{name} has {stored} numbers in its tensors, and the model that transformers makes of it "
            f"{sum(taken.values())}: without some of them it would be another model; give its safetensors, as a folder "
            "or a hub id"
        )


def _block_of(name: str) -> int:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1


@contextmanager
def explained(gguf: Path) -> Iterator[None]:
    """Inside the block any error of transformers, tokenizers or gguf becomes a ModelError, a panic too."""
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelError(
            f"{gguf} cannot be read as a language model: {first_line(error)}; it may be incomplete, one "
            "piece of a split file, or of an architecture that transformers cannot convert"
        ) from error


@contextmanager
def _watched_unpacking(gguf: Path, progress: Progress) -> Iterator[None]:
    """Inside the block our progress replaces the bar that transformers draws."""
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
