"""The code that a model's code finds by name, in mappings of transformers that anybody may write to: functions of
attention, masks, experts and rotary positions, classes of activations and of cache layers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import FunctionType

from transformers import PreTrainedModel
from transformers.utils.generic import GeneralInterface

from fillerscope.models.library_code import UnknownCodeError, class_name, configs, refuse_own
from fillerscope.models.redirects import strings_in

LIBRARY = "transformers."
HELPERS = "transformers.utils."  # nothing there computes
IN_TRAINING = "LOSS_MAPPING"


def refuse_own_entries(model: PreTrainedModel) -> None:
    """Raise where a model may find code that is not of a library."""
    named_entries(model)


def named_entries(model: PreTrainedModel) -> list[object]:
    """The mapping, key and code of what a model finds by the names in its configs. An error where it may find code
    that is not of a library: of interfaces, which are there for others to write to, by these names alone."""
    names = {*strings_in(model.config.to_dict()), *strings_in(experts_of(model))}
    chosen = names.union(getattr(config, "_attn_implementation", None) for config in configs(model.config))
    named: list[object] = []
    for mapping, entries in _mappings(model):
        for key, code in _items(entries):
            if not isinstance(code, str) and (key in chosen or isinstance(entries, dict)):
                name = _name_of(code)
                named += [[mapping, key, name]] if key in names else []
    return named


def experts_of(model: PreTrainedModel) -> list[object]:
    """How experts are computed, for each config of a model: no JSON of a config says it."""
    return [getattr(config, "_experts_implementation", None) for config in configs(model.config)]


def _items(entries: dict[str, object] | GeneralInterface) -> list[tuple[str, object]]:
    """What a mapping holds. Some make an object of it, or load a module, where they are asked for it."""
    return list(dict.items(entries) if isinstance(entries, dict) else entries.items())


def _mappings(model: PreTrainedModel) -> Iterator[tuple[str, dict[str, object] | GeneralInterface]]:
    """The mappings in the modules of a model's classes, and in those from which these have functions and classes."""
    own = _of_library(type(module).__module__ for module in model.modules())
    used = _of_library(getattr(value, "__module__", "") for name in own for value in vars(sys.modules[name]).values())
    seen = set[int]()
    for place in sorted(own | used):
        for name, value in sorted(vars(sys.modules[place]).items()):
            if isinstance(value, dict | GeneralInterface) and name.isupper() and id(value) not in seen:
                seen.add(id(value))
                if name != IN_TRAINING:
                    yield name, value


def _of_library(modules: Iterable[object]) -> set[str]:
    names = {name for name in modules if isinstance(name, str) and name.startswith(LIBRARY)}
    return {name for name in names if name in sys.modules and not name.startswith(HELPERS)}


def _name_of(value: object) -> object:
    """The name of code of a library; other values as they are written."""
    if isinstance(value, type):
        return class_name(value)
    if isinstance(value, tuple | list):
        return [_name_of(one) for one in value]
    if isinstance(value, partial):
        return [_name_of(one) for one in (value.func, value.args, *sorted(value.keywords.items()))]
    if isinstance(value, FunctionType):
        refuse_own([value])
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        raise UnknownCodeError
    return repr(value)
