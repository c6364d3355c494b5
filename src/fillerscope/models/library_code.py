"""Tells whether the code of a model is that of torch and transformers. Functions of these libraries that somebody
replaced in their modules are not noticed; methods, hooks and what is found by name are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial, partialmethod
from types import BuiltinFunctionType, CellType, FunctionType, MethodType

import torch
from transformers import PretrainedConfig

# The last one decorates classes of transformers where it is installed.
LIBRARIES = ("torch", "transformers", "tokenizers", "bitsandbytes", "torchao", "kernels")
STANDARD = ("builtins", "abc", "typing", "dataclasses", "enum", "functools", "contextlib", "collections", "types")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")  # of torch.nn.modules.module


class UnknownCodeError(Exception):
    """There is code, or something else, of which nobody knows what it computes."""


def refuse_global_hooks() -> None:
    """Raise where all modules have a hook that is not of a library."""
    for name in GLOBAL_HOOKS:
        refuse_own(getattr(torch.nn.modules.module, name).values())


def configs(config: PretrainedConfig) -> Iterable[PretrainedConfig]:
    """A config and those in it, as of the text of a model that sees pictures."""
    yield config
    for value in vars(config).values():
        if isinstance(value, PretrainedConfig):
            yield from configs(value)


def class_name(kind: type) -> str:
    """The name of a class, all of whose code is that of a library: somebody may have replaced a method of it."""
    for one in kind.__mro__:
        if not _is_library(one.__module__):
            raise UnknownCodeError
        refuse_own(vars(one).values())
    return f"{kind.__module__}.{kind.__qualname__}"


def refuse_own(values: Iterable[object]) -> None:
    """Raise where there is code that is not of a library."""
    for value in values:
        if not all(map(_is_of_library, _code_in(value, set()))):
            raise UnknownCodeError


def _code_in(value: object, seen: set[int]) -> Iterable[FunctionType]:
    """The functions that a value calls: itself, and those that it wraps, whatever they are called. Objects that stand
    for methods and are of no library are errors."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield value
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        inner = [value.__dict__.get("__wrapped__"), *(one for one in cells if _is_code(one))]
    elif isinstance(value, staticmethod | classmethod | MethodType):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset]
    elif isinstance(value, partial | partialmethod | cached_property):
        inner = [value.func]
    elif isinstance(value, type):
        inner = []
        if not _is_library(value.__module__):
            raise UnknownCodeError
    elif _is_code(value) and not _is_library(type(value).__module__):
        raise UnknownCodeError
    else:
        inner = [getattr(value, "__wrapped__", None)] if _is_code(value) and not isinstance(value, type) else []
    for one in inner:
        yield from _code_in(one, seen)


def _is_of_library(code: FunctionType) -> bool:
    """By the module of its names, and by its file: code can be put into a function of another module."""
    file = code.__code__.co_filename
    own = file.startswith("<") or file == code.__globals__.get("__file__")
    return own and _is_library(code.__globals__.get("__name__"))


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_code(value: object) -> bool:
    return not isinstance(value, type) and (callable(value) or hasattr(type(value), "__get__"))


def _is_library(module: object) -> bool:
    return str(module).partition(".")[0] in (*LIBRARIES, *STANDARD)


def function_name(value: FunctionType | BuiltinFunctionType) -> str:
    """The name of a function of a library. One made inside another has values of its own."""
    if "<locals>" in value.__qualname__ or "<lambda>" in value.__qualname__ or not _is_library(value.__module__):
        raise UnknownCodeError
    refuse_own([value])
    return f"{value.__module__}.{value.__qualname__}"
