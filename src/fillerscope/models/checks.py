"""Checks of a folder of weights before anything in it is loaded. Each refusal says what to do.

Looks at names, sizes and headers only. Never unpickles and never runs code that comes with a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypedDict

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import Json, open_file, parse_json, read_limited
from fillerscope.models.config_checks import check_config, refuse_other_counts, refuse_other_stops
from fillerscope.models.digests import TOKENIZER_FILES, counted_files, pipe_or_device
from fillerscope.models.redirects import check_tokenizer_config, read_settings

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.bin")
ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
# Buffers that older versions of transformers saved: made anew from the config, they hold nothing that was trained.
_IGNORABLE = re.compile(r"(^|\.)(inv_freq|position_ids|masked_bias|causal_mask|att(n|ention)\.bias|rotary_emb\.\w+)$")
PLAUSIBLE = [[1 << 20]] * 2000  # shapes of tensors, where there are none that a config can be compared with
LONGEST_HEADER = 100_000_000  # bytes of a safetensors file, as its own library has it
MOST_NAMED = 3  # of weights in a message
_TO_SAFETENSORS = "load it with transformers where you trust it, call save_pretrained, and give that folder"


def check_folder(folder: Path, name: str) -> None:
    """Refuse, with a reason, a folder that cannot or must not be loaded."""
    _refuse_other_places(folder)
    check_contents(folder, name, needs_weights=True)


def check_description(folder: Path, name: str) -> None:
    """Refuse a folder without weights of whose config no model must be built."""
    _refuse_other_places(folder)
    check_contents(folder, name, needs_weights=False)


def check_contents(folder: Path, name: str, needs_weights: bool) -> None:
    """Refuse a folder for what its files hold, wherever they are."""
    config = _read_config(folder, name)
    check_config(config, folder / "config.json", name)
    if (generation := folder / "generation_config.json").exists():
        refuse_other_stops(read_settings(generation), generation)
    _refuse_adapters(folder, name)
    refuse_other_counts(config, _check_weights(folder, name) if needs_weights else PLAUSIBLE, name)
    check_tokenizer_config(folder)
    if needs_weights and not any((folder / file).exists() for file in TOKENIZER_FILES):
        raise ModelError(
            f"{name} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)} in {folder}; "
            "copy the tokenizer files of the model there"
        )


def _refuse_other_places(folder: Path) -> None:
    """Refuse pipes and devices, and links that lead out of a folder."""
    if (other := pipe_or_device(folder)) is not None:
        raise ModelError(f"{other} is a pipe or a device, not a file; put the file of the model there")
    real = folder.resolve()
    for path in counted_files(folder).values():
        refuse_other_place(path, path.resolve(), real)


def refuse_other_place(path: Path, target: Path, folder: Path) -> None:
    """Refuse a file that is elsewhere, at `target`, than in its folder: the text of a private file, or what a process
    has in its environment, would be a template, and part of what is asked of a server. Weights may be anywhere."""
    if path.suffix != ".safetensors" and not target.is_relative_to(folder) and not _is_blob(target, folder):
        raise ModelError(f"{path} is a link that leads out of the model's folder; copy the file there")


def _is_blob(path: Path, snapshot: Path) -> bool:
    """Whether a file is one of those in the hub's cache to which a snapshot leads: of its repository, or shared."""
    repository = snapshot.parent.parent
    return path.parent == repository / "blobs" or (
        snapshot.parent.name == "snapshots" and path.parent.parent == repository.parent / "blobs"
    )


def has_weights(folder: Path) -> bool:
    """Whether there are files of weights in a folder, sound or not."""
    return any(any(file.match(pattern) for pattern in ("*.safetensors", *PICKLES)) for file in folder.iterdir())


def check_gguf(path: Path) -> None:
    """Refuse a file that is not GGUF."""
    try:
        with open_file(path) as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file: it begins with {magic!r}, not with b'GGUF'; download it again")


def refuse_pickles(files: list[str], name: str) -> None:
    """Refuse a model whose only weights, among its file names, are pickles."""
    pickled = sorted(file for file in files if any(Path(file).match(pattern) for pattern in PICKLES))
    if pickled:
        raise ModelError(
            f"{name} has its weights only as {pickled[0]}, a pickle, which can run any code when loaded; "
            f"convert it to safetensors: {_TO_SAFETENSORS}"
        )


class LoadingReport(TypedDict):
    """What transformers reports of loading weights."""

    missing_keys: Collection[str]
    unexpected_keys: Collection[str]
    mismatched_keys: Collection[tuple[str, Sequence[int], Sequence[int]]]  # with the shape that came, and the expected


def refuse_other_weights(report: LoadingReport, name: str) -> None:
    """Refuse weights that are not those of the config, by what transformers reports of loading them: missing ones it
    fills with random numbers, and others it leaves out. What a family declares to be left out it does not report."""
    if others := sorted(report["mismatched_keys"]):
        key, came, expected = others[0]
        raise ModelError(
            f"{name} has {len(others)} weights of other sizes than its config.json says: {key} is {list(came)}, "
            f"expected {list(expected)}; the files belong to different models: download or convert it again"
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{name} lacks {len(missing)} of its weights, {missing[0]} among them; the files are incomplete or "
            "belong to another kind of model: download or convert it again"
        )
    if unused := sorted(key for key in report["unexpected_keys"] if not _IGNORABLE.search(key)):
        more = " and others" if len(unused) > MOST_NAMED else ""
        raise ModelError(
            f"{name} has {len(unused)} weights that its config.json has no place for, {', '.join(unused[:MOST_NAMED])}"
            f"{more}; without them it would be another model: put the config there that belongs to the weights"
        )


def _refuse_adapters(folder: Path, name: str) -> None:
    """transformers adds an adapter to the weights where peft is installed, and leaves it out where it is not."""
    if found := [file for file in ADAPTERS if (folder / file).exists()]:
        raise ModelError(
            f"{name} has an adapter beside its weights ({found[0]}), and it is not clear whether it is to be measured; "
            "merge it into the model and save that, or move it out of the folder"
        )


def _read_config(folder: Path, name: str) -> Json:
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(_without_config(folder, name))
    return read_settings(path)


def _without_config(folder: Path, name: str) -> str:
    if (folder / "adapter_config.json").exists():
        return f"{name} is an adapter, not a model; merge it into its base model, save that, and give its folder"
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs:
        return f"{name} has no config.json, but a GGUF file; give its path: {ggufs[0]}"
    return f"{name} has no config.json in {folder}; give a folder that save_pretrained wrote, or a hub id"


def _check_weights(folder: Path, name: str) -> list[list[int]]:
    """Refuse weights that are missing or damaged. Returns the shapes of all tensors, as the files' headers say."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        refuse_pickles([path.name for path in folder.iterdir()], name)
        raise ModelError(f"{name} has no .safetensors files in {folder}; download the weights again")
    shapes = [shape for path in weights for shape in _check_safetensors(path)]
    for index in sorted(folder.glob("*.safetensors.index.json")):
        _check_shards(index)
    return shapes


def _check_safetensors(path: Path) -> list[list[int]]:
    """The shapes of the tensors. The header says how long the file is; a download that broke off is shorter."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError("its header is cut off")
            if length > LONGEST_HEADER:
                raise ValueError(f"its header is said to have {length} bytes, and {LONGEST_HEADER} is the most")
            tensors = parse_json(file.read(length))
        tensors.pop("__metadata__", None)
        whole = 8 + length + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
        if whole != size:
            raise ValueError(f"it has {size} bytes of {whole}")
        return [[_length(length) for length in entry["shape"]] for entry in tensors.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, LookupError) as error:
        raise ModelError(
            f"{path} is damaged ({first_line(error)}); remove it and download or convert the model again"
        ) from error


def _length(value: object) -> int:
    """A length in the shape of a tensor; JSON has other numbers as well."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:20]} is no length of a tensor")
    return value


def _check_shards(index: Path) -> None:
    try:
        expected = sorted(set(parse_json(read_limited(index))["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} cannot be read: {first_line(error)}; download it again") from error
    if elsewhere := [file for file in expected if Path(str(file)).name != file or not file.endswith(".safetensors")]:
        raise ModelError(
            f"{index} names weights that are not in its folder, {elsewhere[0]!r} among them, and only files there are "
            "checked; put them there, or download the model again"
        )
    missing = [file for file in expected if not (index.parent / file).exists()]
    if missing:
        raise ModelError(f"{missing[0]} is missing in {index.parent}: {len(expected)} files of weights are expected")
