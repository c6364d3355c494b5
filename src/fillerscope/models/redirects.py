"""Keys of config.json and tokenizer_config.json that send transformers elsewhere: to other files, or to the hub.

What is read there is not hashed and not checked. Looks at the files alone and needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import Json, parse_json, read_limited
from fillerscope.models.digests import counted_files
from fillerscope.models.hub_code import EXPERTS

LARGEST_CONFIG = 1 << 24  # bytes: published ones have some thousand, tokenizers' with all their tokens a million
DEEPEST = 64  # levels of a config
_CONFIG_KEYS = ("transformers_weights", "configuration_files")
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")  # the second overrides the first
_TOKENIZER_KEYS = ("fast_tokenizer_files", "gguf_file", "subfolder", "init_inputs")
_IMPLEMENTATION = re.compile(r"implementation|kernel")
# Names of files that were there when a tokenizer was saved are in many published configs: only one that is there now is
# refused, and none is given to transformers, which would open it if it is there by then. It opens numbers, too, and
# mappings, of which it makes tokens.
_NAMES_A_FILE = re.compile(r"(_files?|_path|_spm|^spm|^vocab|^merges)$")
_TOKENS = ("vocab", "merges")  # which may be tokens in place of the name of a file
_SHOWN = 60  # characters of a value


def read_settings(path: Path) -> Json:
    """The JSON object in a config; a ModelError where there is none."""
    try:
        settings = parse_json(read_limited(path, LARGEST_CONFIG))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}; download it again") from error
    if not isinstance(settings, dict):
        raise ModelError(f"{path} holds no JSON object; download it again")
    if _is_deep(settings):
        raise ModelError(f"{path} cannot be read: it is nested too deeply; download it again")
    return settings


def _is_deep(value: object) -> bool:
    """Whether lists and mappings are in each other so deeply that other readers would fail."""
    level = [value]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [value for values in inner for value in values]
    return bool(level)


def refuse_redirects(config: Json, path: Path) -> None:
    """Refuse a config.json that names other weights, other configs, or kernels to be fetched."""
    for key, value in _entries(config):
        _refuse_keys({key: value}, _CONFIG_KEYS, path)
        names = list(strings_in(value)) if _IMPLEMENTATION.search(key) else []
        known = EXPERTS if "experts" in key else names
        if code := next((name for name in names if "/" in name or name not in known), None):
            raise ModelError(
                f"{path}: {key} asks for {code!r:.{_SHOWN}}, code that comes from the hub, and fillerscope runs no "
                "such code; remove the key"
            )
        if (flash := next((name for name in names if "flash" in name), None)) and find_spec("flash_attn") is None:
            raise ModelError(
                f"{path}: {key} asks for {flash!r:.{_SHOWN}}, and the package flash_attn is not installed; remove the "
                "key, or install it"
            )


def check_tokenizer_config(folder: Path) -> None:
    """Refuse settings of a tokenizer that name files which are there and are not those that are hashed."""
    hashed = {file.resolve() for file in counted_files(folder).values()}
    for path in filter(Path.exists, (folder / name for name in TOKENIZER_SETTINGS)):
        _check_tokenizer_settings(path, hashed)


def _check_tokenizer_settings(path: Path, hashed: Collection[Path]) -> None:
    settings = read_settings(path)
    _refuse_keys(settings, _TOKENIZER_KEYS, path)
    for key, value in settings.items():
        for name in strings_in(value) if _names_a_file(key, value) else ():
            if _is_other_file(name, path.parent, hashed):
                raise ModelError(f"{path}: {key} names {name!r:.{_SHOWN}}, {_UNHASHED}")
        for inner, named in () if _is_tokens(key, value) else _entries(value):
            if named is not None and _names_a_file(inner, named):
                raise ModelError(f"{path}: {inner} in {key} names {named!r:.{_SHOWN}}, {_UNHASHED}")


def without_file_names(settings: Json) -> Json:
    """The settings of a tokenizer without names of files. Those that count are found by their usual names."""
    return {key: value for key, value in settings.items() if not _names_a_file(key, value)}


def _names_a_file(key: str, value: object) -> bool:
    """Whether a setting of a tokenizer says by its key that a file is to be opened. Its value may be of any type."""
    return _NAMES_A_FILE.search(key) is not None and not _is_tokens(key, value)


def _is_tokens(key: str, value: object) -> bool:
    """Whether a setting holds tokens, in a list or with a number for each, where others have the name of a file."""
    numbers = value.values() if isinstance(value, dict) else ()
    return key in _TOKENS and isinstance(value, list | dict) and all(isinstance(one, int | float) for one in numbers)


_UNHASHED = "and only the usual files of the folder are read, since only those are hashed; remove the key"


def _refuse_keys(settings: Json, keys: Collection[str], path: Path) -> None:
    if key := next((key for key in keys if settings.get(key)), None):
        raise ModelError(f"{path}: {key} names {settings[key]!r:.{_SHOWN}}, {_UNHASHED}")


def _is_other_file(name: str, folder: Path, hashed: Collection[Path]) -> bool:
    """Whether a name is that of a file, seen from the folder or from where we are, that is not hashed. A name of which
    that cannot be told, such as a very long one, counts as such."""
    try:
        return any(path.exists() and path.resolve() not in hashed for path in (folder / name, Path(name)) if name)
    except OSError:
        return True
    except ValueError:  # with a byte that no name has
        return False


def _entries(value: object) -> Iterator[tuple[str, object]]:
    """The keys of a mapping and of all mappings in it, or in a list, with their values."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key, inner
        yield from _entries(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _entries(inner)


def strings_in(value: object) -> Iterator[str]:
    """A string, or all those in a list or a mapping."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_in(inner)
