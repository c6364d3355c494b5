"""The arguments of the library's functions, checked by name: the same name means the same in all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import NamedTuple, TypeGuard

from fillerscope.errors import ArgumentError

LONGEST = 60  # characters of a value in a message


class _Kind(NamedTuple):
    fits: Callable[[object], bool]
    words: str


def _is_flag(value: object) -> bool:
    return type(value).__name__ in ("bool", "bool_") or (isinstance(value, int) and value in (0, 1))


def _is_whole(value: object, least: int = 1) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _is_list(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(fits, value))


def _is_path(value: object) -> bool:
    """Whether the system takes it as a path: no NUL in it, and no half of a character."""
    try:
        return isinstance(value, str | os.PathLike) and b"\0" not in os.fsencode(value) and is_text(os.fspath(value))
    except (UnicodeError, TypeError):
        return False


def _is_not_utf8(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it is a path that the system takes, of bytes that are no text."""
    if not isinstance(value, str | os.PathLike) or is_text(os.fspath(value)):
        return False
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeError:
        return False


def is_text(value: object) -> bool:
    """Whether it is a text that can be written: JSON can hold halves of characters (lone surrogates)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_progress(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("stage", "say"))


_TEXT = _Kind(is_text, "a text")
_WORDS = _Kind(lambda value: is_text(value) and bool(str(value).strip()), "a text that is not empty")
_PATH = _Kind(_is_path, "a path that the system takes")
_COUNT = _Kind(_is_whole, "a whole number, 1 or more")
_SEED = _Kind(lambda value: _is_whole(value, 0), "a whole number, 0 or more")
_FLAG = _Kind(_is_flag, "True or False")
_PROGRESS = _Kind(_is_progress, "an object with the methods stage and say")
_NAMES = _Kind(lambda value: _is_list(value, is_text), "a list of names")
_NUMBERS = _Kind(lambda value: _is_list(value, _is_whole), "a list of whole numbers, 1 or more")
_BAND = _Kind(lambda value: isinstance(value, str) and value in ("interval", "sd"), "'interval' or 'sd'")
_FUNCTION = _Kind(callable, "a function")

_KINDS: Mapping[str, _Kind] = {
    "path": _PATH, "out": _PATH, "name": _WORDS, "device": _WORDS, "dtype": _WORDS, "queries": _TEXT,
    "question": _WORDS, "text": _TEXT, "system": _TEXT, "filler": _TEXT, "layer": _COUNT, "head": _COUNT,
    "max_tokens": _COUNT, "batch_tokens": _COUNT, "seed": _SEED, "raw": _FLAG, "check": _FLAG, "diagonal": _FLAG,
    "models": _NAMES, "conditions": _NAMES, "layers": _NUMBERS, "heads": _NUMBERS, "band": _BAND,
    "accept_licence": _FLAG, "force": _FLAG, "mixed": _FLAG, "calibrate": _FLAG, "jobs": _COUNT,
    "progress": _PROGRESS, "on_measured": _FUNCTION,
}  # fmt: skip


def check_arguments(given: Mapping[str, object], optional: tuple[str, ...] = ()) -> None:
    """Raise for the first argument that is not of its kind; those named as optional may be None. Names that are not
    known here are left to others."""
    for name, value in given.items():
        kind = _KINDS.get(name)
        if kind is None or (value is None and name in optional) or kind.fits(value):
            continue
        if kind is _PATH and _is_not_utf8(value):
            raise ArgumentError(f"{name} has a name that is not UTF-8: {os.fspath(value)!r:.{LONGEST}}; rename it")
        if isinstance(value, str) and not is_text(value):
            raise ArgumentError(
                f"{name} holds lone surrogates, which are halves of characters: {shown(value)}; mend it"
            )
        none = " or None" if name in optional else ""
        raise ArgumentError(f"{name} is {kind.words}{none}, not {shown(value)}")


def shown(value: object) -> str:
    """A value as a message shows it, with its type where the value alone does not tell that."""
    kind = type(value).__name__
    if value is None or isinstance(value, str | bool | int | float):
        return f"{value!r:.{LONGEST}}"
    return f"an object of type {kind}" if kind != "object" else "a bare object"


def refuse_unknown(function: str, given: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raise for a keyword argument that a function does not take, as Python would."""
    if unknown := sorted(given.keys() - known.keys()):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")
