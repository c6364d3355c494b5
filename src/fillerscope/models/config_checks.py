"""Checks of a config.json before a model is built of it: what it says must be what becomes of the weights.

Looks at the file alone and needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from pathlib import Path

from fillerscope.errors import ModelError
from fillerscope.files import Json
from fillerscope.models.redirects import refuse_redirects

_LAYERS = re.compile(r"^(n|num)_(\w*_)?layers?$|^(encoder|decoder)_layers$|^depth$")
_SIZES = re.compile(r"^(hidden|intermediate|vocab|moe_intermediate|ffn)_(size|dim)$|^(n_embd|d_model)$|experts$")
_COUNTS = re.compile(r"^(n|num|max_window)_|layers?(_|$)|(freq|interval|period|step|pattern|offset)$")
_POSITIONS = re.compile(r"position|(^|_)(ctx|context|seq|sequence|length|len)(_|$)")
MOST_POSITIONS = 1 << 26  # of a config: the longest contexts that models are published with are a sixth of it
MOST_COUNTED = 1 << 22  # tokens of the longest contexts are fewer
MOST_LABELS = 1 << 16
# What no decoder has none of. Some of them may be null, and some a list with a number for each layer.
_POSITIVE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "n_embd", "n_layer", "n_head", "d_model", "n_layers", "n_heads",
)  # fmt: skip


def check_config(config: Json, path: Path, name: str) -> None:
    """Refuse, with the key, a config that no decoder has or of which transformers would leave a part out."""
    _refuse_other_types(config, path)
    _refuse_remote_code(config, name)
    refuse_redirects(config, path)
    for place, section in _sections(config):
        _refuse_no_size(section, place, path)
        _refuse_other_quantisation(section, place, path)
        refuse_other_stops(section, path)


def refuse_other_stops(settings: Json, path: Path) -> None:
    """Refuse stop tokens that are no numbers of tokens: answers would end elsewhere, or fail once all is measured."""
    value = settings.get("eos_token_id")
    if value is not None and any(type(token) is not int for token in (value if isinstance(value, list) else [value])):
        raise _wrong(path, "eos_token_id", "the number of a token, or a list of them", value)


def refuse_other_counts(config: Json, shapes: list[list[int]], name: str) -> None:
    """Refuse a config with more layers or experts, or larger ones, than the weights can be of. transformers would
    build them first, and find out in hours what is missing."""
    shapes = [shape for shape in shapes if all(shape)]  # of no size there could be millions
    largest = max((size for shape in shapes for size in shape), default=0)
    for key, value in (item for _, section in _sections(config) for item in section.items()):
        if key == "attention_types":
            _refuse_repeated_layers(value, len(shapes), name)
        if not _is_count(value):
            continue
        if not (_LAYERS.search(key) or _SIZES.search(key)):
            _refuse_long_lists(key, value, name)
        elif value > (len(shapes) if _LAYERS.search(key) else max(largest, len(shapes))):
            raise ModelError(
                f"the config of {name} says {key}: {value}, and its weights are {len(shapes)} tensors with at most "
                f"{largest} rows or columns; the files belong to different models: download them again"
            )


def _sections(config: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """A config and all mappings in it, each with the path of its key."""
    yield place, config
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _sections(value, f"{place}{key}.")


def _refuse_long_lists(key: str, value: int, name: str) -> None:
    """transformers writes out a list for some numbers, labels for one, before it looks at anything else."""
    if not (_COUNTS.search(key) or _POSITIONS.search(key)):
        return
    most = MOST_LABELS if key == "num_labels" else MOST_COUNTED if _COUNTS.search(key) else MOST_POSITIONS
    if value > most:
        raise ModelError(
            f"the config of {name} says {key}: {value}, and {most} is the most; correct it, or download the file again"
        )


def _refuse_repeated_layers(value: object, tensors: int, name: str) -> None:
    """GPT-Neo writes its kinds of layers as [[kinds, times], ...], and transformers writes them out."""
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) > 1] if isinstance(value, list) else []
    times = [len(kinds) * count for kinds, count, *_ in pairs if isinstance(kinds, Sized) and _is_count(count)]
    if sum(max(0, one) for one in times) > tensors:
        raise ModelError(
            f"the config of {name} says attention_types: {value!r:.60}, more layers than its weights have tensors, "
            f"{tensors}; the files belong to different models: download them again"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse_other_types(config: Json, path: Path) -> None:
    """The keys that are looked at before transformers checks any."""
    names = config.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _wrong(path, "architectures", "a list of names", names)
    for key, kind, expected in (("model_type", str, "a name"), ("auto_map", dict, "a mapping")):
        if config.get(key) is not None and not isinstance(config[key], kind):
            raise _wrong(path, key, expected, config[key])


def _wrong(path: Path, key: str, expected: str, came: object) -> ModelError:
    return ModelError(f"{path}: {key} is {expected}, not {came!r:.60}; correct it, or download the file again")


def _refuse_no_size(section: Json, place: str, path: Path) -> None:
    for key in _POSITIVE:
        value = section.get(key)
        if isinstance(value, str | bool | float) or (isinstance(value, int) and value < 1):
            raise _wrong(path, f"{place}{key}", "a whole number, 1 or more", value)


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


def _refuse_other_quantisation(section: Json, place: str, path: Path) -> None:
    """transformers reads weights of a method that it does not know as if they were plain."""
    if section.get("compression_config") is not None:
        raise ModelError(
            f"{path}: {place}compression_config is not read by transformers; load the model with the package that "
            "compressed it, and save it without compression"
        )
    given = section.get("quantization_config")
    if given is None:
        return
    if not isinstance(given, dict):
        raise _wrong(path, f"{place}quantization_config", "a mapping", given)
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    method = given.get("quant_method")
    if method in KNOWN or method == "bitsandbytes" or (method is None and _is_of_bitsandbytes(given)):
        return
    raise ModelError(
        f"{path}: {place}quantization_config.quant_method is {method!r:.60}, which this version of transformers does "
        "not know; save the model without quantisation, or upgrade transformers if it now does"
    )


def _is_of_bitsandbytes(given: Json) -> bool:
    """Its oldest files do not name it."""
    return bool(given.get("load_in_8bit") or given.get("load_in_4bit"))
