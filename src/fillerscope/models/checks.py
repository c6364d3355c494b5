"""Checks of a folder of weights before anything in it is loaded. Each refusal says what to do.

Looks at names, sizes and headers only. Never unpickles and never runs code that comes with a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import Json, parse_json, read_limited
from fillerscope.models.digests import TOKENIZER_FILES

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.bin")
_LAYERS = re.compile(r"^(n|num)_(\w*_)?layers?$|^(encoder|decoder)_layers$|^depth$")
_SIZES = re.compile(r"^(hidden|intermediate|vocab|moe_intermediate|ffn)_(size|dim)$|^(n_embd|d_model)$|experts$")
_TO_SAFETENSORS = "load it with transformers where you trust it, call save_pretrained, and give that folder"


def check_folder(folder: Path, name: str) -> None:
    """Refuse, with a reason, a folder that cannot or must not be loaded."""
    config = _read_config(folder, name)
    _refuse_remote_code(config, name)
    if (folder / "adapter_config.json").exists() and find_spec("peft") is not None:
        raise ModelError(
            f"{name} has an adapter beside its weights, which would be added to them because peft is installed; "
            "merge it into the model and save that, or move adapter_config.json out of the folder"
        )
    _refuse_other_counts(config, _check_weights(folder, name), name)
    if not any((folder / file).exists() for file in TOKENIZER_FILES):
        raise ModelError(
            f"{name} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)} in {folder}; "
            "copy the tokenizer files of the model there"
        )


def check_gguf(path: Path) -> None:
    """Refuse a file that is not GGUF."""
    try:
        with path.open("rb") as file:
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


def refuse_missing_weights(report: Mapping[str, Collection[str]], name: str) -> None:
    """Refuse a model with missing weights, which transformers would fill with random numbers."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{name} lacks {len(missing)} of its weights, {missing[0]} among them; the files are incomplete or "
            "belong to another kind of model: download or convert it again"
        )


def _read_config(folder: Path, name: str) -> Json:
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(_without_config(folder, name))
    try:
        config = parse_json(read_limited(path))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}; download it again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} holds no JSON object; download it again")
    return config


def _without_config(folder: Path, name: str) -> str:
    if (folder / "adapter_config.json").exists():
        return f"{name} is an adapter, not a model; merge it into its base model, save that, and give its folder"
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs:
        return f"{name} has no config.json, but a GGUF file; give its path: {ggufs[0]}"
    return f"{name} has no config.json in {folder}; give a folder that save_pretrained wrote, or a hub id"


def _refuse_remote_code(config: Json, name: str) -> None:
    """Code that comes with a model is never run; most models that bring some are in transformers by now."""
    kind = config.get("model_type")
    if "auto_map" not in config:
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        raise ModelError(
            f"{name} (model type {kind!r}) needs code that comes with it, and fillerscope runs no such code; "
            "choose a model that transformers knows by itself, or upgrade transformers if it now does"
        )


def _check_weights(folder: Path, name: str) -> list[list[int]]:
    """Refuse weights that are missing or damaged. Returns the shapes of all tensors, as the files' headers say."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        refuse_pickles([path.name for path in folder.iterdir()], name)
        raise ModelError(f"{name} has no .safetensors files in {folder}; download the weights again")
    shapes = [shape for path in weights for shape in _check_safetensors(path)]
    index = folder / "model.safetensors.index.json"
    if index.exists():
        _check_shards(index)
    return shapes


def _refuse_other_counts(config: Json, shapes: list[list[int]], name: str) -> None:
    """Refuse a config with more layers or experts, or larger ones, than the weights can be of. transformers would
    build them first, and find out in hours what is missing."""
    largest = max((size for shape in shapes for size in shape), default=0)
    for key, value in _sizes(config):
        most = len(shapes) if _LAYERS.search(key) else max(largest, len(shapes))
        if value > most:
            raise ModelError(
                f"config.json of {name} says {key}: {value}, and its weights are {len(shapes)} tensors with at most "
                f"{largest} rows or columns; the files belong to different models: download them again"
            )


def _sizes(config: Json) -> Iterator[tuple[str, int]]:
    """The numbers in a config, and in its parts, that say how much is to be built."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _sizes(value)
        elif isinstance(value, int) and not isinstance(value, bool) and (_LAYERS.search(key) or _SIZES.search(key)):
            yield key, value


def _check_safetensors(path: Path) -> list[list[int]]:
    """The shapes of the tensors. The header says how long the file is; a download that broke off is shorter."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= size - 8:
                raise ValueError("its header is cut off")
            tensors = parse_json(file.read(length))
        tensors.pop("__metadata__", None)
        whole = 8 + length + max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
        if whole != size:
            raise ValueError(f"it has {size} bytes of {whole}")
        return [[int(length) for length in entry["shape"]] for entry in tensors.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, LookupError) as error:
        raise ModelError(
            f"{path} is damaged ({first_line(error)}); remove it and download or convert the model again"
        ) from error


def _check_shards(index: Path) -> None:
    try:
        expected = sorted(set(parse_json(read_limited(index))["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} cannot be read: {first_line(error)}; download it again") from error
    if elsewhere := [file for file in expected if Path(file).name != file or not file.endswith(".safetensors")]:
        raise ModelError(
            f"{index} names weights that are not in its folder, {elsewhere[0]!r} among them, and only files there are "
            "checked; put them there, or download the model again"
        )
    missing = [file for file in expected if not (index.parent / file).exists()]
    if missing:
        raise ModelError(f"{missing[0]} is missing in {index.parent}: {len(expected)} files of weights are expected")
